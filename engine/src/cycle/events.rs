//! What each event changes.
//!
//! Events are levels, not edges: the same one twice changes nothing, and one about an older
//! attempt than the last is ignored.

use crate::api::event::Event;
use crate::engine::Engine;
use crate::jobs::drain::is_emptied;
use crate::jobs::job::Cause;

impl Engine {
    /// Takes in what became known. Costs what the touched object costs, whatever is queued.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::QueueUpserted(fact) => {
                let name = self.jobs.share_queue(&fact.name);
                self.queue_told(&name, Some(fact));
            }
            Event::QueueGone(name) => self.queue_told(&name, None),
            Event::PolicyUpserted(fact) => {
                let name = self.jobs.share_queue(&fact.queue);
                let changed = self.quota.set_policy(&name, Some(fact));
                self.policy_changed(&name, changed);
            }
            Event::PolicyGone(name) => {
                let changed = self.quota.set_policy(&name, None);
                self.policy_changed(&name, changed);
            }
            Event::PriorityClassUpserted(fact) => self.class_told(&fact.name.clone(), Some(fact)),
            Event::PriorityClassGone(name) => self.class_told(&name, None),
            Event::ClusterUpserted(fact) => {
                if self.capacity.clusters.get(&fact.name) != Some(&fact) {
                    let name = fact.name.clone();
                    self.capacity.clusters.insert(name.clone(), fact);
                    if is_emptied(&self.capacity.clusters[&name]) {
                        self.jobs.recheck_taints();
                    }
                    self.refleet(std::iter::once(&name));
                }
            }
            Event::ClusterGone(name) => {
                self.capacity.clusters.remove(&name);
                self.drop_lingering_in(&name);
                self.capacity.room.remove_cluster(&name);
                self.refleet(std::iter::once(&name));
            }
            Event::NodeUpserted(fact) => self.capacity.room.upsert_node(fact),
            Event::NodeGone(cluster, node) => self.capacity.room.remove_node(&cluster, &node),
            Event::PodUpserted(fact) => self.pod_told(fact),
            Event::PodGone(cluster, uid) => self.pod_gone(&cluster, &uid),
            Event::JobUpserted(fact) => self.observe_job(fact),
            Event::JobAdmitted {
                key,
                admission,
                progress,
            } => self.observe_admission(&key, admission, progress),
            Event::JobProgressed {
                key,
                attempt,
                progress,
                at,
            } => self.observe_progress(&key, attempt, progress, at),
            Event::JobRefused {
                key,
                attempt,
                reason,
                message,
                avoid,
                at,
            } => self.observe_refusal(&key, attempt, Cause { reason, message }, avoid, at),
            Event::JobEnding {
                key,
                reason,
                message,
                avoid,
                at,
            } => {
                self.advance(at);
                self.begin_eviction(&key, reason, &message, avoid);
            }
            Event::JobLeaving {
                key,
                attempt,
                leaving,
            } => self.observe_terminating(&key, attempt, leaving),
            Event::JobResized {
                key,
                attempt,
                cluster,
                pods,
                at,
            } => self.confirm_gone(&key, attempt, &cluster, pods, at),
            Event::JobExceeds {
                key,
                attempt,
                excess,
            } => self.observe_excess(&key, attempt, excess),
            Event::JobStopped { key, uid, ran_ms } => self.observe_stopped(&key, &uid, ran_ms),
            Event::JobWorksGone { key, at } => self.observe_works_gone(&key, at),
            Event::JobGone(key) => {
                self.jobs.note_given_up(&key);
                self.forget_job(&key);
            }
        }
    }
}
