//! Jobs that are placed in parts. They are dispatched once every Work is its part, and checked from then
//! on.
//!
//! Karmada renders Works from its own caches, which may lack the override that splits the job. A member
//! that got the whole template would run the whole gang. So the write that places the job suspends
//! dispatching, and dispatching resumes when every Work shows its part. If a part fails for good while
//! others run, all parts end, because a gang runs as a whole or not at all. All parts also end when the
//! leading part succeeds, and then the job has succeeded. If a Work loses its part later (a user
//! removed the override), the override is written again; if that is impossible because the template has
//! changed, all parts are evicted. A part may also ask for more than its own end (`retries`).
//!
//! A job that is not split takes the same steps if an override keeps its pods off nodes (`avoids`).
//!
//! The same override resizes the parts of an elastic gang: the record changes the charge first, and the
//! override follows.

use crate::messages::action::{Effect, OverrideShape, PlacedParts};
use crate::messages::job_event::JobEvent;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::failures::cause_of_failed_part;
use crate::reconcile::placed::rendezvous::ServiceDiscovery;
use crate::reconcile::placed::retries::{completed, requested};
use crate::reconcile::placed::{Placed, status_in};
use binding_writer::Write;
use binding_writer::overrides::OverrideError;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, Parts};
use engine::facts::Share;
use engine::{Attempt, ClusterName, Reason, Time};
use workload::{GangRules, Outcome};

#[cfg(test)]
mod tests;

/// Milliseconds after which the override is written again for Works that do not show their parts.
const SHOWN_WITHIN_MS: i64 = 5_000;
/// Milliseconds for which a part has to be in trouble before it counts: Karmada also reports a call that
/// only timed out as refused, and parts that end together are not reported together.
const PERSISTS_MS: i64 = 3_000;
/// Milliseconds that the other parts have to end by themselves once the leading part has succeeded: a part
/// that ends by itself keeps its pods and their logs.
const ENDS_WITHIN_MS: i64 = 10_000;
/// Milliseconds between two checks.
const RECHECK_MS: i64 = 1_000;

/// State of a job that is placed in parts. A restart derives it again.
#[derive(Debug, Default)]
pub(crate) struct PartsState {
    /// Since when some Work is not its part.
    astray: Option<Time>,
    /// Since when there is a reason to stop all parts, and which.
    stopping: Option<(Reason, Time)>,
    /// The repair of the override, if one is under way or impossible.
    repair: OverrideRepair,
    /// The size that the override was last written for, as the marks of its parts.
    resized: Option<Vec<String>>,
    /// Whether its pods can find each other, if they need Services for that.
    pub(crate) services: ServiceDiscovery,
}

#[derive(Debug, Default)]
enum OverrideRepair {
    #[default]
    None,
    Open,
    Failed(String),
}

/// What the Works of a job show.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct ObservedParts {
    /// Clusters whose Work is not its part.
    astray: Vec<ClusterName>,
    /// True if a cluster has no Work yet.
    missing: bool,
    /// The marks of all parts, if the Works in `astray` differ only in size.
    resizing: Option<Vec<String>>,
}

/// Returns the milliseconds for which a condition has to persist before the gang is evicted for it.
fn patience(reason: Reason) -> i64 {
    match reason {
        Reason::Succeeded => ENDS_WITHIN_MS,
        _ => PERSISTS_MS,
    }
}

/// What to do about a job's parts.
#[derive(Debug, PartialEq, Eq)]
enum PartsStep {
    /// Nothing: every Work is its part.
    Nothing,
    /// Resume dispatching: every Work is its part.
    Dispatch,
    /// Check again at this time.
    Wait(Time),
    /// Write the override again.
    Repair,
    /// Write the override for the size that is charged now.
    Resize,
    /// Evict the gang: it cannot or need not run on.
    Evict(EvictionCause),
}

