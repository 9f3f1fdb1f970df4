//! The control plane's admission policies: whether they are in force, and that they stay.
//!
//! By RBAC alone every editor of a namespace may write ResourceBindings, Works and policies (Karmada's
//! role `karmada-edit`). ValidatingAdmissionPolicies (`deploy/admission-policies.yaml`) leave that to
//! Karmada's and Muster's accounts. Without them no bound of a queue holds against a tenant.
//!
//! ```text
//! every CHECK ──► manifests: restore what was changed or deleted
//!                    └──► probe: is a tenant refused, does Muster pass? ──► Input::Enforcement
//!                            └──► existing: what is stored all the same ──► events, metrics
//! ```
//!
//! The leader decides only while they are in force, or where a flag gives them up. It must never take
//! an answer that did not come for a refusal or for its absence: the last verdict stands.

mod existing;
pub mod manifests;
pub mod probe;

use crate::ingest::input::Input;
use crds::names;
use engine::Reason;
use engine::decision::Explanation;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use probe::ProbeVerdict;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use runtime::client::CallError;
use runtime::metrics::Registry;
use runtime::{Leadership, Term};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

#[cfg(test)]
mod tests;

/// How often the stored policies are compared with the manifests.
const CHECK: Duration = Duration::from_secs(5);
/// How often it is tried whether they refuse.
const PROBE: Duration = Duration::from_secs(30);
/// Pause between checks while they are not in force: the API server takes up a new policy within a
/// second.
const SOON: Duration = Duration::from_millis(500);

/// Whether tenants are kept from writing what is Karmada's and Muster's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Enforcement {
    /// Nobody asked for it (`--without-admission-policies`).
    NotRequired,
    /// It was not seen yet.
    Unknown,
    /// A tenant is refused, and Muster passes.
    InForce,
    /// They do not refuse, or refuse Muster; why, and what helps.
    Broken(String),
}

impl Enforcement {
    /// Before the first check.
    pub(crate) fn at_start(required: bool) -> Self {
        match required {
            true => Self::Unknown,
            false => Self::NotRequired,
        }
    }

    /// Has a job that waits say that nothing is decided. What is wrong is for operators to know: it
    /// stands in the log, and in an event on the Lease.
    pub(crate) fn show_in(&self, explanation: &mut Explanation) {
        let waits = explanation.ahead.is_some() || explanation.reason == Reason::NotEvaluated;
        if matches!(self, Self::Broken(_)) && waits {
            explanation.reason = Reason::NotEvaluated;
            explanation.message = "no job is started until the admission policies of the control \
                plane are in force again; its operator finds the cause in the events of muster-system"
                .to_owned();
            explanation.blocker = None;
            explanation.evidence.clear();
            explanation.start = None;
        }
    }

    /// Whether jobs may be released, resized and evicted.
    pub(crate) fn lets_decide(&self) -> bool {
        matches!(self, Self::NotRequired | Self::InForce)
    }
}

/// What is counted of it.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionPolicyMetrics {
    enforced: Gauge,
    restored: Counter,
    unsafe_policies: existing::Count,
}

impl AdmissionPolicyMetrics {
    /// Registers them.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            enforced: registry.register(
                "admission_policies_enforced",
                "1 while the admission policies refuse tenants; without it the leader decides nothing",
                Gauge::default(),
            ),
            restored: registry.register(
                "admission_policies_restored",
                "Admission policies and bindings of them that were changed or deleted and were restored",
                Counter::default(),
            ),
            unsafe_policies: registry.register(
                "unsafe_policies",
                "Policies of Karmada's that hold in managed namespaces and would be refused there, by kind and by \
                 the field of the first rule that they break",
                existing::Count::default(),
            ),
        }
    }
}

/// Tries the policies until they are in force, for half a minute: the API server takes up a new one
/// within a second or two.
///
/// # Errors
/// Where nothing could be tried until then.
pub async fn enforced_soon(client: &Client) -> Result<ProbeVerdict, CallError> {
    let until = Instant::now() + PROBE;
    loop {
        let verdict = probe::probe(client).await;
        if verdict
            .as_ref()
            .is_ok_and(|verdict| *verdict == ProbeVerdict::InForce)
            || Instant::now() >= until
        {
            return verdict;
        }
        tokio::time::sleep(SOON).await;
    }
}

/// Tells the owner task whether the policies are in force, at each change, and keeps them while this
/// replica leads in the term of `term`. `client` tries them by dry runs at all times, so that a
/// replica that begins to lead knows already.
pub(crate) fn spawn(
    client: Client,
    term: &Term,
    inputs: mpsc::Sender<Input>,
    metrics: AdmissionPolicyMetrics,
    cancel: CancellationToken,
) {
    let (in_force, seen_in_force) = watch::channel(false);
    let count = metrics.unsafe_policies.clone();
    existing::spawn(&client, term, seen_in_force, count, cancel.clone());
    let mut keeper = PolicyKeeper {
        in_force,
        writes: term.client(&client),
        leadership: term.leadership.clone(),
        client,
        metrics,
        told: Enforcement::Unknown,
        probed: None,
    };
    runtime::task::spawn(async move {
        loop {
            let check = keeper.check();
            let Some(changed) = cancel.run_until_cancelled(check).await else {
                return;
            };
            if let Some(enforcement) = changed
                && inputs.send(Input::Enforcement(enforcement)).await.is_err()
            {
                return;
            }
            if cancel.run_until_cancelled(keeper.rest()).await.is_none() {
                return;
            }
        }
    });
}

