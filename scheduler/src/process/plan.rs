//! Turns an admission record into a placement request: reads the template and what it requests.
//!
//! The record is carried out unchanged; the template only says which pods it consists of.

use crate::carry_out::{PlacementRequest, Refusal, Scheduler};
use crate::demand::{ask, demand};
use binding_writer::{Write, refusal};
use crds::devices::ResourceClaimTemplate;
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, AvoidedByJob, RecordState};
use engine::Reason;
use jiff::Timestamp;
use kube::{Api, Client};
use runtime::client::{CallFault, with_deadline};
use runtime::kinds::KindCache;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use workload::{ClaimedDevices, WorkloadSpec};

/// Deadline of reading a template.
const TEMPLATE_LIMIT: Duration = Duration::from_secs(10);

/// Why a plan led to no placement.
pub(super) enum PlanAnswer {
    /// A record to write: the controller decides again.
    Refuse(Box<AdmissionRecord>),
    /// Nothing is known yet: the plan is tried again.
    Later(String),
}

/// Checks the plan in `record` and prepares its members.
pub(super) async fn prepare(
    kinds: &KindCache,
    scheduler: &Scheduler,
    binding: &Arc<ResourceBinding>,
    record: &AdmissionRecord,
    now: Timestamp,
) -> Result<Write, PlanAnswer> {
    let refuse = |reason, message: &str| {
        PlanAnswer::Refuse(Box::new(record.in_state(
            RecordState::Refused,
            Some(reason),
            message,
        )))
    };
    let reference = &binding.spec.resource;
    let templates = kinds
        .api(
            &reference.api_version,
            &reference.kind,
            &reference.namespace,
        )
        .await;
    let templates = templates.map_err(|error| PlanAnswer::Later(error.to_string()))?;
    let template = match with_deadline(templates.get(&reference.name), TEMPLATE_LIMIT).await {
        Ok(template) => template,
        Err(error) if error.fault() == CallFault::NotFound => {
            return Err(refuse(Reason::PlanRefused, "its template is gone"));
        }
        Err(error) => return Err(PlanAnswer::Later(error.message())),
    };
    if template.metadata.uid.as_deref() != Some(&reference.uid) {
        return Err(refuse(Reason::PlanRefused, "its template has changed"));
    }
    let template =
        serde_json::to_value(&template).map_err(|error| PlanAnswer::Later(error.to_string()))?;
    let unreadable = |error: workload::SpecError| refuse(Reason::PlanRefused, &error.to_string());
    let ask = ask(binding, &template).map_err(unreadable)?;
    let claimed = claimed(kinds.client(), &reference.namespace, &ask).await?;
    let ask = ask
        .with_claims(&|name| claimed.get(name))
        .map_err(unreadable)?;
    let mut demand = demand(binding, &template, &ask, record.is_split());
    AvoidedByJob::keep_off(&record.avoided_nodes, &mut demand);
    let request = PlacementRequest {
        demand,
        priority_classes: ask.priority_classes(),
        binding: Arc::clone(binding),
        admission: record.admission(),
        queue: record.queue.clone(),
        reach: record.reach(),
        leading: record.leading.clone(),
        avoided: record.avoided_nodes.clone(),
        time_to_live: workload::time_to_live(&template).and_then(|ttl| ttl.in_members),
    };
    let prepared = scheduler.prepare(request).await;
    prepared
        .map_err(|refusal| PlanAnswer::Refuse(Box::new(refused(record, binding, &refusal, now))))
}

/// Returns `record` as the answer to its plan, which was refused.
pub(super) fn refused(
    record: &AdmissionRecord,
    binding: &ResourceBinding,
    refusal: &Refusal,
    now: Timestamp,
) -> AdmissionRecord {
    let state = RecordState::Refused;
    match &refusal.lasting {
        Some(lasting) => refusal::noted(record, state, binding, lasting, now),
        None => record.in_state(state, Some(refusal.reason), &refusal.message),
    }
}

/// Returns what the ResourceClaimTemplates that `ask` names claim, if they exist.
async fn claimed(
    client: &Client,
    namespace: &str,
    ask: &WorkloadSpec,
) -> Result<BTreeMap<String, ClaimedDevices>, PlanAnswer> {
    let templates: Api<ResourceClaimTemplate> = Api::namespaced(client.clone(), namespace);
    let mut claimed = BTreeMap::new();
    for name in ask.claim_templates() {
        match with_deadline(templates.get(name), TEMPLATE_LIMIT).await {
            Ok(template) => claimed.insert(name.to_owned(), template.claimed_devices()),
            Err(error) if error.fault() == CallFault::NotFound => None,
            Err(error) => return Err(PlanAnswer::Later(error.message())),
        };
    }
    Ok(claimed)
}
