//! `ClusterAffinity`: the job's PropagationPolicy selects the cluster.

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct ClusterAffinity;

impl Filter for ClusterAffinity {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let selected = question.group.selects(question.cluster);
        (!selected).then(|| "its cluster affinity does not select it".to_owned())
    }
}