impl PartsState {
    /// Returns what to do at `now` about parts in the state `parts`.
    fn step(
        &mut self,
        parts: Parts,
        shown: &ObservedParts,
        stop: Option<EvictionCause>,
        now: Time,
    ) -> PartsStep {
        if let Some(stop) = stop {
            let since = self.stopping.filter(|(reason, _)| *reason == stop.reason);
            let (_, since) = *self.stopping.insert(since.unwrap_or((stop.reason, now)));
            let persists = since.after(patience(stop.reason));
            return if now >= persists {
                PartsStep::Evict(stop)
            } else {
                PartsStep::Wait(persists)
            };
        }
        self.stopping = None;
        if shown.astray.is_empty() {
            *self = Self {
                services: std::mem::take(&mut self.services),
                ..Self::default()
            };
            return match parts {
                // Karmada has not rendered all Works yet; they come as inputs.
                Parts::Held if shown.missing => PartsStep::Nothing,
                Parts::Held => PartsStep::Dispatch,
                Parts::Dispatched => PartsStep::Nothing,
            };
        }
        if let OverrideRepair::Failed(message) = &self.repair {
            let message = format!("its parts cannot be written again: {message}");
            return PartsStep::Evict(EvictionCause::new(Reason::PartsLost, message));
        }
        let follows = shown.resizing.is_none() || self.resized == shown.resizing;
        if !follows && !matches!(self.repair, OverrideRepair::Open) {
            self.resized.clone_from(&shown.resizing);
            self.astray = Some(now.after(SHOWN_WITHIN_MS));
            self.repair = OverrideRepair::Open;
            return PartsStep::Resize;
        }
        let since = *self.astray.get_or_insert(now);
        // A dispatched part runs, so the override is repaired at once.
        let patience = match parts {
            Parts::Held => SHOWN_WITHIN_MS,
            Parts::Dispatched => 0,
        };
        if matches!(self.repair, OverrideRepair::Open) || now < since.after(patience) {
            return PartsStep::Wait(now.after(RECHECK_MS));
        }
        self.astray = Some(now.after(SHOWN_WITHIN_MS));
        self.repair = OverrideRepair::Open;
        PartsStep::Repair
    }
}

/// Dispatches the parts of a placed job and keeps them as planned.
pub(crate) fn check_parts(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let Some(parts) = record.parts else {
        return CheckResult::Continue;
    };
    if pass.namespace().terminating {
        return hold_parts(record);
    }
    let shares = record.admission().shares;
    let shown = shown(pass, record, &shares);
    let disrupted = pass.infrastructure_fault().is_some();
    let stop = led(pass.binding, record)
        .or_else(|| requested(pass.binding, record, disrupted))
        .or_else(|| failed_part(pass.binding, &shares).filter(|_| record.is_split()));
    let watched = &mut pass.in_flight.parts;
    match watched.step(parts, &shown, stop, pass.now) {
        PartsStep::Nothing => {}
        PartsStep::Wait(until) => pass.out.work_queue.add_at(pass.key, until),
        PartsStep::Dispatch => {
            let record = in_parts(record, Parts::Dispatched);
            return CheckResult::write(Write::Dispatch { record });
        }
        PartsStep::Resize => {
            tracing::info!(job = %pass.key, parts = ?shown.resizing, "writing its override for its new size");
            write_override(pass, record, shares);
        }
        PartsStep::Repair => {
            record_repair(pass, &shown.astray);
            write_override(pass, record, shares);
        }
        PartsStep::Evict(cause) => {
            return cause_of_failed_part(pass, record, cause).into();
        }
    }
    CheckResult::Continue
}

fn shown(pass: &JobPass<'_>, record: &AdmissionRecord, shares: &[Share]) -> ObservedParts {
    let mut shown = ObservedParts::default();
    let mut resizing = record.resizable;
    let mark = |index| record.mark(shares, index);
    for (index, share) in shares.iter().enumerate() {
        let mut works = pass.mirror.works.of(pass.binding);
        let work = works.find(|work| *work.cluster == *share.cluster.as_str());
        let Some(work) = work else {
            shown.missing = true;
            continue;
        };
        if work.part.as_deref() != Some(&mark(index)) {
            let made_for = work.part.as_deref().and_then(workload::attempt_of);
            resizing &= made_for == Some(record.attempt);
            shown.astray.push(share.cluster.clone());
        }
    }
    let all = || (0..shares.len()).map(mark).collect();
    shown.resizing = (resizing && !shown.astray.is_empty()).then(all);
    shown
}

