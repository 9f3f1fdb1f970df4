//! Rendezvous: whether the pods of a job can find each other from different clusters.
//!
//! What resolves between clusters is said by capacity policies, for a queue and those below it.
//! A job that must meet is split only where its queue has an address for every cluster; else it
//! runs in one, and an event tells its owner why.
//!
//! Where addresses are made of Services, Karmada has to carry these between clusters, by a feature
//! that is off unless somebody turns it on. A job whose Services it does not take up goes on, since
//! its pods may be waiting still when that comes; an event tells its owner.

use crate::facts::job::ResolvedJob;
use crate::mirror::binding::own_record;
use crate::reconcile::action::{PlacedParts, ReconcileAction};
use crate::reconcile::{ReconcileCtx, Reconciler};
use crate::status::events::JobEvent;
use binding_writer::overrides::OverrideError;
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::Admission;
use engine::{Attempt, JobKey, QueueName, Reason, Time};
use std::collections::BTreeSet;
use workload::{Addresses, Meeting, Reach};

/// Milliseconds in which Karmada should have taken up the Services of a job.
const TAKEN_UP_WITHIN_MS: i64 = 30_000;
/// Milliseconds after which Services that it has not taken up are looked at again.
const LOOK_AGAIN_MS: i64 = 60_000;

/// Whether the pods of a placed job can find each other by its Services. May be forgotten.
#[derive(Debug, Default)]
pub(crate) enum ServiceDiscovery {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// To be looked at then.
    From(Time),
    /// Somebody is looking.
    Open,
    /// They can, as far as Karmada goes.
    Found,
}

impl Reconciler {
    /// Why pods of a job of `queue` could not find each other from every cluster, if so.
    pub(crate) fn rendezvous_problem(&self, queue: &QueueName, meeting: Meeting) -> Option<String> {
        let Some((name, addresses)) = self.addresses(queue) else {
            return Some(format!(
                "spec.placement.addresses of capacitypolicy {queue}, or of one above it, does not say how its pods reach those of other clusters"
            ));
        };
        let missing = addresses.missing(self.engine.cluster_names(), meeting)?;
        let which = match meeting {
            Meeting::All => " with {host} or {service} in it, for each of its pods to be found",
            Meeting::Nobody | Meeting::First => "",
        };
        Some(format!(
            "spec.placement.addresses of capacitypolicy {name} has no address for cluster {missing}{which}"
        ))
    }

    /// How pods of the job of `binding` are reached from other clusters, as far as that is known.
    pub(crate) fn reach(&self, binding: &ResourceBinding, admission: &Admission) -> Reach {
        let ask = self.mirror.ask_of(binding);
        let (Some(ask), Some((_, addresses))) = (ask, self.addresses(&admission.queue)) else {
            return Reach::default();
        };
        let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
        ask.reach(&addresses, namespace, &admission.shares)
    }

    /// Remembers a job whose split hangs on clusters and policies, and tells its owner where
    /// that keeps it from being split.
    pub(crate) fn note_rendezvous(&mut self, ctx: &ReconcileCtx<'_>, job: &ResolvedJob) {
        let meeting = job.ask.as_ref().map(|ask| ask.meeting);
        if meeting.unwrap_or_default() == Meeting::Nobody {
            return;
        }
        self.rendezvous_jobs.insert(ctx.key.clone());
        // Who leaves it to the queue has not asked for it.
        let asks = job.ask.as_ref().is_some_and(|ask| ask.asks_to_be_split);
        if let Some(why) = job.unsplit.as_ref().filter(|_| asks) {
            let message = workload::without_rendezvous(why);
            self.record_event(
                ctx,
                JobEvent::warning(Reason::InvalidTemplate, "Validate", message),
            );
        }
    }

    /// Sees to the Services by which pods of a placed job find each other, where they do so.
    pub(crate) fn check_services(&mut self, ctx: &ReconcileCtx<'_>, record: &AdmissionRecord) {
        if record.parts.is_none() || !needs_services(record) {
            return;
        }
        let service_discovery = &mut self.in_flight_of(ctx.key).service_discovery;
        let from = match service_discovery {
            ServiceDiscovery::Unknown => ctx.now.after(TAKEN_UP_WITHIN_MS),
            ServiceDiscovery::From(from) => *from,
            ServiceDiscovery::Open | ServiceDiscovery::Found => return,
        };
        if ctx.now < from {
            *service_discovery = ServiceDiscovery::From(from);
            return self.requeue_at(ctx.key, from);
        }
        *service_discovery = ServiceDiscovery::Open;
        let parts = PlacedParts {
            attempt: record.attempt,
            shares: record.admission().shares,
            reach: record.reach(),
        };
        let job = ctx.job();
        self.push(ReconcileAction::CheckServices { job, parts });
    }

    /// Has what Karmada may leave of the Services of a job removed, whose Works are gone. A restart
    /// meanwhile leaves it to the next such job of the namespace.
    pub(crate) fn sweep_services(&mut self, binding: &ResourceBinding) {
        let record = own_record(binding);
        if record.as_ref().is_some_and(needs_services) {
            let namespace = binding.metadata.namespace.clone().unwrap_or_default();
            self.push(ReconcileAction::SweepServices { namespace });
        }
    }

    /// The Services of a job were seen to.
    pub(crate) fn services_seen(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        result: Result<Option<String>, OverrideError>,
        now: Time,
    ) {
        let job = self.engine.job(key);
        let current = job.and_then(|job| job.admission.map(|a| a.attempt));
        let binding = self.mirror.bindings().get(key).cloned();
        let Some(binding) = binding.filter(|_| current == Some(attempt)) else {
            return; // of an attempt that is over
        };
        let why = match result {
            // What is no more what was placed has no Services to look after.
            Ok(None) | Err(OverrideError::Gone | OverrideError::Parts(_)) => None,
            Ok(Some(why)) => Some(why),
            Err(error) => Some(error.to_string()),
        };
        self.in_flight_of(key).service_discovery = match why {
            None => ServiceDiscovery::Found,
            Some(_) => ServiceDiscovery::From(now.after(LOOK_AGAIN_MS)),
        };
        self.dirty.insert(key.clone());
        if let Some(why) = why {
            let message =
                format!("its pods may not find each other from different clusters: {why}");
            let ctx = ReconcileCtx { key, binding, now };
            self.record_event(&ctx, JobEvent::warning(Reason::PodsApart, "Meet", message));
        }
    }

    /// The addresses that hold for a queue, its own or of the nearest above it, and whose.
    fn addresses(&self, queue: &QueueName) -> Option<(QueueName, Addresses)> {
        let mut seen = BTreeSet::new();
        let mut name = Some(queue.clone());
        while let Some(queue) = name.filter(|queue| seen.insert(queue.clone())) {
            let policy = self.mirror.policies().get(&queue);
            let addresses = policy.map(|policy| policy.addresses());
            if let Some(addresses) = addresses.filter(|addresses| !addresses.is_empty()) {
                return Some((queue, addresses));
            }
            let above = self.mirror.queues().get(&queue);
            name = above.and_then(|queue| queue.spec.parent.as_ref().map(QueueName::new));
        }
        None
    }
}

/// Whether pods of a placed job are found by Services.
fn needs_services(record: &AdmissionRecord) -> bool {
    workload::needs_services(record.clusters.len(), &record.reach())
}
