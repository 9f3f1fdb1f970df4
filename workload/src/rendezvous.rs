//! How the pods of a gang over several clusters find the leading pod, of rank 0, or all other pods.
//!
//! ```text
//! template ──► host of rank 0 ──┐
//! addresses of the queue ───────┴──► address, for the pods of the other clusters
//! ```
//!
//! Inside its own cluster the name that Kubernetes gives that pod resolves. What resolves in other clusters
//! depends on the fleet (an ingress, a mesh, one network with DNS zones for clusters), so a policy
//! specifies it, as a text for each cluster. Kinds whose framework has to find rank 0 are split only if
//! every cluster has such a text. If the text has `{service}`, the pod gets a Service of its own there
//! ([`mod@crate::services`]), whose name is known once the job is split; until then the placeholder stays.

use crate::kinds;
use facts::{ClusterName, Share};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;

/// The key of the text for all clusters without one of their own.
pub const ANY_CLUSTER: &str = "*";

/// The placeholders of a text, in braces.
const PLACES: [&str; 4] = [HOST, SERVICE, "namespace", "cluster"];
/// The pod.
const HOST: &str = "host";
/// The placeholder of the pod.
const OPEN: &str = "{host}";
/// The Service that Muster creates for the pod.
const SERVICE: &str = "service";
/// The placeholder of the Service.
const OPEN_SERVICE: &str = "{service}";

/// Which pods the pods of a job have to find in other clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Meeting {
    /// None, as far as its kind requires.
    #[default]
    Nobody,
    /// The pod of rank 0.
    First,
    /// All other pods: an address has to identify a single pod of a cluster.
    All,
}

/// How pods of other clusters are reached, as of the admission of the job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reach {
    /// The address of the pod of rank 0, with the placeholder `{service}`.
    pub leader: Option<String>,
    /// By cluster, addresses with only the placeholders `{host}` and `{service}`, if all pods have to be
    /// found.
    pub hosts: BTreeMap<ClusterName, String>,
}

impl Reach {
    /// Returns the address of the pod of rank 0, whose Service would be `service`.
    pub(crate) fn first(&self, service: &str) -> Option<String> {
        let open = self.leader.as_ref()?;
        filled(open, |place| (place == SERVICE).then_some(service)).ok()
    }

    /// Returns the address of the pod with this name in `cluster`, whose Service would be `service`.
    pub(crate) fn of(&self, cluster: &ClusterName, host: &str, service: &str) -> Option<String> {
        let value = |place: &str| match place {
            HOST => Some(host),
            SERVICE => Some(service),
            _ => None,
        };
        filled(self.hosts.get(cluster)?, value).ok()
    }

    /// Returns true if a Service leads to the pod of rank 0.
    pub(crate) fn first_has_service(&self) -> bool {
        let leader = self.leader.as_ref();
        leader.is_some_and(|leader| leader.contains(OPEN_SERVICE))
    }

    /// Returns true if a Service leads to each pod in `cluster`.
    pub(crate) fn has_services(&self, cluster: &ClusterName) -> bool {
        let open = self.hosts.get(cluster);
        open.is_some_and(|open| open.contains(OPEN_SERVICE))
    }
}

/// How pods are addressed from other clusters: by cluster, or [`ANY_CLUSTER`], a text such as
/// `{host}.{namespace}.svc.{cluster}.example.com`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(BTreeMap<String, String>);

/// An invalid address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It is empty.
    #[error("an address is needed, such as {{host}}.{{namespace}}.svc.{{cluster}}.example.com")]
    Empty,
    /// An unmatched brace, or an unknown placeholder.
    #[error(
        "{{{0}}} is not known; {{host}}, {{service}}, {{namespace}} and {{cluster}} are put in"
    )]
    Unknown(String),
    /// A character that no name has.
    #[error("{0:?} cannot be part of an address")]
    Character(char),
}

impl Addresses {
    /// Creates it from texts by cluster, unchecked: [`Self::check`] finds invalid ones.
    #[must_use]
    pub fn new(texts: &BTreeMap<String, String>) -> Self {
        Self(texts.clone())
    }

    /// Returns true if there is no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a text.
    ///
    /// # Errors
    /// Returns what is wrong with it.
    pub fn check(text: &str) -> Result<(), AddressError> {
        let filled = filled(text, |place| PLACES.contains(&place).then_some("a"))?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        match filled.chars().find(|c| !is_part(*c)) {
            Some(other) => Err(AddressError::Character(other)),
            None if filled.is_empty() => Err(AddressError::Empty),
            None => Ok(()),
        }
    }

