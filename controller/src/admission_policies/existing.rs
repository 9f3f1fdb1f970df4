//! Finds stored Karmada policies that break a rule of the admission policies. Such a policy existed before
//! its namespace was managed, or was written by an account that the rules exempt, as with all
//! ClusterPropagationPolicies.
//!
//! ```text
//! namespaces, policies (watched) ──► part that a rule applies to ──► dry run as a tenant ──► event, metric
//! ```
//!
//! The rules are in `deploy/admission-policies.yaml` only. The keeper posts the content of each policy
//! again as a dry run, with the account and in the namespace that [`super::probe`] uses; the refusal names
//! the field. Only the leader does so, only while the admission policies are in force, and only a few
//! policies a second.
//!
//! This module reports and changes nothing: it must never delay a decision or write a policy, and a missing
//! answer must never count as a verdict.

use super::probe::{self, ProbeAttempt};
use super::warn;
use crds::kubernetes::Namespace;
use crds::names;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use runtime::watch::{Delta, ObjectKey, WatchOptions};
use runtime::{Leadership, Term};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// Pause between two dry runs.
const PACE: Duration = Duration::from_millis(50);
/// Pause after a dry run without an answer.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Capacity of the channel of changes.
const CHANGES: usize = 256;
/// Reason of the events.
const REASON: &str = "UnsafePolicy";

/// Labels of `muster_unsafe_policies`; both have a fixed set of values.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Label {
    kind: String,
    rule: String,
}

/// Number of policies that break a rule.
pub(crate) type Count = Family<Label, Gauge>;

/// The kinds of policies that are checked, by Karmada's names.
#[expect(clippy::enum_variant_names)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PolicyKind {
    PropagationPolicy,
    ClusterPropagationPolicy,
    OverridePolicy,
    ClusterOverridePolicy,
}

impl PolicyKind {
    const ALL: [Self; 4] = [
        Self::PropagationPolicy,
        Self::ClusterPropagationPolicy,
        Self::OverridePolicy,
        Self::ClusterOverridePolicy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::PropagationPolicy => "PropagationPolicy",
            Self::ClusterPropagationPolicy => "ClusterPropagationPolicy",
            Self::OverridePolicy => "OverridePolicy",
            Self::ClusterOverridePolicy => "ClusterOverridePolicy",
        }
    }

    fn resource(self) -> ApiResource {
        let gvk = GroupVersionKind::gvk("policy.karmada.io", "v1alpha1", self.name());
        let plural = match self {
            Self::PropagationPolicy => "propagationpolicies",
            Self::ClusterPropagationPolicy => "clusterpropagationpolicies",
            Self::OverridePolicy => "overridepolicies",
            Self::ClusterOverridePolicy => "clusteroverridepolicies",
        };
        ApiResource::from_gvk_with_plural(&gvk, plural)
    }

    fn overrides(self) -> bool {
        matches!(self, Self::OverridePolicy | Self::ClusterOverridePolicy)
    }

    /// The dry run for `spec`, which has the same type with and without a namespace.
    fn attempt(self, spec: Value) -> ProbeAttempt {
        match self.overrides() {
            true => probe::override_policy(spec),
            false => probe::propagation_policy(spec),
        }
    }

    /// Returns true if the policy `name` belongs to Muster.
    fn is_ours(self, name: &str) -> bool {
        match self {
            Self::PropagationPolicy => name == names::DEFAULT_POLICY,
            Self::OverridePolicy => name.starts_with("muster-"),
            Self::ClusterPropagationPolicy | Self::ClusterOverridePolicy => false,
        }
    }
}

type PolicyKey = (PolicyKind, ObjectKey);

#[derive(Debug)]
enum PolicyChange {
    Namespace(Delta<Namespace>),
    Policy(PolicyKind, Delta<DynamicObject>),
}

/// A rule that a policy breaks.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Broken {
    /// The field, for example `spec.schedulerName`.
    rule: String,
    message: String,
}

#[derive(Debug)]
struct Policy {
    uid: Option<String>,
    spec: Value,
    broken: Option<Broken>,
}

/// Starts the checks, which run until `cancel`. `in_force` says whether the admission policies refuse
/// requests.
pub(crate) fn spawn(
    client: &Client,
    term: &Term,
    in_force: watch::Receiver<bool>,
    count: Count,
    cancel: CancellationToken,
) {
    let client = term.client(client);
    let (changes, receiver) = mpsc::channel(CHANGES);
    let options = WatchOptions {
        absent_is_empty: true,
        denied_is_listed: true,
        ..WatchOptions::default()
    };
    runtime::watch::watch(
        Api::<Namespace>::all(client.clone()),
        options.clone(),
        "Namespace",
        PolicyChange::Namespace,
        changes.clone(),
        cancel.clone(),
    );
    for kind in PolicyKind::ALL {
        runtime::watch::watch_dynamic(
            client.clone(),
            &kind.resource(),
            None,
            options.clone(),
            move |delta| PolicyChange::Policy(kind, delta),
            changes.clone(),
            cancel.clone(),
        );
    }
    let mut looker = Looker {
        client,
        leadership: term.leadership.clone(),
        in_force,
        count,
        found: StoredPolicies::default(),
    };
    runtime::task::spawn(async move {
        let _ = cancel.run_until_cancelled(looker.run(receiver)).await;
    });
}

