//! Converts an admission into a binding's `spec.clusters`. Pure.
//!
//! Karmada's binding controller applies `clusters[].replicas` to every kind that its interpreter can
//! revise, and reads a missing number as zero (pkg/controllers/binding/common.go `ensureWork`, v1.18). So
//! replicas are written if the interpreter counted some, and only then.

use crds::karmada::{ResourceBinding, TargetCluster};
use facts::{Admission, ClusterFact, ClusterName, ClusterPlacement, Demand, Held};
use std::collections::BTreeMap;

/// Returns the clusters of `binding` for `admission`.
#[must_use]
pub fn targets(
    binding: &ResourceBinding,
    admission: &Admission,
    demand: &Demand,
) -> Vec<TargetCluster> {
    let replicas = replicas(binding, admission, demand);
    admission
        .shares
        .iter()
        .enumerate()
        .map(|(index, share)| TargetCluster {
            name: share.cluster.to_string(),
            replicas: replicas.as_ref().and_then(|of| of.get(index).copied()),
        })
        .collect()
}

/// Returns the replicas of each share, in order; `None` for kinds without replicas.
fn replicas(binding: &ResourceBinding, admission: &Admission, demand: &Demand) -> Option<Vec<i32>> {
    let interpreted = binding.spec.replicas.filter(|replicas| *replicas > 0);
    if interpreted.is_none() && demand.held != Held::ByReplicas {
        return None;
    }
    let pods: Vec<u64> = admission
        .shares
        .iter()
        .map(|share| u64::from(share.replicas()))
        .collect();
    let admitted: u64 = pods.iter().sum();
    let wanted = interpreted
        .and_then(|replicas| u64::try_from(replicas).ok())
        .unwrap_or(admitted);
    // A Deployment is also charged its surge, which its replicas do not include; one that has grown since its
    // admission gets the admitted fraction.
    let whole = match demand.pods() {
        all if admitted < all => wanted.saturating_mul(admitted) / all,
        _ => wanted,
    };
    let whole = whole.min(admitted);
    let parts = workload::apportion(whole, &pods);
    let fits = |part| i32::try_from(part).unwrap_or(i32::MAX);
    Some(parts.into_iter().map(fits).collect())
}

/// Returns the name of the first group of clusters that contains every cluster of `admission`, if the
/// placement names its groups (Karmada `clusterAffinities`).
#[must_use]
pub fn affinity_name(
    placement: &ClusterPlacement,
    admission: &Admission,
    clusters: &BTreeMap<ClusterName, ClusterFact>,
) -> Option<String> {
    let holds_all = |rule: &&facts::matching::ClusterRule| {
        let known = |name| {
            clusters
                .get(name)
                .is_some_and(|cluster| rule.selects(cluster))
        };
        admission.shares.iter().all(|share| known(&share.cluster))
    };
    let group = placement.groups.iter().find(holds_all)?;
    (!group.name.is_empty()).then(|| group.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use facts::matching::{ClusterRule, Operator, Requirement};
    use facts::{Attempt, QueueName, Resources, Role, RolePods, Share, Time, Uid};

    fn admission(parts: &[(&str, u32)]) -> Admission {
        let shares = parts.iter().map(|(cluster, count)| Share {
            cluster: ClusterName::new(cluster),
            pods: vec![RolePods {
                role: "main".into(),
                count: *count,
            }],
            charge: BTreeMap::new(),
            slots: Vec::new(),
        });
        Admission {
            uid: Uid::new("u"),
            attempt: Attempt(1),
            queue: QueueName::new("q"),
            admitted_at: Time(0),
            declared_ms: None,
            shares: shares.collect(),
        }
    }

    fn demand(count: u32, held: bool) -> Demand {
        let role = Role::of("main", count, Resources::new());
        Demand {
            roles: vec![role],
            min_available: count,
            natively_divisible: true,
            held: match held {
                true => Held::ByReplicas,
                false => Held::Not,
            },
            elastic: false,
            split: facts::Split::Never,
            topology: None,
            placement: ClusterPlacement::default(),
        }
    }

    fn placed(replicas: Option<i64>, held: bool, count: u32, parts: &[(&str, u32)]) -> String {
        let mut binding = ResourceBinding::default();
        binding.spec.replicas = replicas;
        let targets = targets(&binding, &admission(parts), &demand(count, held));
        let shown = targets.iter().map(|target| match target.replicas {
            Some(replicas) => format!("{}:{replicas}", target.name),
            None => target.name.clone(),
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn replicas_are_what_karmada_must_apply() {
        // A batch Job: pods are replicas.
        assert_eq!(placed(Some(6), true, 6, &[("a", 4), ("b", 2)]), "a:4 b:2");
        // A Deployment of 10 with 3 surge pods, in one cluster and in two.
        assert_eq!(placed(Some(10), true, 13, &[("a", 13)]), "a:10");
        assert_eq!(placed(Some(10), true, 13, &[("a", 8), ("b", 5)]), "a:6 b:4");
        assert_eq!(
            placed(Some(10), true, 13, &[("a", 1), ("b", 12)]),
            "a:1 b:9"
        );
        // It grew to 20 with 5 surge pods, and was admitted for the 10 that are charged.
        assert_eq!(placed(Some(20), true, 25, &[("a", 13)]), "a:10");
        // Admitted with more than it has now.
        assert_eq!(placed(Some(4), true, 4, &[("a", 6)]), "a:4");
        // A Volcano Job has none; a kind that Karmada's interpreter revises has some.
        assert_eq!(placed(None, false, 9, &[("a", 9)]), "a");
        assert_eq!(placed(Some(0), false, 9, &[("a", 9)]), "a");
        assert_eq!(placed(Some(3), false, 3, &[("a", 3)]), "a:3");
        // Muster counted them before Karmada's interpreter did.
        assert_eq!(placed(None, true, 2, &[("a", 2)]), "a:2");
    }

    #[test]
    fn the_group_named_is_the_first_that_holds_every_cluster() {
        let cluster = |name: &str, tier: &str| ClusterFact {
            name: ClusterName::new(name),
            labels: [("tier".to_owned(), tier.to_owned())].into(),
            provider: String::new(),
            region: String::new(),
            zones: Vec::new(),
            taints: Vec::new(),
            price_milli: None,
            network: BTreeMap::new(),
            apis: None,
            usable: true,
            unusable_because: String::new(),
            paused: None,
        };
        let rule = |name: &str, tiers: &[&str]| ClusterRule {
            name: name.into(),
            labels: vec![Requirement {
                key: "tier".into(),
                operator: Operator::In,
                values: tiers.iter().map(ToString::to_string).collect(),
            }],
            ..ClusterRule::default()
        };
        let clusters: BTreeMap<_, _> = [cluster("a", "own"), cluster("b", "cloud")]
            .into_iter()
            .map(|c| (c.name.clone(), c))
            .collect();
        let placement = ClusterPlacement {
            groups: vec![rule("own", &["own"]), rule("any", &["own", "cloud"])],
            ..ClusterPlacement::default()
        };
        let name = |parts: &[(&str, u32)]| affinity_name(&placement, &admission(parts), &clusters);
        assert_eq!(name(&[("a", 1)]).as_deref(), Some("own"));
        assert_eq!(name(&[("a", 1), ("b", 1)]).as_deref(), Some("any"));
        assert_eq!(name(&[("gone", 1)]), None);
        let unnamed = ClusterPlacement {
            groups: vec![rule("", &["own"])],
            ..ClusterPlacement::default()
        };
        assert_eq!(
            affinity_name(&unnamed, &admission(&[("a", 1)]), &clusters),
            None
        );
    }
}
