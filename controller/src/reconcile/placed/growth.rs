//! Growth of admitted jobs that was not granted.
//!
//! Karmada sets the replicas of some kinds; any other edit goes straight to the members. The webhook
//! refuses edits that raise replicas or requests. What passes while the webhook is away is charged at once
//! by the engine, and pinned back here: an override for the job sets replicas and requests to what was
//! admitted, until the attempt is over.

use crate::messages::action::Effect;
use crate::messages::job_event::JobEvent;
use crate::mirror::binding::own_record;
use crate::reconcile::JobPass;
use crate::reconcile::placed::Placed;
use crds::record::{AdmissionRecord, RecordState, RecordedShare};
use engine::facts::{Demand, Held, JobFact, Role};
use engine::{Attempt, Reason, Resources};
use std::collections::BTreeMap;

#[cfg(test)]
mod tests;

/// The pins of a job.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    /// The growth that its override was last written for, and the version of its template then.
    pinned: (Vec<String>, String),
    /// The attempt for which the pin of an earlier process, if any, was removed.
    unpinned: Option<Attempt>,
}

impl Pins {
    /// Records that the job is pinned against `growth`, by an override rendered from its template at
    /// `version`. Returns whether the growth is new, and whether either is.
    fn pin(&mut self, growth: &[String], version: String) -> (bool, bool) {
        let news = self.pinned.0 != growth;
        let edited = news || self.pinned.1 != version;
        self.pinned = (growth.to_vec(), version);
        (news, edited)
    }

    /// Records that no pin of an earlier process is left for `attempt`; returns true the first time.
    fn begin_unpinned(&mut self, attempt: Attempt) -> bool {
        self.unpinned.replace(attempt) != Some(attempt)
    }

    /// Drops the pin; returns true if there was one.
    fn unpin(&mut self) -> bool {
        !std::mem::take(&mut self.pinned).0.is_empty()
    }
}

/// Pins an admitted job that has grown: its pods if Karmada does not set their number, and its requests
/// for any kind.
pub(crate) fn pin_growth(pass: &mut JobPass<'_>, placed: &Placed) {
    let record = &placed.record;
    let Some(job) = placed.job.as_ref().filter(|_| !record.adopted) else {
        return;
    };
    let admitted = admitted_pods(record);
    let roles = &job.fact.demand.roles;
    let mut grown = workload::raised_requests(roles, &record.requests);
    if job.fact.demand.held == Held::Not {
        let before = |role: &Role| admitted.get(&role.name).copied().unwrap_or(0);
        let more = roles.iter().filter(|role| role.count > before(role));
        let more = more.map(|role| format!("{} {} -> {}", role.name, before(role), role.count));
        grown.splice(0..0, more);
    }
    if grown.is_empty() {
        return match record.is_split() {
            // The override that made its parts also pins them.
            true => _ = pass.in_flight.pins.unpin(),
            // A pin would restrict the members to an excess that is no longer charged.
            false => unpin(pass, record, roles),
        };
    }
    let version = pass.mirror.template_of(pass.binding);
    let version = version.map_or_else(String::new, |seen| seen.resource_version.clone());
    let (news, edited) = pass.in_flight.pins.pin(&grown, version);
    if news {
        let message = format!(
            "its template grew after admission ({}): the surplus is charged and its members keep what was admitted; \
             to run it larger, delete it and submit it again",
            grown.join(", ")
        );
        pass.record_event(JobEvent::warning(Reason::GrowthHeld, "Pin", message));
    }
    if record.is_split() || !edited {
        return;
    }
    pass.push(Effect::PinJob {
        job: pass.bound_job(),
        pods: admitted,
        requests: record.requests.clone(),
    });
}

