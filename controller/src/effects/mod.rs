//! Effects outside of the process: carries out what a reconcile wants done there; the results return as inputs.
//!
//! ```text
//! Effect ─► Effects::run ─┬─► committer ─► bindings
//!                         ├─► scheduler, members, overrides ─► members, OverridePolicies
//!                         └─► object writer, event recorder, works reader ─► API server
//!                                              Input ◄── outcomes, answers ─────┘
//! ```
//!
//! Only this module has a client, the committer and the channels. Nothing here waits: calls over a network
//! run in a task of their own. It must never decide which job starts or ends.

pub(crate) mod bindings;
pub(crate) mod events;
mod failed_creates;
pub(crate) mod jobs;
pub(crate) mod nodes;
pub(crate) mod object_writer;
pub(crate) mod objects;
pub(crate) mod pre_pull;
pub(crate) mod rights;
pub(crate) mod unbound;
mod waiting_groups;
pub(crate) mod works;
pub(crate) mod works_reader;

use crate::effects::bindings::BindingWrites;
use crate::effects::events::Reports;
use crate::effects::nodes::NodeTaints;
use crate::effects::object_writer::ObjectWriter;
use crate::effects::rights::RightsReviewer;
use crate::effects::works_reader::WorksReader;
use crate::messages::action::{BoundJob, Effect};
use crate::messages::input::Input;
use binding_writer::overrides::{self, Overrides};
use engine::JobKey;
use members::Members;
use scheduler::Scheduler;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// The only owner of the connections to the API server and the members.
pub(crate) struct Effects {
    pub(crate) client: kube::Client,
    /// The scheduler, if it runs in this process.
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) members: Members,
    pub(crate) overrides: Overrides,
    pub(crate) objects: ObjectWriter,
    pub(crate) works_reader: WorksReader,
    pub(crate) reports: Reports,
    pub(crate) rights: RightsReviewer,
    /// Channel for results.
    pub(crate) inputs: mpsc::Sender<Input>,
    /// Limits questions to members and removals of leftover Works.
    pub(crate) checks: Arc<Semaphore>,
    pub(crate) taints: NodeTaints,
    pub(crate) bindings: BindingWrites,
}

impl Effects {
    /// Carries out one effect, or starts a task that does.
    pub(crate) fn run(&mut self, effect: Effect) {
        match effect {
            Effect::WriteBinding(intent) => self.bindings.add(*intent),
            Effect::RecordEvent { object, event } => self.reports.events.record(&object, event),
            Effect::Notify(event) => self.reports.notify(event),
            Effect::AskRight { namespace, queue } => self.rights.ask((namespace, queue)),
            Effect::PreparePlacement { key, request } => self.prepare_placement(key, *request),
            Effect::ForgetPlacement(key) => self.forget_placement(&key),
            Effect::RenewMembers {
                key,
                clusters,
                api,
                queue,
                priority_classes,
            } => self.renew_members(key, (clusters, api, queue, priority_classes)),
            Effect::CheckWorks {
                job,
                out_of_service,
                preserving,
            } => self.check_works(job, out_of_service, preserving),
            Effect::RemoveWorks(job) => self.remove_works(job),
            Effect::ConfirmSize {
                job,
                attempt,
                cluster,
                held,
            } => self.confirm_size(job, attempt, cluster, held),
            Effect::AskScheduler {
                key,
                attempt,
                cluster,
            } => self.ask_scheduler(key, attempt, cluster),
            Effect::WriteOverride { job, parts, how } => self.write_override(job, parts, how),
            Effect::ClearOverride { job, attempt } => self.clear_override(job, attempt),
            Effect::PinJob {
                job,
                pods,
                requests,
            } => self.pin_job(job, pods, requests),
            Effect::UnpinJob(key) => self.objects.unpin(&key),
            Effect::KeepInMembers { job, path } => self.keep_in_members(&job, path),
            Effect::DeleteTemplate {
                job,
                resource_version,
            } => self.delete_template(job, resource_version),
            Effect::DeleteOrphan(job) => self.delete_orphan(job),
            Effect::CheckServices { job, parts } => self.check_services(job, parts),
            Effect::SweepServices { namespace } => self.sweep_services(namespace),
            Effect::TaintNode(change) => self.taint_node(change),
            Effect::WriteRemediation(change) => self.write_remediation(change),
            Effect::PrePull { job, pull, seconds } => self.pre_pull(job, *pull, seconds),
            Effect::EndPrePull { cluster, uid } => self.end_pre_pull(&cluster, &uid),
            Effect::FreeQueue(queue) => self.free_queue(*queue),
            Effect::MarkNamespace {
                namespace,
                version,
                adopted_at,
            } => self.mark_namespace(namespace, version, adopted_at),
        }
    }

    fn forget_placement(&self, key: &JobKey) {
        if let Some(scheduler) = &self.scheduler {
            scheduler.forget(key);
        }
    }

    fn keep_in_members(&self, job: &BoundJob, path: &str) {
        self.objects.apply(
            &overrides::resource(),
            Some(&job.key.namespace),
            &overrides::keep_name(&job.key),
            overrides::keep(&job.key, &job.binding, path),
        );
    }
}
