//! Effects outside of the process: carries out the actions of a reconcile; the results return as inputs.
//!
//! ```text
//! ReconcileAction ─► Effects::run ─┬─► committer ─► bindings
//!                                  ├─► scheduler, members, overrides ─► members, OverridePolicies
//!                                  └─► object writer, event recorder, works reader ─► API server
//!                                                       Input ◄── outcomes, answers ─────┘
//! ```
//!
//! Only this module has a client, the committer and the channels. Nothing here waits: calls over a network
//! run in a task of their own. It must never decide which job starts or ends.

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

use crate::effects::events::EventRecorder;
use crate::effects::object_writer::ObjectWriter;
use crate::effects::rights::RightsReviewer;
use crate::effects::works_reader::WorksReader;
use crate::messages::action::ReconcileAction;
use crate::messages::input::Input;
use crate::notices::Notices;
use binding_writer::overrides::{self, Overrides};
use binding_writer::{Committer, Intent};
use members::Members;
use prometheus_client::metrics::counter::Counter;
use runtime::Leadership;
use scheduler::Scheduler;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc};

/// The only owner of the connections to the API server and the members.
pub(crate) struct Effects {
    pub(crate) client: kube::Client,
    pub(crate) committer: Committer,
    /// The scheduler, if it runs in this process.
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) members: Members,
    pub(crate) overrides: Overrides,
    pub(crate) objects: ObjectWriter,
    pub(crate) works_reader: WorksReader,
    pub(crate) events: EventRecorder,
    pub(crate) rights: RightsReviewer,
    /// Channel for results.
    pub(crate) inputs: mpsc::Sender<Input>,
    /// Limits questions to members and removals of leftover Works.
    pub(crate) checks: Arc<Semaphore>,
    /// Counts taints of nodes that could not be written.
    pub(crate) node_taint_failures: Counter,
    /// Nodes are changed only while it lasts.
    pub(crate) leadership: Leadership,
    /// Where notices are posted, if the operator wants them.
    pub(crate) notices: Option<Notices>,
    /// Binding writes of this pass.
    pub(crate) writes: Vec<Intent>,
}

impl Effects {
    /// Carries out one action, or starts a task that does.
    pub(crate) fn run(&mut self, action: ReconcileAction) {
        match action {
            ReconcileAction::WriteBinding(intent) => self.writes.push(*intent),
            ReconcileAction::RecordEvent { object, event } => self.events.record(&object, event),
            ReconcileAction::Notify(event) => {
                if let Some(notices) = &self.notices {
                    notices.notify(event);
                }
            }
            ReconcileAction::AskRight { namespace, queue } => self.rights.ask((namespace, queue)),
            ReconcileAction::ForgetPlacement(key) => {
                if let Some(scheduler) = &self.scheduler {
                    scheduler.forget(&key);
                }
            }
            ReconcileAction::UnpinJob(key) => self.objects.unpin(&key),
            ReconcileAction::KeepInMembers { job, path } => self.objects.apply(
                &overrides::resource(),
                Some(&job.key.namespace),
                &overrides::keep_name(&job.key),
                overrides::keep(&job.key, &job.binding, path),
            ),
            ReconcileAction::WriteRemediation(change) => self.write_remediation(change),
            ReconcileAction::EndPrePull { cluster, uid } => self.end_pre_pull(&cluster, &uid),
            action => self.start(action),
        }
    }

    /// Starts the task that carries out `action`.
    fn start(&self, action: ReconcileAction) {
        use ReconcileAction as Action;
        match action {
            Action::PreparePlacement { key, request } => self.prepare_placement(key, *request),
            Action::RenewMembers {
                key,
                clusters,
                api,
                queue,
                priority_classes,
            } => self.renew_members(key, (clusters, api, queue, priority_classes)),
            Action::CheckWorks {
                job,
                out_of_service,
                preserving,
            } => self.check_works(job, out_of_service, preserving),
            Action::RemoveWorks(job) => self.remove_works(job),
            Action::ConfirmSize {
                job,
                attempt,
                cluster,
                held,
            } => self.confirm_size(job, attempt, cluster, held),
            Action::AskScheduler {
                key,
                attempt,
                cluster,
            } => self.ask_scheduler(key, attempt, cluster),
            Action::WriteOverride { job, parts, how } => self.write_override(job, parts, how),
            Action::ClearOverride { job, attempt } => self.clear_override(job, attempt),
            Action::PinJob {
                job,
                pods,
                requests,
            } => self.pin_job(job, pods, requests),
            Action::DeleteTemplate {
                job,
                resource_version,
            } => self.delete_template(job, resource_version),
            Action::DeleteOrphan(job) => self.delete_orphan(job),
            Action::CheckServices { job, parts } => self.check_services(job, parts),
            Action::TaintNode(change) => self.taint_node(change),
            Action::PrePull { job, pull, seconds } => self.pre_pull(job, *pull, seconds),
            Action::SweepServices { namespace } => self.sweep_services(namespace),
            Action::FreeQueue(queue) => self.free_queue(*queue),
            Action::MarkNamespace {
                namespace,
                version,
                adopted_at,
            } => self.mark_namespace(namespace, version, adopted_at),
            // Carried out directly, by `run` and by the core.
            Action::WriteBinding(_)
            | Action::RecordEvent { .. }
            | Action::Notify(_)
            | Action::AskRight { .. }
            | Action::ForgetPlacement(_)
            | Action::UnpinJob(_)
            | Action::KeepInMembers { .. }
            | Action::PublishJob(_)
            | Action::PublishQueue(_)
            | Action::PublishFaultPolicy(_)
            | Action::WriteRemediation(_)
            | Action::EndPrePull { .. }
            | Action::ForgetJob(_)
            | Action::WatchTemplates(_) => {}
        }
    }

    /// Submits the binding writes of this pass.
    pub(crate) fn submit_writes(&mut self) {
        if !self.writes.is_empty() {
            self.committer.submit(std::mem::take(&mut self.writes));
        }
    }
}
