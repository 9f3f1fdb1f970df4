//! `ClusterPaused`: the cluster takes new jobs, or one more to see whether it runs.

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct ClusterPaused;

impl Filter for ClusterPaused {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let pause = question.cluster.paused.as_ref()?;
        (!pause.trial).then(|| pause.because.clone())
    }
}
