//! The audit of the job store: compares its indexes with its jobs.

use super::preemptible_index::PreemptibleIndex;
use super::store::Jobs;
use facts::JobKey;
use std::collections::BTreeSet;
use std::fmt::Debug;

impl Jobs {
    /// How the indexes differ from those that follow from the jobs, in words.
    pub(crate) fn audit(&self) -> Vec<String> {
        let keyed = |belongs: fn(&super::job::Job) -> bool| -> BTreeSet<JobKey> {
            let jobs = self.iter().filter(|(_, job)| belongs(job));
            jobs.map(|(key, _)| key.clone()).collect()
        };
        let of_nothing = self.timers.keys().filter(|key| self.get(key).is_none());
        let of_nothing: BTreeSet<&JobKey> = of_nothing.collect();
        let ends = self.iter();
        let ends = ends.filter_map(|(key, job)| Some((job.derived.has.expected_end?, key.clone())));
        let mut preemptible = PreemptibleIndex::default();
        for (key, job) in self.iter() {
            preemptible.set(key, None, job.preemptible_entry());
            preemptible.set_terminating(key, job.is_terminating());
        }
        [
            differs("timers of no job", &of_nothing, &BTreeSet::new()),
            differs("expected ends", &self.ends, &ends.collect()),
            differs("preemptible jobs", &self.preemptible, &preemptible),
            differs(
                "resizing jobs",
                &self.resizing,
                &keyed(|job| job.asks_other_size()),
            ),
            differs(
                "unpredicted jobs",
                &self.unpredicted,
                &keyed(|job| job.is_unpredicted()),
            ),
            differs(
                "admitted jobs",
                &self.admitted,
                &keyed(|job| job.released.is_some()),
            ),
            differs(
                "queued jobs that are not pending",
                &self.not_pending,
                &keyed(|job| job.is_queued_not_pending()),
            ),
            differs(
                "stopped jobs",
                &self.stopped,
                &keyed(|job| job.is_stopped()),
            ),
            differs(
                "stranded jobs",
                &self.stranded,
                &keyed(|job| job.is_stranded()),
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn differs<T: PartialEq + Debug>(what: &str, is: &T, should: &T) -> Option<String> {
    (is != should).then(|| format!("{what}: kept {is:?}, should be {should:?}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::testing::pending;
    use facts::Time;

    /// A function that breaks one index, and the start of its report.
    type Break = (&'static str, fn(&mut Jobs, &JobKey));

    #[test]
    fn an_index_that_differs_from_the_jobs_is_reported() {
        let (runs, ghost) = (JobKey::new("ns", "runs"), JobKey::new("ns", "ghost"));
        let breaks: &[Break] = &[
            ("expected ends", |jobs, key| {
                jobs.ends.change(key, None, Some(Time(7)));
            }),
            ("preemptible jobs", |jobs, key| {
                let runs = jobs.get(&JobKey::new("ns", "runs")).unwrap();
                let (held, facts) = runs.preemptible_entry().unwrap();
                let held = held.clone();
                jobs.preemptible.set(key, Some(&held), None);
                let moved = ("q".into(), 7);
                jobs.preemptible.set(key, None, Some((&moved, facts)));
            }),
            ("preemptible jobs", |jobs, key| {
                jobs.preemptible.set_terminating(key, true);
            }),
            ("resizing jobs", |jobs, key| {
                jobs.resizing.insert(key.clone());
            }),
            ("unpredicted jobs", |jobs, key| {
                match jobs.unpredicted.is_empty() {
                    true => jobs.unpredicted.insert(key.clone()),
                    false => jobs.unpredicted.remove(&JobKey::new("ns", "runs")),
                };
            }),
            ("admitted jobs", |jobs, key| {
                match jobs.admitted.is_empty() {
                    true => jobs.admitted.insert(key.clone()),
                    false => jobs.admitted.remove(&JobKey::new("ns", "runs")),
                };
            }),
            ("queued jobs that are not pending", |jobs, key| {
                jobs.not_pending.insert(key.clone());
            }),
            ("stopped jobs", |jobs, key| {
                jobs.stopped.insert(key.clone());
            }),
            ("stranded jobs", |jobs, key| {
                jobs.stranded.insert(key.clone());
            }),
        ];
        for (words, breaks) in breaks {
            for key in [&runs, &ghost] {
                let mut jobs = pending().jobs;
                assert_eq!(jobs.audit(), Vec::<String>::new());
                breaks(&mut jobs, key);
                let wrong = jobs.audit();
                let named = wrong.len() == 1 && wrong[0].starts_with(words);
                assert!(named, "{words} of {key}: {wrong:?}");
            }
        }
    }

    #[test]
    fn a_timer_of_no_job_is_reported() {
        let mut jobs = pending().jobs;
        jobs.set_timer(&JobKey::new("ns", "ghost"), Some(Time(7)));
        assert!(jobs.audit()[0].starts_with("timers of no job"));
    }

    #[test]
    fn a_job_that_an_index_lacks_is_reported() {
        let breaks: &[Break] = &[
            ("expected ends", |jobs, _| jobs.ends = Default::default()),
            ("preemptible jobs", |jobs, _| {
                jobs.preemptible = PreemptibleIndex::default();
            }),
            ("preemptible jobs", |jobs, key| {
                let runs = jobs.job_mut(key).unwrap();
                runs.derived.has.change(|has| has.held = None);
            }),
            ("stopped jobs", |jobs, key| jobs.stop(key, 7)),
        ];
        for (words, breaks) in breaks {
            let mut jobs = pending().jobs;
            breaks(&mut jobs, &JobKey::new("ns", "runs"));
            let wrong = jobs.audit();
            let named = wrong.len() == 1 && wrong[0].starts_with(words);
            assert!(named, "{words}: {wrong:?}");
        }
    }
}
