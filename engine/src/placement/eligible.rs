//! Which clusters may take a job at all, whatever capacity they have.
//!
//! The answer depends on the clusters' facts and on the placement only, and a million jobs have a handful of
//! placements: it is cached for each until a cluster changes.

use crate::eligibility::store;
use crate::eligibility::store::Eligible;
use crate::plugins::{Question, refusal, selects, takes_objects};
use crate::state::Inputs;
use facts::matching::ClusterRule;
use facts::{ClusterFact, ClusterName, ClusterPlacement};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Why one cluster may not take a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ineligible {
    /// Those that are meant, and fail otherwise, come first.
    pub(crate) not_selected: bool,
    pub(crate) cluster: ClusterName,
    pub(crate) why: String,
}

/// The clusters that `placement` selects for an object without pods: of its first group that has any, all that
/// serve the kind and are tolerated, whether or not jobs may go there now.
#[must_use]
pub(crate) fn clusters_for_objects(
    inputs: Inputs<'_>,
    placement: &ClusterPlacement,
) -> Vec<ClusterName> {
    let fleet = inputs.capacity.cluster_facts();
    let groups = store::groups_of(placement);
    let mut of_groups = groups.iter().map(|group| {
        let takes = |cluster: &&ClusterFact| {
            takes_objects(&Question {
                placement,
                group,
                cluster,
                fleet,
            })
        };
        let able = fleet.values().filter(takes);
        able.map(|cluster| cluster.name.clone()).collect::<Vec<_>>()
    });
    let first = of_groups.find(|clusters| !clusters.is_empty());
    first.unwrap_or_default()
}

/// The clusters of each group of a placement that may take the job.
pub(crate) fn eligible_by_group<'a>(
    inputs: Inputs<'a>,
    placement: &ClusterPlacement,
    without: &BTreeSet<ClusterName>,
) -> Cow<'a, [Eligible]> {
    let current = inputs.eligibility.is_current(&inputs.capacity);
    let known = inputs.eligibility.known(placement).filter(|_| current);
    let all = known.map_or_else(
        || Cow::Owned(store::find_all(placement, &inputs.capacity)),
        |known| Cow::Borrowed(known.as_slice()),
    );
    if without.is_empty() {
        return all;
    }
    let left = all.iter().map(|eligible| {
        let clusters = eligible.clusters.iter();
        let left = clusters.filter(|cluster| !without.contains(*cluster));
        Eligible::new(left.cloned().collect(), &inputs.capacity)
    });
    Cow::Owned(left.collect())
}

/// True if a cluster could take the job, were it not paused.
pub(crate) fn is_paused(inputs: Inputs<'_>, placement: &ClusterPlacement) -> bool {
    let fleet = inputs.capacity.cluster_facts();
    let could = |fact: &ClusterFact| {
        let cluster = &ClusterFact {
            paused: None,
            ..fact.clone()
        };
        let groups = store::groups_of(placement);
        let takes = |group: &ClusterRule| {
            let question = Question {
                placement,
                group,
                cluster,
                fleet,
            };
            refusal(&question).is_none()
        };
        groups.iter().any(takes)
    };
    fleet
        .values()
        .any(|fact| fact.paused.is_some() && could(fact))
}

/// The clusters of a group that may take the job, and why the others may not.
pub(crate) fn eligible<'a>(
    inputs: Inputs<'a>,
    placement: &ClusterPlacement,
    group: &ClusterRule,
    without: &BTreeSet<ClusterName>,
) -> (Vec<&'a ClusterFact>, Vec<Ineligible>) {
    let mut eligible = Vec::new();
    let mut ineligible = Vec::new();
    for (name, cluster) in inputs.capacity.cluster_facts() {
        let question = Question {
            placement,
            group,
            cluster,
            fleet: inputs.capacity.cluster_facts(),
        };
        let selected = selects(&question);
        let why = if selected && without.contains(name) {
            Some("an attempt failed there a while ago".to_owned())
        } else {
            refusal(&question)
        };
        match why {
            None => eligible.push(cluster),
            Some(why) => ineligible.push(Ineligible {
                not_selected: !selected,
                cluster: name.clone(),
                why,
            }),
        }
    }
    (eligible, ineligible)
}
