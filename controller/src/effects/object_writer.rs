//! Writes objects that the controller maintains: PodGroups, the namespaces' propagation policies, the
//! capacity policies of queues without one, the overrides that pin a job's growth.
//!
//! Each is applied server-side with the controller's own field manager, so that fields of other
//! managers stay, and deleted only if the controller applied it. A Queue is created, so that one of a
//! person stays as it is. The newest write of an object wins; failures are retried with back-off and
//! delay no other object; the number of open requests is limited. A pin is written like all overrides
//! that determine a job's size ([`Overrides::pin`]).

use binding_writer::overrides::{self, Overrides};
use engine::JobKey;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::{ObjectMeta, Status};
use runtime::client::CallError;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// Field manager of the objects.
const MANAGER: &str = overrides::MANAGER;
/// Most requests at a time.
const IN_FLIGHT: usize = 8;
/// Deadline of a request, after which it is tried again.
const DEADLINE: Duration = Duration::from_secs(15);
/// First and longest pause before a failed request is tried again.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Identifies an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    /// `group/kind`, for ordering and comparison.
    kind: String,
}

/// The desired state of an object.
#[derive(Debug, Clone)]
enum Desired {
    Applied(Value),
    /// It exists, in whatever form.
    Created(Value),
    Deleted,
    /// It is not in this version any more.
    VersionDeleted(Preconditions),
    /// The pin of a job exists.
    Pinned(JobKey, Value),
    Unpinned(JobKey),
}

#[derive(Debug, Clone)]
struct ObjectWrite {
    resource: ApiResource,
    name: ObjectName,
    desired: Desired,
}

/// The handle; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ObjectWriter(mpsc::UnboundedSender<ObjectWrite>);

impl ObjectWriter {
    /// Starts the task that writes.
    pub(crate) fn spawn(
        client: kube::Client,
        overrides: Overrides,
        cancel: CancellationToken,
    ) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        runtime::task::spawn(serve((client, overrides), receiver, cancel));
        Self(sender)
    }

    /// Submits `object` to be applied: its apiVersion, kind, metadata and Muster's fields.
    pub(crate) fn apply(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        object: Value,
    ) {
        self.submit(resource, namespace, name, Desired::Applied(object));
    }

    /// Submits the creation of a cluster-scoped object. One that is there already stays as it is.
    pub(crate) fn create(&self, resource: &ApiResource, name: &str, object: Value) {
        self.submit(resource, None, name, Desired::Created(object));
    }

    /// Submits the deletion of a cluster-scoped object in the version of `metadata`. Another version stays.
    pub(crate) fn delete_version(&self, resource: &ApiResource, metadata: &ObjectMeta) {
        let version = version_of(metadata);
        let name = metadata.name.as_deref().unwrap_or_default();
        self.submit(resource, None, name, Desired::VersionDeleted(version));
    }

    /// Submits the deletion of an object, if it was applied here: an object of another manager stays.
    pub(crate) fn delete(&self, resource: &ApiResource, namespace: Option<&str>, name: &str) {
        self.submit(resource, namespace, name, Desired::Deleted);
    }

    /// Submits that the job `key` is pinned by `policy`.
    pub(crate) fn pin(&self, key: &JobKey, policy: Value) {
        self.override_of(key, Desired::Pinned(key.clone(), policy));
    }

    /// Submits that the job `key` is not pinned.
    pub(crate) fn unpin(&self, key: &JobKey) {
        self.override_of(key, Desired::Unpinned(key.clone()));
    }

    fn override_of(&self, key: &JobKey, desired: Desired) {
        let name = overrides::name(key);
        self.submit(&overrides::resource(), Some(&key.namespace), &name, desired);
    }

    fn submit(
        &self,
        resource: &ApiResource,
        namespace: Option<&str>,
        name: &str,
        desired: Desired,
    ) {
        let name = ObjectName {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            kind: format!("{}/{}", resource.group, resource.kind),
        };
        // The task ends only with the process.
        let _ = self.0.send(ObjectWrite {
            resource: resource.clone(),
            name,
            desired,
        });
    }
}

/// The result of one request.
enum WriteOutcome {
    Settled(ObjectName),
    Failed(ObjectWrite, u32),
}

