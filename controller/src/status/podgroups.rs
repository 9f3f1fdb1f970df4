//! PodGroups on the control plane: one for each job, with the name of its binding, owned by its template.
//!
//! The spec says what the gang needs, the status what its state is. Pure: this module computes object and
//! status, and others write them.

use crate::mirror::binding::unreadable;
use crate::mirror::seen_work::SeenWork;
use crate::reconcile::placed::{outcome, status_in, statuses};
use crate::status::outlook;
use crds::conditions::Statement;
use crds::karmada::ResourceBinding;
use crds::podgroup::{
    FederationStatus, PlacedPart, PodGroup, PodGroupCondition, PodGroupStatus, StatusWord,
    Timeline, condition_type, phase, placement_summary, set_condition, shown_position,
};
use crds::record::AdmissionRecord;
use engine::decision::StartRange;
use engine::facts::{Demand, JobFact, Role};
use engine::{Explanation, JobKey, JobState, JobView, QueueName, Reason};
use serde_json::{Map, Value, json};
use workload::{Outcome, PodCounts, WorkloadSpec};

#[cfg(test)]
mod tests;

/// Returns the object without its status, for a server-side apply. `queue` is the queue that the job is charged to,
/// or pending in: an edit of its template that names another one counts from the next attempt on.
pub(crate) fn object(
    key: &JobKey,
    binding: &ResourceBinding,
    fact: &JobFact,
    queue: &QueueName,
    ask: Option<&WorkloadSpec>,
) -> Value {
    let template = &binding.spec.resource;
    let mut spec = json!({ "queue": queue });
    if let Some(ask) = ask {
        spec["minMember"] = ask.min_available.into();
        set_unless_empty(&mut spec, "minResources", json!(ask.min_resources));
        set_unless_empty(&mut spec, "minTaskMember", json!(ask.min_task_member));
        if let Some(class) = &fact.priority_class {
            spec["priorityClassName"] = class.clone().into();
        }
        if let Some(topology) = &ask.network_topology {
            set_unless_empty(&mut spec, "networkTopology", topology.clone());
        }
    }
    json!({
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "ownerReferences": [{
                "apiVersion": template.api_version,
                "kind": template.kind,
                "name": template.name,
                "uid": template.uid,
            }],
        },
        "spec": spec,
    })
}

/// Sets a field that has content. Where an earlier apply set entries of an object, applying it empty makes the API
/// server write null in its place, which the schema of the CRD refuses; a field that is left out is removed.
fn set_unless_empty(spec: &mut Value, field: &str, value: Value) {
    let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
    if !is_empty {
        spec[field] = value;
    }
}

/// Returns true if an existing PodGroup has all that `object` would apply.
pub(crate) fn shows(seen: &PodGroup, object: &Value) -> bool {
    let owned = |podgroup: &PodGroup| {
        let owners = podgroup.metadata.owner_references.iter().flatten();
        owners.map(|owner| owner.uid.clone()).collect::<Vec<_>>()
    };
    serde_json::from_value::<PodGroup>(object.clone())
        .is_ok_and(|wanted| wanted.spec == seen.spec && owned(&wanted) == owned(seen))
}

/// Returns true if an existing status equals `status`. The API stores times in seconds and omits nulls in
/// lists, so the comparison uses what would be written.
pub(crate) fn status_equals(seen: Option<&PodGroupStatus>, status: &PodGroupStatus) -> bool {
    seen == Some(status) || seen.is_some_and(|seen| json!(seen) == json!(status))
}

/// Input of a status.
pub(crate) struct StatusInputs<'a> {
    /// The existing status, which keeps its times of transitions.
    pub(crate) seen: Option<&'a PodGroupStatus>,
    pub(crate) explanation: &'a Explanation,
    pub(crate) view: &'a JobView<'a>,
    /// When it reached each stage.
    pub(crate) timeline: Timeline,
    /// When it is expected to start.
    pub(crate) start: Option<StartRange>,
    pub(crate) binding: &'a ResourceBinding,
    /// What its template says, if there is one.
    pub(crate) fact: Option<&'a JobFact>,
    pub(crate) works: &'a [SeenWork],
    /// What its Works request beyond what was admitted, as text, if they do.
    pub(crate) excess: Option<&'a str>,
    /// The reason that the job shows, with its message ([`reason_of`]).
    pub(crate) reason: (Reason, &'a str),
    /// What another user has changed in its admission record, if so.
    pub(crate) record_changed: Option<&'a str>,
    /// What its policy asks for and does not get; empty if nothing.
    pub(crate) not_followed: &'a str,
    pub(crate) now: jiff::Timestamp,
}

