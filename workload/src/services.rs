//! Services by which pods of other clusters find those of a gang: one for each pod that has to be found, if
//! its address has the placeholder `{service}`.
//!
//! ```text
//! template + attempt + admitted shares + Reach ──► PodService per pod: name, selector, clusters
//! ```
//!
//! The Service of a pod is the same in all clusters of the job, as Karmada's MultiClusterService requires:
//! the pod's own cluster provides it, the others consume it. Indexes restart in every part, so the
//! operator's labels do not distinguish pods of two clusters. The pods of a job with such Services are
//! therefore labelled with their part ([`PART_LABEL`]), and a Service selects by this label: in other
//! clusters it selects no pod, whatever was created first. Removing the selector there would not be enough:
//! Kubernetes keeps the EndpointSlices that it created before.
//!
//! Names include the template, the attempt and the cluster, so that no object of an earlier attempt can be
//! mistaken for the present one's.

use crate::kinds;
use crate::parts::PartsError;
use crate::rendezvous::{Meeting, Reach, leading};
use crate::spec::read_spec;
use facts::{Attempt, ClusterName, Share};
use serde_json::Value;
use std::collections::BTreeMap;

/// Label of the pods of a job in parts: their part and attempt. A Service selects by it and by the
/// operator's labels.
pub const PART_LABEL: &str = "muster.io/part-id";
/// Kubernetes' limit of the name of a Service.
const LONGEST_NAME: usize = 63;
/// Prefix of all names: a letter, and Muster's name. No operator's names start with it.
const PREFIX: &str = "muster";

/// The Service of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodService {
    /// Its name.
    pub name: String,
    /// The cluster of the pod.
    pub provider: ClusterName,
    /// The clusters whose pods look for it.
    pub consumers: Vec<ClusterName>,
    /// Labels that only this pod has.
    pub selector: BTreeMap<String, String>,
}

/// Returns the Services that `shares` of `template` need if pods are reached as `reach` says. None for a
/// job in one cluster.
///
/// # Errors
/// Returns an error if the template cannot be read.
pub fn services(
    template: &Value,
    attempt: Attempt,
    shares: &[Share],
    reach: &Reach,
) -> Result<Vec<PodService>, PartsError> {
    if !needs_services(shares.len(), reach) {
        return Ok(Vec::new());
    }
    let spec = read_spec(template).map_err(|error| PartsError::Unreadable(error.to_string()))?;
    let whose = Whose::of(template, attempt);
    let service = |share: &Share, role: &str, index: u32| {
        let others = shares.iter().map(|other| &other.cluster);
        let mut selector = pod_labels(template, role, index)?;
        selector.insert(PART_LABEL.to_owned(), whose.part_label(&share.cluster));
        Some(PodService {
            name: whose.service(&share.cluster, role, index),
            provider: share.cluster.clone(),
            consumers: others
                .filter(|other| **other != share.cluster)
                .cloned()
                .collect(),
            selector,
        })
    };
    let first = spec.roles.first().filter(|_| reach.first_has_service());
    let first = first.and_then(|first| {
        let leading = leading(shares, &first.name)?;
        service(leading, &first.name, 0)
    });
    let all = shares
        .iter()
        .filter(|share| spec.meeting == Meeting::All && reach.has_services(&share.cluster));
    let all = all.flat_map(|share| {
        let pods = share.pods.iter();
        pods.flat_map(move |pods| (0..pods.count).map(move |index| (share, &pods.role, index)))
    });
    let all = all.filter_map(|(share, role, index)| service(share, role, index));
    let mut services: Vec<PodService> = first.into_iter().chain(all).collect();
    // The first pod is also one of all.
    services.sort_by(|a, b| a.name.cmp(&b.name));
    services.dedup();
    Ok(services)
}

/// Returns true if a job in this number of clusters needs [`services`]: some pod finds another one by a
/// Service.
#[must_use]
pub fn needs_services(clusters: usize, reach: &Reach) -> bool {
    let of_any = || {
        reach
            .hosts
            .keys()
            .any(|cluster| reach.has_services(cluster))
    };
    clusters > 1 && (reach.first_has_service() || of_any())
}

/// Returns true if a Service can select single pods of a job.
pub(crate) fn can_select(template: &Value) -> bool {
    pod_labels(template, "", 0).is_some()
}

/// Returns the labels that an operator sets on the pod with this index of a role; `None` if they do not
/// identify it.
fn pod_labels(template: &Value, role: &str, index: u32) -> Option<BTreeMap<String, String>> {
    kinds::of_template(template)?.pod_labels(template, role, index)
}

/// Returns labels by key.
pub(crate) fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    labels.iter().map(owned).collect()
}

/// One attempt of one job.
pub(crate) struct Whose<'a> {
    name: &'a str,
    uid: &'a str,
    attempt: Attempt,
}

impl<'a> Whose<'a> {
    pub(crate) fn of(template: &'a Value, attempt: Attempt) -> Self {
        let text = |path| template.pointer(path).and_then(Value::as_str);
        Self {
            name: text("/metadata/name").unwrap_or_default(),
            uid: text("/metadata/uid").unwrap_or_default(),
            attempt,
        }
    }

    /// Returns the name of the Service of the pod with this index of a role in `cluster`.
    pub(crate) fn service(&self, cluster: &ClusterName, role: &str, index: u32) -> String {
        let pod = format!("{}-{role}-{index}", self.name);
        let hash = self.hash(cluster, &pod);
        let room = LONGEST_NAME - PREFIX.len() - hash.len() - 2;
        let label = |c: char| match c {
            'a'..='z' | '0'..='9' => c,
            _ => '-',
        };
        let pod: String = pod.to_lowercase().chars().map(label).take(room).collect();
        format!("{PREFIX}-{}-{hash}", pod.trim_matches('-'))
    }

    /// Returns the value of [`PART_LABEL`] in `cluster`.
    pub(crate) fn part_label(&self, cluster: &ClusterName) -> String {
        self.hash(cluster, "")
    }

    /// Hashes everything that identifies the pod. FNV-1a: the result has to be the same in every version.
    fn hash(&self, cluster: &ClusterName, pod: &str) -> String {
        let attempt = self.attempt.0.to_string();
        let words = [self.uid, &attempt, cluster.as_str(), pod];
        // No word contains the byte 0xff, which separates them.
        let bytes = words
            .iter()
            .flat_map(|word| word.bytes().chain(std::iter::once(0xff)));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{hash:016x}")
    }
}

#[cfg(test)]
mod tests;