async fn serve(
    writers: (kube::Client, Overrides),
    mut writes: mpsc::UnboundedReceiver<ObjectWrite>,
    cancel: CancellationToken,
) {
    let mut waiting: BTreeMap<ObjectName, ObjectWrite> = BTreeMap::new();
    let mut open: BTreeSet<ObjectName> = BTreeSet::new();
    let mut tasks: JoinSet<WriteOutcome> = JoinSet::new();
    // Failed writes during and after their back-off.
    let mut resting: JoinSet<(ObjectWrite, u32)> = JoinSet::new();
    let mut rested: Vec<(ObjectWrite, u32)> = Vec::new();
    loop {
        if tasks.len() < IN_FLIGHT {
            if let Some((write, tries)) = rested.pop() {
                tasks.spawn(carry_out(writers.clone(), write, tries));
                continue;
            }
            let startable = waiting.keys().find(|name| !open.contains(*name)).cloned();
            if let Some(write) = startable.and_then(|name| waiting.remove(&name)) {
                open.insert(write.name.clone());
                tasks.spawn(carry_out(writers.clone(), write, 0));
                continue;
            }
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            write = writes.recv() => match write {
                Some(write) => { waiting.insert(write.name.clone(), write); }
                None => return,
            },
            Some(done) = tasks.join_next() => match done {
                Ok(WriteOutcome::Settled(name)) => { open.remove(&name); }
                Ok(WriteOutcome::Failed(write, tries)) => {
                    resting.spawn(async move {
                        tokio::time::sleep(back_off(tries)).await;
                        (write, tries)
                    });
                }
                // No task aborts it.
                Err(error) => if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic)
                },
            },
            Some(Ok((write, tries))) = resting.join_next() => {
                // A write that was submitted meanwhile is newer.
                let write = waiting.remove(&write.name).unwrap_or(write);
                rested.push((write, tries));
            }
        }
    }
}

fn back_off(tries: u32) -> Duration {
    BACK_OFF.0.saturating_mul(1 << tries.min(6)).min(BACK_OFF.1)
}

async fn carry_out(
    (client, overrides): (kube::Client, Overrides),
    write: ObjectWrite,
    tries: u32,
) -> WriteOutcome {
    let api: Api<DynamicObject> = match &write.name.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &write.resource),
        None => Api::all_with(client, &write.resource),
    };
    let request = async {
        match &write.desired {
            Desired::Applied(object) => api
                .patch(
                    &write.name.name,
                    &PatchParams::apply(MANAGER).force(),
                    &Patch::Apply(object),
                )
                .await
                .map(drop)
                .map_err(CallError::from),
            Desired::Created(object) => create(&api, object).await,
            Desired::VersionDeleted(version) => {
                delete_version(&api, &write.name.name, version).await
            }
            Desired::Deleted => delete_ours(&api, &write.name.name).await,
            Desired::Pinned(key, policy) => overrides.pin(key, policy).await,
            Desired::Unpinned(key) => overrides.unpin(key).await,
        }
    };
    let result = tokio::time::timeout(DEADLINE, request).await;
    let error = match result {
        Ok(Ok(())) => return WriteOutcome::Settled(write.name),
        Ok(Err(CallError::Kube(kube::Error::Api(status)))) if is_final(&status) => {
            log_final(&write, &status.message, status.code);
            return WriteOutcome::Settled(write.name);
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer in {} s", DEADLINE.as_secs()),
    };
    tracing::warn!(object = ?write.name, error, tries, "an object was not applied; trying again");
    WriteOutcome::Failed(write, tries.saturating_add(1))
}

async fn create(api: &Api<DynamicObject>, object: &Value) -> Result<(), CallError> {
    let object = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let params = PostParams {
        field_manager: Some(MANAGER.to_owned()),
        ..PostParams::default()
    };
    unless_conflict(api.create(&params, &object).await.map(drop))
}

async fn delete_version(
    api: &Api<DynamicObject>,
    name: &str,
    version: &Preconditions,
) -> Result<(), CallError> {
    let params = DeleteParams::default().preconditions(version.clone());
    unless_conflict(api.delete(name, &params).await.map(drop))
}

fn version_of(metadata: &ObjectMeta) -> Preconditions {
    Preconditions {
        uid: metadata.uid.clone(),
        resource_version: metadata.resource_version.clone(),
    }
}

/// Passes a result on, but for a conflict: the object is there already, or in another version. The watch shows that,
/// and it is decided again.
fn unless_conflict(result: kube::Result<()>) -> Result<(), CallError> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => Ok(result?),
    }
}

/// Deletes an object in the version that was read, if the controller applied it.
async fn delete_ours(api: &Api<DynamicObject>, name: &str) -> Result<(), CallError> {
    let Some(object) = api.get_metadata_opt(name).await? else {
        return Ok(());
    };
    if !overrides::is_ours(&object.metadata) {
        return Ok(());
    }
    let params = DeleteParams::default().preconditions(version_of(&object.metadata));
    api.delete(name, &params).await?;
    Ok(())
}

/// Gone, or its namespace is being deleted: nothing to write. Invalid, or denied by a webhook: a retry
/// would not help. What is forbidden may be allowed later, with nothing here that changes: rights and
/// admission policies come into force some seconds after they were written.
fn is_final(status: &Status) -> bool {
    match status.code {
        403 => of_deleted_namespace(status),
        code => matches!(code, 400 | 404 | 422),
    }
}

fn of_deleted_namespace(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes
        .map(|cause| cause.reason.as_str())
        .any(|reason| reason == "NamespaceTerminating")
}

fn log_final(write: &ObjectWrite, message: &str, code: u16) {
    match (&write.desired, code) {
        (Desired::Deleted | Desired::Unpinned(_), 404) => {}
        _ => tracing::warn!(object = ?write.name, code, message, "an object was not applied"),
    }
}
