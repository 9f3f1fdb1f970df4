//! Jobs whose Works request more than the jobs are charged, because something was overridden after the
//! charge.
//!
//! ```text
//! Works, as they are applied ─► more than shares and leaving pods? ─► engine: charged at once
//!                                        │ an override applies, for 2 s
//!                                        ▼
//!         dispatching suspended, condition and event ─► after the grace: evicted, waits until the
//!                                        │              override has changed or is gone
//!                                        └─► no more beyond: dispatched; the charge falls when the
//!                                            pods in the member have become fewer
//! ```
//!
//! A Work's requests are compared each time that they change. The parts of a gang are compared too: each
//! requests its share. While parts are suspended none of them runs. If the size of a Work cannot be read
//! (its kind is unknown), nothing is compared. An excess without an override (a placement or Work that a
//! user wrote by hand, or Karmada lagging behind an edit) is charged and reported, and the job is not
//! evicted. A job that ran before Muster managed it is charged too, and never evicted for it.
//!
//! Suspended dispatching does not remove what has been dispatched: it keeps further changes from the
//! members. Karmada's detector removes the suspension at each change of the template, and the controller
//! sets it again.

use crate::facts::running::{foreign_overrides, sum};
use crate::messages::job_event::JobEvent;
use crate::mirror::Mirror;
use crate::mirror::binding::own_record;
use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::output::Output;
use crate::reconcile::placed::Placed;
use binding_writer::Write;
use crds::karmada::AppliedOverride;
use crds::record::{AdmissionRecord, Parts, RecordedOverride};
use engine::{ClusterName, Engine, Event, JobKey, Reason, ResourceName, Resources, Time};
use kube::core::ObjectMeta;
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet};
use workload::Rendered;

/// Milliseconds for which Works have to show an excess before it counts: a record, a template and the Works
/// rendered from them do not arrive at the same time.
const PERSISTS_MS: i64 = 2_000;
/// Milliseconds for which a Work and the member's pods have to be within the charge before the excess is no
/// longer charged: the member may still start earlier pods.
const SETTLE_MS: i64 = 5_000;
/// Milliseconds between two checks.
const RECHECK_MS: i64 = 1_000;

/// State of a job whose Works request more than was admitted. The record says since when they do.
#[derive(Debug, Default)]
pub(crate) struct ExcessState {
    /// Since when some Work requests more.
    since: Option<Time>,
    /// The excess in each cluster, and since when it no longer exists.
    beyond: BTreeMap<ClusterName, (Rendered, Option<Time>)>,
    /// The message to its user, while there is one.
    message: Option<String>,
}

impl ExcessState {
    /// Returns the message to its user.
    pub(crate) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }
}

/// What some Works request beyond the charge.
#[derive(Debug, Default)]
pub(crate) struct ObservedExcess {
    excess: BTreeMap<ClusterName, Resources>,
    /// Policies that apply to these Works and were not written by Muster for the job.
    overrides: BTreeSet<AppliedOverride>,
}

/// Charges what the Works of a placed job request beyond its admission, and ends the excess after the
/// grace period.
pub(crate) fn check_excess(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let record = &placed.record;
    let found = charge_excess(pass, record);
    if record.adopted {
        return CheckResult::Continue;
    }
    if found.excess.is_empty() {
        return resume_within_admission(pass, record);
    }
    let since = pass.in_flight.excess.since.get_or_insert(pass.now);
    let since = match record.exceeds_since {
        Some(at) => Time(at.as_millisecond()).min(*since),
        None => *since,
    };
    let persists = since.after(PERSISTS_MS);
    if pass.now < persists {
        pass.out.work_queue.add_at(pass.key, persists);
        return CheckResult::Continue;
    }
    let deadline = since.after(pass.options.override_grace_ms);
    report_excess(pass, &found, deadline);
    if found.overrides.is_empty() || pass.namespace().terminating {
        return CheckResult::Continue;
    }
    if pass.now >= deadline && pass.enforcement.allows_decisions() {
        return cause_of_overridden(pass, record, &found).into();
    }
    pass.out.work_queue.add_at(pass.key, deadline);
    let suspended = pass.binding.spec.suspension.as_ref();
    let suspended = suspended.and_then(|suspension| suspension.dispatching) == Some(true);
    if record.exceeds_since.is_some() && suspended {
        return CheckResult::Continue;
    }
    let record = AdmissionRecord {
        exceeds_since: Some(crds::record::timestamp(since)),
        ..record.clone()
    };
    CheckResult::write(Write::Suspend { record })
}