/// Returns the status of a job's PodGroup.
pub(crate) fn status(shown: &StatusInputs<'_>) -> PodGroupStatus {
    let counts = counts(shown.binding);
    let (reason, message) = shown.reason;
    let seen = shown.seen.and_then(|seen| seen.federation.as_ref());
    let placement = placement(shown);
    let conditions = conditions(shown, reason, message);
    let phase = phase_of(state_of(shown));
    // Without a template, what was known of it stays.
    PodGroupStatus {
        phase: Some(phase.to_owned()),
        conditions,
        running: Some(number(counts.running)),
        succeeded: Some(number(counts.succeeded)),
        failed: Some(number(counts.failed)),
        federation: Some(FederationStatus {
            status: Some(StatusWord::of(phase, reason.as_str()).to_string()),
            position: shown
                .explanation
                .position
                .map(|place| shown_position(place as u64)),
            placement_summary: placement_summary(&placement),
            placement,
            reason: Some(reason.to_string()),
            message: Some(message.to_owned()),
            evidence: outlook::evidence(&shown.explanation.evidence),
            helps: outlook::helps(&shown.explanation.helps),
            ahead: shown.explanation.ahead.map(outlook::ahead),
            start: shown.start.as_ref().map(|range| {
                let seen = seen.and_then(|seen| seen.start.as_ref());
                outlook::start_or_seen(range, seen, shown.now)
            }),
            eviction: outlook::last_eviction(
                record(shown.binding).as_ref(),
                seen.and_then(|seen| seen.eviction.as_ref().or(seen.taken_back.as_ref())),
            ),
            taken_back: None,
            attempt: Some(number(shown.view.attempts.0)),
            priority: Some(shown.view.priority),
            user: match shown.fact {
                Some(fact) => Some(fact.user.clone()).filter(|user| !user.is_empty()),
                None => seen.and_then(|seen| seen.user.clone()),
            },
            devices: match shown.fact {
                Some(fact) => Some(devices(&fact.demand)),
                None => seen.and_then(|seen| seen.devices),
            },
            expected_duration_seconds: match shown.fact {
                Some(fact) => fact.expected_duration_ms.map(|millis| millis / 1_000),
                None => seen.and_then(|seen| seen.expected_duration_seconds),
            },
            timeline: shown.timeline.clone(),
        }),
    }
}

/// Returns the number of devices that all pods of a job request together.
fn devices(demand: &Demand) -> i64 {
    let of_role = |role: &Role| {
        let named = role.request.iter().filter(|(name, _)| name.is_device());
        let each: i64 = named.map(|(_, amount)| amount.0).sum();
        each.saturating_mul(i64::from(role.count))
    };
    demand.roles.iter().map(of_role).sum()
}

/// Returns the reason that a job shows, with its message: that of the engine, or what its binding and its
/// Works say. `excess` is what its Works request beyond what was admitted, as text, and `failure` why it failed and
/// is not queued again.
pub(crate) fn reason_of<'a>(
    explanation: &Explanation,
    state: JobState,
    binding: &ResourceBinding,
    mut works: impl Iterator<Item = &'a SeenWork>,
    excess: Option<&str>,
    failure: Option<&str>,
) -> (Reason, String) {
    let refused = works.find_map(|work| Some((work, work.refused.as_ref()?)));
    let explained = &explanation.message;
    let unreadable = unreadable(binding).map(|error| error.to_string());
    match (state, refused, outcome(binding)) {
        _ if let Some(message) = unreadable => (Reason::RecordUnreadable, message),
        (JobState::Placed | JobState::Running, _, _) if let Some(excess) = excess => {
            (Reason::OverrideExceeds, excess.to_owned())
        }
        (JobState::Placed, Some((work, message)), _) => (
            Reason::MemberRefused,
            format!("{} refused it: {message}", work.cluster),
        ),
        (JobState::Finished, _, Outcome::Succeeded) => (Reason::Succeeded, explained.clone()),
        (JobState::Finished, _, Outcome::Failed { message }) => {
            let why = failure.map_or_else(String::new, |why| format!("; {why}"));
            (
                Reason::Failed,
                format!("failed: {message}{why}; {explained}"),
            )
        }
        (JobState::Finished, _, Outcome::Suspended) => (
            Reason::Suspended,
            "aborted in its member; it is charged again at once if it is resumed there".to_owned(),
        ),
        _ => (explanation.reason, explained.clone()),
    }
}

