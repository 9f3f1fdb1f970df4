//! Turns recorded jobs into objects: a namespace and a queue for each virtual cluster, and a real
//! job of a common kind for each recorded one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::trace::{Pace, TraceJob};
use crate::harness::jobs::{TestGang, queue};
use crate::harness::kinds::{BATCH_JOB, ObjectKind, VOLCANO_JOB};

/// A virtual cluster of the trace: its namespace, and the queue of the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DemoTenant {
    /// `vc-<hash>`.
    pub(super) name: String,
    /// Its quota in GPUs, over all clusters together.
    pub(super) capability: u32,
}

/// Returns the tenants of the jobs. A tenant's quota is its share of the fleet by requested GPU
/// time plus a quarter, so that both the queues and the fleet fill up. It is at least the size of
/// the tenant's largest job.
pub(super) fn tenants(jobs: &[TraceJob], pace: Pace, fleet: u64) -> Vec<DemoTenant> {
    let mut asked: BTreeMap<&str, (f64, u32)> = BTreeMap::new();
    for job in jobs {
        let (work, largest) = asked.entry(&job.tenant).or_default();
        *work += pace.run(job).as_secs_f64() * f64::from(job.gpus);
        *largest = job.gpus.max(*largest);
    }
    let all: f64 = asked.values().map(|(work, _)| work).sum();
    let tenant = |(name, (work, largest)): (&str, (f64, u32))| {
        // The result is at most about the size of the fleet, which fits.
        let share = (fleet as f64 * 1.25 * work / all).ceil() as u32;
        DemoTenant {
            name: name_of(name),
            capability: share.max(largest),
        }
    };
    asked.into_iter().map(tenant).collect()
}

fn name_of(tenant: &str) -> String {
    format!("vc-{tenant}")
}

impl DemoTenant {
    /// Returns its namespace, managed by Muster.
    pub(super) fn namespace(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.name, "labels": {"muster.io/managed": "true"}},
        })
    }

    /// Returns its queue.
    pub(super) fn queue(&self) -> Value {
        queue(&self.name, self.capability)
    }
}

/// The kinds of submitted jobs.
pub(super) const KINDS: [ObjectKind; 2] = [VOLCANO_JOB, BATCH_JOB];

/// A job to submit.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Submission {
    /// Its kind.
    pub(super) kind: ObjectKind,
    /// The object.
    pub(super) object: Value,
    /// `t001`, …
    pub(super) name: String,
    /// The namespace and the queue.
    pub(super) tenant: String,
    /// Pods of the job.
    pub(super) pods: u32,
    /// GPUs of all pods.
    pub(super) gpus: u32,
}

/// Returns the `index`th recorded job as a Volcano Job or, every second one, as a batch Job: a gang
/// of pods of up to eight GPUs.
pub(super) fn submission(index: usize, job: &TraceJob, pace: Pace) -> Submission {
    let per_pod = job.gpus.clamp(1, 8);
    let pods = job.gpus.div_ceil(per_pod).max(1);
    let name = format!("t{:03}", index + 1);
    let gang = TestGang {
        namespace: name_of(&job.tenant),
        name: name.clone(),
        queue: Some(name_of(&job.tenant)),
        pods,
        gpus: per_pod,
        product: None,
        run_for: Some(format!("{}ms", pace.run(job).as_millis())),
        fail: false,
        priority_class: None,
    };
    let (kind, object) = match index % 2 {
        0 => (VOLCANO_JOB, gang.volcano()),
        _ => (BATCH_JOB, gang.batch()),
    };
    Submission {
        kind,
        object,
        name,
        tenant: gang.namespace,
        pods,
        gpus: pods * per_pod,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn job(tenant: &str, gpus: u32, seconds: u64) -> TraceJob {
        TraceJob {
            submitted_after: Duration::ZERO,
            ran: Duration::from_secs(seconds),
            gpus,
            tenant: tenant.into(),
        }
    }

    const PACE: Pace = Pace {
        factor: 1.0,
        longest: Duration::from_secs(30),
    };

    #[test]
    fn tenants_share_the_fleet_by_what_they_ask_for() {
        let jobs = [job("a", 8, 30), job("a", 1, 0), job("b", 24, 2)];
        let tenants = tenants(&jobs, PACE, 80);
        let shown: Vec<_> = tenants
            .iter()
            .map(|tenant| (tenant.name.as_str(), tenant.capability))
            .collect();
        assert_eq!(shown, [("vc-a", 84), ("vc-b", 24)]);
    }

    #[test]
    fn a_job_is_cut_into_pods_of_at_most_eight_gpus() {
        let large = submission(0, &job("a", 24, 5), PACE);
        assert_eq!((large.kind, large.pods, large.gpus), (VOLCANO_JOB, 3, 24));
        assert_eq!(large.object["spec"]["minAvailable"], 3);
        let small = submission(1, &job("a", 2, 5), PACE);
        assert_eq!((small.kind, small.pods, small.gpus), (BATCH_JOB, 1, 2));
        assert_eq!(
            small.object["spec"]["template"]["metadata"]["annotations"]["muster.io/run-for"],
            "5000ms"
        );
    }
}
