//! What members apply to pods before they store them.

use super::*;

const QUOTA: &str = "/api/v1/namespaces/a/resourcequotas/team";

fn quota(used: &str) -> Value {
    json!({
        "metadata": {"name": "team", "namespace": "a"},
        "spec": {"hard": {"pods": "4"}}, "status": {"used": {"pods": used}},
    })
}

#[tokio::test(start_paused = true)]
async fn rules_come_before_the_member_is_usable_and_follow_changes() {
    let mut fleet = fleet(&[]);
    let limits = json!({"limits": [{"type": "Container", "default": {"cpu": "1"}}]});
    let limits = json!({"metadata": {"name": "defaults", "namespace": "a"}, "spec": limits});
    fleet
        .member
        .put("/api/v1/namespaces/a/limitranges/defaults", limits);
    fleet.member.put(QUOTA, quota("1"));
    expect(&mut fleet, &["ready"]).await;
    let joined = format!("{CLUSTERS}/m1");
    fleet.karmada.put(&joined, cluster("m1", "Push"));
    let told = until(&mut fleet, "m1 usable").await;
    let both = "a 1 limits, 1 quotas".to_owned();
    assert!(told.contains(&both), "{told:?}");
    assert!(told.contains(&"classes Some({})".to_owned()), "{told:?}");
    fleet.member.put(QUOTA, quota("2"));
    until(&mut fleet, &both).await;
    fleet.member.remove(QUOTA);
    until(&mut fleet, "a 1 limits, 0 quotas").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_the_right_to_read_them_is_usable() {
    let mut fleet = fleet(&[]);
    fleet.member.put(QUOTA, quota("1"));
    fleet
        .member
        .fault(3, Fault::Status(403, "forbidden"), |request| {
            request.path == "/api/v1/resourcequotas"
        });
    expect(&mut fleet, &["ready"]).await;
    let joined = format!("{CLUSTERS}/m1");
    fleet.karmada.put(&joined, cluster("m1", "Push"));
    let told = until(&mut fleet, "m1 usable").await;
    assert!(
        !told.iter().any(|event| event.contains("quotas")),
        "{told:?}"
    );
    // The right is granted.
    until(&mut fleet, "a 0 limits, 1 quotas").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_runtime_classes_may_not_be_listed_is_not_known_to_have_none() {
    let mut fleet = fleet(&[]);
    fleet
        .member
        .fault(3, Fault::Status(403, "forbidden"), |request| {
            request.path == "/apis/node.k8s.io/v1/runtimeclasses"
        });
    expect(&mut fleet, &["ready"]).await;
    let joined = format!("{CLUSTERS}/m1");
    fleet.karmada.put(&joined, cluster("m1", "Push"));
    let told = until(&mut fleet, "m1 usable").await;
    assert!(
        !told.iter().any(|event| event.starts_with("classes")),
        "{told:?}"
    );
    // The right is granted.
    until(&mut fleet, "classes Some({})").await;
}
