//! `TaintToleration`: the job tolerates the taints of the cluster (as Karmada's plugin of that name).

use crate::api::matching::untolerated;
use crate::plugins::Plugin;
use crate::plugins::filter::{Filter, Holds, Question};

/// See the module.
pub(crate) struct TaintToleration;

impl Filter for TaintToleration {
    fn plugin(&self) -> Plugin<Holds> {
        Plugin {
            name: "TaintToleration",
            about: "clusters whose taints the job's policy tolerates",
            unset: Holds::Always,
        }
    }

    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let tolerations = &question.placement.tolerations;
        let taint = untolerated(&question.cluster.taints, tolerations)?;
        Some(format!("its taint {} is not tolerated", taint.key))
    }
}