fn record_repair(pass: &mut JobPass<'_>, astray: &[ClusterName]) {
    pass.out.metrics.parts_repaired.inc();
    let names: Vec<&str> = astray.iter().map(ClusterName::as_str).collect();
    let message = format!(
        "the Work in {} is not the planned part; its override is written again",
        names.join(", ")
    );
    pass.record_event(JobEvent::warning(Reason::PartsLost, "Repair", message));
}

/// Writes the override of the attempt of `record` again.
fn write_override(pass: &mut JobPass<'_>, record: &AdmissionRecord, shares: Vec<Share>) {
    pass.push(Effect::WriteOverride {
        job: pass.bound_job(),
        parts: PlacedParts {
            attempt: record.attempt,
            shares,
            reach: record.reach(),
        },
        how: OverrideShape {
            resizable: record.resizable,
            whole: record.whole,
            avoided: record.avoided_nodes.clone(),
        },
    });
}

/// Handles the result of writing the override again.
pub(crate) fn parts_written(
    pass: &mut JobPass<'_>,
    attempt: Attempt,
    result: Result<(), OverrideError>,
) {
    let key = pass.key;
    if pass.admission_of(attempt).is_none() {
        return; // of an attempt that is over
    }
    pass.in_flight.parts.repair = match result {
        Ok(()) => OverrideRepair::None,
        // The override goes before the Services of its pods.
        Err(
            error @ (OverrideError::Call { .. }
            | OverrideError::Refused(_)
            | OverrideError::Foreign { .. }
            | OverrideError::NotServed(_)),
        ) => {
            tracing::warn!(job = %key, %error, "cannot write the override of its parts; trying again");
            OverrideRepair::None
        }
        Err(error) => OverrideRepair::Failed(error.to_string()),
    };
    pass.out.work_queue.add(key);
}

/// Suspends the parts of a job whose namespace is being deleted. Its override may go before its Works, and Karmada
/// would then render the whole job in every cluster.
fn hold_parts(record: &AdmissionRecord) -> CheckResult {
    if record.parts != Some(Parts::Dispatched) {
        return CheckResult::Continue;
    }
    let record = in_parts(record, Parts::Held);
    CheckResult::write(Write::Suspend { record })
}

fn in_parts(record: &AdmissionRecord, parts: Parts) -> AdmissionRecord {
    AdmissionRecord {
        parts: Some(parts),
        ..record.clone()
    }
}

/// Returns the stop for a part that failed, or was aborted in its member, while another part goes on.
fn failed_part(binding: &ResourceBinding, shares: &[Share]) -> Option<EvictionCause> {
    let of = |share: &Share| outcome_in(binding, &share.cluster);
    let outcomes: Vec<Outcome> = shares.iter().map(of).collect();
    if !outcomes.contains(&Outcome::Active) {
        return None;
    }
    let failed = shares
        .iter()
        .zip(&outcomes)
        .find_map(|(share, outcome)| match outcome {
            Outcome::Failed { message } => Some((share, message.as_str())),
            Outcome::Suspended => Some((share, "aborted")),
            _ => None,
        });
    let (share, message) = failed?;
    let message = format!(
        "the part on {} failed ({message}), the others were stopped",
        share.cluster
    );
    Some(EvictionCause::new(Reason::PartFailed, message))
}

/// Returns the stop for the other parts when the leading part has succeeded, or a policy has completed a part,
/// and with it the job.
pub(crate) fn led(binding: &ResourceBinding, record: &AdmissionRecord) -> Option<EvictionCause> {
    let leading = record.leading.as_ref();
    let leading = leading.filter(|leading| outcome_in(binding, leading) == Outcome::Succeeded);
    let how = match leading {
        Some(leading) => format!("the part on {leading}, which leads, has succeeded"),
        None => completed(binding, record)?,
    };
    let message = format!("{how}; the other parts were stopped");
    Some(EvictionCause::new(Reason::Succeeded, message))
}

/// Returns the outcome of the part in one cluster.
fn outcome_in(binding: &ResourceBinding, cluster: &ClusterName) -> Outcome {
    let resource = &binding.spec.resource;
    let status = status_in(binding, cluster.as_str());
    workload::outcome(
        &resource.api_version,
        &resource.kind,
        &[status],
        &GangRules::default(),
    )
}
