//! The independent auditor: computes the usage of each queue at every moment, first from the pods in
//! the members ([`in_members`], and [`twice`]), then from the history of bindings and Works in the
//! API server's audit log.
//!
//! It shares no code with Muster. It reads every write in the store's order, so it finds a quota
//! that was exceeded even for a moment.
//!
//! What a job holds by the log, and since when:
//! - A job holds its template's requests from the write that removes its binding's gate with
//!   clusters set. If its Works request more, that counts. For a job in parts, only the Works show
//!   how much is in which cluster. An elastic job can hold less than its template: its record says
//!   how much until its Works show it.
//! - It holds them until a write shows that it ended in all of its clusters. If it was evicted or
//!   deleted, it holds everything until the last of its Works is gone. A Work that is created after
//!   the eviction and before the next placement is late, and the job held its amounts in between.
//!   If no Work was ever seen, it holds its amounts for `LATE` longer, because a Work could still
//!   come.
//! - A Work that is being deleted in a cluster that an operator took out of service counts as gone:
//!   the operator vouched for it.
//!
//! The quota of a queue comes from the same log. It is checked whenever a job of the queue, or of a
//! descendant, starts to hold more: what ran before a quota was lowered may stay.

mod bounds;
mod footprint;
mod held;
mod in_members;
mod log;
mod objects;
mod pods;
mod quantity;
mod replay;
mod report;
mod twice;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::ensure;
use jiff::SignedDuration;
use serde_json::Value;

pub use footprint::Footprint;
use held::HeldAmounts;
pub use in_members::PodReport;
pub use log::Log;
use log::{AuditedResource, AuditedWrite};
pub use pods::PodSightings;
use quantity::{AuditedAmounts, UNIT};
use replay::LogReplay;
pub use report::AuditReport;
use twice::KnownJob;

/// The annotation in which Muster records an admission.
const RECORD: &str = "muster.io/admission";
/// Karmada's label that ties Works to their binding.
const PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
const GPU: &str = "nvidia.com/gpu";
/// The time in which a Work may still come of a placement that was undone before any Work was seen:
/// Karmada's binding controller may be in the middle of a pass.
const LATE: SignedDuration = SignedDuration::from_secs(4);

/// The subject of an audit.
#[derive(Debug, Clone, Default)]
pub struct AuditSubject {
    /// The jobs, by the UID of their template.
    jobs: HashMap<String, AuditedJob>,
    /// Namespaces of which every job must be audited.
    namespaces: BTreeSet<String>,
    /// The queues of jobs that name none, by namespace.
    defaults: BTreeMap<String, String>,
    /// The amounts of a claim by a ResourceClaimTemplate.
    claims: BTreeMap<String, AuditedAmounts>,
    /// Quotas of queues in GPUs, besides those in the log.
    capability: BTreeMap<String, u64>,
    nothing_held: bool,
    /// Namespaces that Muster does not manage: their pods are not charged.
    unmanaged: BTreeSet<String>,
    /// Clusters that an operator takes out of service.
    out_of_service: BTreeSet<String>,
}

#[derive(Debug, Clone)]
struct AuditedJob {
    /// `namespace/name`.
    name: String,
    queue: String,
    takes: Footprint,
    /// The names of the containers in its template.
    containers: BTreeSet<String>,
    elastic: bool,
}

