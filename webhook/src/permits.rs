//! Decides whether the user who submits a job may use its queue.
//!
//! ```text
//! /mutate/templates   ─► stamp: the queue that the user may use, where the namespace may not
//! /validate/templates/managed ─► check: refused where neither may
//! ```
//!
//! It is checked when a template is created and when its queue changes, never at other updates: Karmada's
//! own accounts, which have all rights, update templates too. The API server gives the answer
//! ([`runtime::RightsCache`]). The controller checks again what passes here, and an admission policy
//! (`deploy/admission-permitted-queue.yaml`) keeps users from writing a false stamp, so that no guarantee
//! depends on this webhook alone.

use crate::queues::{QueueIndex, QueueSays};
use crate::review::{Denial, ReviewRequest, UserInfo};
use crds::capacity_policy::RefusedClass;
use crds::names::PERMITTED_QUEUE_ANNOTATION;
use runtime::{Principal, RightsCache};
use serde_json::Value;

/// Checks permissions. Clones share the known answers.
#[derive(Clone)]
pub struct Permits {
    /// What policies and namespaces say.
    pub queues: QueueIndex,
    /// Who may use which queue.
    pub rights: RightsCache,
}

/// Whose right lets a job be in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueuePermit {
    /// The namespace's, by the policy or by a right.
    Namespace,
    /// The right of the user who submits it.
    Submitter,
    Nobody,
}

/// The policies have not been read yet, or the API server did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "muster webhook: cannot check whether {user} may use queue {queue}: {why}; try again in a second"
)]
pub struct Unknown {
    user: String,
    queue: String,
    why: String,
}

/// The result of checking a template, apart from its values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checked {
    /// Why it is refused.
    pub denial: Option<(Denial, String)>,
    /// Warnings that kubectl prints.
    pub warnings: Vec<String>,
}

impl Permits {
    /// Returns the queue to record in the template as permitted for its user, or `None`.
    ///
    /// # Errors
    /// Returns an error if that is unknown at present.
    pub async fn stamp(&self, request: &ReviewRequest<Value>) -> Result<Option<String>, Unknown> {
        let Some(new) = &request.object else {
            return Ok(None);
        };
        if !self.is_moved(request, new) {
            let old = request.old_object.as_ref();
            return Ok(old.and_then(stamp_of).map(str::to_owned));
        }
        let says = self.say(request, new)?;
        let permit = self.permit(request, &says).await?;
        Ok((permit == QueuePermit::Submitter).then_some(says.queue))
    }

    /// Checks a template that is created or changed. An unknown answer refuses nothing: the controller then
    /// holds the job.
    pub async fn check(&self, request: &ReviewRequest<Value>) -> Checked {
        let mut checked = Checked::default();
        let going = |object: &Value| !object["metadata"]["deletionTimestamp"].is_null();
        let Some(new) = request.object.as_ref().filter(|new| !going(new)) else {
            return checked;
        };
        let Ok(says) = self.say(request, new) else {
            return checked;
        };
        let before = request.old_object.as_ref();
        let before = before.and_then(|old| self.say(request, old).ok());
        if self.is_moved(request, new) {
            match self.permit(request, &says).await {
                Ok(QueuePermit::Submitter) if stamp_of(new) != Some(says.queue.as_str()) => {
                    // The right was granted after the template was checked for its stamp. Without the stamp the
                    // controller would hold the job.
                    let why = "the right was granted a moment ago".to_owned();
                    let message = unknown(request, &says.queue, why).to_string();
                    checked.denial = Some((Denial::Forbidden, message));
                }
                Ok(QueuePermit::Namespace | QueuePermit::Submitter) => {}
                Ok(QueuePermit::Nobody) => checked.denial = Some(refusal(request, &says)),
                Err(unknown) => checked.warnings.push(unknown.to_string()),
            }
        }
        // An update is refused only for what it breaks itself.
        let was_wrong = before.is_some_and(|before| before.refused_class == says.refused_class);
        if let Some(refused) = says.refused_class.filter(|_| !was_wrong) {
            let queue = &says.queue;
            let RefusedClass { class, listed, .. } = &refused;
            let message = format!(
                "queue {queue} takes no jobs of PriorityClass {class}: {}; it takes {listed}",
                refused.why(queue)
            );
            checked.denial.get_or_insert((Denial::Forbidden, message));
        }
        if says.preemptible_all_the_same {
            checked.warnings.push(format!(
                "volcano.sh/preemptable: \"false\" has no effect in queue {queue}: spec.preemption.preemptableLabel of capacitypolicy {queue} is Ignore",
                queue = says.queue
            ));
        }
        checked
    }

    /// Returns true if the template is new in its queue.
    fn is_moved(&self, request: &ReviewRequest<Value>, new: &Value) -> bool {
        let queue = |object| self.queues.queue_of(object, &request.namespace);
        match (request.operation.as_str(), &request.old_object) {
            ("CREATE", _) => true,
            ("UPDATE", Some(old)) => queue(old) != queue(new),
            _ => false,
        }
    }

    fn say(&self, request: &ReviewRequest<Value>, template: &Value) -> Result<QueueSays, Unknown> {
        let says = self.queues.say(template, &request.namespace);
        says.ok_or_else(|| {
            let queue = workload::named_queue(template).unwrap_or_default();
            unknown(request, &queue, "queues have not been read yet".to_owned())
        })
    }

    async fn permit(
        &self,
        request: &ReviewRequest<Value>,
        says: &QueueSays,
    ) -> Result<QueuePermit, Unknown> {
        if says.closed.is_none() {
            return Ok(QueuePermit::Namespace);
        }
        let namespace = &request.namespace;
        let asked = [
            (QueuePermit::Namespace, Principal::of_namespace(namespace)),
            (QueuePermit::Submitter, principal(&request.user_info)),
        ];
        for (permit, who) in asked {
            let answer = self.rights.may_use(&who, namespace, &says.queue).await;
            let may = answer.map_err(|error| unknown(request, &says.queue, error.message()))?;
            if may {
                return Ok(permit);
            }
        }
        Ok(QueuePermit::Nobody)
    }
}

fn unknown(request: &ReviewRequest<Value>, queue: &str, why: String) -> Unknown {
    Unknown {
        user: request.user_info.username.clone(),
        queue: queue.to_owned(),
        why,
    }
}

fn refusal(request: &ReviewRequest<Value>, says: &QueueSays) -> (Denial, String) {
    let (user, namespace) = (&request.user_info.username, &request.namespace);
    let QueueSays { queue, closed, .. } = says;
    let why = closed.as_deref().unwrap_or_default();
    let message = format!(
        "{user} may not submit to queue {queue}: {why}, and neither {user} nor the service accounts of {namespace} have the verb use \
         on queues.scheduling.volcano.sh {queue}; name another queue (label muster.io/queue), or ask its owner"
    );
    (Denial::Forbidden, message)
}

fn principal(user: &UserInfo) -> Principal {
    Principal {
        user: user.username.clone(),
        uid: user.uid.clone(),
        groups: user.groups.clone(),
        extra: user.extra.clone(),
    }
}

fn stamp_of(template: &Value) -> Option<&str> {
    template["metadata"]["annotations"][PERMITTED_QUEUE_ANNOTATION].as_str()
}

#[cfg(test)]
mod tests;
