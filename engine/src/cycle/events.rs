//! What each event changes.
//!
//! Events are levels, not edges: the same one twice changes nothing, and one about an older
//! attempt than the last is ignored.

use crate::amounts::rare::Rare;
use crate::api::event::{Event, Progress};
use crate::api::facts::{Admission, JobFact};
use crate::api::ids::{Attempt, ClusterName, JobKey, QueueName, Time, Uid};
use crate::api::reason::Reason;
use crate::engine::Engine;
use crate::jobs::drain::is_emptied;
use crate::jobs::excess::Excess;
use crate::jobs::job::{Cause, ColdState, Derived, Job, Released};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Engine {
    /// Takes in what became known. Costs what the touched object costs, whatever is queued.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::QueueUpserted(fact) => {
                let name = self.jobs.names.share_queue(&fact.name);
                self.queue_told(&name, Some(fact));
            }
            Event::QueueGone(name) => self.queue_told(&name, None),
            Event::PolicyUpserted(fact) => {
                let name = self.jobs.names.share_queue(&fact.queue);
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
                    self.jobs.drain_due |= is_emptied(&self.capacity.clusters[&name]);
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
            Event::JobUpserted(fact) => self.job_told(fact),
            Event::JobAdmitted {
                key,
                admission,
                progress,
            } => self.job_admitted(&key, admission, progress),
            Event::JobProgressed {
                key,
                attempt,
                progress,
                at,
            } => self.job_progressed(&key, attempt, progress, at),
            Event::JobRefused {
                key,
                attempt,
                reason,
                message,
                avoid,
                at,
            } => self.job_refused(&key, attempt, Cause { reason, message }, avoid, at),
            Event::JobEnding {
                key,
                reason,
                message,
                avoid,
                at,
            } => {
                self.advance(at);
                self.begin_ending(&key, reason, &message, avoid);
            }
            Event::JobLeaving {
                key,
                attempt,
                leaving,
            } => self.job_leaving(&key, attempt, leaving),
            Event::JobResized {
                key,
                attempt,
                cluster,
                pods,
                at,
            } => self.job_resized(&key, attempt, &cluster, pods, at),
            Event::JobExceeds {
                key,
                attempt,
                excess,
            } => self.job_exceeds(&key, attempt, excess),
            Event::JobStopped { key, uid, ran_ms } => self.job_stopped(&key, &uid, ran_ms),
            Event::JobWorksGone { key, at } => self.works_gone(&key, at),
            Event::JobGone(key) => {
                self.note_given_up(&key);
                self.unregister(&key);
            }
        }
    }

    fn job_told(&mut self, fact: JobFact) {
        let key = self.jobs.names.share_key(&fact.key);
        if fact.hold.is_none() {
            self.note_submitted(&key, &fact.demand);
        }
        let was = self.jobs.by_key.get(&key);
        let was_held = was.is_some_and(|job| job.cold.hold.is_some());
        let was = was.map(|job| (job.demand.clone(), job.queue.clone(), job.duration));
        let demand = match &fact.hold {
            // The demand of a job that is held may be anything: what was known stays.
            Some(_) => self
                .jobs
                .by_key
                .get(&key)
                .and_then(|job| job.demand.clone()),
            None => Some(self.pending.shapes.intern_demand(&fact.demand)),
        };
        let queue = self.jobs.names.share_queue(&fact.queue);
        let priority_class = fact.priority_class.as_deref();
        let priority_class = priority_class.map(|class| self.jobs.names.share(class));
        let user = self.jobs.names.share(&user_of(&fact.key, &fact.user));
        let job = self
            .jobs
            .by_key
            .entry(key.clone())
            .or_insert_with(|| Box::new(Job::new(&fact)));
        let another = job.uid != fact.uid;
        job.uid = fact.uid;
        job.queue = queue;
        job.priority_class = priority_class;
        job.user = user;
        job.queued_at = fact.queued_at;
        let is_held = fact.hold.is_some();
        job.cold.change(|known| {
            known.hold = fact.hold;
            known.checkpointed_at = fact.checkpointed_at;
        });
        job.demand = demand;
        job.duration = fact.expected_duration_ms.filter(|duration| *duration > 0);
        let is = (job.demand.clone(), job.queue.clone(), job.duration);
        // Of one that has less than it wants, smaller pods may fit.
        let other_pods = was.as_ref().is_some_and(|was| was.0 != is.0);
        self.jobs.scale_up_due |= other_pods && self.jobs.resizing.contains(&key);
        if another || was.is_some_and(|was| was != is) {
            // It is another job, as far as its run time goes.
            job.forecast = None;
        }
        if job.preemptible != fact.preemptible {
            self.pending.backoff.moved();
        }
        job.preemptible = fact.preemptible;
        if another {
            self.another_object(&key);
        }
        if is_held && !was_held {
            self.note_given_up(&key);
        }
        self.take_demand(&key);
        self.seat_record(&key);
        self.settle_released(&key);
        self.note_drain(&key);
    }

    /// The job's name belongs to another object now. What the first one holds stays charged
    /// until it is gone; the second starts from nothing.
    fn another_object(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        job.cold.change(ColdState::begin_anew);
        match job.released.as_ref().map(|released| released.progress) {
            Some(Progress::Finished) | None => {
                job.released = None;
                job.attempt = Attempt::default();
            }
            Some(_) => {
                let message = "another object of this name took its place";
                self.begin_ending(key, Reason::Deleting, message, None);
            }
        }
    }

    fn job_admitted(&mut self, key: &JobKey, admission: Admission, progress: Progress) {
        let job = self
            .jobs
            .by_key
            .entry(key.clone())
            .or_insert_with(|| Box::new(Job::known_by(key, &admission)));
        let same_object = job.uid == admission.uid;
        if same_object && admission.attempt < job.attempt {
            return;
        }
        let known = job.released.as_ref();
        let same = known.is_some_and(|released| released.admission.attempt == admission.attempt);
        if same_object && same {
            // The record of what the engine knows already: only what it says more counts.
            let told = known.is_some_and(|released| {
                let slots_aside = crate::api::decision::without_slots(&released.admission.shares);
                slots_aside == crate::api::decision::without_slots(&admission.shares)
            });
            if told {
                let attempt = admission.attempt;
                return self.job_progressed(key, attempt, progress, self.now);
            }
        }
        job.attempt = admission.attempt;
        job.cold.change(|known| {
            known.failures = known.failures.max(admission.attempt.0.saturating_sub(1));
            known.back_off_until = None;
        });
        // When it began to run the record does not say: not before it was admitted.
        let started_at = (progress == Progress::Running).then_some(admission.admitted_at);
        let basis = job
            .demand
            .clone()
            .filter(|_| same_object && job.cold.hold.is_none());
        job.released = Some(Box::new(Released {
            // Records of versions that did not write it leave what the template says now.
            declared_ms: admission.declared_ms.or(job.duration),
            admission,
            progress,
            over: progress == Progress::Finished,
            basis,
            granted: None,
            overgrown: false,
            seated: false,
            started_at,
            expected_ms: None,
            leaving: Vec::new(),
            excess: Excess::new(),
            gave_to: BTreeSet::new(),
            room_lost: None,
            ending: None,
        }));
        self.capacity.room.forget(key);
        if !same_object {
            let message = "another object of this name took its place";
            self.begin_ending(key, Reason::Deleting, message, None);
        }
        self.seat_record(key);
        self.settle_released(key);
        self.note_drain(key);
    }

    /// Holds room for the pods of an admission read back that are not bound yet.
    fn seat_record(&mut self, key: &JobKey) {
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let (Some(demand), Some(released)) = (job.demand.clone(), job.released.as_mut()) else {
            return;
        };
        let alive = !matches!(released.progress, Progress::Ending | Progress::Finished);
        if released.seated || !alive || released.admission.uid != job.uid {
            return;
        }
        if released.basis.is_none() {
            released.basis = Some(Arc::clone(&demand));
        }
        // Of a gang that runs, nobody knows whether the rest will still come.
        if released.progress != Progress::Running {
            released.seated = true;
            let shares = released.admission.shares.clone();
            self.capacity.room.assume_seats(key, demand, &shares);
        }
    }

    fn job_progressed(&mut self, key: &JobKey, attempt: Attempt, progress: Progress, at: Time) {
        self.advance(at);
        let Some(job) = self.jobs.by_key.get_mut(key) else {
            return;
        };
        let Some(released) = job.released.as_mut() else {
            return;
        };
        if released.admission.attempt != attempt {
            return;
        }
        let next = match (released.progress, progress) {
            // What is being evicted ends by its Works being gone, by nothing else.
            (Progress::Ending, _) => return,
            (_, Progress::Ending) => {
                let message = "it is being evicted";
                return self.begin_ending(key, Reason::Evicted, message, None);
            }
            (Progress::Finished, Progress::Placed | Progress::Running) => progress,
            (_, Progress::Finished) => progress,
            (Progress::Assumed, Progress::Placed | Progress::Running)
            | (Progress::Placed, Progress::Running) => progress,
            // Later news than this is known already.
            (Progress::Placed | Progress::Running | Progress::Finished, _)
            | (Progress::Assumed, Progress::Assumed) => return,
        };
        let ended = next == Progress::Finished && released.progress != next;
        released.progress = next;
        released.over = next == Progress::Finished;
        if next == Progress::Running {
            released.started_at.get_or_insert(at);
            self.pending.backoff.moved();
            job.cold.change(|known| {
                known.failures = 0;
                known.last = None;
            });
        }
        if ended {
            self.note_run(key, at);
        }
        self.settle_released(key);
    }

    fn job_refused(
        &mut self,
        key: &JobKey,
        attempt: Attempt,
        cause: Cause,
        avoid: Option<ClusterName>,
        at: Time,
    ) {
        self.advance(at);
        let released = self
            .jobs
            .by_key
            .get(key)
            .and_then(|job| job.released.as_ref());
        // Of a job that was seen placed something was written: what is refused is a resize,
        // and the charge stays.
        let open = released.is_some_and(|released| {
            released.admission.attempt == attempt && released.progress == Progress::Assumed
        });
        if open {
            self.requeue(key, Some(cause), avoid, at);
        }
    }

    fn works_gone(&mut self, key: &JobKey, at: Time) {
        self.advance(at);
        let released = self
            .jobs
            .by_key
            .get(key)
            .and_then(|job| job.released.as_ref());
        let Some(released) = released.filter(|r| r.progress == Progress::Ending) else {
            return;
        };
        let (cause, avoid) = match released.ending.clone() {
            Some((cause, avoid)) => (Some(cause), avoid),
            None => (None, None),
        };
        self.requeue(key, cause, avoid, at);
    }
}

impl Job {
    fn new(fact: &JobFact) -> Self {
        let user = user_of(&fact.key, &fact.user);
        Self::bare(fact.uid.clone(), fact.queue.clone(), user, fact.queued_at)
    }

    /// A job of which only the admission record is known.
    fn known_by(key: &JobKey, admission: &Admission) -> Self {
        let (uid, queue) = (admission.uid.clone(), admission.queue.clone());
        Self::bare(uid, queue, user_of(key, ""), admission.admitted_at)
    }

    fn bare(uid: Uid, queue: QueueName, user: Arc<str>, queued_at: Time) -> Self {
        Self {
            uid,
            queue,
            priority_class: None,
            user,
            queued_at,
            demand: None,
            duration: None,
            forecast: None,
            preemptible: true,
            attempt: Attempt::default(),
            cold: Rare::default(),
            released: None,
            derived: Derived::default(),
        }
    }
}

/// Who submitted a job; its namespace stands for one that is not told.
fn user_of(key: &JobKey, user: &str) -> Arc<str> {
    if user.is_empty() {
        Arc::clone(&key.namespace)
    } else {
        Arc::from(user)
    }
}
