//! What each event changes.
//!
//! Events are levels, not edges: the same one twice changes nothing, and one about an older
//! attempt than the last is ignored.

use crate::cycle::react::{Change, react};
use crate::cycle::recovery;
use crate::cycle::{decide, lifecycle, pod_charges, pods, rules, sync};
use crate::jobs::drain::is_emptied;
use crate::jobs::job::Cause;
use crate::state::Engine;
use facts::matching::OUT_OF_SERVICE;
use facts::{ClusterFact, Event};

/// Takes in what became known. Costs what the touched object costs, whatever is queued.
pub(crate) fn apply(engine: &mut Engine, event: Event) {
    match event {
        Event::QueueUpserted(fact) => {
            let name = engine.jobs.share_queue(&fact.name);
            rules::queue_told(engine, &name, Some(fact));
        }
        Event::QueueGone(name) => rules::queue_told(engine, &name, None),
        Event::PolicyUpserted(fact) => {
            let name = engine.jobs.share_queue(&fact.queue);
            rules::policy_told(engine, &name, Some(fact));
        }
        Event::PolicyGone(name) => rules::policy_told(engine, &name, None),
        Event::PriorityClassUpserted(fact) => {
            rules::class_told(engine, &fact.name.clone(), Some(fact))
        }
        Event::PriorityClassGone(name) => rules::class_told(engine, &name, None),
        Event::ClusterUpserted(fact) => {
            let (name, emptied) = (fact.name.clone(), is_emptied(&fact));
            let known = engine.capacity.cluster_fact(&name);
            let serves = |fact: &ClusterFact| !fact.has_taint(OUT_OF_SERVICE);
            if known.is_some_and(|known| serves(known) != serves(&fact)) {
                pod_charges::note_cluster(engine, &name);
            }
            let known = engine.capacity.cluster_fact(&name);
            let seen_again = fact.usable && known.is_none_or(|known| !known.usable);
            if engine.capacity.set_cluster(fact) {
                if seen_again {
                    recovery::note_jobs_in(engine, &name);
                }
                if emptied {
                    engine.jobs.recheck_drains();
                }
                react(engine, Change::Fleet(&[name]));
            }
        }
        Event::ClusterGone(name) => {
            pod_charges::note_cluster(engine, &name);
            engine.capacity.remove_cluster(&name);
            react(engine, Change::Fleet(&[name]));
        }
        Event::NodeUpserted(fact) => engine.capacity.upsert_node(fact),
        Event::NodeGone(cluster, node) => engine.capacity.remove_node(&cluster, &node),
        // No job waits for an image: this wakes none.
        Event::NodeImages(fact) => engine.capacity.set_images(&fact),
        Event::PodUpserted(fact) => pods::observe_pod(engine, fact),
        Event::PodGone(cluster, uid) => pods::observe_pod_gone(engine, &cluster, &uid),
        Event::Namespace { name, queue } => pod_charges::observe_namespace(engine, &name, queue),
        Event::PodsEnded {
            cluster,
            owner,
            job,
            pods,
        } => engine.capacity.set_ended(&cluster, &owner, job, pods),
        Event::FaultRulesChanged(rules) => engine.fault_rules = rules,
        Event::JobUpserted(fact) => lifecycle::observe_job(engine, fact),
        Event::JobAdmitted {
            key,
            admission,
            progress,
        } => lifecycle::observe_admission(engine, &key, admission, progress),
        Event::JobProgressed {
            key,
            attempt,
            progress,
            at,
        } => lifecycle::observe_progress(engine, &key, attempt, progress, at),
        Event::JobRefused {
            key,
            attempt,
            reason,
            message,
            avoid,
            at,
        } => {
            lifecycle::observe_refusal(engine, &key, attempt, Cause { reason, message }, avoid, at)
        }
        Event::JobWithdrawn { key, attempt, at } => {
            lifecycle::observe_withdrawal(engine, &key, attempt, at)
        }
        Event::JobEnding {
            key,
            reason,
            message,
            avoid,
            at,
        } => {
            decide::advance(engine, at);
            lifecycle::begin_eviction(engine, &key, reason, &message, avoid);
        }
        Event::JobLeaving {
            key,
            attempt,
            leaving,
        } => lifecycle::observe_terminating(engine, &key, attempt, leaving),
        Event::JobResized {
            key,
            attempt,
            cluster,
            pods,
            at,
        } => lifecycle::confirm_gone(engine, &key, attempt, &cluster, pods, at),
        Event::JobExceeds {
            key,
            attempt,
            excess,
        } => lifecycle::observe_excess(engine, &key, attempt, excess),
        Event::JobStopped { key, uid, ran_ms } => {
            lifecycle::observe_stopped(engine, &key, &uid, ran_ms)
        }
        Event::JobWorksGone { key, at } => lifecycle::observe_works_gone(engine, &key, at),
        Event::JobGone(key) => {
            engine.jobs.note_given_up(&key);
            sync::forget_job(engine, &key);
        }
    }
}
