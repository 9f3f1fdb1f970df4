//! Replays the writes of a log and tracks what every job holds.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::Context as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::bounds::AuditedBounds;
use super::footprint::Classes;
use super::held::HeldAmounts;
use super::log::{AuditedResource, AuditedWrite, is_gone};
use super::objects::{
    all_ended, cluster_names, ended, is_placed, name, permanent_id, promised, record, runs,
};
use super::quantity;
use super::report::AuditReport;
use super::{AuditSubject, GPU, LATE};

/// Kinds without pods, which Karmada propagates together with jobs.
const WITHOUT_PODS: [&str; 8] = [
    "ConfigMap",
    "Secret",
    "Service",
    "ServiceAccount",
    "PersistentVolumeClaim",
    "ResourceClaimTemplate",
    "MultiClusterService",
    "EndpointSlice",
];
/// The prefix of the namespace of a cluster's Works.
const WORKS_OF: &str = "karmada-es-";

pub(super) struct LogReplay<'a> {
    subject: &'a AuditSubject,
    pub(super) bounds: AuditedBounds,
    /// Bindings by permanent id.
    bindings: BTreeMap<String, AuditedBinding>,
    /// Existing Works, by permanent id and then by `namespace/name`.
    works: HashMap<String, BTreeMap<String, AuditedWork>>,
    /// When Works are created and bindings placed, by permanent id, as positions in the log.
    future: HashMap<String, Future>,
    /// UIDs of removed Works: a later write to one, in a cluster that is back, is ignored.
    gone: HashSet<String>,
    /// The position in the log, and the time there.
    at: usize,
    now: Timestamp,
    seen: HashSet<String>,
    pub(super) report: AuditReport,
}

#[derive(Debug, Default)]
struct AuditedBinding {
    /// The `namespace/name` of the binding and of its template.
    name: String,
    of: String,
    template: String,
    suspended: bool,
    placed: bool,
    clusters: BTreeSet<String>,
    attempt: u64,
    /// The shares of its placement, on the binding and in the record.
    shares: Value,
    ended: bool,
    gone: bool,
    /// When it was evicted, if no Work of the placement had been seen.
    without_works: Option<Timestamp>,
    works_seen: bool,
    /// True if it holds something.
    holding: bool,
    held: HeldAmounts,
    /// The amounts of its placement, without its Works.
    promised: HeldAmounts,
}

#[derive(Debug, Default)]
struct AuditedWork {
    cluster: String,
    uid: String,
    /// The requests in its cluster, if known.
    runs: Option<Classes>,
    ended: bool,
    deleting: bool,
}

#[derive(Debug, Default)]
struct Future {
    births: Vec<usize>,
    placements: Vec<usize>,
}

impl Future {
    /// Returns true if a Work of the previous placement is created after `now`.
    fn has_late_work(&self, now: usize) -> bool {
        let after = |place: &&usize| **place > now;
        let placed = self.placements.iter().find(after).copied();
        let born = self.births.iter().find(after).copied();
        born.is_some_and(|born| placed.is_none_or(|placed| born < placed))
    }
}

/// Returns the positions in the log at which Works are created and bindings are placed.
fn futures(writes: &[AuditedWrite]) -> HashMap<String, Future> {
    let mut futures: HashMap<String, Future> = HashMap::new();
    let mut placed: HashMap<String, bool> = HashMap::new();
    let mut known: HashSet<&str> = HashSet::new();
    for (at, write) in writes.iter().enumerate() {
        let Some(id) = permanent_id(&write.object) else {
            continue;
        };
        let future = futures.entry(id.clone()).or_default();
        match write.resource {
            AuditedResource::Work => {
                let uid = write.object["metadata"]["uid"].as_str().unwrap_or_default();
                if known.insert(uid) && !is_gone(write) {
                    future.births.push(at);
                }
            }
            AuditedResource::Binding => {
                let now = is_placed(&write.object["spec"]);
                if placed.insert(id, now) != Some(true) && now {
                    future.placements.push(at);
                }
            }
            _ => {}
        }
    }
    futures
}

