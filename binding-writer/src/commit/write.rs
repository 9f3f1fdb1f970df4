//! One write: it is sent, and read back if necessary, until its outcome is certain.

use super::CommitContext;
use super::intent::{CommitOutcome, Intent, Write, WriteFailure, WrittenBinding};
use super::patch::{self, PatchBody, PatchTarget};
use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use crds::karmada::ResourceBinding;
use jiff::Timestamp;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, PartialObjectMeta};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::lease::TermOver;
use runtime::lease::ledger::LedgerSubject;
use serde_json::Value;
use std::borrow::Cow;
use std::time::Duration;
use tokio::time::Instant;

/// Time after the last call without an answer before a read shows reliably that nothing was written: a
/// server may finish a request that its client has given up.
const SETTLE: Duration = Duration::from_secs(1);
/// Longest pause between two tries.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The version of its binding at which the ledger opened a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opened(Option<String>);

impl Opened {
    /// Opens `intent` at the version of its decision, before there is a slot to send it.
    pub(super) async fn ahead(context: &CommitContext, intent: &Intent) -> Self {
        let mut opened = Self(None);
        // If the term is over, sending finds that out.
        let _ = opened.at(context, intent, &intent.binding).await;
        opened
    }

    /// Makes sure that it is open at the version of `current`, which was read before.
    async fn at(
        &mut self,
        context: &CommitContext,
        intent: &Intent,
        current: &ResourceBinding,
    ) -> Result<(), TermOver> {
        // No decision depends on a status, and nothing runs because of it.
        let Some(ledger) = &context.ledger else {
            return Ok(());
        };
        let version = &current.metadata.resource_version;
        if matches!(intent.write, Write::Ack { .. }) || self.0 == *version {
            return Ok(());
        }
        let key = intent.key();
        let subject = LedgerSubject {
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        };
        ledger.open(uid(intent), subject).await?;
        self.0.clone_from(version);
        Ok(())
    }

    /// Closes the write once its outcome is certain.
    fn close(
        self,
        context: &CommitContext,
        intent: &Intent,
        result: &Result<WrittenBinding, WriteFailure>,
    ) {
        // It may have been sent before the term ended, and may still arrive.
        let certain = !matches!(result, Err(WriteFailure::NotLeading));
        if let (Some(ledger), Some(_), true) = (&context.ledger, self.0, certain) {
            let version = result
                .as_ref()
                .ok()
                .map(|written| &written.resource_version);
            ledger.close(
                uid(intent),
                version.and_then(|version| version.parse().ok()),
            );
        }
    }
}

fn uid(intent: &Intent) -> &str {
    intent.binding.metadata.uid.as_deref().unwrap_or_default()
}

/// Carries `intent` out.
pub(super) async fn carry_out(
    context: &CommitContext,
    intent: &Intent,
    opened: Opened,
) -> CommitOutcome {
    let started = Instant::now();
    let mut writing = Writing::new(context, intent, opened);
    let result = writing.run().await;
    writing.opened.close(context, intent, &result);
    let key = intent.key();
    let kind = intent.write.kind();
    let attempt = intent.write.record().map(|record| record.attempt);
    context.metrics.ended(kind, &result, started.elapsed());
    log(intent, &result, started.elapsed());
    CommitOutcome {
        key,
        uid: intent.binding.metadata.uid.clone().unwrap_or_default(),
        write: kind,
        attempt,
        result,
    }
}

/// Logs one line for each write. A new leader or a deleted object is no problem.
fn log(intent: &Intent, result: &Result<WrittenBinding, WriteFailure>, took: Duration) {
    let job = intent.key();
    let write = intent.write.kind();
    let attempt = intent.write.record().map(|record| record.attempt.0);
    let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    match result {
        Ok(written) => {
            let version = &written.resource_version;
            tracing::debug!(%job, %write, attempt, version, millis, "written");
        }
        Err(failure @ (WriteFailure::Gone | WriteFailure::NotLeading)) => {
            tracing::debug!(%job, %write, attempt, %failure, millis, "not written");
        }
        Err(failure) => {
            tracing::warn!(%job, %write, attempt, %failure, millis, "not written");
        }
    }
}

/// What a read of the binding shows.
enum ReadBack {
    /// The write was done.
    Done(WrittenBinding),
    /// It was not done, and the decision is still valid.
    NotDone,
    /// It was not done, and the decision is no longer valid.
    Changed,
    Gone,
}

struct Writing<'a> {
    context: &'a CommitContext,
    intent: &'a Intent,
    /// The newest known state of the binding.
    current: Cow<'a, ResourceBinding>,
    opened: Opened,
    deadline: Instant,
    pauses: ExponentialBackoff,
}

impl<'a> Writing<'a> {
    fn new(context: &'a CommitContext, intent: &'a Intent, opened: Opened) -> Self {
        Self {
            context,
            intent,
            current: Cow::Borrowed(&intent.binding),
            opened,
            deadline: Instant::now() + context.options.deadline,
            pauses: pauses(),
        }
    }

