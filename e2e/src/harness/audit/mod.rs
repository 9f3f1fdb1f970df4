//! The independent auditor: reads from the API server's audit log what became of bindings, and computes
//! by itself what each queue held at every moment.
//!
//! It shares no code with what it checks. Every write is looked at in the store's own order, so
//! no bound can be passed for a moment without being seen.
//!
//! What a job holds, and since when:
//! - From the write that opens its binding with clusters in it: what its template asks for. What its
//!   Works tell their clusters to run counts where that is more; how much is where is known from them alone
//!   for a job in parts. Of an elastic job that may be less than its template, its record says how much
//!   until its Works show it.
//! - Until a write shows that it ended in all of its clusters; or, if it was evicted or deleted, until
//!   the last of its Works is gone, all of it until then. A Work that is born after the job was evicted
//!   and before it is placed again is late, and the job held what it did in between. Where none was ever
//!   seen, nobody could know for `LATE` that none comes: that long it holds, too.
//! - A Work that is being deleted in a cluster that an operator took out of service is gone: that is what
//!   the operator vouched for.
//!
//! The quota of a queue is read from the same log. A bound is checked whenever a job of its queue, or of
//! one below that, begins to hold more: what ran before a bound was lowered may stay.

mod bounds;
mod footprint;
mod held;
mod log;
mod objects;
mod pods;
mod quantity;
mod replay;
mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::ensure;
use jiff::SignedDuration;
use serde_json::Value;

pub use footprint::Footprint;
use held::HeldAmounts;
pub use log::Log;
use log::{AuditedResource, AuditedWrite};
use pods::KnownJob;
pub use pods::PodSightings;
use quantity::{AuditedAmounts, UNIT};
use replay::LogReplay;
pub use report::AuditReport;

/// Annotation by which Muster says what it admitted.
const RECORD: &str = "muster.io/admission";
/// Karmada's label that ties Works to their binding.
const PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
const GPU: &str = "nvidia.com/gpu";
/// How long a Work may still come of a placement that was undone before any was seen: Karmada's binding
/// controller may be in the middle of a pass.
const LATE: SignedDuration = SignedDuration::from_secs(4);

/// What is audited.
#[derive(Debug, Clone, Default)]
pub struct AuditSubject {
    /// The jobs, by the UID of their template.
    jobs: HashMap<String, AuditedJob>,
    /// Namespaces of which no job may be left out.
    namespaces: BTreeSet<String>,
    /// The queues of jobs that name none, by namespace.
    defaults: BTreeMap<String, String>,
    /// What a claim by a ResourceClaimTemplate holds.
    claims: BTreeMap<String, AuditedAmounts>,
    /// Quota of a queue in GPUs, besides what the log says.
    capability: BTreeMap<String, u64>,
    nothing_held: bool,
    /// Clusters that an operator takes out of service.
    out_of_service: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct AuditedJob {
    /// `namespace/name`.
    name: String,
    queue: String,
    takes: Footprint,
    elastic: bool,
}

/// Every version of the bindings of a template that the store took, oldest first.
///
/// # Errors
/// If the log cannot be read.
pub fn history(log: &Log, template_uid: &str) -> anyhow::Result<Vec<Value>> {
    let writes = log.writes(false, |of| of.template == template_uid)?;
    let versions = writes.into_iter().filter(|write| {
        write.resource == AuditedResource::Binding
            && write.object["spec"]["resource"]["uid"] == template_uid
    });
    Ok(versions.map(|write| write.object).collect())
}

impl AuditSubject {
    /// Adds a job by its template as the API server has it.
    ///
    /// # Errors
    /// If it cannot be read: what is left out is not audited.
    pub fn job(&mut self, template: &Value) -> anyhow::Result<&mut Self> {
        let metadata = &template["metadata"];
        let mut takes = Footprint::of(template)?;
        takes.resolve(&self.claims)?;
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let queue = takes.queue.clone();
        let queue = queue.or_else(|| self.defaults.get(namespace).cloned());
        let uid = metadata["uid"].as_str().unwrap_or_default();
        ensure!(!uid.is_empty(), "{} has no UID", metadata["name"]);
        let name = metadata["name"].as_str().unwrap_or_default();
        let job = AuditedJob {
            name: format!("{namespace}/{name}"),
            queue: queue.unwrap_or_else(|| "default".to_owned()),
            takes,
            elastic: metadata["annotations"]["muster.io/elastic"] == "true",
        };
        self.jobs.insert(uid.to_owned(), job);
        Ok(self)
    }

