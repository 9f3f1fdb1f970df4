//! Jobs whose pods could not start through a fault of their own: an image that does not exist, a command that
//! ends at once. Another attempt would only hold devices again, so such a job waits until its template
//! changes.

use crate::mirror::binding::own_record;
use crate::mirror::template::Template;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, RecordState};
use engine::Reason;
use engine::facts::Hold;

/// Returns the hold of a job whose last attempt could not start, while its template is the same.
pub(crate) fn hold(binding: &ResourceBinding, template: &Template) -> Option<Hold> {
    // Known before its quota is free, so that the engine never considers it.
    let record = own_record(binding)?;
    let back = matches!(record.state, RecordState::Ending | RecordState::Requeued);
    let failed = back && record.reason == Some(Reason::PodsCannotStart);
    (failed && record.template_generation == template.generation).then(|| Hold {
        reason: Reason::PodsCannotStart,
        message: format!(
            "{}; it is not tried again before its template changes: mend it, or delete it and submit it again",
            record.message
        ),
    })
}

/// Completes a record, before it is written, with the generation of the template of its attempt: that of
/// `before` if it is of the same attempt. A template that was mended since the admission has another one.
pub(crate) fn keep_generation(
    record: &mut AdmissionRecord,
    before: Option<&AdmissionRecord>,
    template: Option<&Template>,
) {
    record.template_generation = match before.filter(|before| before.attempt == record.attempt) {
        Some(before) => before.template_generation,
        None => template.and_then(|template| template.generation),
    };
}