    /// Returns the first of `clusters` without an address by which pods can find those of a job.
    #[must_use]
    pub fn missing<'a>(
        &self,
        clusters: impl IntoIterator<Item = &'a ClusterName>,
        meeting: Meeting,
    ) -> Option<&'a ClusterName> {
        let mut clusters = clusters.into_iter();
        let is_of_use = |text: &str| {
            let tells = text.contains(OPEN) || text.contains(OPEN_SERVICE);
            let tells_apart = tells || meeting != Meeting::All;
            tells_apart && Self::check(text).is_ok()
        };
        clusters.find(|cluster| !self.text(cluster).is_some_and(is_of_use))
    }

    /// Returns how pods of `namespace` in `cluster` are reached, with the placeholders `{host}` and
    /// `{service}`.
    #[must_use]
    pub fn open(&self, cluster: &ClusterName, namespace: &str) -> Option<String> {
        self.of(cluster, namespace, Some(OPEN), true)
    }

    /// Returns how pods of other clusters reach `host` of `namespace` in `cluster`, with the placeholder
    /// `{service}`. `None` if the text needs a Service that could not select the pod, or if the pod has no
    /// name and no Service selects it: the address would then reach an unknown pod.
    #[must_use]
    pub fn of(
        &self,
        cluster: &ClusterName,
        namespace: &str,
        host: Option<&str>,
        selectable: bool,
    ) -> Option<String> {
        let value = |place: &str| match place {
            HOST => host,
            SERVICE => selectable.then_some(OPEN_SERVICE),
            "namespace" => Some(namespace),
            "cluster" => Some(cluster.as_str()),
            _ => None,
        };
        let text = self.text(cluster)?;
        let is_found = host.is_some() || text.contains(OPEN_SERVICE);
        filled(text, value).ok().filter(|_| is_found)
    }

    fn text(&self, cluster: &ClusterName) -> Option<&str> {
        let own = self.0.get(cluster.as_str());
        own.or_else(|| self.0.get(ANY_CLUSTER)).map(String::as_str)
    }
}

/// Returns `text` with each placeholder replaced by its `value`.
fn filled<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> Result<String, AddressError> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        filled.push_str(before);
        let (place, after) = after
            .split_once('}')
            .ok_or_else(|| AddressError::Unknown(after.to_owned()))?;
        let value = value(place).ok_or_else(|| AddressError::Unknown(place.to_owned()))?;
        filled.push_str(value);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns the share whose pods start with rank 0: the first with pods of the first role.
pub(crate) fn leading<'a>(shares: &'a [Share], first_role: &str) -> Option<&'a Share> {
    let has = |share: &&Share| {
        let mut pods = share.pods.iter();
        pods.any(|pods| pods.role == first_role && pods.count > 0)
    };
    shares.iter().find(has)
}

/// Returns an address with a port; an address with colons is IPv6.
pub(crate) fn endpoint(address: &str, port: impl fmt::Display) -> String {
    match address.contains(':') {
        true => format!("[{address}]:{port}"),
        false => format!("{address}:{port}"),
    }
}

