//! Converts a Cluster object into a fact. Pure.

use super::ClusterMarks;
use super::verdict::MemberVerdict;
use crds::karmada::{Cluster, LooseTaint};
use crds::names::{
    CLEARED_NODES_ANNOTATION, DRAIN_ANNOTATION, NETWORK_ANNOTATION, OUT_OF_SERVICE_ANNOTATION,
    PRICE_ANNOTATION,
};
use crds::node_health::ClearedNodes;
use facts::matching::{LEAVING, Taint, TaintEffect};
use facts::{ClusterFact, ClusterName, Quantity};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the fact of `cluster` for the engine, with the `verdict` on it.
pub(super) fn fact(name: &ClusterName, cluster: &Cluster, verdict: &MemberVerdict) -> ClusterFact {
    ClusterFact {
        name: name.clone(),
        labels: cluster.metadata.labels.clone().unwrap_or_default(),
        provider: cluster.spec.provider.clone(),
        region: cluster.spec.region.clone(),
        zones: cluster.spec.zones.clone(),
        taints: cluster
            .spec
            .taints
            .iter()
            // Only the annotation says so, and it applies only to a member that does not answer.
            .filter(|taint| taint.key != OUT_OF_SERVICE_ANNOTATION)
            .map(LooseTaint::to_taint)
            .chain(emptied(cluster, verdict.silent))
            .collect(),
        apis: apis(cluster),
        price_milli: price(cluster).ok().flatten(),
        network: network(cluster).unwrap_or_default(),
        usable: verdict.usable(),
        unusable_because: verdict.because.clone(),
        paused: None,
    }
}

/// Returns the taint of a cluster that is to be emptied. A drain is a taint: pods that tolerate it stay and
/// may come. A cluster that is declared out of service but answers counts as drained, because the end of
/// its pods can be observed. No pod tolerates the removal of a cluster.
fn emptied(cluster: &Cluster, silent: bool) -> Option<Taint> {
    let taint = |key: &str| Taint {
        key: key.to_owned(),
        value: String::new(),
        effect: TaintEffect::NoExecute,
    };
    // Karmada removes all its Works, and then waits until no placement names it.
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some(taint(LEAVING));
    }
    let annotations = cluster.metadata.annotations.as_ref()?;
    let says = |key: &str| annotations.get(key).is_some_and(|value| value == "true");
    let key = match says(OUT_OF_SERVICE_ANNOTATION) {
        true if silent => OUT_OF_SERVICE_ANNOTATION,
        true => DRAIN_ANNOTATION,
        false if says(DRAIN_ANNOTATION) => DRAIN_ANNOTATION,
        false => return None,
    };
    Some(taint(key))
}

/// Returns the price of one device for one hour there, in thousandths; `None` if there is none.
///
/// # Errors
/// Returns a message if the annotation is no price.
fn price(cluster: &Cluster) -> Result<Option<u64>, String> {
    let annotations = cluster.metadata.annotations.as_ref();
    let Some(text) = annotations.and_then(|all| all.get(PRICE_ANNOTATION)) else {
        return Ok(None);
    };
    // Parsed like a Kubernetes quantity: exact, and rounded up to a thousandth.
    text.parse::<Quantity>()
        .and_then(Quantity::milli)
        .ok()
        .and_then(|milli| u64::try_from(milli.0).ok())
        .map(Some)
        .ok_or_else(|| format!("annotation {PRICE_ANNOTATION}: {text:?} is not a price; a number of 0 or more is needed, like 2.50"))
}

/// Returns the round-trip times to other clusters in microseconds, if the Cluster has them.
///
/// # Errors
/// Returns a message with the first invalid part of the annotation.
fn network(cluster: &Cluster) -> Result<BTreeMap<ClusterName, u64>, String> {
    let annotations = cluster.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(NETWORK_ANNOTATION));
    let parts = text.into_iter().flat_map(|text| text.split(','));
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            time_to(part).ok_or_else(|| {
                format!("annotation {NETWORK_ANNOTATION}: {part:?} is not the time to a cluster and back; CLUSTER=TIMEms is needed, like gpu-b=0.4ms")
            })
        })
        .collect()
}

fn time_to(part: &str) -> Option<(ClusterName, u64)> {
    let (name, time) = part.split_once('=')?;
    let millis = time.strip_suffix("ms")?.parse::<Quantity>().ok()?;
    let micros = u64::try_from(millis.milli().ok()?.0).ok()?;
    (!name.is_empty()).then(|| (ClusterName::new(name), micros))
}

