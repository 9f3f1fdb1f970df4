//! `ClusterPaused`: the cluster takes new jobs, or one more to see whether it runs.

use crate::plugins::Plugin;
use crate::plugins::filter::{Filter, Holds, Question};

/// See the module.
pub(crate) struct ClusterPaused;

impl Filter for ClusterPaused {
    fn plugin(&self) -> Plugin<Holds> {
        Plugin {
            name: "ClusterPaused",
            about: "clusters that take new jobs: where many jobs fail, a FaultPolicy pauses the cluster for a while",
            unset: Holds::Always,
        }
    }

    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let pause = question.cluster.paused.as_ref()?;
        (!pause.trial).then(|| pause.because.clone())
    }
}
