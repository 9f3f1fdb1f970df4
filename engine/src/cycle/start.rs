//! Jobs whose pods do not start: what keeps them is named, and the start deadline ends it.
//!
//! A pod that is bound and does not run counts as one that did not start. If the job itself is at fault (no
//! such image, a command that ends at once), another attempt would fail as well: its reason says so, and the
//! controller holds it.

use crate::api::decision::Decision;
use crate::cycle::lifecycle;
use crate::jobs::deadline::least_of;
use crate::state::{Engine, Inputs};
use facts::faults::{FaultClass, Symptom, described};
use facts::{ClusterName, JobKey, Reason};

/// The first share of a job of which too few pods have started.
struct LateShare<'a> {
    cluster: &'a ClusterName,
    started: u32,
    least: u32,
    symptoms: Vec<(&'a Symptom, u32)>,
}

/// Notes whether something keeps the pods of a starting job from running.
pub(crate) fn check_start(engine: &mut Engine, key: &JobKey) {
    let Some(released) = engine.jobs.released(key).filter(|r| r.starting()) else {
        return;
    };
    let clusters = released.admission.shares.iter();
    let kept = clusters
        .map(|share| &share.cluster)
        .any(|cluster| !engine.capacity.symptoms(key, cluster).is_empty());
    if kept || released.pods_kept {
        engine.jobs.set_pods_kept(key, kept);
        engine.changed.jobs.insert(key.clone());
    }
}

/// Evicts a starting job at its deadline if too few of its pods run.
pub(crate) fn evict_late(engine: &mut Engine, key: &JobKey) -> Option<Decision> {
    let released = engine.jobs.released(key).filter(|r| r.starting())?;
    let late = late_share(engine.inputs(), key)?;
    let after = engine.now.millis_since(released.admission.admitted_at) / 1000;
    let LateShare {
        cluster,
        started,
        least,
        symptoms,
    } = late;
    let mut message = format!(
        "{started} of the {least} pods it needs on {cluster} were running {after} s after its release"
    );
    if !symptoms.is_empty() {
        message = format!("{message}: {}", described(&symptoms));
    }
    let by_user = symptoms
        .iter()
        .any(|(symptom, _)| engine.fault_rules.class_of(symptom) == FaultClass::User);
    let (reason, avoid) = match by_user {
        true => (Reason::PodsCannotStart, None),
        false => (Reason::StartDeadlineExceeded, Some(cluster.clone())),
    };
    lifecycle::evict(engine, key, reason, &message, avoid)
}

fn late_share<'a>(inputs: Inputs<'a>, key: &JobKey) -> Option<LateShare<'a>> {
    let released = inputs.jobs.released(key)?;
    let demand = released.basis.as_deref()?;
    released.admission.shares.iter().find_map(|share| {
        let started = inputs.capacity.started_pods(key, &share.cluster);
        let least = least_of(demand, share);
        (started < least).then(|| LateShare {
            cluster: &share.cluster,
            started,
            least,
            symptoms: inputs.capacity.symptoms(key, &share.cluster),
        })
    })
}
