//! Reads the Lease object and decides what to do about it. No I/O and no clock of its own.

use super::LeaseOptions;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

const FIELD_MANAGER: &str = "muster-lease";

pub(super) fn post_params() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}

pub(super) fn patch_params() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// What to do about the Lease.
pub(super) enum Step {
    /// Another process holds it.
    Wait,
    /// It does not exist: create it with this epoch.
    Create(Box<Lease>, u64),
    /// Take or renew it with this epoch.
    Patch(Patch<Value>, u64),
}

/// The Lease as last seen.
#[derive(Default)]
pub(super) struct Observed {
    lease: Option<Lease>,
    /// When this state was first seen, by this process's clock: claims of others expire by that, so that no
    /// two clocks are compared.
    since: Option<Instant>,
    sure: bool,
    /// The highest epoch ever seen: a deleted Lease must not start over.
    highest: Option<u64>,
}

impl Observed {
    /// Records the Lease after it was read or written.
    pub(super) fn see(&mut self, lease: Option<Lease>, now: Instant) {
        if self.since.is_none() || version(lease.as_ref()) != version(self.lease.as_ref()) {
            self.since = Some(now);
        }
        self.highest = self.highest.max(lease.as_ref().map(epoch_of));
        self.lease = lease;
        self.sure = true;
    }

    /// Records that it may have changed.
    pub(super) fn unsure(&mut self) {
        self.sure = false;
    }

    pub(super) fn is_sure(&self) -> bool {
        self.sure
    }

    /// Returns what to do at `now`, leading or not.
    pub(super) fn next(&self, options: &LeaseOptions, leading: bool, now: Instant) -> Step {
        let Some(lease) = &self.lease else {
            let epoch = self.highest.map_or(0, |highest| highest + 1);
            return Step::Create(Box::new(new_lease(options, epoch)), epoch);
        };
        let epoch = epoch_of(lease);
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        let holder = holder.unwrap_or_default();
        if holder == options.identity && leading {
            return Step::Patch(self.claim(options, epoch, false), epoch);
        }
        // The own Lease after a lapse is taken like another's, but at once: no one had it.
        let free = holder.is_empty() || holder == options.identity || self.ran_out(options, now);
        match free {
            true => Step::Patch(self.claim(options, epoch + 1, true), epoch + 1),
            false => Step::Wait,
        }
    }

    /// Returns the patch that releases the Lease, if this process holds it.
    pub(super) fn release(&self, options: &LeaseOptions) -> Option<Patch<Value>> {
        let lease = self.lease.as_ref()?;
        let holder = lease.spec.as_ref()?.holder_identity.as_deref()?;
        (holder == options.identity).then(|| {
            Patch::Merge(json!({
                "metadata": {"resourceVersion": lease.metadata.resource_version},
                "spec": {"holderIdentity": "", "leaseDurationSeconds": 1},
            }))
        })
    }

    /// Returns true if the holder's duration, and this process's, passed without a renewal.
    fn ran_out(&self, options: &LeaseOptions, now: Instant) -> bool {
        let spec = self.lease.as_ref().and_then(|lease| lease.spec.as_ref());
        let theirs = spec
            .and_then(|spec| spec.lease_duration_seconds)
            .and_then(|seconds| u64::try_from(seconds).ok())
            .map_or(Duration::ZERO, Duration::from_secs);
        let patience = theirs.max(options.duration);
        self.since.is_some_and(|since| now >= since + patience)
    }

    fn claim(&self, options: &LeaseOptions, epoch: u64, acquires: bool) -> Patch<Value> {
        let now = MicroTime(Timestamp::now());
        let resource_version = self
            .lease
            .as_ref()
            .and_then(|lease| lease.metadata.resource_version.clone());
        let mut spec = json!({
            "holderIdentity": options.identity,
            "leaseDurationSeconds": options.duration.as_secs(),
            "leaseTransitions": epoch,
            "renewTime": now,
        });
        if acquires {
            spec["acquireTime"] = json!(now);
        }
        Patch::Merge(json!({
            "metadata": {"resourceVersion": resource_version},
            "spec": spec,
        }))
    }
}

fn epoch_of(lease: &Lease) -> u64 {
    let spec = lease.spec.as_ref();
    let transitions = spec.and_then(|spec| spec.lease_transitions);
    transitions
        .and_then(|transitions| u64::try_from(transitions).ok())
        .unwrap_or_default()
}

fn version(lease: Option<&Lease>) -> Option<&str> {
    lease.and_then(|lease| lease.metadata.resource_version.as_deref())
}

fn new_lease(options: &LeaseOptions, epoch: u64) -> Lease {
    let now = MicroTime(Timestamp::now());
    Lease {
        metadata: ObjectMeta {
            name: Some(options.name.clone()),
            namespace: Some(options.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(options.identity.clone()),
            lease_duration_seconds: i32::try_from(options.duration.as_secs()).ok(),
            lease_transitions: i32::try_from(epoch).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            ..LeaseSpec::default()
        }),
    }
}
