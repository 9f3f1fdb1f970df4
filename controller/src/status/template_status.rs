//! The status of a template while its job is queued. Its kind's own tools read it: `kubectl get job` would say
//! that a queued Job runs.
//!
//! It shows the reason why the job waits, and is written when the reason changes, not with every number in the
//! message. Karmada overwrites it with what members report once the job runs.

use crate::ingest::template_watches::api_resource;
use crate::mirror::template::Template;
use crate::status::reason_events::QueuedReason;
use crds::record;
use engine::{JobKey, Time};
use runtime::status_writer::{StatusTarget, StatusWriter};
use std::collections::HashMap;
use workload::QueuedStatus;

/// Writes the statuses of templates.
#[derive(Debug)]
pub(crate) struct TemplateStatuses {
    writer: StatusWriter,
    /// What was submitted and has not been seen yet.
    submitted: HashMap<JobKey, Submitted>,
}

#[derive(Debug, PartialEq, Eq)]
struct Submitted {
    target: StatusTarget,
    /// Why it is queued; `None` if it no longer is.
    why: Option<Why>,
    /// The version of the template without it. It is not submitted twice for one version: a control plane that
    /// does not take it would be asked again and again.
    version: String,
}

impl TemplateStatuses {
    pub(super) fn new(writer: StatusWriter) -> Self {
        Self {
            writer,
            submitted: HashMap::new(),
        }
    }

    /// Shows in the status of a job's template why the job is queued, or that it no longer is.
    pub(super) fn show(
        &mut self,
        key: &JobKey,
        template: &Template,
        queued: Option<(&QueuedReason, &str)>,
        now: Time,
    ) {
        let kind = &template.key.kind;
        let now = record::seconds(record::timestamp(now));
        let Some(status) = QueuedStatus::of(&kind.api_version, &kind.kind) else {
            return;
        };
        let shown = template.shown_as_queued.as_deref();
        let why = queued.map(|(reason, _)| Why::of(reason));
        let patch = match (queued, &why) {
            _ if template.deleting => None,
            (Some((_, message)), Some(why)) => {
                let differs = shown.is_none_or(|shown| !why.is_of(shown));
                differs.then(|| status.queued(&why.with(message), &now))
            }
            _ => shown.and_then(|_| status.no_longer_queued(&now)),
        };
        let Some(patch) = patch else {
            return self.forget(key);
        };
        let target = target(template, status);
        let submitted = Submitted {
            target: target.clone(),
            why,
            version: template.resource_version.clone(),
        };
        if self.submitted.get(key) != Some(&submitted) {
            self.submitted.insert(key.clone(), submitted);
            self.writer.write(target, patch);
        }
    }

    /// Drops what was submitted for a job and not written yet.
    pub(super) fn forget(&mut self, key: &JobKey) {
        if let Some(submitted) = self.submitted.remove(key) {
            self.writer.forget(&submitted.target);
        }
    }
}

fn target(template: &Template, status: QueuedStatus) -> StatusTarget {
    StatusTarget {
        api_resource: api_resource(&template.key.kind),
        namespace: Some(template.key.namespace.clone()),
        name: template.key.name.clone(),
        subresource: Some("status"),
        strategic: status.is_strategic(),
    }
}

/// The beginning of what a status says: reason and queue.
#[derive(Debug, PartialEq, Eq)]
struct Why(String);

impl Why {
    fn of(reason: &QueuedReason) -> Self {
        let QueuedReason { reason, queue } = reason;
        Self(format!("{reason} in queue {queue}: "))
    }

    fn is_of(&self, shown: &str) -> bool {
        shown.starts_with(&self.0)
    }

    fn with(&self, message: &str) -> String {
        format!("{}{message}", self.0)
    }
}