struct Looker {
    client: Client,
    leadership: Leadership,
    in_force: watch::Receiver<bool>,
    count: Count,
    found: StoredPolicies,
}

impl Drop for Looker {
    /// A replica that does not lead reports nothing.
    fn drop(&mut self) {
        self.count.clear();
    }
}

impl Looker {
    async fn run(&mut self, mut changes: mpsc::Receiver<PolicyChange>) {
        let mut next = Instant::now();
        loop {
            let may_ask = self.leadership.is_leading() && *self.in_force.borrow();
            let due = self.found.next().filter(|_| may_ask);
            tokio::select! {
                biased;
                change = changes.recv() => match change {
                    Some(change) => self.found.note(change),
                    None => return,
                },
                // Restored policies may have other rules.
                changed = self.in_force.changed() => match changed {
                    Ok(()) => self.found.all_due(),
                    Err(_) => return,
                },
                () = self.leadership.changed() => {}
                () = tokio::time::sleep_until(next), if due.is_some() => {
                    if let Some(key) = due {
                        next = self.check(&key).await;
                    }
                }
            }
            self.show();
        }
    }

    /// Checks one policy and returns when the next one may be checked.
    async fn check(&mut self, key: &PolicyKey) -> Instant {
        let Some(spec) = self.found.spec_to_check(key) else {
            self.found.note_result(key, None);
            return Instant::now();
        };
        match probe::refusal(&self.client, &key.0.attempt(spec)).await {
            Ok(refusal) => {
                let broken = refusal.as_deref().and_then(broken);
                if self.found.note_result(key, broken.clone())
                    && let Some(broken) = broken
                {
                    self.report(key, &broken).await;
                }
                Instant::now() + PACE
            }
            Err(error) => {
                tracing::debug!(%error, policy = %key.1, "cannot check whether a policy is safe; trying again");
                Instant::now() + RETRY_PAUSE
            }
        }
    }

    async fn report(&self, (kind, key): &PolicyKey, broken: &Broken) {
        let (kind_name, rule) = (kind.name(), &broken.rule);
        let message = &broken.message;
        tracing::warn!(
            kind = kind_name,
            policy = %key,
            rule,
            message,
            "a stored policy breaks a rule of the admission policies: jobs may exceed what their queues are charged"
        );
        let resource = kind.resource();
        let reference = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            namespace: key.namespace.clone(),
            name: Some(key.name.clone()),
            uid: self.found.uid(&(*kind, key.clone())),
            ..ObjectReference::default()
        };
        let note = format!("a tenant would be refused this policy today: {message}");
        warn(self.client.clone(), &reference, REASON, note).await;
    }

    fn show(&mut self) {
        if !std::mem::take(&mut self.found.changed) {
            return;
        }
        self.count.clear();
        for (kind, broken) in self.found.broken() {
            let label = Label {
                kind: kind.name().to_owned(),
                rule: broken.rule.clone(),
            };
            self.count.get_or_create(&label).inc();
        }
    }
}

/// What the watches have shown; it does no I/O.
#[derive(Debug, Default)]
struct StoredPolicies {
    managed: BTreeSet<String>,
    policies: BTreeMap<PolicyKey, Policy>,
    /// Policies that are still to be checked.
    due: BTreeSet<PolicyKey>,
    /// Kinds that have listed; `None` stands for namespaces.
    listed: BTreeSet<Option<PolicyKind>>,
    /// True if the set of policies that break a rule has changed since it was last shown.
    changed: bool,
}

impl StoredPolicies {
    fn note(&mut self, change: PolicyChange) {
        match change {
            PolicyChange::Namespace(Delta::Upserted(namespace)) => {
                let managed = namespace.is_managed();
                let name = namespace.metadata.name.unwrap_or_default();
                let changes = match managed {
                    true => self.managed.insert(name),
                    false => self.managed.remove(&name),
                };
                self.recheck_if(changes);
            }
            PolicyChange::Namespace(Delta::Gone(key)) => {
                let changes = self.managed.remove(&key.name);
                self.recheck_if(changes);
            }
            PolicyChange::Namespace(Delta::Listed) => _ = self.listed.insert(None),
            PolicyChange::Policy(kind, Delta::Listed) => _ = self.listed.insert(Some(kind)),
            PolicyChange::Policy(kind, Delta::Upserted(object)) => self.upserted(kind, &object),
            PolicyChange::Policy(kind, Delta::Gone(object)) => {
                let key = (kind, object);
                self.changed |= self
                    .policies
                    .remove(&key)
                    .is_some_and(|policy| policy.broken.is_some());
                self.due.remove(&key);
            }
        }
    }