/// Resumes dispatching once the Works request what was admitted.
fn resume_within_admission(pass: &mut JobPass<'_>, record: &AdmissionRecord) -> CheckResult {
    let still_charged = pass.engine.excess(pass.key).is_some_and(|e| !e.is_empty());
    let watched = &mut pass.in_flight.excess;
    watched.since = None;
    if !still_charged {
        watched.message = None;
    } else if watched.message.is_some() {
        let message = "its Works request what was admitted again; the excess is charged until its pods are gone";
        watched.message = Some(message.to_owned());
    }
    if record.exceeds_since.is_none() || record.parts == Some(Parts::Held) {
        return CheckResult::Continue;
    }
    let record = AdmissionRecord {
        exceeds_since: None,
        ..record.clone()
    };
    CheckResult::write(Write::Dispatch { record })
}

/// Charges in the engine what the Works of a job request beyond its admission, and what pods of such Works
/// still use. Returns what they request now.
pub(crate) fn charge_excess(pass: &mut JobPass<'_>, record: &AdmissionRecord) -> ObservedExcess {
    let is_charged = pass.admission_of(record.attempt).is_some();
    if !is_charged || record.parts == Some(Parts::Held) {
        return ObservedExcess::default();
    }
    let surge = pass.view().surge_of(pass.binding, record);
    let mut found = ObservedExcess::default();
    let mut asked: BTreeMap<ClusterName, Rendered> = BTreeMap::new();
    for work in pass.mirror.works.of(pass.binding) {
        let Some(rendered) = pass.view().rendered(pass.key, work) else {
            continue;
        };
        let cluster = ClusterName::new(&work.cluster);
        let beyond = rendered.beyond(&charged_in(pass.engine, pass.key, &cluster), &surge);
        if beyond.is_empty() {
            continue;
        }
        let others = foreign_overrides(pass.key, work);
        found.overrides.extend(others.cloned());
        found.excess.insert(cluster.clone(), beyond);
        asked.insert(cluster, rendered);
    }
    let excess = with_remaining_excess(pass, asked, &surge);
    if pass
        .engine
        .excess(pass.key)
        .is_some_and(|known| *known != excess)
    {
        tracing::info!(job = %pass.key, ?excess, "Works request more than was admitted; the excess is charged");
        let (key, attempt) = (pass.key.clone(), record.attempt);
        pass.apply(Event::JobExceeds {
            key,
            attempt,
            excess,
        });
    }
    found
}

/// Adds to `asked` the earlier excess that may still run.
fn with_remaining_excess(
    pass: &mut JobPass<'_>,
    asked: BTreeMap<ClusterName, Rendered>,
    surge: &Resources,
) -> BTreeMap<ClusterName, Resources> {
    let ask_now: BTreeSet<ClusterName> = asked.keys().cloned().collect();
    let mut remembered = std::mem::take(&mut pass.in_flight.excess.beyond);
    for (cluster, rendered) in asked {
        remembered.insert(cluster, (rendered, None));
    }
    let mut excess = BTreeMap::new();
    remembered.retain(|cluster, (rendered, back_since)| {
        let charged = charged_in(pass.engine, pass.key, cluster);
        let beyond = rendered.beyond(&charged, surge);
        let pods = pass.engine.pods_of(pass.key).request_in(cluster);
        let stays = |(name, _): (&ResourceName, _)| pods.amount_of(name) > charged.amount_of(name);
        if ask_now.contains(cluster) || beyond.iter().any(stays) {
            *back_since = None;
        } else {
            back_since.get_or_insert(pass.now);
        }
        let over = back_since.is_some_and(|since| pass.now >= since.after(SETTLE_MS));
        if over || beyond.is_empty() {
            return false;
        }
        excess.insert(cluster.clone(), beyond);
        true
    });
    if !remembered.is_empty() {
        pass.out
            .work_queue
            .add_at(pass.key, pass.now.after(RECHECK_MS));
    }
    pass.in_flight.excess.beyond = remembered;
    excess
}

