//! `ClusterReady`: the cluster is Ready, is not being deleted, and its view is fresh enough.

use crate::plugins::Plugin;
use crate::plugins::filter::{Filter, Holds, Question};

/// See the module.
pub(crate) struct ClusterReady;

impl Filter for ClusterReady {
    fn plugin(&self) -> Plugin<Holds> {
        Plugin {
            name: "ClusterReady",
            about: "clusters that are Ready and whose live view is fresh enough to decide on",
            unset: Holds::Always,
        }
    }

    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let cluster = question.cluster;
        (!cluster.usable).then(|| cluster.unusable_because.clone())
    }
}
