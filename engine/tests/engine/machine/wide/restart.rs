//! Another process leads: it has no state, and gets all objects of the API server, with the
//! admission records of the jobs (`controller/src/facts/apply.rs`).

use crate::machine::model::{Model, Told, config};
use crate::machine::pools::{Phase, Record};
use engine::facts::Admission;
use engine::{Engine, Event, JobKey, JobState, Progress, Reason, Time};

impl Model {
    /// With `lost` the last decisions were not written.
    pub fn restart(&mut self, lost: bool, jobs_first: bool) {
        let keys: Vec<JobKey> = self.jobs.keys().cloned().collect();
        let mut states = Vec::new();
        for key in keys {
            let state = self.state(&key).unwrap();
            let unwritten = lost && state == JobState::Assumed && self.unwrite(&key);
            states.push((key, if unwritten { JobState::Queued } else { state }));
        }
        self.engine = Engine::new(config());
        self.latest = Time(0);
        self.log.push(Told::Restart);
        // Pending evictions are not recorded. Pods that a job sheds are observed, and charged until they are gone.
        self.promised.clear();
        self.promised_in.clear();
        self.runs_since.clear();
        if !jobs_first {
            self.tell_world();
        }
        for (key, state) in states {
            self.tell_job(&key, state);
        }
        if jobs_first {
            self.tell_world();
        }
    }

    /// An admission that was not written does not exist, unless its pods are observed.
    fn unwrite(&mut self, key: &JobKey) -> bool {
        if self.pods.values().any(|pod| pod.job.as_ref() == Some(key)) {
            return false;
        }
        let Some(record) = self.records.remove(key) else {
            return false;
        };
        let attempts = self.attempts.entry(record.admission.uid.clone());
        attempts.and_modify(|attempts| *attempts -= 1);
        if let Some(before) = record.before {
            self.records.insert(key.clone(), *before);
        }
        self.live.remove(key);
        self.granted.remove(key);
        self.edited.remove(key);
        true
    }

    fn tell_world(&mut self) {
        let queues = self.queues.values().cloned().map(Event::QueueUpserted);
        let policies = self.policies.values().cloned().map(Event::PolicyUpserted);
        let classes = self.classes.values().cloned();
        let classes = classes.map(Event::PriorityClassUpserted);
        let clusters = self.clusters.values().cloned().map(Event::ClusterUpserted);
        let nodes = self.nodes.values().cloned().map(Event::NodeUpserted);
        let pods = self.pods.values().cloned().map(Event::PodUpserted);
        let facts = queues.chain(policies).chain(classes);
        let facts: Vec<Event> = facts.chain(clusters).chain(nodes).chain(pods).collect();
        facts.into_iter().for_each(|fact| self.apply(fact));
    }

    fn tell_job(&mut self, key: &JobKey, state: JobState) {
        let fact = self.jobs[key].clone();
        let record = self.records.get(key).cloned();
        let Some(record) = record else {
            return self.tell(fact);
        };
        let admission = without_slots(&record.admission);
        match state {
            JobState::Queued if admission.uid == fact.uid => self.tell_over(key, &record),
            JobState::Queued => {}
            JobState::Assumed | JobState::Placed => {
                self.admitted(key, admission, Progress::Placed);
            }
            JobState::Running => {
                self.runs_since.insert(key.clone(), admission.admitted_at);
                self.admitted(key, admission, Progress::Running);
            }
            JobState::Finished => self.admitted(key, admission, Progress::Finished),
            JobState::Ending => {
                self.tell(fact);
                self.tell_taken(key, &record);
                // A job that had ended is charged again until its Works are observed gone.
                return self.record_phase(key, Phase::Held);
            }
        }
        self.tell(fact);
    }

    /// An attempt without Works counts, and so does its back-off.
    fn tell_over(&mut self, key: &JobKey, record: &Record) {
        self.tell_taken(key, record);
        if let Some((Reason::RuntimeLimitExceeded, at)) = record.taken {
            self.apply(Event::JobStopped {
                key: key.clone(),
                uid: record.admission.uid.clone(),
                ran_ms: at.millis_since(record.admission.admitted_at),
            });
        }
        self.apply(Event::JobWorksGone {
            key: key.clone(),
            at: record.over_at.unwrap_or(self.now),
        });
    }

    fn tell_taken(&mut self, key: &JobKey, record: &Record) {
        let admission = without_slots(&record.admission);
        let Some((reason, _)) = record.taken else {
            return self.admitted(key, admission, Progress::Ending);
        };
        self.admitted(key, admission, Progress::Placed);
        self.apply(Event::JobEnding {
            key: key.clone(),
            reason,
            message: "as its record says".to_owned(),
            avoid: None,
            at: self.clock(),
        });
    }
}

/// The admission as in a record.
fn without_slots(admission: &Admission) -> Admission {
    Admission {
        shares: engine::decision::without_slots(&admission.shares),
        ..admission.clone()
    }
}