struct PolicyKeeper {
    /// For who looks at what is stored.
    in_force: watch::Sender<bool>,
    /// Tries, by dry runs.
    client: Client,
    /// Restores and posts events, during the term only.
    writes: Client,
    leadership: Leadership,
    metrics: AdmissionPolicyMetrics,
    told: Enforcement,
    /// When it was last seen that they refuse.
    probed: Option<Instant>,
}

impl PolicyKeeper {
    /// Until the next check.
    async fn rest(&mut self) {
        let pause = match self.leadership.is_leading() && !self.told.lets_decide() {
            true => SOON,
            false => CHECK,
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = self.leadership.changed() => {}
        }
    }

    /// Restores and tries the policies. Returns what has to be told.
    async fn check(&mut self) -> Option<Enforcement> {
        let restored = match self.leadership.is_leading() {
            true => manifests::restore(&self.writes).await,
            false => Ok(Vec::new()),
        };
        let verdict = match restored {
            Ok(restored) => {
                self.note_restored(&restored).await;
                self.verdict().await?
            }
            Err(manifests::RestoreError::NoAnswer(error)) => {
                tracing::warn!(error, "the admission policies cannot be read; trying again");
                return None;
            }
            Err(error) => ProbeVerdict::Broken(error.to_string()),
        };
        let enforcement = match verdict {
            ProbeVerdict::InForce => Enforcement::InForce,
            ProbeVerdict::Broken(why) => Enforcement::Broken(why),
        };
        (enforcement != self.told).then(|| self.note(enforcement))
    }

    /// Whether they refuse; none if nothing new is known.
    async fn verdict(&mut self) -> Option<ProbeVerdict> {
        let fresh = self.probed.is_some_and(|at| at.elapsed() < PROBE);
        if fresh && self.told == Enforcement::InForce {
            return None;
        }
        match probe::probe(&self.client).await {
            Ok(verdict) => {
                self.probed = (verdict == ProbeVerdict::InForce).then(Instant::now);
                Some(verdict)
            }
            Err(error) => {
                tracing::warn!(%error, "whether the admission policies refuse is not known; trying again");
                None
            }
        }
    }

    async fn note_restored(&mut self, restored: &[String]) {
        if restored.is_empty() {
            return;
        }
        // They may not have refused for a while, nor may they yet.
        self.probed = None;
        self.metrics
            .restored
            .inc_by(u64::try_from(restored.len()).unwrap_or(u64::MAX));
        let restored = restored.join(", ");
        tracing::warn!(
            restored,
            "admission policies had been changed or deleted, and were restored"
        );
        let note = format!("had been changed or deleted, and were restored: {restored}");
        self.say("AdmissionPoliciesRestored", note).await;
    }

    fn note(&mut self, enforcement: Enforcement) -> Enforcement {
        self.metrics
            .enforced
            .set(i64::from(enforcement == Enforcement::InForce));
        match &enforcement {
            Enforcement::Broken(why) => {
                tracing::error!(
                    why,
                    "the admission policies are not in force: no job is released, resized or evicted"
                );
                let note = format!("no job is released, resized or evicted: {why}");
                let (client, reason) = (self.writes.clone(), "AdmissionPoliciesNotInForce");
                runtime::task::spawn(async move { say(client, reason, note).await });
            }
            _ => tracing::info!("the admission policies are in force"),
        }
        self.in_force
            .send_replace(enforcement == Enforcement::InForce);
        self.told = enforcement.clone();
        enforcement
    }

    async fn say(&self, reason: &str, note: String) {
        say(self.writes.clone(), reason, note).await;
    }
}

/// An event on the Lease, which operators look at to see who leads.
async fn say(client: Client, reason: &str, note: String) {
    let lease = ObjectReference {
        api_version: Some("coordination.k8s.io/v1".into()),
        kind: Some("Lease".into()),
        namespace: Some(names::SYSTEM_NAMESPACE.into()),
        name: Some(names::LEASE.into()),
        ..ObjectReference::default()
    };
    warn(client, &lease, reason, note).await;
}

/// A warning on an object. One that cannot be posted is lost.
async fn warn(client: Client, object: &ObjectReference, reason: &str, mut note: String) {
    note.truncate(note.floor_char_boundary(1_000));
    let reporter = Reporter {
        controller: "muster-controller".into(),
        instance: None,
    };
    let event = Event {
        type_: EventType::Warning,
        reason: reason.to_owned(),
        note: Some(note),
        action: "Check".into(),
        secondary: None,
    };
    if let Err(error) = Recorder::new(client, reporter)
        .publish(&event, object)
        .await
    {
        tracing::debug!(%error, "an event was not posted");
    }
}