    async fn run(&mut self) -> Result<WrittenBinding, WriteFailure> {
        loop {
            let body = self.body()?;
            let Some(body) = body else {
                return Ok(written(&self.current.metadata));
            };
            let error = match self.send(&body).await? {
                Ok(written) => return Ok(written),
                Err(error) => error,
            };
            match error.fault() {
                CallFault::NotFound => return Err(WriteFailure::Gone),
                CallFault::Refused => {
                    return Err(WriteFailure::Refused {
                        code: error.code().unwrap_or_default(),
                        message: error.message(),
                    });
                }
                // Certainly not done.
                CallFault::NoSuchKind | CallFault::TryAgain => {
                    self.pause(error.retry_after()).await
                }
                CallFault::Conflict => {
                    self.context.metrics.conflict(self.intent.write.kind());
                    if let Some(result) = self.settled().await {
                        return result;
                    }
                }
                CallFault::Unknown => {
                    self.pause(error.retry_after()).await;
                    if let Some(result) = self.settled().await {
                        return result;
                    }
                }
            }
            if Instant::now() >= self.deadline {
                return self.give_up(&error).await;
            }
        }
    }

    fn body(&self) -> Result<Option<PatchBody>, WriteFailure> {
        patch::body(self.intent, &self.current, Timestamp::now()).map_err(|error| {
            WriteFailure::Refused {
                code: 0,
                message: format!("the record cannot be written: {error}"),
            }
        })
    }

    /// Sends the patch once, if this process leads.
    async fn send(
        &mut self,
        body: &PatchBody,
    ) -> Result<Result<WrittenBinding, CallError>, WriteFailure> {
        let opened = self.opened.at(self.context, self.intent, &self.current);
        opened.await.map_err(|TermOver| WriteFailure::NotLeading)?;
        let Some(permit) = self.context.leadership.permit() else {
            return Err(WriteFailure::NotLeading);
        };
        let limit = self.context.options.call_limit.min(permit.limit());
        let meta = &self.current.metadata;
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        let params = PatchParams {
            field_manager: Some(self.context.options.field_manager.clone()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body.guarded(meta.resource_version.as_deref()));
        let client = self.context.client.clone();
        // The answer contains only the metadata: aggregated statuses may be large.
        let answer = match body.part {
            PatchTarget::Whole => {
                let api: Api<ResourceBinding> = Api::namespaced(client, namespace);
                with_deadline(api.patch_metadata(name, &params, &patch), limit).await
            }
            PatchTarget::Status => {
                let api: Api<PartialObjectMeta<ResourceBinding>> =
                    Api::namespaced(client, namespace);
                with_deadline(api.patch_status(name, &params, &patch), limit).await
            }
        };
        Ok(answer.map(|object| written(&object.metadata)))
    }

    /// Reads back and returns the outcome if it is certain; otherwise the write may be sent again.
    async fn settled(&mut self) -> Option<Result<WrittenBinding, WriteFailure>> {
        match self.read_back().await {
            ReadBack::Done(written) => Some(Ok(written)),
            ReadBack::NotDone => None,
            ReadBack::Changed => Some(Err(WriteFailure::Conflict)),
            ReadBack::Gone => Some(Err(WriteFailure::Gone)),
        }
    }

    /// Reads the binding back until there is an answer.
    async fn read_back(&mut self) -> ReadBack {
        let mut told = false;
        let (raw, current) = loop {
            match read(self.context, self.intent).await {
                Ok(Some(found)) => break found,
                Ok(None) => return ReadBack::Gone,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        let job = self.intent.key();
                        let error = error.message();
                        tracing::warn!(%job, error, "the outcome of a write is unknown; reading it back again");
                    }
                    self.pause(error.retry_after()).await;
                }
            }
        };
        if patch::is_carried_out(self.intent, &current, &raw) {
            return ReadBack::Done(written(&current.metadata));
        }
        if !patch::still_holds(&self.intent.binding, &current) {
            return ReadBack::Changed;
        }
        self.current = Cow::Owned(current);
        ReadBack::NotDone
    }

    async fn give_up(&mut self, error: &CallError) -> Result<WrittenBinding, WriteFailure> {
        if error.fault() == CallFault::Unknown {
            tokio::time::sleep(SETTLE).await;
            if let Some(result) = self.settled().await {
                return result;
            }
        }
        Err(WriteFailure::Unavailable {
            message: error.message(),
        })
    }

    async fn pause(&mut self, asked: Option<Duration>) {
        let pause = self.pauses.next().unwrap_or(PAUSE_MAX);
        tokio::time::sleep(pause.max(asked.unwrap_or_default()).min(PAUSE_MAX)).await;
    }
}

/// Reads the present binding of the intent: the whole object, and its parsed form.
pub(super) async fn read(
    context: &CommitContext,
    intent: &Intent,
) -> Result<Option<(Value, ResourceBinding)>, CallError> {
    let key = intent.key();
    read_binding(context, &key.namespace, &key.name).await
}

/// See [`read`].
pub(super) async fn read_binding(
    context: &CommitContext,
    namespace: &str,
    name: &str,
) -> Result<Option<(Value, ResourceBinding)>, CallError> {
    let resource = ApiResource::erase::<ResourceBinding>(&());
    let api: Api<DynamicObject> =
        Api::namespaced_with(context.client.clone(), namespace, &resource);
    let limit = context.options.call_limit;
    let object = match with_deadline(api.get(name), limit).await {
        Ok(object) => object,
        Err(error) if error.fault() == CallFault::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let raw = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
    let slim = serde_json::from_value(raw.clone()).map_err(kube::Error::SerdeError)?;
    Ok(Some((raw, slim)))
}

fn written(meta: &kube::core::ObjectMeta) -> WrittenBinding {
    WrittenBinding {
        resource_version: meta.resource_version.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
    }
}

pub(super) fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(PAUSE_MAX)
        .without_max_times()
        .with_jitter()
        .build()
}
