//! The right to submit to a queue, by Kubernetes RBAC.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, CLUSTER_ROLE, CONFIG_MAP, ROLE_BINDING};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{Case, SOON};
use crate::story::managed;

/// Returns the message with which the API server forbids a request.
fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> anyhow::Result<String> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 403 => Ok(status.message),
        other => anyhow::bail!("refused with 403 was expected: {other:?}"),
    }
}

/// Grants these subjects the use of the story's queue for jobs of its namespace.
async fn grant(case: &Case, name: &str, kind: &str, subject: &str) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": name, "namespace": case.name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": case.name},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    });
    let made = case.karmada().create(ROLE_BINDING, &binding).await;
    made.context("grant the use of the queue")?;
    Ok(())
}

/// Creates a closed queue, and the role that grants its use.
async fn closed_queue(case: &Case) -> anyhow::Result<()> {
    let policy = json!({"metadata": {"name": case.name}, "spec": {"tenancy": "Closed"}});
    case.cluster_object(CAPACITY_POLICY, &policy).await?;
    case.queue(8).await?;
    let role = json!({
        "metadata": {"name": case.name},
        "rules": [{
            "apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"],
            "resourceNames": [case.name], "verbs": ["use"],
        }],
    });
    case.cluster_object(CLUSTER_ROLE, &role).await
}

async fn a_closed_queue(case: &Case) -> anyhow::Result<()> {
    closed_queue(case).await?;
    case.nodes("member1", 1).await?;
    let tenant = case.tenant().await?;
    let template = |name: &str| case.short_gang(name, 1, 8, 2).volcano();

    let refused = case.submit_by(&tenant.objects, &template("refused")).await;
    let error = refused.err().context("the tenant has no right yet")?;
    let message = refusal(error.downcast::<kube::Error>().map(Err::<Value, _>)?)?;
    let words = format!("{} may not submit to queue {}", tenant.user, case.name);
    ensure!(message.contains(&words), "{message}");
    // The tenant cannot set the annotation of the right itself, even on a kind without a webhook.
    let forged = json!({
        "metadata": {
            "name": "forged", "namespace": case.name,
            "annotations": {"muster.io/permitted-queue": case.name},
        },
    });
    let message = refusal(tenant.objects.create(CONFIG_MAP, &forged).await)?;
    ensure!(message.contains("does not have the verb use"), "{message}");

    grant(case, "use-queue", "User", &tenant.user).await?;
    let job = eventually(SOON, "the tenant may submit", async || {
        let submitted = case.submit_by(&tenant.objects, &template("train")).await;
        submitted.map_err(|error| error.to_string())
    })
    .await?;
    let written = &job.template["metadata"]["annotations"]["muster.io/permitted-queue"];
    ensure!(*written == *case.name, "{written}");
    case.finished(&job, "Succeeded").await?;
    case.karmada()
        .delete(ROLE_BINDING, Some(&case.name), "use-queue")
        .await?;

    // The right of the namespace suffices too, and then no annotation is set.
    let group = format!("system:serviceaccounts:{}", case.name);
    grant(case, "namespace", "Group", &group).await?;
    let job = eventually(SOON, "its namespace may submit", async || {
        let submitted = case.submit_by(&tenant.objects, &template("again")).await;
        let job = submitted.map_err(|error| error.to_string())?;
        let annotations = &job.template["metadata"]["annotations"];
        match annotations.get("muster.io/permitted-queue") {
            None => Ok(job),
            // The webhook caches the removed right for some seconds.
            Some(_) => {
                let deleted = case.delete(&job).await;
                deleted.map_err(|error| error.to_string())?;
                Err("it is still the user's right".to_owned())
            }
        }
    })
    .await?;
    case.finished(&job, "Succeeded").await
}

#[test]
fn a_closed_queue_takes_jobs_of_who_has_the_right_to_use_it() {
    managed("rights", a_closed_queue);
}