/// Returns what `cluster` says besides its fact.
pub(super) fn marks(cluster: &Cluster) -> ClusterMarks {
    ClusterMarks {
        uid: cluster.metadata.uid.clone().unwrap_or_default(),
        cleared: cleared(cluster).unwrap_or_else(|(readable, _)| readable),
    }
}

fn cleared(cluster: &Cluster) -> Result<ClearedNodes, (ClearedNodes, String)> {
    let annotations = cluster.metadata.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(CLEARED_NODES_ANNOTATION));
    text.map_or_else(
        || Ok(ClearedNodes::default()),
        |text| ClearedNodes::parse(text),
    )
}

/// Returns which of its annotations cannot be read, with the effect.
pub(super) fn unread(cluster: &Cluster) -> Vec<(String, &'static str)> {
    let price = price(cluster)
        .err()
        .map(|problem| (problem, "its price is not used"));
    let times = network(cluster).err();
    let times = times.map(|problem| (problem, "its times to other clusters are not used"));
    let cleared = cleared(cluster).err();
    let cleared = cleared.map(|(_, problem)| (problem, "that node is not cleared"));
    price.into_iter().chain(times).chain(cleared).collect()
}

/// Returns `apiVersion/Kind` of all APIs that it serves; `None` while Karmada has not reported them.
fn apis(cluster: &Cluster) -> Option<BTreeSet<String>> {
    let enabled = &cluster.status.api_enablements;
    let names = enabled.iter().flat_map(|group| {
        let of_group = |resource: &crds::karmada::ApiResource| {
            format!("{}/{}", group.group_version, resource.kind)
        };
        group.resources.iter().map(of_group)
    });
    (!enabled.is_empty()).then(|| names.collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use facts::matching::{Toleration, untolerated};
    use serde_json::json;

    #[test]
    fn a_cluster_is_out_of_service_only_while_it_does_not_answer() {
        let key = |annotations: serde_json::Value, silent| {
            let cluster = json!({"metadata": {"annotations": annotations}});
            let taint = emptied(&serde_json::from_value(cluster).unwrap(), silent);
            taint.map_or("none".to_owned(), |taint| taint.key)
        };
        let gone = || json!({"muster.io/out-of-service": "true"});
        let drained = || json!({"muster.io/drain": "true"});
        assert_eq!(key(gone(), true), "muster.io/out-of-service");
        assert_eq!(key(gone(), false), "muster.io/drain");
        assert_eq!(key(drained(), true), "muster.io/drain");
        let no = json!({"muster.io/drain": "false"});
        assert_eq!(key(no, false), "none");
    }

    #[test]
    fn a_cluster_that_is_being_removed_is_emptied() {
        let cluster = json!({"metadata": {
            "annotations": {"muster.io/drain": "true"},
            "deletionTimestamp": "2026-11-22T00:00:00Z",
        }});
        let taint = emptied(&serde_json::from_value(cluster).unwrap(), false).unwrap();
        let everything = Toleration {
            key: String::new(),
            value: None,
            effect: None,
        };
        let taints = [taint];
        let left = untolerated(&taints, &[everything]);
        assert_eq!(left.unwrap().key, "muster.io/leaving");
    }

    #[test]
    fn times_between_clusters_are_exact_or_errors() {
        let of = |text: &str| {
            let annotations = json!({"muster.io/network": text});
            let cluster = json!({"metadata": {"annotations": annotations}});
            network(&serde_json::from_value(cluster).unwrap())
        };
        let read = of("gpu-b=0.4ms, gpu-c=12ms,").unwrap();
        let read: Vec<_> = read.iter().map(|(name, at)| (name.as_str(), *at)).collect();
        assert_eq!(read, [("gpu-b", 400), ("gpu-c", 12_000)]);
        assert_eq!(of(""), Ok(BTreeMap::new()));
        for text in ["gpu-b", "gpu-b=4", "=4ms", "gpu-b=-1ms", "gpu-b=fastms"] {
            let error = of(&format!("gpu-a=1ms,{text}")).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn a_price_is_exact_or_an_error() {
        let of = |annotations| {
            price(
                &serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap(),
            )
        };
        for (text, want) in [("2.50", 2_500), ("0", 0), ("3", 3_000), ("0.0001", 1)] {
            assert_eq!(
                of(json!({"muster.io/price": text})),
                Ok(Some(want)),
                "{text}"
            );
        }
        assert_eq!(of(json!(null)), Ok(None));
        for text in ["", "$2", "-1", "2 EUR"] {
            assert!(
                of(json!({"muster.io/price": text}))
                    .unwrap_err()
                    .contains(text),
                "{text}"
            );
        }
    }
}
