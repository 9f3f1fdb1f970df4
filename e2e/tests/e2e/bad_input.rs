//! Invalid input is refused at once, or shown in a condition, with the field and the value; it does
//! not delay other jobs.

use e2e::harness::kinds::ObjectKind;
use serde_json::{Value, json};

use crate::case::Case;
use crate::job::Job;
use crate::story::{managed, unmanaged};

const TRAIN_JOB: ObjectKind = ObjectKind {
    group: "trainer.kubeflow.org",
    version: "v1alpha1",
    name: "TrainJob",
    plural: "trainjobs",
};
const NOTEBOOK: ObjectKind = ObjectKind {
    group: "kubeflow.org",
    version: "v1",
    name: "Notebook",
    plural: "notebooks",
};
const CUSTOMIZATION: ObjectKind = ObjectKind {
    group: "config.karmada.io",
    version: "v1alpha1",
    name: "ResourceInterpreterCustomization",
    plural: "resourceinterpretercustomizations",
};

/// Ensures that an ordinary job in the same queue still runs.
async fn others_go_on(case: &Case) -> anyhow::Result<()> {
    let job = case
        .submit(&case.short_gang("ordinary", 1, 1, 1).volcano())
        .await?;
    case.finished(&job, "Succeeded").await
}

/// Returns the API server's message for a template that it refuses.
async fn refusal(case: &Case, template: &Value) -> String {
    match case.submit(template).await {
        Ok(job) => panic!("{} was taken: {}", job.name, job.template["spec"]),
        Err(error) => format!("{error:#}"),
    }
}

fn with_request(case: &Case, resource: &str, value: &str) -> Value {
    let mut template = case.gang("odd", 1, 1).volcano();
    let container = &mut template["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
    container["resources"] = json!({"requests": {(resource): value}});
    template
}

#[test]
fn quantities_that_cannot_be_are_refused_with_field_and_value() {
    managed("quantities", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let values = [
            ("nvidia.com/gpu", "-1"),
            ("cpu", "1.5.3"),
            ("nvidia.com/gpu", "one"),
        ];
        for (resource, value) in values {
            let message = refusal(case, &with_request(case, resource, value)).await;
            assert!(
                message.contains(resource) && message.contains(value),
                "{resource} {value}: {message}"
            );
        }
        others_go_on(case).await
    });
}

#[test]
fn a_quantity_beyond_all_bounds_waits_and_says_so() {
    managed("beyond", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let value = "9999999999999999999999E";
        let job = case.submit(&with_request(case, "memory", value)).await?;
        let reasons = ["ExceedsFleet", "ExceedsCapability", "InvalidTemplate"];
        let message = case.waits(&job, &reasons).await?;
        assert!(message.contains("memory"), "{message}");
        others_go_on(case).await
    });
}

#[test]
fn quantities_that_cannot_be_are_shown_where_nothing_validates() {
    unmanaged("shown", async |case| {
        case.holds_nothing("queues take jobs of managed namespaces only");
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let volcano = e2e::harness::kinds::VOLCANO_JOB;
        case.policy("own", volcano, "muster", json!({})).await?;
        let job = case
            .submit(&with_request(case, "nvidia.com/gpu", "-1"))
            .await?;
        case.cannot_be_read(&job);
        let message = case.waits(&job, &["InvalidTemplate"]).await?;
        assert!(
            message.contains("nvidia.com/gpu") && message.contains("-1"),
            "{message}"
        );
        Ok(())
    });
}

#[test]
fn a_queue_that_cannot_be_named_so_is_refused() {
    managed("badname", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let mut template = case.gang("odd", 1, 1).batch();
        template["metadata"]["labels"] = json!({"muster.io/queue": "Team_A"});
        let message = refusal(case, &template).await;
        assert!(
            message.contains("queue") && message.contains("Team_A"),
            "{message}"
        );
        others_go_on(case).await
    });
}

#[test]
fn a_job_that_names_no_queue_goes_to_the_default_queue() {
    managed("noname", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let mut template = case.short_gang("plain", 1, 1, 1).batch();
        template["metadata"]["labels"] = json!({"muster.io/queue": ""});
        let job = case.submit(&template).await?;
        case.finished(&job, "Succeeded").await?;
        let group = case.pod_group(&job).await.unwrap().unwrap();
        assert_eq!(group["spec"]["queue"], "default");
        others_go_on(case).await
    });
}

#[test]
fn a_queue_with_a_capability_that_cannot_be_says_so() {
    managed("badqueue", async |case| {
        let mut queue = e2e::harness::jobs::queue("badqueue-negative", 0);
        queue["spec"]["capability"] = json!({"nvidia.com/gpu": "-8"});
        case.cluster_object(e2e::harness::kinds::QUEUE, &queue)
            .await?;
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let gang = e2e::harness::jobs::TestGang {
            queue: Some("badqueue-negative".into()),
            ..case.gang("odd", 1, 1)
        };
        let job = case.submit(&gang.volcano()).await?;
        let message = case.waits(&job, &["QueueInvalid"]).await?;
        assert!(
            message.contains("nvidia.com/gpu") && message.contains("-8"),
            "{message}"
        );
        others_go_on(case).await
    });
}

async fn submit_opaque(case: &Case, kind: ObjectKind, spec: Value) -> anyhow::Result<Job> {
    let template = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.name,
        "metadata": {
            "name": "opaque",
            "namespace": case.name,
            "labels": {"muster.io/queue": case.name},
        },
        "spec": spec,
    });
    case.policy("opaque", kind, "muster", json!({})).await?;
    Ok(Job::of(kind, case.karmada().create(kind, &template).await?))
}

#[test]
fn a_template_that_karmada_cannot_interpret_waits_and_says_that_its_size_is_unknown() {
    managed("opaque", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let job = submit_opaque(case, TRAIN_JOB, json!({"trainer": {"numNodes": 4}})).await?;
        let message = case.waits(&job, &["SizeUnknown"]).await?;
        assert!(message.contains("TrainJob"), "{message}");
        case.stays_unplaced(&job, crate::case::A_WHILE).await?;
        others_go_on(case).await
    });
}

#[test]
fn a_binding_without_requirements_waits_and_says_that_its_size_is_unknown() {
    managed("norequirements", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        // This script gives Karmada the number of pods, but not their requests.
        let script = "function GetReplicas(obj) return obj.spec.replicas, nil end";
        let customization = json!({
            "metadata": {"name": "norequirements"},
            "spec": {
                "target": {"apiVersion": NOTEBOOK.api_version(), "kind": NOTEBOOK.name},
                "customizations": {"replicaResource": {"luaScript": script}},
            },
        });
        case.cluster_object(CUSTOMIZATION, &customization).await?;
        let job = submit_opaque(case, NOTEBOOK, json!({"replicas": 2})).await?;
        let message = case.waits(&job, &["SizeUnknown"]).await?;
        assert!(message.contains("Notebook"), "{message}");
        others_go_on(case).await
    });
}

#[test]
fn a_template_close_to_the_largest_object_there_can_be_runs() {
    managed("large", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let mut template = case.short_gang("large", 1, 1, 1).volcano();
        let container = &mut template["spec"]["tasks"][0]["template"]["spec"]["containers"][0];
        container["args"] = json!(["x".repeat(1_400_000)]);
        let job = case.submit(&template).await?;
        others_go_on(case).await?;
        case.finished(&job, "Succeeded").await
    });
}
