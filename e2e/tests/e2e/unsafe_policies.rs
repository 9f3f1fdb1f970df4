//! Policies of Karmada that nothing refused, because an administrator wrote them or they are older:
//! events and a metric report the policies that break a rule.

use e2e::harness::kinds::{
    CLUSTER_OVERRIDE_POLICY, CLUSTER_PROPAGATION_POLICY, EVENT, ObjectKind, PROPAGATION_POLICY,
};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::story::managed;

/// Selectors of this story's jobs, which do not exist.
fn selectors(case: &Case) -> Value {
    json!([{"apiVersion": "batch/v1", "kind": "Job", "namespace": case.name, "name": "none"}])
}

async fn reported(case: &Case) -> anyhow::Result<()> {
    let karmada = case.karmada();
    let own = json!({
        "metadata": {"name": "own", "namespace": case.name},
        "spec": {
            "schedulerName": "muster", "resourceSelectors": selectors(case), "placement": {},
            "preserveResourcesOnDeletion": true,
        },
    });
    karmada.create(PROPAGATION_POLICY, &own).await?;
    let everywhere = json!({
        "metadata": {"name": case.name},
        "spec": {"schedulerName": "default-scheduler", "resourceSelectors": selectors(case), "placement": {}},
    });
    case.cluster_object(CLUSTER_PROPAGATION_POLICY, &everywhere)
        .await?;
    let more =
        json!({"plaintext": [{"path": "/spec/parallelism", "operator": "replace", "value": 8}]});
    let overrides = json!({
        "metadata": {"name": case.name},
        "spec": {"resourceSelectors": selectors(case), "overrideRules": [{"overriders": more}]},
    });
    case.cluster_object(CLUSTER_OVERRIDE_POLICY, &overrides)
        .await?;
    // This policy selects nothing in a managed namespace.
    let elsewhere = json!({
        "metadata": {"name": format!("{}-elsewhere", case.name)},
        "spec": {
            "schedulerName": "default-scheduler", "placement": {},
            "resourceSelectors": [{"apiVersion": "batch/v1", "kind": "Job", "namespace": "default", "name": "none"}],
        },
    });
    case.cluster_object(CLUSTER_PROPAGATION_POLICY, &elsewhere)
        .await?;

    for (kind, name, rule) in [
        (
            PROPAGATION_POLICY,
            "own",
            "spec.preserveResourcesOnDeletion",
        ),
        (
            CLUSTER_PROPAGATION_POLICY,
            case.name.as_str(),
            "spec.schedulerName",
        ),
        (
            CLUSTER_OVERRIDE_POLICY,
            case.name.as_str(),
            "spec.overrideRules",
        ),
    ] {
        let what = format!("{} {name} breaks {rule}", kind.name);
        eventually(SOON, &what, async || {
            let says = events(case, kind, name).await?;
            match says.iter().any(|note| note.contains(rule)) && counted(case, kind, rule).await? {
                true => Ok(()),
                false => Err(format!("{says:?}")),
            }
        })
        .await?;
    }
    let elsewhere = format!("{}-elsewhere", case.name);
    never_within(
        A_WHILE,
        "an event on a policy for another namespace",
        async || {
            let says = events(case, CLUSTER_PROPAGATION_POLICY, &elsewhere).await?;
            match says.is_empty() {
                true => Ok(()),
                false => Err(format!("{says:?}")),
            }
        },
    )
    .await
}

/// Returns the events about a policy.
async fn events(case: &Case, kind: ObjectKind, name: &str) -> Result<Vec<String>, String> {
    let namespace = match kind {
        PROPAGATION_POLICY => case.name.as_str(),
        _ => "default",
    };
    let events = case.karmada().list(EVENT, Some(namespace)).await;
    let events = events.map_err(|error| error.to_string())?;
    let of = |event: &&Value| {
        event["reason"] == "UnsafePolicy"
            && event["involvedObject"]["kind"] == kind.name
            && event["involvedObject"]["name"] == name
    };
    let notes = events.iter().filter(of).map(|event| &event["message"]);
    Ok(notes.map(ToString::to_string).collect())
}

/// Returns true if the metric counts a policy of that kind and rule; other stories may add more.
async fn counted(case: &Case, kind: ObjectKind, rule: &str) -> Result<bool, String> {
    let metrics = case
        .plane
        .muster
        .metrics(&case.plane.testbed, ProcessRole::All);
    let metrics = metrics.await.map_err(|error| error.to_string())?;
    let line = metrics.lines().find(|line| {
        let label = |name: &str, value: &str| line.contains(&format!("{name}=\"{value}\""));
        line.starts_with("muster_unsafe_policies{")
            && label("kind", kind.name)
            && label("rule", rule)
    });
    Ok(line.is_some_and(|line| !line.ends_with(" 0")))
}

#[test]
fn policies_that_nothing_refused_are_reported() {
    managed("unsafe", reported);
}
