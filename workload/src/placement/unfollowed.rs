//! What a propagation policy asks for that Muster does not do, in words for the user who wrote it.
//!
//! Each text names the field and what the user can do instead. What only delays a job, such as a spread constraint
//! that it cannot meet, is said too: the reason why it waits names clusters, and not the field.

use crate::kinds;
use facts::{Demand, Division, Split};
use serde_json::Value;

const SCHEDULING: &str = "spec.placement.replicaScheduling";

/// Returns what the policy of a job asks for and does not get; `placement` is that of its binding, and `demand` its
/// demand.
#[must_use]
pub fn not_followed(placement: Option<&Value>, demand: &Demand) -> Vec<String> {
    let Some(placement) = placement else {
        return Vec::new();
    };
    let scheduling = placement.get("replicaScheduling");
    let one_cluster = !demand.natively_divisible && demand.split == Split::Never;
    let kind = demand.placement.api.rsplit('/').next().unwrap_or_default();
    let mut texts = Vec::new();
    let type_ = scheduling.and_then(|scheduling| scheduling.get("replicaSchedulingType")?.as_str());
    match type_ {
        Some("Duplicated") if !names_one_cluster(demand) => texts.push(format!(
            "{SCHEDULING}.replicaSchedulingType: Duplicated is not followed: a job runs once, and not in each cluster; \
             create a job for each cluster"
        )),
        Some("Divided") if one_cluster => texts.push(format!(
            "{SCHEDULING}.replicaSchedulingType: Divided is not followed: {}",
            divided_instead(kind, &demand.placement.api)
        )),
        _ => {}
    }
    let weighs = demand.placement.division != Division::Fewest && type_ != Some("Duplicated");
    if weighs && !demand.natively_divisible && !one_cluster {
        texts.push(format!(
            "{SCHEDULING}.weightPreference is not followed: Muster splits a {kind} over the fewest clusters"
        ));
    }
    if let Some(least) = demand.placement.min_clusters.filter(|least| *least > 1)
        && one_cluster
    {
        texts.push(format!(
            "spec.placement.spreadConstraints: minGroups {least} cannot be met, so the job waits: {}",
            divided_instead(kind, &demand.placement.api)
        ));
    }
    if placement
        .get("workloadAffinity")
        .is_some_and(|affinity| !affinity.is_null())
    {
        texts.push(
            "spec.placement.workloadAffinity is not followed: clusters are not chosen by what else runs there; name \
             them in clusterAffinity"
                .to_owned(),
        );
    }
    let groups = placement.get("clusterAffinities").and_then(Value::as_array);
    for (index, group) in groups.into_iter().flatten().enumerate() {
        let overflow = group.get("overflowAffinities").and_then(Value::as_array);
        if overflow.is_some_and(|overflow| !overflow.is_empty()) {
            texts.push(format!(
                "spec.placement.clusterAffinities[{index}].overflowAffinities is not followed: add an entry to \
                 clusterAffinities that names the clusters of both"
            ));
        }
    }
    texts
}

/// Returns true if the policy selects one cluster by its name: then all of a job in each cluster is one job.
fn names_one_cluster(demand: &Demand) -> bool {
    match demand.placement.groups.as_slice() {
        [group] => group.names.as_ref().is_some_and(|names| names.len() == 1),
        _ => false,
    }
}

fn divided_instead(kind: &str, api: &str) -> String {
    let can_be_split = kinds::of_api(api).is_some_and(|kind| kind.part_fields().is_some());
    match can_be_split {
        true => format!(
            "Karmada does not divide this {kind}; the annotation muster.io/split: Allowed of the job lets Muster split it"
        ),
        false => format!("this {kind} runs in one cluster"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::yaml;
    use insta::assert_snapshot;

    /// The texts for a gang of two pods of a kind.
    fn told(api: &str, splits: bool, divided: bool, placement: &str) -> String {
        let placement = yaml(placement);
        let demand = Demand {
            roles: Vec::new(),
            min_available: 2,
            natively_divisible: divided,
            held: facts::Held::Not,
            elastic: false,
            split: if splits { Split::Allowed } else { Split::Never },
            topology: None,
            placement: crate::cluster_placement(Some(&placement), api),
        };
        not_followed(Some(&placement), &demand).join("\n")
    }

    const JOB: &str = "batch.volcano.sh/v1alpha1/Job";

    #[test]
    fn what_is_done_is_not_mentioned() {
        for (splits, divided, placement) in [
            (false, false, "{clusterAffinity: {clusterNames: []}}"),
            (
                false,
                false,
                "{spreadConstraints: [{spreadByField: cluster, maxGroups: 2}]}",
            ),
            (
                true,
                false,
                "{replicaScheduling: {replicaSchedulingType: Divided}, spreadConstraints: [{minGroups: 2}]}",
            ),
            (
                false,
                true,
                "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {dynamicWeight: AvailableReplicas}}}",
            ),
            (
                false,
                false,
                "{clusterAffinity: {clusterNames: [a]}, replicaScheduling: {replicaSchedulingType: Duplicated}}",
            ),
        ] {
            assert_eq!(told(JOB, splits, divided, placement), "", "{placement}");
        }
        let demand = Demand {
            roles: Vec::new(),
            min_available: 0,
            natively_divisible: false,
            held: facts::Held::Not,
            elastic: false,
            split: Split::Never,
            topology: None,
            placement: crate::cluster_placement(None, JOB),
        };
        assert_eq!(not_followed(None, &demand), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_done_names_the_field_and_what_to_do() {
        let duplicated = "{replicaScheduling: {replicaSchedulingType: Duplicated}}";
        assert_snapshot!(told(JOB, false, false, duplicated), @"spec.placement.replicaScheduling.replicaSchedulingType: Duplicated is not followed: a job runs once, and not in each cluster; create a job for each cluster");
        let divided = "{replicaScheduling: {replicaSchedulingType: Divided}, spreadConstraints: [{spreadByField: region, minGroups: 2}]}";
        assert_snapshot!(told(JOB, false, false, divided), @r"
        spec.placement.replicaScheduling.replicaSchedulingType: Divided is not followed: Karmada does not divide this Job; the annotation muster.io/split: Allowed of the job lets Muster split it
        spec.placement.spreadConstraints: minGroups 2 cannot be met, so the job waits: Karmada does not divide this Job; the annotation muster.io/split: Allowed of the job lets Muster split it
        ");
        assert_snapshot!(told("apps/v1/StatefulSet", false, false, "{replicaScheduling: {replicaSchedulingType: Divided}}"), @"spec.placement.replicaScheduling.replicaSchedulingType: Divided is not followed: this StatefulSet runs in one cluster");
        let weights = "{replicaScheduling: {replicaSchedulingType: Divided, weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [a]}, weight: 2}]}}}";
        assert_snapshot!(told(JOB, true, false, weights), @"spec.placement.replicaScheduling.weightPreference is not followed: Muster splits a Job over the fewest clusters");
        let others = "{workloadAffinity: {affinity: {groupByLabelKey: app}}, clusterAffinities: [{affinityName: own}, {affinityName: more, overflowAffinities: [{}]}]}";
        assert_snapshot!(told(JOB, false, false, others), @r"
        spec.placement.workloadAffinity is not followed: clusters are not chosen by what else runs there; name them in clusterAffinity
        spec.placement.clusterAffinities[1].overflowAffinities is not followed: add an entry to clusterAffinities that names the clusters of both
        ");
    }
}