impl<'a> LogReplay<'a> {
    pub(super) fn new(subject: &'a AuditSubject, writes: &[AuditedWrite]) -> Self {
        let mut bounds = AuditedBounds::default();
        for (queue, gpus) in subject.fixed() {
            bounds.fixed(queue, GPU, gpus);
        }
        Self {
            subject,
            bounds,
            bindings: BTreeMap::new(),
            works: HashMap::new(),
            future: futures(writes),
            gone: HashSet::new(),
            at: 0,
            now: Timestamp::MIN,
            seen: HashSet::new(),
            report: AuditReport::default(),
        }
    }

    pub(super) fn write(&mut self, write: &AuditedWrite) -> anyhow::Result<()> {
        self.pass(write.time);
        match write.resource {
            AuditedResource::Binding => self.binding(write)?,
            AuditedResource::Work => self.work(write)?,
            AuditedResource::Queue | AuditedResource::Policy => self.bounds.write(write),
        }
        self.at += 1;
        Ok(())
    }

    /// Advances the time: adds up the amounts held meanwhile, and ends the holds for which no late
    /// Work can come.
    fn pass(&mut self, time: Timestamp) {
        if self.now != Timestamp::MIN && time > self.now {
            let passed = self.now.duration_until(time).as_millis();
            let holding = self.bindings.values().filter(|binding| binding.holding);
            let devices: u128 = holding.map(|binding| binding.held.devices()).sum();
            self.report.used += devices * passed.unsigned_abs();
        }
        self.now = time.max(self.now);
        let waiting = self.bindings.iter();
        let waiting = waiting.filter(|(_, binding)| binding.holding && !binding.placed);
        let waiting: Vec<String> = waiting.map(|(id, _)| id.clone()).collect();
        for id in waiting {
            self.settle(&id);
        }
    }

    fn binding(&mut self, write: &AuditedWrite) -> anyhow::Result<()> {
        let object = &write.object;
        let spec = &object["spec"];
        let (Some(template), Some(id)) = (spec["resource"]["uid"].as_str(), permanent_id(object))
        else {
            return Ok(());
        };
        let Some(job) = self.subject.jobs.get(template) else {
            self.left_out(write, template);
            return Ok(());
        };
        if self.seen.insert(template.to_owned()) {
            self.report.jobs += 1;
        }
        let binding = self.bindings.entry(id.clone()).or_default();
        binding.name = name(object);
        binding.of = name(&Value::from_iter([("metadata", spec["resource"].clone())]));
        binding.template = template.to_owned();
        let was_suspended = binding.suspended;
        binding.suspended = spec["suspension"]["scheduling"] == true;
        let clusters: BTreeSet<String> = cluster_names(spec).collect();
        let placed = is_placed(spec);
        let mut wrong = Vec::new();
        if was_suspended && !binding.suspended && clusters.is_empty() {
            wrong.push("opened without a placement".to_owned());
        }
        if placed {
            check_placement(binding, object, &clusters, &mut wrong);
            binding.promised = promised(job, object).with_context(|| name(object))?;
        }
        if placed {
            let attempts = &mut self.report.attempts;
            let attempts = attempts.entry(binding.of.clone()).or_default();
            if attempts.last() != Some(&clusters) {
                attempts.push(clusters.clone());
            }
        }
        let shares = json!([spec["clusters"], record(object)["clusters"]]);
        if placed && (!binding.placed || binding.shares != shares) {
            let times = &mut self.report.placed.times;
            times
                .entry(binding.of.clone())
                .or_default()
                .push(write.time);
            binding.shares = shares;
        }
        if placed && !binding.placed {
            let report = &mut self.report;
            *report.placements.entry(binding.name.clone()).or_default() += 1;
            binding.ended = false;
            binding.holding = true;
            binding.works_seen = false;
        }
        if !placed && binding.placed {
            let reason = record(object)["reason"]
                .as_str()
                .unwrap_or("unknown")
                .to_owned();
            let evictions = &mut self.report.evictions;
            evictions
                .entry(binding.name.clone())
                .or_default()
                .push(reason);
            if !binding.works_seen {
                binding.without_works = Some(write.time);
            }
        }
        if placed {
            binding.without_works = None;
        }
        binding.placed = placed;
        binding.clusters = clusters;
        binding.ended |= placed && all_ended(object, &binding.clusters);
        let gone = is_gone(write);
        if gone && self.works.get(&id).is_some_and(|works| !works.is_empty()) {
            wrong.push("gone while a Work of it was there".to_owned());
        }
        binding.gone |= gone;
        for what in wrong {
            self.violation(write, &id, &what);
        }
        self.settle(&id);
        self.hold(write, &id);
        Ok(())
    }

