//! What overrides are written by: how a job is placed, and which nodes its pods keep off.

use crds::record::AvoidedByJob;
use facts::{Attempt, Share};
use serde_json::Value;
use workload::{PartsError, Reach, RenderedPart};

/// How a job is placed by overrides.
#[derive(Debug, Clone, Copy)]
pub struct PartsPlan<'a> {
    /// The attempt.
    pub attempt: Attempt,
    /// What each cluster gets.
    pub shares: &'a [Share],
    /// How its pods in other clusters are reached.
    pub reach: &'a Reach,
    /// True if its parts can be resized later.
    pub resizable: bool,
    /// The nodes that it avoids.
    pub avoided: &'a [AvoidedByJob],
}

impl PartsPlan<'_> {
    /// Returns the parts of `template`, whose pods keep off the nodes that the job avoids.
    pub(super) fn parts(&self, template: &Value) -> Result<Vec<RenderedPart>, PartsError> {
        let render = |template: &Value| {
            let Self {
                attempt,
                shares,
                reach,
                resizable,
                ..
            } = *self;
            workload::parts(template, attempt, shares, reach, resizable)
        };
        let mut parts = render(template)?;
        for (index, part) in parts.iter_mut().enumerate() {
            let nodes = AvoidedByJob::in_cluster(self.avoided, &part.cluster);
            if nodes.is_empty() {
                continue;
            }
            let off = workload::off_nodes(template, &nodes);
            let affinities = workload::changed_affinities(template, &off);
            // The same shares of the same pods: it has as many parts.
            if let Some(own) = render(&off)?.into_iter().nth(index) {
                part.fields = workload::with_affinities(own.fields, affinities);
            }
        }
        Ok(parts)
    }
}
