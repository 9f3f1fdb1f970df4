//! Jobs whose pods could not start through a fault of their own: an image that does not exist, a command that
//! ends at once. Another attempt would only hold devices again, so such a job waits until its template
//! changes.

use crate::mirror::template::Template;
use crds::record::AdmissionRecord;

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
