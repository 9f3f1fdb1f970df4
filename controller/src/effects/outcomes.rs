//! Answers that come back: how a write ended, and whether Works of a job are left.

use crate::core::Core;
use crate::facts::job::NamespaceFact;
use crate::ingest::input::Input;
use crate::mirror::permanent_id;
use crate::reconcile::ReconcileCtx;
use crate::reconcile::binding_phase::{BindingPhase, binding_phase};
use crate::reconcile::in_flight::InFlight;
use crate::reconcile::preserved::is_kept;
use binding_writer::{Failure, Outcome, Write, WriteKind};
use crds::karmada::Work;
use crds::names;
use crds::record::RecordState;
use engine::{Event, JobKey, Reason, Time};
use kube::api::{Api, DeleteParams, Preconditions};
use kube::core::ObjectMeta;
use scheduler::Refusal;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A removal of what a job has left that takes longer is given up and tried again.
const REMOVE_DEADLINE: Duration = Duration::from_secs(10);

/// Milliseconds after a placement at which it is looked at for what Karmada's parts still wait
/// to be told: the status that follows a placement may get lost.
const ACK_LOOK_MS: i64 = 61_000;

impl Core {
    /// A write ended.
    pub(crate) fn outcome(&mut self, outcome: Outcome, now: Time) {
        let key = outcome.key;
        let bound = self
            .mirror
            .bindings
            .get(&key)
            .and_then(|binding| binding.metadata.uid.clone());
        let of_another = bound.is_some_and(|uid| uid != outcome.uid);
        if of_another || !self.in_flight.get(&key).is_some_and(InFlight::is_open) {
            return; // it was forgotten, and perhaps made anew, meanwhile
        }
        self.dirty.insert(key.clone());
        match outcome.result {
            Ok(written) => {
                self.in_flight_of(&key).written(&written.resource_version);
                if outcome.write == WriteKind::Place {
                    self.requeue_at(&key, now.after(ACK_LOOK_MS));
                }
            }
            Err(failure) => {
                let is_plan = matches!(outcome.write, WriteKind::Place | WriteKind::Plan);
                match (&failure, outcome.attempt) {
                    (_, Some(attempt)) if is_plan && !self.is_placed(&key, attempt) => {
                        self.in_flight_of(&key).closed();
                        self.refuse(&key, attempt, &refusal(&failure), now);
                    }
                    (Failure::Conflict | Failure::Gone, _) => {
                        let until = self.in_flight_of(&key).conflicted(now);
                        self.requeue_at(&key, until);
                    }
                    _ => {
                        let until = self.in_flight_of(&key).failed(now);
                        self.requeue_at(&key, until);
                    }
                }
            }
        }
    }

    /// Asks the API server afresh whether any Work of the job is left: a watch may be behind.
    pub(crate) fn check_works(&mut self, ctx: &ReconcileCtx<'_>) {
        let out_of_service = self.out_of_service(ctx);
        let (keepers, binding) = (self.keepers(ctx), ctx.binding.clone());
        self.look_at_works(ctx, async move |works| {
            if works.iter().any(|work| counts(work, &out_of_service)) {
                return Ok(false);
            }
            is_kept(keepers, &binding).await.map(|kept| !kept)
        });
    }

    /// Removes Works that Karmada has left behind: those that its cache did not show yet when it
    /// removed what the placement had. It does not look again, and their pods would run for good.
    pub(crate) fn sweep_works(&mut self, ctx: &ReconcileCtx<'_>) {
        match self.in_flight_of(ctx.key).are_left_behind(ctx.now) {
            Ok(()) => {
                let (client, checks) = (self.client.clone(), Arc::clone(&self.checks));
                self.look_at_works(ctx, async move |works| {
                    // Never closed.
                    let _slot = checks.acquire().await;
                    let removed = remove_works(works, client);
                    match tokio::time::timeout(REMOVE_DEADLINE, removed).await {
                        Ok(removed) => removed.map(|()| false).map_err(|error| error.to_string()),
                        Err(_) => Err(format!("no answer in {} s", REMOVE_DEADLINE.as_secs())),
                    }
                });
            }
            Err(until) => self.requeue_at(ctx.key, until),
        }
    }

