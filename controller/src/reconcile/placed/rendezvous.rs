//! Rendezvous: whether the pods of a job can find each other from different clusters.
//!
//! Capacity policies say which names resolve between clusters, for a queue and the queues below it. A job
//! that needs a rendezvous is split only if its queue has an address for every cluster. Otherwise it runs
//! in one cluster, and an event tells its owner why.
//!
//! If addresses are Services, Karmada has to propagate these between clusters, with a feature that is off
//! by default. A job whose Services it does not propagate continues, since its pods may still be waiting
//! when the feature is turned on; an event tells its owner.

use crate::facts::job::ResolvedJob;
use crate::facts::view::View;
use crate::messages::action::{Effect, PlacedParts};
use crate::messages::job_event::{JobEvent, VALIDATE};
use crate::mirror::binding::own_record;
use crate::reconcile::JobPass;
use crate::reconcile::placed::Placed;
use binding_writer::overrides::OverrideError;
use crds::karmada::ResourceBinding;
use crds::record::AdmissionRecord;
use engine::facts::Admission;
use engine::{Attempt, Reason, Time};
use workload::{Meeting, Reach};

/// Milliseconds within which Karmada should have propagated the Services of a job.
const PROPAGATED_WITHIN_MS: i64 = 30_000;
/// Milliseconds after which Services that it has not propagated are checked again.
const RECHECK_MS: i64 = 60_000;

/// Whether the pods of a placed job can find each other by its Services. A restart derives it again.
#[derive(Debug, Default)]
pub(crate) enum ServiceDiscovery {
    /// Not checked yet.
    #[default]
    Unknown,
    /// The next check is due then.
    From(Time),
    /// A check is under way.
    Open,
    /// Karmada has propagated the Services.
    Found,
}

/// Returns how pods of the job of `binding` are reached from other clusters, if known.
pub(crate) fn reach(view: View<'_>, binding: &ResourceBinding, admission: &Admission) -> Reach {
    let ask = view.mirror.ask_of(binding);
    let (Some(ask), Some((_, addresses))) = (ask, view.addresses(&admission.queue)) else {
        return Reach::default();
    };
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    ask.reach(&addresses, namespace, &admission.shares)
}

/// Registers a job whose split depends on clusters and policies. If they prevent the split, an event tells
/// its owner.
pub(crate) fn note_rendezvous(pass: &mut JobPass<'_>, job: &ResolvedJob) {
    let meeting = job.ask.as_ref().map(|ask| ask.meeting);
    if meeting.unwrap_or_default() == Meeting::Nobody {
        return;
    }
    pass.jobs.rendezvous.insert(pass.key.clone());
    // A job that leaves the choice to its queue has not asked to be split.
    let asks = job.ask.as_ref().is_some_and(|ask| ask.asks_to_be_split);
    if let Some(why) = job.unsplit.as_ref().filter(|_| asks) {
        let message = workload::without_rendezvous(why);
        pass.record_event(JobEvent::warning(
            Reason::InvalidTemplate,
            VALIDATE,
            message,
        ));
    }
}

/// Checks and writes the Services of a placed job whose pods find each other by Services.
pub(crate) fn check_services(pass: &mut JobPass<'_>, placed: &Placed) {
    let record = &placed.record;
    if record.parts.is_none() || !needs_services(record) {
        return;
    }
    let service_discovery = &mut pass.in_flight.parts.services;
    let from = match service_discovery {
        ServiceDiscovery::Unknown => pass.now.after(PROPAGATED_WITHIN_MS),
        ServiceDiscovery::From(from) => *from,
        ServiceDiscovery::Open | ServiceDiscovery::Found => return,
    };
    if pass.now < from {
        *service_discovery = ServiceDiscovery::From(from);
        return pass.out.work_queue.add_at(pass.key, from);
    }
    *service_discovery = ServiceDiscovery::Open;
    let parts = PlacedParts {
        attempt: record.attempt,
        shares: record.admission().shares,
        reach: record.reach(),
    };
    let job = pass.bound_job();
    pass.push(Effect::CheckServices { job, parts });
}

/// Removes what Karmada may leave of the Services of a job whose Works are gone. After a restart the next
/// such job of the namespace does it.
pub(crate) fn sweep_services(pass: &mut JobPass<'_>) {
    let record = own_record(pass.binding);
    if record.as_ref().is_some_and(needs_services) {
        let namespace = pass.binding.metadata.namespace.clone().unwrap_or_default();
        pass.push(Effect::SweepServices { namespace });
    }
}

/// Handles the result of a check of a job's Services.
pub(crate) fn services_seen(
    pass: &mut JobPass<'_>,
    attempt: Attempt,
    result: Result<Option<String>, OverrideError>,
) {
    let (key, now) = (pass.key, pass.now);
    if pass.admission_of(attempt).is_none() {
        return; // of an attempt that is over
    }
    let why = match result {
        // A placement that has changed has no Services to check.
        Ok(None) | Err(OverrideError::Gone | OverrideError::Parts(_)) => None,
        Ok(Some(why)) => Some(why),
        Err(error) => Some(error.to_string()),
    };
    pass.in_flight.parts.services = match why {
        None => ServiceDiscovery::Found,
        Some(_) => ServiceDiscovery::From(now.after(RECHECK_MS)),
    };
    pass.out.work_queue.add(key);
    if let Some(why) = why {
        let message = format!("its pods may not find each other from different clusters: {why}");
        pass.record_event(JobEvent::warning(Reason::PodsApart, "Meet", message));
    }
}

/// Returns true if pods of a placed job find each other by Services.
fn needs_services(record: &AdmissionRecord) -> bool {
    workload::needs_services(record.clusters.len(), &record.reach())
}