fn counts(binding: &ResourceBinding) -> PodCounts {
    let resource = &binding.spec.resource;
    workload::counts(&resource.api_version, &resource.kind, &statuses(binding))
}

/// Returns the binding's admission record, if it has a readable one.
fn record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    AdmissionRecord::read(binding.metadata.annotations.as_ref())
        .ok()
        .flatten()
}

fn number(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns the job's state. A job whose parts were stopped because it had ended, and which may not compete
/// again, counts as ended.
fn state_of(shown: &StatusInputs<'_>) -> JobState {
    let over = matches!(shown.explanation.reason, Reason::Failed | Reason::Succeeded);
    match shown.view.state {
        JobState::Queued if over => JobState::Finished,
        state => state,
    }
}

/// Returns Volcano's phase of a job's state.
fn phase_of(state: JobState) -> &'static str {
    match state {
        JobState::Queued => phase::PENDING,
        JobState::Assumed | JobState::Placed => phase::INQUEUE,
        JobState::Running => phase::RUNNING,
        JobState::Ending => phase::UNKNOWN,
        JobState::Finished => phase::COMPLETED,
    }
}

/// Returns the conditions as they are now. A condition that became true keeps its message while it is true;
/// one that is false says what the job waits for. The message of `Finished` says what is left of the job, and follows.
fn conditions(shown: &StatusInputs<'_>, reason: Reason, message: &str) -> Vec<PodGroupCondition> {
    let mut conditions = shown
        .seen
        .map(|seen| seen.conditions.clone())
        .unwrap_or_default();
    for (type_, holds, came_true) in holding(state_of(shown)) {
        let stands = conditions.iter().any(|condition| {
            let follows = type_ == condition_type::FINISHED && condition.reason == reason.as_str();
            condition.type_ == type_ && condition.status == "True" && !follows
        });
        if holds && stands {
            continue;
        }
        let reason = match (holds, type_) {
            (true, condition_type::FINISHED) | (false, _) => reason,
            (true, _) => came_true,
        };
        let statement = Statement {
            type_,
            holds: Some(holds),
            reason: reason.as_str(),
            message,
        };
        set_condition(&mut conditions, &statement, shown.now);
    }
    if let Some(statement) = record_readable(&conditions, shown.binding) {
        let (reason, message) = &statement;
        let statement = Statement {
            type_: condition_type::RECORD_READABLE,
            holds: Some(*reason != Reason::RecordUnreadable),
            reason: reason.as_str(),
            message,
        };
        set_condition(&mut conditions, &statement, shown.now);
    }
    if let Some((reason, message)) = within_admission(&conditions, shown, reason, message) {
        let statement = Statement {
            type_: condition_type::WITHIN_ADMISSION,
            holds: Some(reason != Reason::OverrideExceeds),
            reason: reason.as_str(),
            message: &message,
        };
        set_condition(&mut conditions, &statement, shown.now);
    }
    if let Some((reason, message)) = policy_followed(&conditions, shown) {
        let statement = Statement {
            type_: condition_type::POLICY_FOLLOWED,
            holds: Some(reason != Reason::PolicyNotFollowed),
            reason: reason.as_str(),
            message,
        };
        set_condition(&mut conditions, &statement, shown.now);
    }
    if let Some((reason, message)) = record_intact(&conditions, shown) {
        let statement = Statement {
            type_: condition_type::RECORD_INTACT,
            holds: Some(reason != Reason::RecordChanged),
            reason: reason.as_str(),
            message: &message,
        };
        set_condition(&mut conditions, &statement, shown.now);
    }
    conditions
}

/// Condition: whether its Works request only what was admitted.
fn within_admission(
    conditions: &[PodGroupCondition],
    shown: &StatusInputs<'_>,
    reason: Reason,
    message: &str,
) -> Option<(Reason, String)> {
    if let Some(excess) = shown.excess {
        return Some((Reason::OverrideExceeds, excess.to_owned()));
    }
    if reason == Reason::OverrideExceeds {
        return Some((reason, message.to_owned()));
    }
    let mut conditions = conditions.iter();
    let was = conditions.any(|condition| condition.type_ == condition_type::WITHIN_ADMISSION);
    was.then(|| {
        let message = "its Works request what was admitted";
        (Reason::Admitted, message.to_owned())
    })
}

