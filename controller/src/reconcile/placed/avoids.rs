//! Nodes that one job avoids: its pods failed there by a rule of a FaultPolicy with `avoidNodeForJob`.
//!
//! ```text
//! pod fails on a node ─► attempt is evicted ─► admission record: avoidedNodes ─┬► demand of the job, for the engine
//!                                                                              └► override: affinity of its pods
//! ```
//!
//! The record is the memory: its nodes hold for every attempt that begins while they are there. A job that waits
//! loses those whose time is over, or that a person has cleared. Other jobs use the nodes.

use crate::messages::job_event::JobEvent;
use crate::reconcile::JobPass;
use crate::reconcile::placed::lost_pods::FailedThere;
use crds::record::{AdmissionRecord, AvoidedByJob, timestamp};
use engine::facts::JobFact;
use engine::faults::{AvoidForJob, PodFaultRule};
use engine::matching::CLUSTER_NODE;
use engine::{Reason, Time};

/// What follows from the nodes where the pods of an attempt failed.
#[derive(Debug, Default)]
pub(crate) struct JobAvoids {
    /// The nodes that it avoids from now on, and the most that it may.
    nodes: Vec<(AvoidedByJob, usize)>,
    /// What is said of them in events.
    events: Vec<JobEvent>,
}

impl JobAvoids {
    /// Returns words that can follow a sentence about the eviction.
    pub(crate) fn words(&self) -> String {
        let nodes = self.nodes.iter().map(|(avoided, _)| named(avoided));
        let nodes: Vec<String> = nodes.collect();
        match nodes.is_empty() {
            true => String::new(),
            false => format!("; its next attempts avoid {}", nodes.join(" and ")),
        }
    }

    /// Adds the nodes to the record of the evicted attempt.
    pub(crate) fn add_to(&self, record: &mut AdmissionRecord) {
        for (node, most) in &self.nodes {
            AvoidedByJob::add(&mut record.avoided_nodes, [node.clone()], *most);
        }
    }

    /// Adds what `rule` says of a pod of a job of the kind `kind` that failed on a node, at `now`. `can` says
    /// whether its kind can avoid nodes.
    fn note(
        &mut self,
        failed: &FailedThere,
        (rule, avoid): (&PodFaultRule, AvoidForJob),
        (kind, can): (&str, bool),
        now: Time,
    ) {
        // The first pods that fail bring down the others of a gang.
        if self.nodes.len() >= avoid.nodes as usize {
            return;
        }
        let node = AvoidedByJob {
            cluster: failed.cluster.clone(),
            node: failed.node.clone(),
            since: timestamp(now),
            until: timestamp(now.after(avoid.for_ms)),
        };
        let (named, until) = (named(&node), node.until);
        let because = format!(
            "{}, by rule {} of FaultPolicy {}",
            failed.symptom, rule.name, rule.policy
        );
        let event = match (rule.dry_run, can) {
            (true, _) => JobEvent::normal(
                Reason::FaultPolicyDryRun,
                "Avoid",
                format!(
                    "its next attempts would avoid {named} until {until}: {because}, which is in a dry run"
                ),
            ),
            (false, true) => {
                self.nodes.push((node, avoid.nodes as usize));
                let message = format!("its next attempts avoid {named} until {until}: {because}");
                JobEvent::normal(Reason::JobAvoidsNode, "Avoid", message)
            }
            (false, false) => JobEvent::warning(
                Reason::JobAvoidsNode,
                "Avoid",
                format!(
                    "its next attempts may be placed on {named} again, although its pods failed there ({because}): \
                     Muster cannot keep a {kind} off a node, only kinds that can be split over clusters"
                ),
            ),
        };
        self.events.push(event);
    }
}

/// Returns which nodes a job that is evicted avoids from now on.
pub(crate) fn job_avoids(pass: &JobPass<'_>, record: &AdmissionRecord) -> JobAvoids {
    let mut avoids = JobAvoids::default();
    let resource = &pass.binding.spec.resource;
    let can = workload::may_be_in_parts(&format!("{}/{}", resource.api_version, resource.kind));
    let rules = pass.engine.fault_rules();
    let failed = pass.jobs.lost_pods.nodes_of(pass.key);
    for (index, there) in failed.iter().enumerate() {
        let place = |failed: &FailedThere| (failed.cluster.clone(), failed.node.clone());
        // Several pods may have failed on the node.
        let is_known = failed[..index]
            .iter()
            .any(|known| place(known) == place(there));
        let is_placed = record
            .clusters
            .iter()
            .any(|share| share.name == there.cluster);
        if is_known || !is_placed {
            continue;
        }
        for rule in rules.rules_of(&there.symptom) {
            if let Some(avoid) = rule.avoid_for_job {
                avoids.note(there, (rule, avoid), (&resource.kind, can), pass.now);
            }
        }
    }
    avoids
}

/// Records the events of [`Self::job_avoids`].
pub(crate) fn record_avoids(pass: &mut JobPass<'_>, avoids: JobAvoids) {
    for event in avoids.events {
        pass.record_event(event);
    }
}

/// Returns the `record` of a job that waits without the nodes that it avoids no more, if there are any.
pub(crate) fn avoids_no_more(
    pass: &mut JobPass<'_>,
    record: AdmissionRecord,
) -> Option<AdmissionRecord> {
    let now = timestamp(pass.now);
    let is_over = |avoided: &AvoidedByJob| {
        let books = &pass.fleet.avoided_nodes;
        avoided.is_over(now, books.cleared_at(&avoided.cluster, &avoided.node))
    };
    let all = record.avoided_nodes.iter().cloned();
    let (over, left): (Vec<_>, Vec<_>) = all.partition(is_over);
    if let Some(next) = left.iter().map(|avoided| avoided.until).min() {
        pass.out
            .work_queue
            .add_at(pass.key, Time(next.as_millisecond()));
    }
    (!over.is_empty()).then_some(AdmissionRecord {
        avoided_nodes: left,
        ..record
    })
}

/// Completes the record of a new attempt with the nodes that its job avoids.
pub(crate) fn keep_avoided(record: &mut AdmissionRecord, before: Option<&AdmissionRecord>) {
    if let Some(before) = before.filter(|before| before.attempt != record.attempt) {
        record.avoided_nodes.clone_from(&before.avoided_nodes);
    }
}

/// Returns true if a job avoids nodes.
pub(crate) fn avoids_nodes(job: &JobFact) -> bool {
    let first = job.demand.roles.first();
    let terms = first.map_or(&[][..], |role| &role.node_terms);
    let mut fields = terms.iter().flat_map(|term| &term.fields);
    fields.any(|field| field.key == CLUSTER_NODE)
}

fn named(avoided: &AvoidedByJob) -> String {
    format!("node {} of {}", avoided.node, avoided.cluster)
}
