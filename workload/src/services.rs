//! Services by which pods of other clusters find those of a gang: one for each pod that has to be
//! found, where its address asks for one (`{service}`).
//!
//! ```text
//! template + attempt + admitted shares + Reach ──► PodService per pod: name, selector, clusters
//! ```
//!
//! The Service of a pod is one and the same in all clusters of the job, as Karmada's
//! MultiClusterService has it: the pod's own cluster provides it, the others consume it. Indexes
//! restart in every part, so what an operator writes on its pods does not tell those of two
//! clusters apart. The pods of a job that has such Services are therefore labelled with their part
//! ([`PART_LABEL`]), and a Service selects by it: in the other clusters it selects nobody, whatever
//! came there first. A selector that is taken away there would not do: Kubernetes keeps the
//! EndpointSlices that it made before.
//!
//! Names hold the template, the attempt and the cluster, so that nothing of an attempt that is over
//! can be taken for the new one's.

use crate::kinds;
use crate::parts::PartsError;
use crate::rendezvous::{Meeting, Reach, leading};
use crate::spec::read_spec;
use engine::facts::Share;
use engine::{Attempt, ClusterName};
use serde_json::Value;
use std::collections::BTreeMap;

/// Label of the pods of a job that is in parts: which part of which attempt they are of. The rest
/// of what a Service selects by is the operator's.
pub const PART_LABEL: &str = "muster.io/part-id";
/// Kubernetes' bound on the name of a Service.
const LONGEST_NAME: usize = 63;
/// What all names begin with: a letter, and whose they are. No operator's do.
const PREFIX: &str = "muster";

/// The Service of one pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodService {
    /// Its name.
    pub name: String,
    /// The cluster that has the pod.
    pub provider: ClusterName,
    /// Those whose pods look for it.
    pub consumers: Vec<ClusterName>,
    /// The labels of the pod, and of no other.
    pub selector: BTreeMap<String, String>,
}

/// The Services that `shares` of `template` need, where pods are reached as `reach` says. None for
/// a job in one cluster.
///
/// # Errors
/// Where the template cannot be read.
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
    // The first is one of all.
    services.sort_by(|a, b| a.name.cmp(&b.name));
    services.dedup();
    Ok(services)
}

/// Whether a job in so many clusters needs [`services`]: some pod is found by one from another.
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

/// Whether a Service can select single pods of a job.
pub(crate) fn can_select(template: &Value) -> bool {
    pod_labels(template, "", 0).is_some()
}

/// The labels that an operator writes on the pod with this index of a role; `None` where none of
/// them tell it.
fn pod_labels(template: &Value, role: &str, index: u32) -> Option<BTreeMap<String, String>> {
    kinds::of_template(template)?.pod_labels(template, role, index)
}

/// Labels by key.
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

    /// The name of the Service of the pod with this index of a role in `cluster`.
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

    /// The value of [`PART_LABEL`] in `cluster`.
    pub(crate) fn part_label(&self, cluster: &ClusterName) -> String {
        self.hash(cluster, "")
    }

    /// Tells what differs in any of it apart. FNV-1a: it has to be the same in every version.
    fn hash(&self, cluster: &ClusterName, pod: &str) -> String {
        let attempt = self.attempt.0.to_string();
        let words = [self.uid, &attempt, cluster.as_str(), pod];
        // No word has a byte 0xff: it parts them.
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