/// Deletes the override of an attempt that is over, also one from before a restart: a pin, or the override
/// that split the job, whatever its template or queue says now.
pub(crate) fn drop_override(pass: &mut JobPass<'_>) {
    let pinned = pass.in_flight.pins.unpin();
    let record = own_record(pass.binding).filter(|record| record.parts.is_some());
    if let Some(record) = record {
        let (job, attempt) = (pass.bound_job(), record.attempt);
        return pass.push(Effect::ClearOverride { job, attempt });
    }
    // A pin of an earlier process stays for the next attempt, unless the binding goes.
    let held = |fact: &JobFact| fact.demand.held == Held::ByReplicas;
    let goes = pass.binding.metadata.deletion_timestamp.is_some();
    if pinned || !goes || !pass.jobs.last_facts.get(pass.key).is_some_and(held) {
        delete_override(pass);
    }
}

/// Removes the pin of a job that requests no more than was admitted, also one of an earlier process. The
/// surplus stays in its charge.
fn unpin(pass: &mut JobPass<'_>, record: &AdmissionRecord, roles: &[Role]) {
    let was_raised = is_raised(record, roles) && pass.in_flight.pins.begin_unpinned(record.attempt);
    if pass.in_flight.pins.unpin() || was_raised {
        delete_override(pass);
    }
}

fn delete_override(pass: &mut JobPass<'_>) {
    pass.push(Effect::UnpinJob(pass.key.clone()));
}

/// Completes a record, before it is written, with what one pod of each role was admitted with: from the
/// record `before` if it is of the same attempt, else from the job's present requests. Roles without admitted
/// pods need no limit.
pub(crate) fn keep_requests(
    record: &mut AdmissionRecord,
    before: Option<&AdmissionRecord>,
    asked: Option<&Demand>,
) {
    let before = before.filter(|before| before.attempt == record.attempt);
    let known = before.is_some_and(|before| before.state != RecordState::Requeued);
    if let Some(before) = before {
        let pods = admitted_pods(before);
        let placed = |role: &String| pods.get(role).is_some_and(|count| *count > 0);
        let kept = before.requests.iter().filter(|(role, _)| placed(role));
        record.requests = kept
            .map(|(role, request)| (role.clone(), request.clone()))
            .collect();
        if known && record.requests.is_empty() && pods.values().any(|count| *count > 0) {
            return; // written by a version that did not have them
        }
    }
    for role in asked.into_iter().flat_map(|demand| &demand.roles) {
        let entry = record.requests.entry(role.name.clone());
        entry.or_insert_with(|| role.request.clone());
    }
}

/// Returns true if more is charged than was admitted, which includes what the clusters add to requests.
fn is_raised(record: &AdmissionRecord, roles: &[Role]) -> bool {
    let raised = |share: &RecordedShare| {
        let charged = sum(share.charge.values().cloned());
        let admitted = sum(share.pods.iter().filter_map(|pods| {
            let request = record.requests.get(&pods.role)?;
            let role = roles.iter().find(|role| role.name == pods.role);
            let added = role.and_then(|role| role.requests_in.get(&share.name));
            let whole =
                added.map_or_else(|| request.clone(), |added| Resources::max(request, added));
            whole.checked_mul(pods.count)
        }));
        let mut charged = charged.iter();
        charged.any(|(name, amount)| amount > admitted.amount_of(name))
    };
    !record.requests.is_empty() && record.clusters.iter().any(raised)
}

/// Sums charges; an overflow was refused when the template was read.
fn sum(mut parts: impl Iterator<Item = Resources>) -> Resources {
    let sum = parts.try_fold(Resources::new(), |sum, part| sum.checked_add(&part));
    sum.unwrap_or_default()
}

/// Returns the admitted pods of each role, over all clusters.
fn admitted_pods(record: &AdmissionRecord) -> BTreeMap<String, u32> {
    let mut pods = BTreeMap::new();
    for role in record.clusters.iter().flat_map(|share| &share.pods) {
        *pods.entry(role.role.clone()).or_default() += role.count;
    }
    pods
}
