//! Members with devices of Dynamic Resource Allocation, without them, and without the right to read them.

use super::*;

const DRA: &str = "/apis/resource.k8s.io/v1";

/// A slice with two devices of the node `n1`, and a class of all devices.
fn offer(member: &FakeApi) {
    member.put(
        &format!("{DRA}/deviceclasses/gpu.x"),
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {}, "spec": {}}),
    );
    member.put(
        &format!("{DRA}/resourceslices/s"),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {},
            "spec": {
                "driver": "gpu.x", "nodeName": "n1", "devices": [{"name": "a"}, {"name": "b"}],
                "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            },
        }),
    );
}

/// Has the member join, and returns what the member reports until it is usable.
async fn join(fleet: &mut Fleet) -> Vec<String> {
    expect(fleet, &["ready"]).await;
    fleet
        .karmada
        .put(&format!("{CLUSTERS}/m1"), cluster("m1", "Push"));
    until(fleet, "m1 usable").await
}

const WITH_DEVICES: &str = "node n1 cpu 8, deviceclass.resource.kubernetes.io/gpu.x 2";

#[tokio::test(start_paused = true)]
async fn devices_come_with_their_node_before_the_member_is_usable() {
    let mut fleet = fleet(&[]);
    offer(&fleet.member);
    let told = join(&mut fleet).await;
    assert!(told.contains(&WITH_DEVICES.to_owned()), "{told:?}");
    fleet.member.remove(&format!("{DRA}/deviceclasses/gpu.x"));
    until(&mut fleet, "node n1 cpu 8").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_that_serves_no_devices_is_as_usable_as_any() {
    let mut fleet = fleet(&[]);
    fleet
        .member
        .fault(usize::MAX, Fault::Status(404, "not served"), |request| {
            request.path.starts_with(DRA)
        });
    expect(&mut fleet, &["ready"]).await;
    fleet.karmada.pass_on(&proxy_path("m2"), &fleet.member);
    for (name, object) in [("m1", cluster("m1", "Push")), ("m2", proxied("m2"))] {
        fleet.karmada.put(&format!("{CLUSTERS}/{name}"), object);
        until(&mut fleet, &format!("{name} usable")).await;
    }
    // A kind that is not served has no age, however long.
    tokio::time::sleep(Duration::from_secs(600)).await;
    fleet.member.put(NODE, node("4"));
    until(&mut fleet, "node n1 cpu 4").await;
    for name in ["m1", "m2"] {
        let health = fleet.members.health(&ClusterName::new(name));
        assert_eq!(health, Some(ViewHealth::Ready), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_with_unreadable_devices_names_the_missing_rights() {
    let mut fleet = fleet(&[]);
    expect(&mut fleet, &["ready"]).await;
    fleet.karmada.pass_on(&proxy_path("m2"), &fleet.member);
    let ways = [
        (
            "m1",
            cluster("m1", "Push"),
            "m1: its devices are not listed yet; get, list and watch on resourceslices",
        ),
        (
            "m2",
            proxied("m2"),
            "m2: it cannot be reached: its resourceslices cannot be listed through Karmada's cluster proxy: resourceslices is forbidden; `muster install`",
        ),
    ];
    for (name, object, why) in ways {
        fleet.member.fault(
            3,
            Fault::Status(403, "resourceslices is forbidden"),
            |request| request.path == format!("{DRA}/resourceslices"),
        );
        fleet.karmada.put(&format!("{CLUSTERS}/{name}"), object);
        until_starts(&mut fleet, why).await;
        until(&mut fleet, &format!("{name} usable")).await;
    }
}

/// A rule for all devices, served as `version`.
fn taint_all(member: &FakeApi, version: &str, effect: &str) {
    let group = format!("resource.k8s.io/{version}");
    member.document(
        &format!("/apis/{group}"),
        json!({"groupVersion": group, "resources": [{
            "name": "devicetaintrules", "kind": "DeviceTaintRule", "namespaced": false, "singularName": "",
            "verbs": ["list", "watch"],
        }]}),
    );
    member.put(
        &format!("/apis/{group}/devicetaintrules/r"),
        json!({
            "apiVersion": group, "kind": "DeviceTaintRule", "metadata": {"name": "r"},
            "spec": {"deviceSelector": {}, "taint": {"key": "x/service", "effect": effect}},
        }),
    );
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_an_administrator_taints_devices_before_the_member_is_usable() {
    let mut fleet = fleet(&[]);
    offer(&fleet.member);
    taint_all(&fleet.member, "v1beta2", "NoSchedule");
    let told = join(&mut fleet).await;
    assert!(!told.contains(&WITH_DEVICES.to_owned()), "{told:?}");
    taint_all(&fleet.member, "v1beta2", "None");
    until(&mut fleet, WITH_DEVICES).await;
}

#[tokio::test(start_paused = true)]
async fn a_member_is_connected_again_when_it_serves_rules_in_another_version() {
    let mut fleet = fleet(&[]);
    offer(&fleet.member);
    let told = join(&mut fleet).await;
    assert!(told.contains(&WITH_DEVICES.to_owned()), "{told:?}");
    taint_all(&fleet.member, "v1alpha3", "NoSchedule");
    until_starts(&mut fleet, "n1 NodeHealth").await;
}

#[tokio::test(start_paused = true)]
async fn a_member_without_the_right_to_read_rules_is_usable() {
    let mut fleet = fleet(&[]);
    offer(&fleet.member);
    taint_all(&fleet.member, "v1alpha3", "NoSchedule");
    let rules = "/apis/resource.k8s.io/v1alpha3/devicetaintrules";
    fleet
        .member
        .fault(3, Fault::Status(403, "forbidden"), move |request| {
            request.path == rules
        });
    let told = join(&mut fleet).await;
    assert!(told.contains(&WITH_DEVICES.to_owned()), "{told:?}");
    // The right is granted.
    until_starts(&mut fleet, "n1 NodeHealth").await;
}
