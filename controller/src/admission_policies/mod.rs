//! Checks whether the admission policies of the control plane are in force, and restores them.
//!
//! RBAC alone lets every editor of a namespace write ResourceBindings, Works and policies (Karmada's role
//! `karmada-edit`). ValidatingAdmissionPolicies (`deploy/admission-policies.yaml`) restrict that to the
//! accounts of Karmada and Muster. Without them a tenant can bypass the quota of any queue.
//!
//! ```text
//! every CHECK ──► manifests: restore what was changed or deleted
//!                    └──► probe: is a tenant refused, does Muster pass? ──► Input::Enforcement
//!                            └──► existing: stored policies that break a rule ──► events, metrics
//! ```
//!
//! The leader decides only while the policies are in force, or if a flag turns this requirement off. A
//! missing answer is never a verdict: the previous verdict stays.

mod existing;
pub mod manifests;
pub mod probe;

use crate::messages::enforcement::Enforcement;
use crate::messages::input::Input;
use crds::names;
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
/// How often the probe tests that they refuse a tenant.
const PROBE: Duration = Duration::from_secs(30);
/// Pause between checks while the policies are not in force. The API server starts to enforce a new policy
/// within a second.
const RECHECK: Duration = Duration::from_millis(500);

/// Metrics of the admission policies.
#[derive(Debug, Clone)]
pub(crate) struct AdmissionPolicyMetrics {
    enforced: Gauge,
    restored: Counter,
    unsafe_policies: existing::Count,
}

impl AdmissionPolicyMetrics {
    /// Registers the metrics.
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
                "Stored Karmada policies that a tenant would be refused today where they hold, by kind and by the \
                 field of the first rule that they break",
                existing::Count::default(),
            ),
        }
    }
}

/// Probes the policies for up to half a minute until they are in force; the API server needs a second or
/// two for a new policy.
///
/// # Errors
/// Returns an error if no probe got an answer in that time.
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
        tokio::time::sleep(RECHECK).await;
    }
}

/// Starts the keeper. It sends the owner task each change of [`Enforcement`], and restores the policies
/// while this replica leads in the term of `term`. `client` probes the policies at all times, so that a new
/// leader knows the state at once.
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
        reported: Enforcement::Unknown,
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
            if cancel
                .run_until_cancelled(keeper.wait_for_next_check())
                .await
                .is_none()
            {
                return;
            }
        }
    });
}

struct PolicyKeeper {
    /// Says to the check of stored policies whether the policies are in force.
    in_force: watch::Sender<bool>,
    /// Sends the dry runs.
    client: Client,
    /// Restores policies and posts events, only during the term.
    writes: Client,
    leadership: Leadership,
    metrics: AdmissionPolicyMetrics,
    reported: Enforcement,
    /// When a probe last saw the policies refuse a tenant.
    probed: Option<Instant>,
}

impl PolicyKeeper {
    /// Waits for the next check.
    async fn wait_for_next_check(&mut self) {
        let pause = match self.leadership.is_leading() && !self.reported.allows_decisions() {
            true => RECHECK,
            false => CHECK,
        };
        self.leadership.changed_within(pause).await;
    }

    /// Restores and probes the policies. Returns the new state if it has changed.
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
        (enforcement != self.reported).then(|| self.note(enforcement))
    }

    /// Returns the result of a probe, or `None` if there is no new one.
    async fn verdict(&mut self) -> Option<ProbeVerdict> {
        let fresh = self.probed.is_some_and(|at| at.elapsed() < PROBE);
        if fresh && self.reported == Enforcement::InForce {
            return None;
        }
        match probe::probe(&self.client).await {
            Ok(verdict) => {
                self.probed = (verdict == ProbeVerdict::InForce).then(Instant::now);
                Some(verdict)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot check whether the admission policies refuse; trying again");
                None
            }
        }
    }

    async fn note_restored(&mut self, restored: &[String]) {
        if restored.is_empty() {
            return;
        }
        // The policies may have been out of force for a while, and may still be.
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
        self.post_on_lease("AdmissionPoliciesRestored", note).await;
    }

    fn note(&mut self, enforcement: Enforcement) -> Enforcement {
        self.metrics
            .enforced
            .set(i64::from(enforcement == Enforcement::InForce));
        match &enforcement {
            Enforcement::Broken(why) => {
                tracing::error!(
                    why,
                    "the admission policies are not in force: no job is admitted, resized or evicted"
                );
                let note = format!("no job is admitted, resized or evicted: {why}");
                let (client, reason) = (self.writes.clone(), "AdmissionPoliciesNotInForce");
                runtime::task::spawn(async move { post_on_lease(client, reason, note).await });
            }
            _ => tracing::info!("the admission policies are in force"),
        }
        self.in_force
            .send_replace(enforcement == Enforcement::InForce);
        self.reported = enforcement.clone();
        enforcement
    }

    async fn post_on_lease(&self, reason: &str, note: String) {
        post_on_lease(self.writes.clone(), reason, note).await;
    }
}

/// Posts an event on the Lease, where operators look for the leader.
async fn post_on_lease(client: Client, reason: &str, note: String) {
    let lease = ObjectReference {
        api_version: Some("coordination.k8s.io/v1".into()),
        kind: Some("Lease".into()),
        namespace: Some(names::SYSTEM_NAMESPACE.into()),
        name: Some(names::LEASE.into()),
        ..ObjectReference::default()
    };
    warn(client, &lease, reason, note).await;
}

/// Posts a warning event on an object. An event that cannot be posted is lost.
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
