//! Guards the writes of OverridePolicies that determine the size of jobs, so that no write of an earlier
//! term arrives in a later one.
//!
//! ```text
//! read, or created without rules ─► opened in the ledger ─► written in the version read ─► closed
//! ```
//!
//! A late write of such a policy could enlarge what another leader has shrunk meanwhile. So each write is
//! guarded like the writes of bindings: a new leader writes every policy that is open in the ledger once
//! ([`fence`]), and the writes that the old leader still has in flight then carry an outdated version.
//!
//! A missing policy has no version. It is created first, without rules, which changes nothing whenever it
//! arrives. Every write changes the policy ([`names::WRITE_ANNOTATION`]): a write without a change would
//! keep its version, and with it an earlier write without an answer.
//!
//! Never allowed here: a write of rules, or a deletion, without the version and UID that were read before
//! it was opened; two writes of one policy at a time.

use super::{MANAGER, is_ours, resource};
use crds::names;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::ObjectMeta;
use kube::{Client, ResourceExt};
use runtime::Term;
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::lease::TermOver;
use runtime::lease::ledger::LedgerSubject;
use serde_json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{Mutex, MutexGuard};

/// Prefix of a policy's UID in the ledger. A version of Muster that knows only bindings takes it for the
/// UID of a binding, and finds none of that name.
const KEY: &str = "override:";
/// Most writes at a time: so many are open in the ledger, with 420 bytes each.
const TURNS: usize = 64;
/// Most tries of a write after conflicts.
const TRIES: usize = 3;

/// Counts the writes of this process.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Writes policies in one term. Clones share it.
#[derive(Clone)]
pub(super) struct OverrideWriter {
    client: Client,
    term: Term,
    turns: Arc<[Mutex<()>]>,
}

impl OverrideWriter {
    pub(super) fn new(client: Client, term: Term) -> Self {
        let turns = (0..TURNS).map(|_| Mutex::default()).collect();
        Self {
            client,
            term,
            turns,
        }
    }

    /// Waits until no other write of the policy `name` is under way.
    pub(super) async fn turn<'a>(&'a self, namespace: &'a str, name: &'a str) -> OverrideTurn<'a> {
        let mut hasher = DefaultHasher::new();
        (namespace, name).hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or_default();
        OverrideTurn {
            writer: self,
            namespace,
            name,
            policies: Api::namespaced_with(self.client.clone(), namespace, &resource()),
            _alone: self.turns[index].lock().await,
        }
    }
}

/// The exclusive right to write a policy.
pub(super) struct OverrideTurn<'a> {
    writer: &'a OverrideWriter,
    namespace: &'a str,
    name: &'a str,
    policies: Api<DynamicObject>,
    _alone: MutexGuard<'a, ()>,
}

