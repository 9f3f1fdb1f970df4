//! Kinds that Muster does not know: it queues them by the result of Karmada's interpreter when it
//! may read them. Before that, they do not delay other jobs.

use e2e::harness::kinds::ObjectKind;
use serde_json::json;

use crate::case::Case;
use crate::job::Job;
use crate::story::managed_and_killed;

const THING: ObjectKind = ObjectKind {
    group: "example.com",
    version: "v1",
    name: "Thing",
    plural: "things",
};
const CUSTOMIZATION: ObjectKind = ObjectKind {
    group: "config.karmada.io",
    version: "v1alpha1",
    name: "ResourceInterpreterCustomization",
    plural: "resourceinterpretercustomizations",
};
const CLUSTER_ROLE: ObjectKind = ObjectKind {
    group: "rbac.authorization.k8s.io",
    version: "v1",
    name: "ClusterRole",
    plural: "clusterroles",
};
/// The label by which a ClusterRole is aggregated into Muster's right to read templates.
const AGGREGATE: &str = "rbac.muster.io/aggregate-to-workloads";

const SCRIPT: &str = r#"
local kube = require("kube")
function GetReplicas(obj)
  return obj.spec.replicas, kube.accuratePodRequirements(obj.spec.template)
end
"#;

#[test]
fn a_kind_that_may_not_be_read_says_so_holds_nobody_up_and_is_queued_once_it_may() {
    managed_and_killed("foreign", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 2).await?;
        let thing = submit_thing(case).await?;
        let message = case.waits(&thing, &["SizeUnknown"]).await?;
        for word in ["Thing", AGGREGATE] {
            assert!(
                message.contains(word),
                "does not say what to grant: {message}"
            );
        }

        case.midway().await?;
        let job = case
            .submit(&case.short_gang("ordinary", 1, 8, 1).volcano())
            .await?;
        case.finished(&job, "Succeeded").await?;
        case.waits(&thing, &["SizeUnknown"]).await?;

        grant(case).await?;
        assert_eq!(case.placed(&thing).await?, ["member1"]);
        let waiter = case.submit(&case.gang("waiter", 1, 8).volcano()).await?;
        case.waits(&waiter, &["WaitingForQuota", "NextInLine"])
            .await?;
        Ok(())
    });
}

/// Submits a job of two pods with two GPUs each, as Karmada's interpreter sees it.
async fn submit_thing(case: &Case) -> anyhow::Result<Job> {
    let customization = json!({
        "metadata": {"name": case.name},
        "spec": {
            "target": {"apiVersion": THING.api_version(), "kind": THING.name},
            "customizations": {"replicaResource": {"luaScript": SCRIPT}},
        },
    });
    case.cluster_object(CUSTOMIZATION, &customization).await?;
    case.policy("own", THING, "muster", json!({})).await?;
    let batch = case.gang("thing", 2, 2).batch();
    let template = json!({
        "metadata": {
            "name": "thing",
            "namespace": case.name,
            "labels": {"muster.io/queue": case.name},
        },
        "spec": {"replicas": 2, "template": batch["spec"]["template"]},
    });
    let job = Job::of(THING, case.karmada().create(THING, &template).await?);
    case.submitted(&job);
    Ok(job)
}

/// Grants Muster the right to read the kind, as the message says.
async fn grant(case: &Case) -> anyhow::Result<()> {
    let role = json!({
        "metadata": {
            "name": format!("muster-{}", case.name),
            "labels": {(AGGREGATE): "true"},
        },
        "rules": [{
            "apiGroups": [THING.group],
            "resources": [THING.plural],
            "verbs": ["get", "list", "watch"],
        }],
    });
    case.cluster_object(CLUSTER_ROLE, &role).await
}
