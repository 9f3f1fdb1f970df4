//! `ClusterReady`: the cluster is Ready, is not being deleted, and its view is fresh enough.

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct ClusterReady;

impl Filter for ClusterReady {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let cluster = question.cluster;
        (!cluster.usable).then(|| cluster.unusable_because.clone())
    }
}
