//! Carries plans out: checks each plan on the scheduler's own live view, prepares its members, and returns
//! the one patch that admits and places the job.
//!
//! The caller submits the write. A plan is carried out as a whole or refused with a reason; this module
//! never looks for another placement.

use crate::live::{Live, Objection};
use crate::metrics::PlanMetrics;
use crate::pools;
use crate::prepare::{PrepareError, Preparer};
use binding_writer::overrides::{OverrideError, Overrides, PartsPlan, keeps_off};
use binding_writer::refusal::ServerRefusal;
use binding_writer::{Write, placement};
use crds::karmada::ResourceBinding;
use crds::record::{AdmissionRecord, AvoidedByJob, Parts, RecordState};
use engine::facts::{Admission, Demand, Held};
use engine::{ClusterName, JobKey, QueueName, Reason};
use futures::future::try_join_all;
use kube::Client;
use members::{MemberEvent, Members};
use runtime::Term;
use runtime::metrics::Registry;
use runtime::task;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use workload::Reach;

#[cfg(test)]
pub(crate) mod tests;

/// A request to place a job as it was admitted.
#[derive(Debug, Clone)]
pub struct PlacementRequest {
    /// The binding when the plan was made.
    pub binding: Arc<ResourceBinding>,
    /// What was admitted, with the nodes of the pods if known.
    pub admission: Admission,
    /// The demand of the job.
    pub demand: Demand,
    /// How pods of other clusters are reached, if known.
    pub reach: Reach,
    /// The cluster whose part ends the whole job when it succeeds, if there is one.
    pub leading: Option<ClusterName>,
    /// The nodes that the job avoids, if its kind can.
    pub avoided: Vec<AvoidedByJob>,
    /// The path (a JSON pointer) of the template's time to live after its end, if its members would act on it.
    pub time_to_live: Option<&'static str>,
    /// The queue that it needs in its members.
    pub queue: QueueName,
    /// The PriorityClasses that it or its pods name.
    pub priority_classes: BTreeSet<String>,
}

/// Why a plan cannot be carried out. Nothing of it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// The message, with names and numbers.
    pub message: String,
    /// The cluster where it failed, to be avoided for a while.
    pub avoid: Option<ClusterName>,
    /// What the API server refused of the plan and would refuse again, if that is why.
    pub lasting: Option<ServerRefusal>,
}

/// What the scheduler shares with its process.
#[derive(Debug, Clone, Default)]
pub struct SchedulerOptions {
    /// The term during which GpuPools, overrides and objects in members are written; always if `None`.
    pub term: Option<Term>,
    /// Registry of the metrics.
    pub registry: Registry,
}

/// The scheduler's handle. Clones share it.
#[derive(Debug, Clone)]
pub struct Scheduler {
    live: Live,
    preparer: Preparer,
    overrides: Overrides,
    metrics: PlanMetrics,
}

impl Scheduler {
    /// Starts the scheduler, which follows `events`, a sink of `members`, and maintains the GpuPools on the
    /// control plane of `client`, until `cancel`.
    #[must_use]
    pub fn spawn(
        client: Client,
        members: Members,
        events: mpsc::Receiver<MemberEvent>,
        options: SchedulerOptions,
        cancel: CancellationToken,
    ) -> Self {
        let metrics = PlanMetrics::new(&options.registry);
        let live = Live::default();
        task::spawn(
            cancel
                .clone()
                .run_until_cancelled_owned(live.clone().follow(events)),
        );
        pools::spawn(
            client.clone(),
            live.clone(),
            members.clone(),
            &options,
            cancel,
        );
        let leadership = options.term.as_ref().map(|term| term.leadership.clone());
        let term = options.term.unwrap_or_else(Term::always);
        Self {
            live,
            overrides: Overrides::new(client.clone(), &term),
            preparer: Preparer::new(client, members, leadership, metrics.clone()),
            metrics,
        }
    }

    /// Returns the writer of overrides in this process.
    #[must_use]
    pub fn overrides(&self) -> Overrides {
        self.overrides.clone()
    }

