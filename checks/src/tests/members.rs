use super::*;

const REVIEWS: [&str; 2] = ["selfsubjectaccessreviews", "subjectaccessreviews"];

fn member(endpoint: &str, access: &str) -> Value {
    let secret = json!({"namespace": "karmada-cluster", "name": "m1"});
    json!({
        "metadata": {"name": "m1", "annotations": {"muster.io/access": access}},
        "spec": {
            "syncMode": "Push", "apiEndpoint": endpoint, "secretRef": secret, "impersonatorSecretRef": secret,
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Lets Muster do everything in a member besides reading `but`.
fn allows_all(member: &FakeApi, but: &'static str) {
    for review in REVIEWS {
        let path = format!("/apis/authorization.k8s.io/v1/{review}");
        member.answers(&path, move |asked| {
            let resource = &asked["spec"]["resourceAttributes"]["resource"];
            json!({"spec": asked["spec"], "status": {"allowed": resource != but}})
        });
    }
}

/// Has a member join that is reached by proxy, and returns it.
pub(super) fn joined(api: &FakeApi) -> FakeApi {
    api.put(
        &format!("{CLUSTERS}/m1"),
        super::members::member("https://m1", "Proxy"),
    );
    let member = FakeApi::new();
    allows_all(&member, "");
    api.pass_on(
        "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy",
        &member,
    );
    member
}

#[tokio::test]
async fn a_plane_without_members_is_named() {
    let (api, _) = plane();
    api.remove(&format!("{CLUSTERS}/m1"));
    is_named(&api, Severity::Blocks, "members", "no cluster has joined").await;
}

#[tokio::test]
async fn a_member_that_is_not_reached_is_named() {
    let (api, _) = plane();
    api.put(&format!("{CLUSTERS}/m1"), member("", "Direct"));
    is_named(
        &api,
        Severity::Blocks,
        "member-reached",
        "apiEndpoint is empty",
    )
    .await;
    api.put(
        &format!("{CLUSTERS}/m1"),
        member("https://127.0.0.1:1", "Direct"),
    );
    is_named(
        &api,
        Severity::Blocks,
        "member-reached",
        "secret karmada-cluster/m1",
    )
    .await;
    let mut away = member("https://m1", "Proxy");
    away["status"]["conditions"][0] =
        json!({"type": "Ready", "status": "False", "message": "no answer"});
    api.put(&format!("{CLUSTERS}/m1"), away);
    is_named(
        &api,
        Severity::Blocks,
        "member-ready",
        "not Ready for Karmada: no answer",
    )
    .await;
}

#[tokio::test]
async fn a_right_that_is_missing_in_a_member_is_named() {
    let (api, member) = plane();
    allows_all(&member, "priorityclasses");
    is_named(
        &api,
        Severity::Blocks,
        "member-rights",
        "may not create priorityclasses in cluster m1",
    )
    .await;
    let report = found(&api, CheckedBy::User).await;
    assert_eq!(report.findings.len(), 1, "{report:#?}");
    let asked = member.requests_of("POST").pop().unwrap().body["spec"].clone();
    assert_eq!(asked["user"], "system:serviceaccount:muster-system:muster");
}

#[tokio::test]
async fn a_user_is_shown_the_members_as_muster_sees_them() {
    let (api, _) = plane();
    api.put(
        &format!("{CLUSTERS}/m1"),
        member("https://127.0.0.1:1", "Direct"),
    );
    let pool = json!({
        "metadata": {"name": "m1.h100"},
        "spec": {"cluster": "m1", "class": "h100", "device": "nvidia.com/gpu"},
        "status": {"health": "Unreachable"},
    });
    api.put("/apis/muster.io/v1alpha2/gpupools/m1.h100", pool);
    let report = found(&api, CheckedBy::User).await;
    let [finding] = report.findings.as_slice() else {
        panic!("{report:#?}");
    };
    assert_eq!(
        (finding.check, finding.found.as_str()),
        ("member-reached", "Muster sees cluster m1 as Unreachable")
    );
    let unchecked: Vec<&str> = report.unchecked.iter().map(|it| it.check).collect();
    assert_eq!(unchecked, ["token", "karmada-flags", "member-rights"]);
}
