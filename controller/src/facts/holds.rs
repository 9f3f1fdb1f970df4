//! Why a job may not compete, as its binding and its last record say: known before its quota is free, so that the
//! engine never considers it.

use crate::mirror::Mirror;
use crate::mirror::binding::{admitted_record, own_record};
use crate::mirror::template::Template;
use crds::karmada::ResourceBinding;
use crds::names::RESUME_ANNOTATION;
use crds::record::{AdmissionRecord, RecordState};
use engine::facts::Hold;
use engine::{Attempt, Reason};

/// Returns the record of a job whose last attempt was evicted.
fn evicted_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    let evicted = |record: &AdmissionRecord| {
        matches!(record.state, RecordState::Ending | RecordState::Requeued)
    };
    own_record(binding).filter(evicted)
}

/// Returns the hold of a job that does not compete again: its record says that it had ended when it was
/// evicted.
pub(crate) fn over_before(binding: &ResourceBinding) -> Option<Hold> {
    let record = evicted_record(binding)?;
    match record.reason? {
        Reason::PartFailed => Some(Hold {
            reason: Reason::Failed,
            message: format!(
                "{}; delete it and submit it again to run it once more",
                record.message
            ),
        }),
        Reason::Succeeded => Some(Hold {
            reason: Reason::Succeeded,
            message: record.message,
        }),
        Reason::Aborted => Some(Hold {
            reason: Reason::Aborted,
            message: format!("{}; {}", record.message, how_to_resume(record.attempt)),
        }),
        _ => None,
    }
}

/// Returns how a user resumes an aborted job.
fn how_to_resume(attempt: Attempt) -> String {
    let attempt = attempt.0;
    format!(
        "annotate it with {RESUME_ANNOTATION}={attempt} to queue it again, or delete it and submit it again"
    )
}

/// Returns the hold of a job whose last attempt could not start, while its template is the same.
pub(crate) fn cannot_start(binding: &ResourceBinding, template: &Template) -> Option<Hold> {
    let record = evicted_record(binding)?;
    let failed = record.reason == Some(Reason::PodsCannotStart);
    (failed && record.template_generation == template.generation).then(|| Hold {
        reason: Reason::PodsCannotStart,
        message: format!(
            "{}; it is not tried again before its template changes: mend it, or delete it and submit it again",
            record.message
        ),
    })
}

/// Returns true if members keep the pods of `binding`.
pub(crate) fn preserves(binding: &ResourceBinding) -> bool {
    binding.spec.preserve_resources_on_deletion == Some(true)
}

/// Returns why a job is not admitted: its quota could never be given back.
pub(crate) fn preserved(binding: &ResourceBinding) -> Option<Hold> {
    let pending = admitted_record(binding).is_none();
    (pending && preserves(binding)).then(|| Hold {
        reason: Reason::ResourcesPreserved,
        message: "its propagation policy says preserveResourcesOnDeletion: true, by which its pods would stay when \
                  it is deleted or evicted; set it to false in the policy"
            .to_owned(),
    })
}

/// Returns the hold of a job that cannot be placed as its policy says.
pub(crate) fn placement_refused(binding: &ResourceBinding, template: &Template) -> Option<Hold> {
    let too_large = workload::too_large(binding.spec.placement.as_ref());
    let too_large = too_large.map(|message| Hold {
        reason: Reason::PlacementRefused,
        message,
    });
    too_large.or_else(|| refused_by(&AdmissionRecord::own(binding)?, binding, template))
}

/// Returns the hold of a job whose record says that its placement was refused, while neither has changed.
pub(crate) fn refused_by(
    record: &AdmissionRecord,
    binding: &ResourceBinding,
    template: &Template,
) -> Option<Hold> {
    let back = matches!(record.state, RecordState::Refused | RecordState::Requeued);
    let same = back
        && record.template_generation == template.generation
        && record.refuses_placement_of(binding);
    let again = record.not_before.map(|at| format!(", or at {at}"));
    same.then(|| Hold {
        reason: Reason::PlacementRefused,
        message: format!(
            "{}; it is not tried again before its template or the placement of its policy changes{}",
            record.message,
            again.unwrap_or_default()
        ),
    })
}

/// Returns why a job that was evicted because of overrides still waits: they have not changed.
pub(crate) fn still_overridden(mirror: &Mirror, binding: &ResourceBinding) -> Option<Hold> {
    let overridden = |record: &AdmissionRecord| record.reason == Some(Reason::OverrideExceeds);
    let record = evicted_record(binding).filter(overridden)?;
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    let mut policies = record.overrides.iter();
    let still = policies.find(|of| {
        let now = mirror.overrides.generation(&of.policy, namespace);
        now.is_some() && now == of.generation
    })?;
    Some(Hold {
        reason: Reason::OverrideExceeds,
        message: format!(
            "{}; {} has not changed: change or delete it, or submit the job with the values that the policy sets",
            record.message, still.policy
        ),
    })
}