/// Returns the name by which pods of the same cluster and namespace reach the pod of rank 0; `None` if it
/// has none.
pub(crate) fn host(template: &Value) -> Option<String> {
    kinds::of_template(template)?.first_host(template)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::yaml;

    fn addresses(texts: &[(&str, &str)]) -> Addresses {
        let texts = texts
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Addresses::new(&texts.collect())
    }

    #[test]
    fn a_text_is_filled_in_for_its_cluster() {
        let all = addresses(&[
            ("*", "{host}.{namespace}.svc.{cluster}.example.com"),
            ("gpu-c", "10.0.3.1"),
        ]);
        let of = |cluster| {
            all.of(
                &ClusterName::new(cluster),
                "team",
                Some("job-master-0"),
                true,
            )
        };
        assert_eq!(
            of("gpu-a").unwrap(),
            "job-master-0.team.svc.gpu-a.example.com"
        );
        assert_eq!(of("gpu-c").unwrap(), "10.0.3.1");
    }

    #[test]
    fn pods_are_distinguished_where_each_has_to_be_found() {
        let (a, b) = (ClusterName::new("a"), ClusterName::new("b"));
        let some = addresses(&[("a", "{host}.{namespace}.{cluster}"), ("b", "10.0.3.1")]);
        assert_eq!(some.missing([&a, &b], Meeting::First), None);
        assert_eq!(some.missing([&a, &b], Meeting::All), Some(&b));
        let open = some.open(&a, "team").unwrap();
        assert_eq!(open, "{host}.team.a");
        let reach = Reach {
            leader: None,
            hosts: [(a.clone(), open)].into(),
        };
        assert_eq!(
            reach.of(&a, "j-worker-1", "s").unwrap(),
            "j-worker-1.team.a"
        );
        assert_eq!(reach.of(&b, "j-worker-1", "s"), None);
    }

    #[test]
    fn a_service_is_left_open_until_its_name_is_known() {
        let (a, b) = (ClusterName::new("a"), ClusterName::new("b"));
        let some = addresses(&[
            ("a", "{service}.{namespace}.svc"),
            ("b", "{host}.{service}.{cluster}"),
            ("c", "10.0.3.1"),
        ]);
        let c = ClusterName::new("c");
        assert_eq!(some.missing([&a, &b], Meeting::All), None);
        let of = |cluster, host, selectable| some.of(cluster, "team", host, selectable);
        let open = of(&a, None, true).unwrap();
        assert_eq!(open, "{service}.team.svc", "it needs no other name");
        assert_eq!(of(&a, Some("h"), false), None, "nothing selects the pod");
        assert_eq!(of(&b, None, true), None);
        assert_eq!(of(&c, None, true), None, "who would be there?");
        assert_eq!(of(&c, Some("h"), false).unwrap(), "10.0.3.1");
        assert_eq!(of(&b, Some("h"), true).unwrap(), "h.{service}.b");
        let reach = Reach {
            leader: Some(open),
            hosts: [(b.clone(), some.open(&b, "team").unwrap())].into(),
        };
        assert!(reach.first_has_service() && reach.has_services(&b));
        assert!(!reach.has_services(&a));
        assert_eq!(reach.first("s").unwrap(), "s.team.svc");
        assert_eq!(reach.of(&b, "w-0", "s").unwrap(), "w-0.s.b");
    }

    #[test]
    fn a_cluster_without_an_address_is_found() {
        let (a, b) = (ClusterName::new("a"), ClusterName::new("b"));
        let some = addresses(&[("a", "{host}.a"), ("c", "{host}.c")]);
        assert_eq!(some.missing([&a, &b], Meeting::First), Some(&b));
        assert_eq!(some.missing([&a], Meeting::First), None);
        assert_eq!(some.of(&b, "n", Some("h"), true), None);
        let wrong = addresses(&[("*", "{pod}.a")]);
        assert_eq!(wrong.missing([&a], Meeting::First), Some(&a));
        assert_eq!(Addresses::default().missing([&a], Meeting::First), Some(&a));
    }

    #[test]
    fn an_invalid_address_says_why() {
        for (text, why) in [
            ("", "an address is needed"),
            (
                "{pod}.a",
                "{pod} is not known; {host}, {service}, {namespace} and",
            ),
            ("{host", "{host} is not known"),
            ("{host}.a/b", "'/' cannot be part"),
            ("{host} ", "' ' cannot be part"),
        ] {
            let told = Addresses::check(text).unwrap_err().to_string();
            assert!(told.contains(why), "{text}: {told}");
        }
        for text in [
            "{host}.{namespace}.svc.{cluster}.x",
            "{service}.{namespace}.svc",
            "10.0.0.1",
            "fd00::1",
        ] {
            Addresses::check(text).unwrap();
        }
    }

    #[test]
    fn the_pod_of_rank_0_has_a_name_where_its_kind_or_its_service_gives_one() {
        let of = |template: &str| host(&yaml(template));
        let torch = "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j}}";
        assert_eq!(of(torch).unwrap(), "j-master-0");
        let mpi = "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: j}}";
        assert_eq!(of(mpi).unwrap(), "j-launcher.j");
        let volcano = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {plugins: {svc: []}, tasks: [{name: m}]}}";
        assert_eq!(of(volcano).unwrap(), "j-m-0.j");
        let unnamed = "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: j}, spec: {tasks: [{name: m}]}}";
        assert_eq!(of(unnamed), None);
        let indexed = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {completionMode: Indexed, template: {spec: {subdomain: s}}}}";
        assert_eq!(of(indexed).unwrap(), "j-0.s");
        let plain = "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {template: {spec: {subdomain: s}}}}";
        assert_eq!(of(plain), None);
        let set = |spec: &str| {
            of(&format!(
                "{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: j}}, spec: {{{spec}}}}}"
            ))
        };
        let jobs = "replicatedJobs: [{name: d}, {name: w}]";
        assert_eq!(set(jobs).unwrap(), "j-d-0-0.j");
        let named = set(&format!("{jobs}, network: {{subdomain: s}}"));
        assert_eq!(named.unwrap(), "j-d-0-0.s");
        let unnamed = set(&format!("{jobs}, network: {{enableDNSHostnames: false}}"));
        assert_eq!(unnamed, None);
        let plain = "replicatedJobs: [{name: d, template: {spec: {completionMode: NonIndexed}}}]";
        assert_eq!(set(plain), None);
    }
}
