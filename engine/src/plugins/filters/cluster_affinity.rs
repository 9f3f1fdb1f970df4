//! `ClusterAffinity`: the job's PropagationPolicy selects the cluster.

use crate::plugins::Plugin;
use crate::plugins::filter::{Filter, Holds, Question};

/// See the module.
pub(crate) struct ClusterAffinity;

impl Filter for ClusterAffinity {
    fn plugin(&self) -> Plugin<Holds> {
        Plugin {
            name: "ClusterAffinity",
            about: "clusters that the job's policy selects",
            unset: Holds::Always,
        }
    }

    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let selected = question.group.selects(question.cluster);
        (!selected).then(|| "its cluster affinity does not select it".to_owned())
    }
}