    /// Reports a job that is not audited in a namespace of which every job must be.
    fn left_out(&mut self, write: &AuditedWrite, template: &str) {
        let (metadata, spec) = (&write.object["metadata"], &write.object["spec"]);
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        let kind = spec["resource"]["kind"].as_str().unwrap_or_default();
        if self.subject.namespaces.contains(namespace)
            && !WITHOUT_PODS.contains(&kind)
            && is_placed(spec)
            && self.seen.insert(template.to_owned())
        {
            self.report.violations.push(format!(
                "{}: a {kind} that is left out of the audit is placed at revision {}",
                name(&write.object),
                write.revision
            ));
        }
    }

    fn work(&mut self, write: &AuditedWrite) -> anyhow::Result<()> {
        let object = &write.object;
        let Some(id) = permanent_id(object) else {
            return Ok(());
        };
        let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let cluster = namespace.strip_prefix(WORKS_OF).unwrap_or(namespace);
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        let lost = deleting && self.subject.out_of_service.contains(cluster);
        let works = self.works.entry(id.clone()).or_default();
        if is_gone(write) || lost || self.gone.contains(uid) {
            works.remove(&name(object));
            self.gone.insert(uid.to_owned());
        } else {
            let work = works.entry(name(object)).or_default();
            cluster.clone_into(&mut work.cluster);
            uid.clone_into(&mut work.uid);
            work.deleting = deleting;
            let job = self.bindings.get(&id);
            let job = job.and_then(|binding| self.subject.jobs.get(&binding.template));
            if let Some(job) = job.filter(|_| object["spec"]["suspendDispatching"] != true) {
                let runs = runs(job, self.subject, object);
                work.runs = Some(runs.with_context(|| format!("Work {}", name(object)))?);
            }
            let manifests = &object["status"]["manifestStatuses"];
            work.ended = manifests.as_array().is_some_and(|manifests| {
                !manifests.is_empty() && manifests.iter().all(|manifest| ended(&manifest["status"]))
            });
        }
        if let Some(binding) = self.bindings.get_mut(&id) {
            let works = works.values();
            // A Work that is being deleted may belong to an older placement.
            if !deleting {
                binding.works_seen = true;
                binding.without_works = None;
            }
            binding.ended |= binding.placed
                && works.len() == binding.clusters.len()
                && works.into_iter().all(|work| work.ended);
        }
        self.settle(&id);
        self.hold(write, &id);
        Ok(())
    }

    /// Ends the hold of a job that has ended, or of which nothing is left or can come.
    fn settle(&mut self, id: &str) {
        let Some(binding) = self.bindings.get_mut(id) else {
            return;
        };
        let no_works = self.works.get(id).is_none_or(BTreeMap::is_empty);
        let may_come = binding.without_works.filter(|_| !binding.gone);
        let may_come = may_come.is_some_and(|since| since.duration_until(self.now) < LATE);
        let comes = self.future.get(id);
        let comes = comes.is_some_and(|future| future.has_late_work(self.at));
        let left = !no_works || may_come || comes;
        if binding.ended || ((binding.gone || !binding.placed) && !left) {
            binding.holding = false;
        }
    }