    /// Returns true if every member that existed at the start has been sent, so that plans can be checked.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.live.is_ready()
    }

    /// Checks `request` on the live view, assumes its pods, prepares its members, and returns the write that
    /// carries it out. The pods stay assumed until they are bound or the job is forgotten; a caller that drops
    /// the write must [`Self::forget`] it.
    ///
    /// # Errors
    /// Returns the refusal if the plan is not possible; then nothing is assumed.
    pub async fn prepare(&self, request: PlacementRequest) -> Result<Write, Refusal> {
        self.metrics.checked.inc();
        let key = request.binding.job_key();
        let prepared = self.prepare_all(&key, &request).await;
        if let Err(refusal) = &prepared {
            self.metrics.failed(refusal.reason);
            tracing::debug!(job = %key, reason = %refusal.reason, message = refusal.message, "plan refused");
        }
        prepared
    }

    /// Makes sure that the members of an existing placement have what the job needs besides itself: a member
    /// that came back empty has lost it.
    pub async fn renew(
        &self,
        clusters: &[ClusterName],
        api: &str,
        queue: &QueueName,
        priority_classes: &BTreeSet<String>,
    ) -> Result<(), Refusal> {
        let all = clusters.iter().map(|cluster| {
            let preparer = &self.preparer;
            preparer.prepare(cluster, api, queue, priority_classes)
        });
        let renewed = try_join_all(all).await;
        renewed.map(drop).map_err(|error| unprepared(&error))
    }

    /// Drops the assumed pods of a job that has ended, was evicted, or whose write was dropped. Without
    /// assumed pods this does nothing.
    pub fn forget(&self, key: &JobKey) {
        self.live.forget(key);
    }

    async fn prepare_all(
        &self,
        key: &JobKey,
        request: &PlacementRequest,
    ) -> Result<Write, Refusal> {
        let PlacementRequest {
            binding,
            admission,
            demand,
            queue,
            priority_classes,
            ..
        } = request;
        self.live
            .assume(key, demand, &admission.shares)
            .map_err(|(cluster, why)| objection(cluster, why))?;
        let api = &demand.placement.api;
        let all = admission.shares.iter().map(|share| {
            self.preparer
                .prepare(&share.cluster, api, queue, priority_classes)
        });
        let ready = match try_join_all(all).await {
            Ok(_) => self.record(request).await,
            Err(error) => Err(unprepared(&error)),
        };
        let record = ready.inspect_err(|_| self.forget(key))?;
        Ok(Write::Place {
            record,
            clusters: placement::targets(binding, admission, demand),
            affinity_name: placement::affinity_name(
                &demand.placement,
                admission,
                &self.live.clusters(),
            ),
        })
    }

    /// Returns the record to write, after the job's overrides are written. A job in parts already has its
    /// override, which is resized when the new shares are charged.
    async fn record(&self, request: &PlacementRequest) -> Result<AdmissionRecord, Refusal> {
        let PlacementRequest {
            binding, admission, ..
        } = request;
        if let Some(placed) = AdmissionRecord::placed_in_parts(binding, admission.attempt) {
            return Ok(placed.resized(admission));
        }
        let record = AdmissionRecord::new(admission, RecordState::Admitted);
        let record = match AdmissionRecord::of_attempt(binding, admission.attempt) {
            Some(plan) => record.completed_from(plan),
            None => record,
        };
        let parts = self.write_overrides(request).await?;
        Ok(match parts {
            None => record,
            Some(_) => AdmissionRecord {
                parts,
                whole: !request.demand.in_parts(),
                resizable: request.demand.held == Held::ByOverride,
                leading: request.leading.clone(),
                ..record.with_reach(request.reach.clone())
            },
        })
    }

    /// Writes the overrides of the job, if it needs any, and returns the state of its parts.
    async fn write_overrides(&self, request: &PlacementRequest) -> Result<Option<Parts>, Refusal> {
        if let Some(path) = request.time_to_live {
            let kept = self.overrides.keep_alive(&request.binding, path).await;
            kept.map_err(not_overridden)?;
        }
        if self.take_apart(request).await.map_err(not_overridden)? {
            return Ok(Some(first_state(&request.binding)));
        }
        Ok(None)
    }

    /// Splits the job if it asks for that or its parts are resizable. This also applies if one cluster takes
    /// the whole job, so that its pods receive the same values everywhere. Keeps any other job off the nodes that it
    /// avoids. Returns true if the Works have to show that.
    async fn take_apart(&self, request: &PlacementRequest) -> Result<bool, OverrideError> {
        let Admission {
            attempt, shares, ..
        } = &request.admission;
        let (overrides, binding) = (&self.overrides, &request.binding);
        let plan = PartsPlan {
            attempt: *attempt,
            shares,
            reach: &request.reach,
            resizable: request.demand.held == Held::ByOverride,
            avoided: &request.avoided,
        };
        let is_again = attempt.0 > 1 && workload::may_be_in_parts(&request.demand.placement.api);
        if request.demand.in_parts() {
            // An earlier attempt may have had another override, and its end not reported.
            if is_again {
                overrides.clear_off(binding, *attempt).await?;
            }
            overrides.take_apart(binding, &plan).await?;
            return Ok(true);
        }
        if is_again {
            overrides.clear(binding, *attempt).await?;
        }
        let keeps_off = keeps_off(&request.avoided, shares);
        if keeps_off {
            overrides.keep_off(binding, &plan).await?;
        }
        Ok(keeps_off)
    }
}

/// Returns the state of the parts of a job that is about to be placed.
fn first_state(binding: &ResourceBinding) -> Parts {
    if is_suspended(binding) {
        // The policy suspends it, and only the policy may resume it.
        Parts::Dispatched
    } else {
        Parts::Held
    }
}

/// Returns true if dispatching is suspended.
fn is_suspended(binding: &ResourceBinding) -> bool {
    let suspension = binding.spec.suspension.as_ref();
    suspension.and_then(|suspension| suspension.dispatching) == Some(true)
}

fn objection(cluster: ClusterName, objection: Objection) -> Refusal {
    let message = match objection {
        Objection::NoCluster => format!("member {cluster} no longer exists"),
        Objection::Unusable(why) => format!("member {cluster} is not usable: {why}"),
        Objection::NoApi(api) => format!("member {cluster} does not serve {api}"),
        Objection::NoRoom(blocker) => {
            let resource = blocker.resource.as_deref().unwrap_or("pods");
            let number =
                |n: Option<i64>| n.map_or("an unknown number".to_owned(), |n| n.to_string());
            format!(
                "member {cluster} has too little capacity: its pods that are not bound yet need {resource} {}, \
                 and {} of that fit on its nodes now",
                number(blocker.needs),
                number(blocker.free),
            )
        }
    };
    Refusal {
        reason: Reason::PlanRefused,
        message,
        avoid: Some(cluster),
        lasting: None,
    }
}

fn not_overridden(error: OverrideError) -> Refusal {
    Refusal {
        reason: Reason::PlanRefused,
        message: error.to_string(),
        avoid: None,
        lasting: match error {
            OverrideError::Refused(refusal) => Some(refusal),
            _ => None,
        },
    }
}

fn unprepared(error: &PrepareError) -> Refusal {
    Refusal {
        reason: error.reason(),
        message: error.to_string(),
        avoid: error.cluster().cloned(),
        lasting: None,
    }
}