/// Returns every stored version of the bindings of a template, oldest first.
///
/// # Errors
/// Returns an error if the log cannot be read.
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
    /// Returns an error if the template cannot be read, because a job that is left out is not
    /// audited.
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
            containers: in_members::containers(template),
            elastic: metadata["annotations"]["muster.io/elastic"] == "true",
        };
        self.jobs.insert(uid.to_owned(), job);
        Ok(self)
    }

    /// Adds a ResourceClaimTemplate, for claims of jobs that are added later.
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn claim_template(&mut self, template: &Value) -> anyhow::Result<&mut Self> {
        let name = template["metadata"]["name"].as_str().unwrap_or_default();
        let name = format!("{}{name}", footprint::CLAIM);
        self.claims.insert(name, footprint::claim(template)?);
        Ok(self)
    }

    /// Sets the queue of a namespace's jobs that are added later and name none.
    pub fn default_queue(&mut self, namespace: &str, queue: &str) -> &mut Self {
        self.defaults.insert(namespace.to_owned(), queue.to_owned());
        self
    }

    /// Requires that all jobs of a namespace are audited.
    pub fn whole_namespace(&mut self, namespace: &str) -> &mut Self {
        self.namespaces.insert(namespace.to_owned());
        self
    }

    /// Declares that Muster does not manage a namespace, so that it charges none of its pods.
    pub fn unmanaged_namespace(&mut self, namespace: &str) -> &mut Self {
        self.unmanaged.insert(namespace.to_owned());
        self
    }

    /// Sets a quota of a queue for all times, besides what the log says.
    pub fn capability(&mut self, queue: &str, gpus: u64) -> &mut Self {
        self.capability.insert(queue.to_owned(), gpus);
        self
    }

    /// Declares that an operator takes this cluster out of service: a Work that is being deleted
    /// there counts as gone. The log cannot show this, because Karmada's aggregated API server
    /// serves Clusters, and the log has no bodies of its objects.
    pub fn out_of_service(&mut self, cluster: &str) -> &mut Self {
        self.out_of_service.insert(cluster.to_owned());
        self
    }

    /// Declares that none of the jobs ever holds a device.
    pub fn nothing_held(&mut self) -> &mut Self {
        self.nothing_held = true;
        self
    }

    /// Replays the log.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read, shows nothing to verify although it should, or
    /// shows usage although none is expected.
    pub fn audit(&self, log: &Log) -> anyhow::Result<AuditReport> {
        let report = self.read(log)?;
        self.is_enough(&report)?;
        Ok(report)
    }

    /// Replays the log, which may show no usage yet.
    ///
    /// # Errors
    /// Returns an error if the log cannot be read.
    pub fn read(&self, log: &Log) -> anyhow::Result<AuditReport> {
        let writes = log.writes(true, |of| {
            self.jobs.contains_key(of.template) || self.namespaces.contains(of.namespace)
        });
        self.replay(&writes?)
    }

    /// Compares the pods in the members of the audited namespaces with the quotas of their queues,
    /// which `report` has from the log.
    ///
    /// # Errors
    /// Returns an error if the requests of a pod cannot be read.
    pub fn in_members(
        &self,
        pods: &PodSightings,
        report: &AuditReport,
    ) -> anyhow::Result<PodReport> {
        in_members::check(self, pods, report)
    }

    /// Returns a violation for each job that ran twice, by the pods in the members. It checks the pods
    /// seen so far against the attempts in `report`.
    pub fn twice(&self, pods: &PodSightings, report: &AuditReport) -> Vec<String> {
        twice::verify(pods, &self.known(report), jiff::Timestamp::now())
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
        if self.nothing_held {
            ensure!(
                !report.holds_devices(),
                "devices are held where none were expected: {report}"
            );
            return Ok(());
        }
        ensure!(report.jobs > 0, "an audit without a job: {report}");
        ensure!(
            report.holds_devices(),
            "an audit in which no device is held: {report}"
        );
        Ok(())
    }

    fn replay(&self, writes: &[AuditedWrite]) -> anyhow::Result<AuditReport> {
        let mut replay = LogReplay::new(self, writes);
        for write in writes {
            replay.write(write)?;
        }
        let mut report = replay.report;
        report.placed.bounds = replay.bounds;
        Ok(report)
    }

    /// Returns the quotas of queues that were set here, in thousandths of GPUs.
    fn fixed(&self) -> impl Iterator<Item = (&String, u128)> {
        let bounds = self.capability.iter();
        bounds.map(|(queue, &gpus)| (queue, u128::from(gpus) * UNIT))
    }
}

#[cfg(test)]
mod tests;
