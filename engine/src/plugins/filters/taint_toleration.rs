//! `TaintToleration`: the job tolerates the taints of the cluster (as Karmada's plugin of that name).

use crate::plugins::filter::{Filter, Question};
use facts::matching::untolerated;

/// See the module.
pub(crate) struct TaintToleration;

impl Filter for TaintToleration {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let tolerations = &question.placement.tolerations;
        let taint = untolerated(&question.cluster.taints, tolerations)?;
        Some(format!("its taint {} is not tolerated", taint.key))
    }
}
