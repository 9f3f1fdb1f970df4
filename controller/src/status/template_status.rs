//! The status of a template while its job is queued, and once it has failed for good. Its kind's own tools read
//! it: `kubectl get job` would say that such a Job runs.
//!
//! It shows the reason why the job waits, and is written when the reason changes, not with every number in the
//! message. Karmada overwrites it with what members report once the job runs. That a job has failed is written
//! where that is final, and only when the job is not queued again.

use crate::mirror::template::Template;
use crate::status::reason_events::QueuedReason;
use crds::record;
use engine::{JobKey, Time};
use jiff::Timestamp;
use runtime::status_writer::{StatusTarget, StatusWriter};
use serde_json::Value;
use std::collections::HashMap;
use workload::QueuedStatus;

/// What the status of a template should say.
#[derive(Debug)]
pub(super) enum TemplateSays<'a> {
    /// Its job is queued, for a reason with a message.
    Queued(&'a QueuedReason, &'a str),
    /// Its job has failed for good: what its parts report, and the message of Muster.
    Failed(Vec<Value>, &'a str),
    /// What its members report, and since when it is admitted, if it is.
    Reported(Option<Timestamp>),
}

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
    /// Why it is queued; `None` if it no longer is, or has failed.
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

    /// Shows in the status of a job's template why the job is queued, that it no longer is, or that it has
    /// failed for good.
    pub(super) fn show(
        &mut self,
        key: &JobKey,
        template: &Template,
        says: &TemplateSays<'_>,
        now: Time,
    ) {
        let kind = &template.key.kind;
        let now = record::seconds(record::timestamp(now));
        let Some(status) = QueuedStatus::of(&kind.api_version, &kind.kind) else {
            return;
        };
        let shown = &template.shown;
        let why = match says {
            TemplateSays::Queued(reason, _) => Some(Why::of(reason)),
            _ => None,
        };
        let patch = match (says, &why) {
            _ if template.deleting || shown.ended => None,
            (TemplateSays::Queued(_, message), Some(why)) => {
                let queued = shown.queued.as_deref();
                let differs = queued.is_none_or(|queued| !why.is_of(queued));
                differs.then(|| status.queued(&why.with(message), &now))
            }
            (TemplateSays::Failed(parts, message), _) => status.failed(shown, parts, message, &now),
            _ => {
                // What its members report starts later than its admission.
                let since = match says {
                    TemplateSays::Reported(Some(admitted)) => record::seconds(*admitted),
                    _ => now,
                };
                (shown.queued.as_ref()).and_then(|_| status.no_longer_queued(&since))
            }
        };
        let Some(mut patch) = patch else {
            return self.forget(key);
        };
        if why.is_none() {
            // The API server may refuse it for any other version.
            patch["metadata"]["resourceVersion"] = template.resource_version.clone().into();
        }
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
        api_resource: template.key.kind.api_resource(),
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