    /// Recomputes what a job holds; if it is more than before, its queues are checked.
    fn hold(&mut self, write: &AuditedWrite, id: &str) {
        let Some(binding) = self.bindings.get_mut(id) else {
            return;
        };
        if !binding.holding {
            binding.held = HeldAmounts::default();
            return;
        }
        let mut now = match binding.placed {
            true => binding.promised.clone(),
            // A terminating job holds everything until the last of it is gone.
            false => binding.held.clone(),
        };
        let works = self.works.get(id).into_iter().flat_map(BTreeMap::values);
        let works = works.filter_map(|work| Some((work.cluster.clone(), work.runs.clone()?)));
        now.raise(&HeldAmounts::in_each(works));
        let before = std::mem::replace(&mut binding.held, now.clone());
        let queue = self.subject.jobs[&binding.template].queue.clone();
        for queue in self.bounds.path(&queue) {
            self.verify(write, &queue, &before, &now);
        }
    }

    /// Checks the usage of a queue and its descendants after the amounts of one of its jobs
    /// changed.
    fn verify(
        &mut self,
        write: &AuditedWrite,
        queue: &str,
        before: &HeldAmounts,
        now: &HeldAmounts,
    ) {
        let below = |binding: &&AuditedBinding| {
            let own = &self.subject.jobs[&binding.template].queue;
            binding.holding && self.bounds.path(own).iter().any(|above| above == queue)
        };
        let held: Vec<&HeldAmounts> = self
            .bindings
            .values()
            .filter(below)
            .map(|binding| &binding.held)
            .collect();
        for resource in now.resources() {
            let of = (queue.to_owned(), resource.clone());
            let all = held.iter().map(|held| held.all(resource)).sum();
            let peak = self.report.peaks.entry(of).or_default();
            *peak = (*peak).max(all);
        }
        for (scope, bound) in self.bounds.of(queue, self.now) {
            if scope.class.is_none() {
                let of = (queue.to_owned(), scope.resource.clone());
                let highest = self.report.bounds.entry(of).or_default();
                *highest = (*highest).max(bound);
            }
            let all: u128 = held.iter().map(|held| scope.of(held)).sum();
            if scope.of(now) > scope.of(before) && all > bound {
                self.report.violations.push(format!(
                    "{scope} holds {} of {} {} at revision {} ({} {} by {})",
                    quantity::show(all),
                    quantity::show(bound),
                    scope.resource,
                    write.revision,
                    write.verb,
                    name(&write.object),
                    write.user,
                ));
            }
        }
    }

    fn violation(&mut self, write: &AuditedWrite, id: &str, what: &str) {
        let name = &self.bindings[id].name;
        self.report.violations.push(format!(
            "{name}: {what} at revision {} ({} by {})",
            write.revision, write.verb, write.user
        ));
    }
}

/// Checks that a placement has a record of this template, with a new attempt if the placement is
/// new.
fn check_placement(
    binding: &mut AuditedBinding,
    object: &Value,
    clusters: &BTreeSet<String>,
    wrong: &mut Vec<String>,
) {
    let record = record(object);
    if record["templateUID"] != binding.template.as_str() {
        wrong.push(format!("placed without a record of its own: {record}"));
        return;
    }
    let recorded = record["clusters"].as_array().into_iter().flatten();
    let recorded: BTreeSet<String> = recorded
        .filter_map(|cluster| cluster["name"].as_str().map(str::to_owned))
        .collect();
    if recorded != *clusters {
        wrong.push(format!("placed on {clusters:?}, recorded on {recorded:?}"));
    }
    let attempt = record["attempt"].as_u64().unwrap_or(0);
    if !binding.placed && attempt <= binding.attempt {
        wrong.push(format!("attempt {attempt} placed again"));
    }
    if binding.placed && attempt == binding.attempt && *clusters != binding.clusters {
        wrong.push(format!(
            "attempt {attempt} moved from {:?} to {clusters:?}",
            binding.clusters
        ));
    }
    binding.attempt = attempt;
}