/// Returns what is charged in one cluster: its share and the pods that are leaving.
fn charged_in(engine: &Engine, key: &JobKey, cluster: &ClusterName) -> Resources {
    let job = engine.job(key);
    let shares = job.and_then(|job| job.admission);
    let shares = shares.iter().flat_map(|held| &held.shares);
    let shares = shares.filter(|share| share.cluster == *cluster);
    let leaving = engine.pods_of(key).leaving().iter();
    let leaving = leaving.filter(|leaving| leaving.cluster == *cluster);
    let charges = shares.flat_map(|share| share.charge.values());
    let charges = charges.chain(leaving.flat_map(|leaving| leaving.charge.values()));
    sum(charges)
}

/// Reports the excess to the user, once for each message.
fn report_excess(pass: &mut JobPass<'_>, found: &ObservedExcess, deadline: Time) {
    let more = format_excess(&found.excess);
    let message = match found.overrides.is_empty() {
        true => format!(
            "its Works request more than was admitted ({more}), and no override applies to them: its placement \
             or a Work was changed by hand, or Karmada is behind; the excess is charged"
        ),
        false => format!(
            "{} its Works request more than was admitted ({more}): the excess is charged, nothing more is \
             dispatched, and at {:.0} the job is evicted; change or delete the policy",
            format_subject(&found.overrides),
            crds::record::timestamp(deadline),
        ),
    };
    let watched = &mut pass.in_flight.excess;
    if watched.message.as_ref() != Some(&message) {
        watched.message = Some(message.clone());
        let event = JobEvent::warning(Reason::OverrideExceeds, "Hold", message);
        pass.record_event(event);
    }
}

/// Returns why a job is evicted that was overridden for longer than the grace period. The record says which
/// versions of which policies did so: the job waits until they have changed.
fn cause_of_overridden(
    pass: &JobPass<'_>,
    record: &AdmissionRecord,
    found: &ObservedExcess,
) -> EvictionCause {
    let message = format!(
        "{} its Works request more than was admitted ({}), for more than {} s",
        format_subject(&found.overrides),
        format_excess(&found.excess),
        pass.options.override_grace_ms / 1_000,
    );
    let of = |policy: &AppliedOverride| RecordedOverride {
        policy: policy.clone(),
        generation: pass
            .mirror
            .overrides
            .generation(policy, &pass.key.namespace),
    };
    let record = AdmissionRecord {
        overrides: found.overrides.iter().map(of).collect(),
        ..record.clone()
    };
    EvictionCause::new(Reason::OverrideExceeds, message).with_record(record)
}

/// Handles a change of an override policy: reconciles the jobs that wait for it.
pub(crate) fn override_policy(mirror: &mut Mirror, out: &mut Output, delta: Delta<ObjectMeta>) {
    let (policy, generation) = match delta {
        Delta::Upserted(metadata) => {
            if is_ours(&metadata) {
                return;
            }
            let key = ObjectKey {
                namespace: metadata.namespace,
                name: metadata.name.unwrap_or_default(),
            };
            (key, Some(metadata.generation.unwrap_or_default()))
        }
        Delta::Gone(key) => (key, None),
        Delta::Listed => return,
    };
    if !mirror.overrides.note(policy, generation) {
        return;
    }
    let bindings = mirror.bindings().iter();
    let waiting = bindings.filter(|(_, binding)| {
        own_record(binding).is_some_and(|record| !record.overrides.is_empty())
    });
    out.work_queue.extend(waiting.map(|(key, _)| key.clone()));
}

/// Returns true if Muster wrote the policy for a job: the job's binding owns it.
fn is_ours(metadata: &ObjectMeta) -> bool {
    let mut owners = metadata.owner_references.iter().flatten();
    let named = |binding: &str| {
        metadata
            .name
            .as_deref()
            .is_some_and(|name| name.starts_with(&format!("muster-{binding}")))
    };
    owners.any(|owner| owner.kind == "ResourceBinding" && named(&owner.name))
}

/// Formats an excess: `nvidia.com/gpu 16 in m1, nvidia.com/gpu 8 in m2`.
fn format_excess(excess: &BTreeMap<ClusterName, Resources>) -> String {
    let parts = excess
        .iter()
        .map(|(cluster, more)| format!("{more} more in {cluster}"));
    parts.collect::<Vec<_>>().join(", ")
}

/// Formats the subject of a sentence: `ClusterOverridePolicy a and OverridePolicy b make`.
fn format_subject(policies: &BTreeSet<AppliedOverride>) -> String {
    let names: Vec<String> = policies.iter().map(ToString::to_string).collect();
    let verb = if names.len() == 1 { "makes" } else { "make" };
    format!("{} {verb}", names.join(" and "))
}
