//! Works of ending jobs: finds by a fresh read whether any are left, and deletes those that Karmada has
//! left behind.
//!
//! The answer is an [`JobAnswer::WorksChecked`]. A cached read must never lead to the answer that all are gone.

use crate::effects::Effects;
use crate::messages::action::BoundJob;
use crate::messages::input::Input;
use crate::messages::job_answer::JobAnswer;
use crate::mirror::{BindingIdentity, template_key};
use crds::karmada::{ResourceBinding, Work};
use crds::names;
use engine::ClusterName;
use kube::api::{Api, DeleteParams, DynamicObject, Preconditions};
use kube::core::ObjectMeta;
use runtime::with_deadline;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use workload::GangRules;

/// Deadline of deleting leftover Works, after which it is tried again.
const REMOVE_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of reading an object of a member.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// A member that may still have a job's object, and the connection to it.
struct PreservingMember {
    cluster: ClusterName,
    client: Option<kube::Client>,
}

impl Effects {
    /// Reads from the API server whether any Work of the job is left, because a watch may lag.
    pub(super) fn check_works(
        &self,
        job: BoundJob,
        out_of_service: BTreeSet<String>,
        preserving: BTreeSet<ClusterName>,
    ) {
        let member = |cluster: ClusterName| PreservingMember {
            client: self.members.client(&cluster),
            cluster,
        };
        let members = preserving.into_iter().map(member).collect();
        let binding = Arc::clone(&job.binding);
        self.look_at_works(job, async move |works| {
            if works.iter().any(|work| counts(work, &out_of_service)) {
                return Ok(false);
            }
            is_preserved(members, &binding).await.map(|kept| !kept)
        });
    }

    /// Deletes Works that Karmada has left behind.
    pub(super) fn remove_works(&self, job: BoundJob) {
        let (client, checks) = (self.client.clone(), Arc::clone(&self.checks));
        self.look_at_works(job, async move |works| {
            // The semaphore is never closed.
            let _slot = checks.acquire().await;
            let removed = delete_works(works, client);
            match tokio::time::timeout(REMOVE_DEADLINE, removed).await {
                Ok(removed) => removed.map(|()| false).map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer in {} s", REMOVE_DEADLINE.as_secs())),
            }
        });
    }

    /// Reads the Works of the job; `are_gone` says whether the remaining ones count.
    fn look_at_works<J, F>(&self, job: BoundJob, are_gone: J)
    where
        J: FnOnce(Vec<ObjectMeta>) -> F + Send + 'static,
        F: Future<Output = Result<bool, String>> + Send,
    {
        let (reader, inputs) = (self.works_reader.clone(), self.inputs.clone());
        let BoundJob { key, binding } = job;
        runtime::task::spawn(async move {
            let gone = match BindingIdentity::of(&binding) {
                Some(owner) => match reader.left(owner).await {
                    Ok(works) => are_gone(works).await,
                    Err(error) => Err(error),
                },
                None => Ok(true),
            };
            let uid = binding.metadata.uid.clone();
            // The owner task ends only with the process.
            let _ = inputs
                .send(Input::Answer(key, JobAnswer::WorksChecked { uid, gone }))
                .await;
        });
    }
}

/// Returns true if an existing Work keeps its job charged: not if it is being deleted in one of the
/// clusters `out_of_service`.
fn counts(work: &ObjectMeta, out_of_service: &BTreeSet<String>) -> bool {
    let namespace = work.namespace.as_deref().unwrap_or_default();
    let cluster = namespace.strip_prefix(names::EXECUTION_NAMESPACE_PREFIX);
    let given_up = out_of_service.contains(cluster.unwrap_or(namespace));
    work.deletion_timestamp.is_none() || !given_up
}

/// Deletes those of `works` that are not being deleted yet. A later read shows whether they are gone.
async fn delete_works(works: Vec<ObjectMeta>, client: kube::Client) -> kube::Result<()> {
    let left = works.into_iter();
    for work in left.filter(|work| work.deletion_timestamp.is_none()) {
        let namespace = work.namespace.unwrap_or_default();
        let name = work.name.unwrap_or_default();
        let only = Preconditions {
            uid: work.uid,
            resource_version: None,
        };
        let options = DeleteParams::background().preconditions(only);
        let works: Api<Work> = Api::namespaced(client.clone(), &namespace);
        match works.delete(&name, &options).await {
            Ok(_) => {
                tracing::warn!(%namespace, %name, "removed a Work that Karmada had left behind");
            }
            // It is gone, or another object has its name by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns true if one of `members` has the object of `binding` and it has not ended.
///
/// # Errors
/// Returns an error if a member does not answer.
async fn is_preserved(
    members: Vec<PreservingMember>,
    binding: &ResourceBinding,
) -> Result<bool, String> {
    let template = template_key(binding);
    let kind = template.kind.api_resource();
    for PreservingMember { cluster, client } in members {
        let client = client.ok_or_else(|| format!("{cluster} is not connected"))?;
        let objects: Api<DynamicObject> = Api::namespaced_with(client, &template.namespace, &kind);
        let read = with_deadline(objects.get_opt(&template.name), READ_DEADLINE).await;
        let Some(object) = read.map_err(|error| format!("{cluster}: {}", error.message()))? else {
            continue;
        };
        let status = object.data["status"].clone();
        let resource = &binding.spec.resource;
        let outcome = workload::outcome(
            &resource.api_version,
            &resource.kind,
            &[status],
            &GangRules::default(),
        );
        if !outcome.is_finished() {
            return Ok(true);
        }
    }
    Ok(false)
}
