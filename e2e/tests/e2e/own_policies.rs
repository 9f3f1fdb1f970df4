//! What a user's own propagation policy asks for is done, or an event tells its user that it is not: weights of
//! clusters, spread over clusters, all of a job in each cluster. ConfigMaps, Secrets and Services reach every cluster.

use std::time::{Duration, Instant};

use e2e::harness::kinds::{
    CONFIG_MAP, DEPLOYMENT, EVENT, ObjectKind, PROPAGATION_POLICY, SECRET, SERVICE, VOLCANO_JOB,
};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::job::condition;
use crate::lifecycle::event;
use crate::plane::MEMBERS;
use crate::story::managed;

/// Karmada's own tests wait so long until an object is in every cluster.
const IN_EVERY_CLUSTER: Duration = Duration::from_secs(60);

#[test]
fn a_policy_of_a_user_is_followed_or_its_user_learns_why_not() {
    managed("ownpolicy", async |case| {
        case.queue(64).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member2", 4).await?;
        let weight = |name: &str, weight: u32| json!({"targetCluster": {"clusterNames": [name]}, "weight": weight});
        let weights = json!({"placement": {"replicaScheduling": {
            "replicaSchedulingType": "Divided",
            "replicaDivisionPreference": "Weighted",
            "weightPreference": {"staticWeightList": [weight("member1", 1), weight("member2", 2)]},
        }}});
        case.policy("weights", DEPLOYMENT, "muster", weights)
            .await?;
        let job = case.submit(&case.gang("serve", 3, 8).deployment()).await?;
        let binding = case
            .binding_when(&job, "placed by its weights", |binding| {
                let clusters = binding["spec"]["clusters"].as_array();
                clusters.is_some_and(|clusters| clusters.len() == 2)
            })
            .await?;
        let replicas =
            json!([{"name": "member1", "replicas": 1}, {"name": "member2", "replicas": 2}]);
        assert_eq!(binding["spec"]["clusters"], replicas);
        let note = event(case, &job, "ScheduleBindingSucceed").await?;
        assert!(note.contains("{member1:1, member2:2}"), "{note}");
        announced(case, &binding).await?;

        let both = json!({"placement": {
            "replicaScheduling": {"replicaSchedulingType": "Duplicated"},
            "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 2}],
        }});
        case.policy("both", VOLCANO_JOB, "muster", both).await?;
        let gang = case.submit(&case.gang("train", 1, 8).volcano()).await?;
        let field = "spec.placement.replicaScheduling.replicaSchedulingType";
        let note = event(case, &gang, "PolicyNotFollowed").await?;
        assert!(note.contains(field), "{note}");
        let told = |group: &Value| {
            let followed = condition(group, "PolicyFollowed");
            let message = followed["message"].as_str().unwrap_or_default();
            followed["status"] == "False" && message.contains(field)
        };
        case.pod_group_when(&gang, "says what is not followed", told)
            .await?;
        assert_eq!(case.placed(&gang).await?.len(), 1);
        case.running(&job).await?;
        Ok(())
    });
}

/// Waits until the binding itself has the event of Karmada's scheduler, and the condition.
async fn announced(case: &Case, binding: &Value) -> anyhow::Result<()> {
    let name = &binding["metadata"]["name"];
    eventually(SOON, "the event on the binding", async || {
        let events = case.karmada().list(EVENT, Some(&case.name)).await;
        let events = events.map_err(|error| error.to_string())?;
        let found = events.iter().any(|event| {
            event["involvedObject"]["kind"] == "ResourceBinding"
                && event["involvedObject"]["name"] == *name
                && event["reason"] == "ScheduleBindingSucceed"
        });
        found.then_some(()).ok_or_else(|| "no event".to_owned())
    })
    .await
}

#[test]
fn objects_without_pods_are_soon_in_every_cluster_that_a_policy_selects() {
    managed("objects", async |case| {
        let metadata = |name: &str| json!({"name": name, "namespace": case.name});
        let objects = [
            (
                CONFIG_MAP,
                json!({"metadata": metadata("settings"), "data": {"a": "b"}}),
            ),
            (
                SECRET,
                json!({"metadata": metadata("token"), "stringData": {"a": "b"}}),
            ),
            (
                SERVICE,
                json!({"metadata": metadata("redis"), "spec": {"ports": [{"port": 6379}], "selector": {"app": "redis"}}}),
            ),
        ];
        // The scheduler that a policy names makes no difference: a ConfigMap is not queued.
        for (index, (kind, object)) in objects.iter().enumerate() {
            let scheduler = ["muster", "default-scheduler", "muster"][index];
            selects(case, scheduler, *kind, object).await?;
            case.karmada().create(*kind, object).await?;
        }
        let begun = Instant::now();
        for (kind, object) in &objects {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            for member in MEMBERS {
                arrives(case, member, *kind, name).await?;
            }
        }
        println!(
            "OBJECTS in {} clusters after {:?}",
            MEMBERS.len(),
            begun.elapsed()
        );
        Ok(())
    });
}

async fn selects(
    case: &Case,
    scheduler: &str,
    kind: ObjectKind,
    object: &Value,
) -> anyhow::Result<()> {
    let name = &object["metadata"]["name"];
    let policy = json!({
        "metadata": {"name": name, "namespace": case.name},
        "spec": {
            "schedulerName": scheduler,
            "resourceSelectors": [{"apiVersion": kind.api_version(), "kind": kind.name, "name": name}],
            "placement": {"clusterAffinity": {"clusterNames": MEMBERS}},
        },
    });
    case.karmada().create(PROPAGATION_POLICY, &policy).await?;
    Ok(())
}

async fn arrives(case: &Case, member: &str, kind: ObjectKind, name: &str) -> anyhow::Result<()> {
    let objects = case.plane.member(member).await?;
    let what = format!("{} {name} in {member}", kind.name);
    eventually(IN_EVERY_CLUSTER, &what, async || {
        match objects.get(kind, Some(&case.name), name).await {
            Ok(Some(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}