    /// Has `judge` tell by what Works are left whether they are gone, unless that is being asked
    /// already.
    fn look_at_works<J, F>(&mut self, ctx: &ReconcileCtx<'_>, judge: J)
    where
        J: FnOnce(Vec<ObjectMeta>) -> F + Send + 'static,
        F: Future<Output = Result<bool, String>> + Send,
    {
        if !self.in_flight_of(ctx.key).begin_check() {
            return;
        }
        let (reader, inputs) = (self.works_reader.clone(), self.inputs.clone());
        let (key, binding) = (ctx.key.clone(), ctx.binding.clone());
        runtime::task::spawn(async move {
            let gone = match permanent_id(&binding) {
                Some(id) => match reader.left(id).await {
                    Ok(works) => judge(works).await,
                    Err(error) => Err(error),
                },
                None => Ok(true),
            };
            let uid = binding.metadata.uid.clone();
            // The owner task is gone only when the process ends.
            let _ = inputs.send(Input::WorksChecked { key, uid, gone }).await;
        });
    }

    /// What a fresh look at the Works said.
    pub(crate) fn works_checked(
        &mut self,
        key: &JobKey,
        uid: Option<&str>,
        gone: Result<bool, String>,
        now: Time,
    ) {
        let binding = self.mirror.bindings.get(key).cloned();
        let Some(binding) = binding.filter(|b| b.metadata.uid.as_deref() == uid) else {
            return; // it was about another binding of this name, and what was in flight for it went with it
        };
        self.in_flight_of(key).end_check();
        if self.in_flight_of(key).is_busy(&binding, now) {
            self.dirty.insert(key.clone());
            return;
        }
        match gone {
            // A cluster that was out of service may answer by now.
            Ok(true) if self.waits_for_works(&binding) || self.is_still_reported(&binding) => {
                return self.requeue_at(key, now.after(1_000));
            }
            Ok(true) => {
                self.mirror.drop_left(&binding);
                self.sweep_services(&binding);
            }
            Ok(false) => return self.requeue_at(key, now.after(1_000)),
            Err(error) => {
                tracing::warn!(job = %key, error, "cannot see whether Works are left; trying again");
                return self.requeue_at(key, now.after(2_000));
            }
        }
        let namespace: NamespaceFact = self
            .mirror
            .namespaces
            .get(&*key.namespace)
            .cloned()
            .unwrap_or_default();
        let ctx = ReconcileCtx { key, binding, now };
        match binding_phase(&ctx.binding, namespace.rule()) {
            BindingPhase::Deleting(_) => self.write(key, &ctx.binding, Write::Finalize),
            BindingPhase::Ending(record) => {
                self.works_gone(key, now);
                let until = self.engine.job(key).and_then(|job| job.back_off_until);
                let mut record =
                    record.in_state(RecordState::Requeued, record.reason, &record.message);
                record.not_before = until.map(crds::record::timestamp);
                self.write(key, &ctx.binding, Write::Record { record });
            }
            BindingPhase::Waiting(_)
                if self
                    .engine
                    .job(key)
                    .is_some_and(|job| job.admission.is_some()) =>
            {
                self.works_gone(key, now);
                self.dirty.insert(key.clone());
            }
            _ => {}
        }
    }

    fn works_gone(&mut self, key: &JobKey, now: Time) {
        tracing::info!(job = %key, "its Works are gone; quota is back");
        if let Some(scheduler) = self.mode.scheduler() {
            scheduler.forget(key);
        }
        self.in_flight_of(key).ended();
        self.drop_override(key);
        self.apply(Event::JobWorksGone {
            key: key.clone(),
            at: now,
        });
    }
}

fn refusal(failure: &Failure) -> Refusal {
    let message = match failure {
        Failure::Conflict => {
            "the binding changed while it was being placed; it is decided again".to_owned()
        }
        Failure::Gone => "the binding is gone".to_owned(),
        Failure::NotLeading => "another replica leads now".to_owned(),
        Failure::Refused { code, message } => {
            format!("the API server refused the placement ({code}): {message}")
        }
        Failure::Unavailable { message } => {
            format!("the API server did not take the placement: {message}")
        }
    };
    Refusal {
        reason: Reason::PlanRefused,
        message,
        avoid: None,
    }
}

/// Whether a Work that is there keeps its job charged: not where it is being deleted in one of the
/// clusters `out_of_service`.
fn counts(work: &ObjectMeta, out_of_service: &BTreeSet<String>) -> bool {
    let namespace = work.namespace.as_deref().unwrap_or_default();
    let cluster = namespace.strip_prefix(names::EXECUTION_NAMESPACE_PREFIX);
    let given_up = out_of_service.contains(cluster.unwrap_or(namespace));
    work.deletion_timestamp.is_none() || !given_up
}

/// Deletes those of `works` that nobody is deleting. Whether they are gone shows later.
async fn remove_works(works: Vec<ObjectMeta>, client: kube::Client) -> kube::Result<()> {
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
            // It went, or it is another's by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