    /// Adds a ResourceClaimTemplate by which jobs that are added later claim devices.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn claim_template(&mut self, template: &Value) -> anyhow::Result<&mut Self> {
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        let name = format!("{}{name}", footprint::CLAIM);
        self.claims.insert(name, footprint::claim(template)?);
        Ok(self)
    }

    /// Says to which queue jobs of a namespace go that are added later and name none.
    pub fn default_queue(&mut self, namespace: &str, queue: &str) -> &mut Self {
        self.defaults.insert(namespace.to_owned(), queue.to_owned());
        self
    }

    /// Says that all jobs of a namespace are among those that are audited.
    pub fn whole_namespace(&mut self, namespace: &str) -> &mut Self {
        self.namespaces.insert(namespace.to_owned());
        self
    }

    /// Sets a quota of a queue for all times, besides what the log says.
    pub fn capability(&mut self, queue: &str, gpus: u64) -> &mut Self {
        self.capability.insert(queue.to_owned(), gpus);
        self
    }

    /// Says that an operator takes this cluster out of service: a Work that is being deleted there counts
    /// as gone. The log cannot tell: Clusters are served by Karmada's aggregated API server, of whose
    /// objects it has no bodies.
    pub fn out_of_service(&mut self, cluster: &str) -> &mut Self {
        self.out_of_service.insert(cluster.to_owned());
        self
    }

    /// Says that none of the jobs ever holds a device.
    pub fn nothing_held(&mut self) -> &mut Self {
        self.nothing_held = true;
        self
    }

    /// Replays the log.
    ///
    /// # Errors
    /// If it cannot be read, or shows nothing to verify though there should be, or the other way round.
    pub fn audit(&self, log: &Log) -> anyhow::Result<AuditReport> {
        let report = self.read(log)?;
        self.is_enough(&report)?;
        Ok(report)
    }

    /// The same, also where nothing was held yet.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn read(&self, log: &Log) -> anyhow::Result<AuditReport> {
        let writes = log.writes(true, |of| {
            self.jobs.contains_key(of.template) || self.namespaces.contains(of.namespace)
        });
        self.replay(&writes?)
    }

    /// What the pods in the members show besides: nothing runs twice. Pods are checked that were seen so
    /// far, by the attempts that are in `report`.
    pub fn twice(&self, pods: &PodSightings, report: &AuditReport) -> Vec<String> {
        pods.verify(&self.known(report), jiff::Timestamp::now())
    }

    fn known(&self, report: &AuditReport) -> BTreeMap<String, KnownJob> {
        let mut jobs: BTreeMap<String, KnownJob> = BTreeMap::new();
        for job in self.jobs.values() {
            let known = jobs.entry(job.name.clone()).or_default();
            let held = HeldAmounts::somewhere(job.takes.whole());
            known.devices += held.devices();
            let attempts = report.attempts.get(&job.name);
            known.attempts = attempts.cloned().unwrap_or_default();
        }
        jobs
    }

    fn is_enough(&self, report: &AuditReport) -> anyhow::Result<()> {
        let seconds = report.device_seconds();
        if self.nothing_held {
            ensure!(
                seconds == 0,
                "{seconds} device-seconds where none were expected"
            );
            return Ok(());
        }
        ensure!(report.jobs > 0, "an audit without a job: {report}");
        ensure!(seconds > 0, "an audit without a device-second: {report}");
        Ok(())
    }

    fn replay(&self, writes: &[AuditedWrite]) -> anyhow::Result<AuditReport> {
        let mut replay = LogReplay::new(self, writes);
        for write in writes {
            replay.write(write)?;
        }
        Ok(replay.report)
    }

    /// Quota of a queue in thousandths of GPUs, if it was set.
    fn fixed(&self) -> impl Iterator<Item = (&String, u128)> {
        let bounds = self.capability.iter();
        bounds.map(|(queue, &gpus)| (queue, u128::from(gpus) * UNIT))
    }
}

#[cfg(test)]
mod tests;