impl OverrideTurn<'_> {
    /// Reads the present policy.
    pub(super) async fn read(&self) -> Result<Option<DynamicObject>, CallError> {
        with_deadline(self.policies.get_opt(self.name), super::LIMIT).await
    }

    /// Applies what `policy` makes of the present state, and retries after a conflict. `None` leaves the
    /// policy unchanged.
    pub(super) async fn write(
        &self,
        policy: impl Fn(Option<&DynamicObject>) -> Option<Value>,
    ) -> Result<(), CallError> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let there = self.read().await?;
            let Some(policy) = policy(there.as_ref()) else {
                return Ok(());
            };
            match self.write_at(there, policy).await {
                Err(error) if error.fault() == CallFault::Conflict && tries > 0 => {}
                result => return result,
            }
        }
    }

    async fn write_at(&self, there: Option<DynamicObject>, policy: Value) -> Result<(), CallError> {
        let meta = match there {
            Some(there) => there.metadata,
            None => self.create_without_rules(&policy).await?,
        };
        let params = PatchParams::apply(MANAGER).force();
        let body = self.at_version(policy, &meta);
        let patch = Patch::Apply(&body);
        let call = self.policies.patch_metadata(self.name, &params, &patch);
        self.send(&meta, call).await.map(drop)
    }

    /// Creates the policy for the object that `policy` selects, without rules.
    async fn create_without_rules(&self, policy: &Value) -> Result<ObjectMeta, CallError> {
        let mut empty = policy.clone();
        empty["spec"]["overrideRules"] = json!([]);
        let empty = serde_json::from_value(empty).map_err(kube::Error::SerdeError)?;
        let params = PostParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PostParams::default()
        };
        let created = self.policies.create(&params, &empty);
        Ok(with_deadline(created, super::LIMIT).await?.metadata)
    }

    /// Returns `policy` bound to the version of `meta`, with a change in each write.
    fn at_version(&self, mut policy: Value, meta: &ObjectMeta) -> Value {
        let epoch = self.writer.term.leadership.epoch().unwrap_or_default();
        let write = WRITES.fetch_add(1, Ordering::Relaxed);
        policy["metadata"]["uid"] = json!(meta.uid);
        policy["metadata"]["resourceVersion"] = json!(meta.resource_version);
        policy["metadata"]["annotations"][names::WRITE_ANNOTATION] =
            json!(format!("{epoch}.{write}"));
        policy
    }

    /// Deletes the policy, if Muster applied it and `goes` returns true.
    pub(super) async fn delete(
        &self,
        goes: impl Fn(&DynamicObject) -> bool,
    ) -> Result<(), CallError> {
        let Some(there) = self.read().await? else {
            return Ok(());
        };
        if !is_ours(&there.metadata) || !goes(&there) {
            return Ok(());
        }
        // Only in the version that was read: a later write stays.
        let params = DeleteParams::default().preconditions(Preconditions {
            uid: there.uid(),
            resource_version: there.resource_version(),
        });
        let call = self.policies.delete(self.name, &params);
        match self.send(&there.metadata, call).await {
            Err(error) if error.fault() != CallFault::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes `call`, which the version in `meta` guards, while it is open in the ledger. It stays open while
    /// its outcome is uncertain, until the outcome of a later write of the policy is certain.
    async fn send<T>(
        &self,
        meta: &ObjectMeta,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, CallError> {
        let key = format!("{KEY}{}", meta.uid.as_deref().unwrap_or_default());
        if let Some(ledger) = &self.writer.term.ledger {
            let subject = LedgerSubject {
                namespace: self.namespace.to_owned(),
                name: self.name.to_owned(),
            };
            let opened = ledger.open(&key, subject).await;
            opened.map_err(|over: TermOver| kube::Error::Service(Box::new(over)))?;
        }
        let result = with_deadline(call, super::LIMIT).await;
        let is_certain = match &result {
            Ok(_) => true,
            Err(error) => error.fault() != CallFault::Unknown,
        };
        if let (Some(ledger), true) = (&self.writer.term.ledger, is_certain) {
            ledger.close(&key, None);
        }
        result
    }
}

/// Returns true if `key` of a ledger belongs to a policy, not to a binding.
pub(crate) fn is_key(key: &str) -> bool {
    key.starts_with(KEY)
}

/// Writes the policy `subject`, if it exists, so that its version changes.
pub(crate) async fn fence(
    client: &Client,
    subject: &LedgerSubject,
    epoch: u64,
) -> Result<(), CallError> {
    let policies: Api<DynamicObject> =
        Api::namespaced_with(client.clone(), &subject.namespace, &resource());
    let patch = Patch::Merge(json!({
        "metadata": {"annotations": {names::FENCE_ANNOTATION: epoch.to_string()}},
    }));
    let params = PatchParams {
        field_manager: Some("muster".to_owned()),
        ..PatchParams::default()
    };
    let call = policies.patch_metadata(&subject.name, &params, &patch);
    with_deadline(call, super::LIMIT).await.map(drop)
}
