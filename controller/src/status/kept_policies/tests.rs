use super::*;

#[test]
fn the_policy_of_a_namespace_claims_known_kinds_with_lowest_priority() {
    let policy = propagation("team");
    assert_eq!(policy["metadata"]["name"], "muster");
    assert_eq!(policy["metadata"]["namespace"], "team");
    let spec = &policy["spec"];
    // A user's own policy, of priority 0 by default, goes before it.
    assert_eq!(spec["priority"], -1000);
    assert_eq!(spec["schedulerName"], "muster");
    assert_eq!(spec["propagateDeps"], true);
    let selectors: Vec<String> = spec["resourceSelectors"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|s| format!("{}/{}", s["apiVersion"], s["kind"]).replace('"', ""))
        .collect();
    for kind in [
        "batch/v1/Job",
        "batch.volcano.sh/v1alpha1/Job",
        "v1/Pod",
        "apps/v1/Deployment",
    ] {
        assert!(
            selectors.iter().any(|s| s == kind),
            "{kind} in {selectors:?}"
        );
    }
    assert_eq!(selectors.len(), workload::known_kinds().count());
    assert!(
        spec["resourceSelectors"][0]["name"].is_null(),
        "all of a kind"
    );
}