/// Condition: whether all that its policy asks for is done.
fn policy_followed<'a>(
    conditions: &[PodGroupCondition],
    shown: &StatusInputs<'a>,
) -> Option<(Reason, &'a str)> {
    if !shown.not_followed.is_empty() {
        return Some((Reason::PolicyNotFollowed, shown.not_followed));
    }
    let mut conditions = conditions.iter();
    let was = conditions.any(|condition| condition.type_ == condition_type::POLICY_FOLLOWED);
    was.then_some((
        Reason::Admitted,
        "its propagation policy asks for nothing that is not done",
    ))
}

/// Returns true if a status says that a policy is not followed, with this text.
pub(crate) fn tells_of_policy(seen: Option<&PodGroupStatus>, not_followed: &str) -> bool {
    let conditions = seen.map(|seen| seen.conditions.iter());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| {
        condition.type_ == condition_type::POLICY_FOLLOWED
            && condition.status == "False"
            && condition.message == not_followed
    })
}

/// Condition: whether another user has changed the record, or it belongs to a later attempt.
fn record_intact(
    conditions: &[PodGroupCondition],
    shown: &StatusInputs<'_>,
) -> Option<(Reason, String)> {
    if let Some(message) = shown.record_changed {
        return Some((Reason::RecordChanged, message.to_owned()));
    }
    let mut conditions = conditions.iter();
    let was = conditions.any(|condition| condition.type_ == condition_type::RECORD_INTACT);
    let seen = shown.seen.and_then(|seen| seen.federation.as_ref());
    let of_now = seen.and_then(|seen| seen.attempt) == Some(number(shown.view.attempts.0));
    (was && !of_now).then(|| {
        (
            Reason::Admitted,
            "its admission record is of a later attempt".to_owned(),
        )
    })
}

/// Condition: why the record cannot be acted on, or that it can be again.
fn record_readable(
    conditions: &[PodGroupCondition],
    binding: &ResourceBinding,
) -> Option<(Reason, String)> {
    if let Some(error) = unreadable(binding) {
        return Some((Reason::RecordUnreadable, error.to_string()));
    }
    let mut conditions = conditions.iter();
    let was = conditions.any(|condition| condition.type_ == condition_type::RECORD_READABLE);
    was.then(|| {
        (
            Reason::Admitted,
            "its admission record can be read again".to_owned(),
        )
    })
}

/// Returns the conditions in the order in which a job meets them: the type, whether it is true, and the
/// reason with which it became true.
fn holding(state: JobState) -> [(&'static str, bool, Reason); 4] {
    use JobState::{Ending, Finished, Placed, Queued, Running};
    let placed = matches!(state, Placed | Running | Finished);
    [
        (
            condition_type::ADMITTED,
            !matches!(state, Queued | Ending),
            Reason::Admitted,
        ),
        (condition_type::PLACED, placed, Reason::Placed),
        (
            condition_type::READY,
            matches!(state, Running),
            Reason::Running,
        ),
        (
            condition_type::FINISHED,
            matches!(state, Finished),
            Reason::Succeeded,
        ),
    ]
}

/// Returns its parts by cluster, with what each member reports.
fn placement(shown: &StatusInputs<'_>) -> Vec<PlacedPart> {
    let Some(admission) = shown.view.admission else {
        return Vec::new();
    };
    let resource = &shown.binding.spec.resource;
    admission
        .shares
        .iter()
        .map(|share| {
            let cluster = share.cluster.as_str();
            let status = status_in(shown.binding, cluster);
            let counts = workload::counts(&resource.api_version, &resource.kind, &[status]);
            let refused = shown
                .works
                .iter()
                .find(|work| work.cluster == cluster)
                .and_then(|work| work.refused.as_ref());
            PlacedPart {
                cluster: cluster.to_owned(),
                pods: number(share.replicas()),
                ready: number(counts.running),
                phase: part_phase(&counts).to_owned(),
                reason: refused
                    .map(|_| Reason::MemberRefused.to_string())
                    .unwrap_or_default(),
            }
        })
        .collect()
}

fn part_phase(counts: &PodCounts) -> &'static str {
    match counts {
        PodCounts { running: 1.., .. } => phase::RUNNING,
        PodCounts { failed: 1.., .. } => "Failed",
        PodCounts {
            succeeded: 1..,
            pending: 0,
            ..
        } => phase::COMPLETED,
        _ => phase::PENDING,
    }
}