    fn upserted(&mut self, kind: PolicyKind, object: &DynamicObject) {
        let key = (kind, key_of(object));
        if kind.is_ours(&key.1.name) {
            return;
        }
        let spec = object.data.get("spec").cloned().unwrap_or_default();
        let uid = object.metadata.uid.clone();
        let known = self.policies.get(&key);
        if known.is_some_and(|known| known.uid == uid && known.spec == spec) {
            return;
        }
        let broken = known.and_then(|known| known.broken.clone());
        self.policies
            .insert(key.clone(), Policy { uid, spec, broken });
        self.due.insert(key);
    }

    /// Queues all policies again if the set of managed namespaces has changed.
    fn recheck_if(&mut self, changes: bool) {
        if changes {
            self.all_due();
        }
    }

    fn all_due(&mut self) {
        self.due.extend(self.policies.keys().cloned());
    }

    /// Returns the next policy to check, once all kinds have listed.
    fn next(&self) -> Option<PolicyKey> {
        let listed = self.listed.len() > PolicyKind::ALL.len();
        self.due.first().filter(|_| listed).cloned()
    }

    /// Returns the part of a policy to check, or `None` if nothing is left. For a policy without a namespace,
    /// this leaves out selectors of kinds without pods and of namespaces that are not managed. Of an override
    /// that then selects nothing, what holds for all objects of all namespaces is checked.
    fn spec_to_check(&self, key: &PolicyKey) -> Option<Value> {
        let spec = &self.policies.get(key)?.spec;
        self.managed_part(key, spec.clone()).or_else(|| {
            let mut spec = key.0.overrides().then(|| spec.clone())?;
            spec["resourceSelectors"] = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
            Some(spec)
        })
    }

    /// Returns the part of a policy that applies to what may start pods in managed namespaces.
    fn managed_part(&self, (kind, key): &PolicyKey, mut spec: Value) -> Option<Value> {
        let concerns = |namespace: &str| self.managed.contains(namespace);
        let within = match &key.namespace {
            Some(namespace) => concerns(namespace),
            None => !self.managed.is_empty(),
        };
        if !within {
            return None;
        }
        let selectors = spec.get_mut("resourceSelectors");
        let Some(selectors) = selectors.and_then(Value::as_array_mut) else {
            // An override without selectors applies to all objects.
            return kind.overrides().then_some(spec);
        };
        let of_all = selectors.is_empty();
        if key.namespace.is_none() {
            selectors.retain(|selector| {
                let text = |name: &str| selector[name].as_str().unwrap_or_default();
                let namespace = text("namespace");
                let here = namespace.is_empty() || concerns(namespace);
                here && workload::may_start_pods(text("apiVersion"), text("kind"))
            });
        }
        for selector in selectors.iter_mut().filter_map(Value::as_object_mut) {
            selector.remove("namespace");
        }
        let left = !selectors.is_empty() || of_all && kind.overrides();
        left.then_some(spec)
    }

    /// Records the result and returns true if it differs from the previous one.
    fn note_result(&mut self, key: &PolicyKey, broken: Option<Broken>) -> bool {
        self.due.remove(key);
        let Some(policy) = self.policies.get_mut(key) else {
            return false;
        };
        let new = policy.broken != broken;
        policy.broken = broken;
        self.changed |= new;
        new
    }

    fn uid(&self, key: &PolicyKey) -> Option<String> {
        self.policies.get(key)?.uid.clone()
    }

    fn broken(&self) -> impl Iterator<Item = (PolicyKind, &Broken)> {
        let all = self.policies.iter();
        all.filter_map(|((kind, _), policy)| Some((*kind, policy.broken.as_ref()?)))
    }
}

fn key_of(object: &DynamicObject) -> ObjectKey {
    ObjectKey {
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// Parses a refusal of the form `... ValidatingAdmissionPolicy 'muster-...' with binding '...' denied
/// request: FIELD ...`. Returns `None` if something else refused the request, which says nothing about the
/// rules.
fn broken(refusal: &str) -> Option<Broken> {
    let (_, ours) = refusal.split_once("ValidatingAdmissionPolicy 'muster-")?;
    let (_, message) = ours.split_once("denied request: ")?;
    let rule = message.split([' ', ':']).next()?;
    Some(Broken {
        rule: rule.to_owned(),
        message: message.to_owned(),
    })
}
