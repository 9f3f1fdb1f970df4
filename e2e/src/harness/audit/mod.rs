//! The independent auditor: reads from the API server's audit log what became of bindings, and computes
//! by itself how many GPUs each queue held at every moment.
//!
//! It shares no code with what it checks. A job holds its GPUs from the write that opens its binding with
//! clusters in it until a write shows that it ended in all of them, or until it was taken back or
//! deleted and the last of its Works is gone. Every write is looked at in the store's own order, so
//! no bound can be passed for a moment without being seen.

mod footprint;
mod log;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

pub use footprint::Footprint;
pub use log::Log;
use log::{Resource, Write, is_gone};

/// Annotation by which Muster says what it admitted.
const RECORD: &str = "muster.io/admission";
/// Karmada's label that ties Works to their binding.
const PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";

/// What is audited.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// What each template takes, by its UID.
    jobs: HashMap<String, Footprint>,
    /// GPUs that a queue may hold.
    capability: BTreeMap<String, u64>,
}

/// What the log shows of the subject.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The most GPUs that each queue held at once.
    pub peaks: BTreeMap<String, u64>,
    /// How often each job was placed, by `namespace/binding`.
    pub placements: BTreeMap<String, u32>,
    /// Everything that must not be, in the order in which it happened.
    pub violations: Vec<String>,
}

/// Every version of the bindings of a template that the store took, oldest first.
///
/// # Errors
/// If the log cannot be read.
pub fn history(log: &Log, template_uid: &str) -> anyhow::Result<Vec<Value>> {
    let writes = log.writes(|template| template == template_uid)?.into_iter();
    let versions = writes.filter(|write| {
        write.resource == Resource::Binding
            && write.object["spec"]["resource"]["uid"] == template_uid
    });
    Ok(versions.map(|write| write.object).collect())
}

impl Subject {
    /// Adds a job by its template as the API server has it.
    pub fn job(&mut self, template: &Value) -> &mut Self {
        let uid = template["metadata"]["uid"].as_str();
        if let (Some(uid), Some(footprint)) = (uid, Footprint::of(template)) {
            self.jobs.insert(uid.to_owned(), footprint);
        }
        self
    }

    /// Says what a queue may hold.
    pub fn capability(&mut self, queue: &str, gpus: u64) -> &mut Self {
        self.capability.insert(queue.to_owned(), gpus);
        self
    }

    /// How many jobs are audited.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// Replays the log.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn audit(&self, log: &Log) -> anyhow::Result<Report> {
        let writes = log.writes(|template| self.jobs.contains_key(template));
        Ok(self.replay(writes?))
    }

    fn replay(&self, writes: Vec<Write>) -> Report {
        let mut replay = Replay {
            subject: self,
            bindings: BTreeMap::new(),
            works: HashMap::new(),
            report: Report::default(),
        };
        for write in writes {
            match write.resource {
                Resource::Binding => replay.binding(&write),
                Resource::Work => replay.work(&write),
            }
        }
        replay.report
    }
}

struct Replay<'a> {
    subject: &'a Subject,
    /// By permanent id.
    bindings: BTreeMap<String, Binding>,
    /// Works that exist, by permanent id and then by `namespace/name`; whether each shows an end.
    works: HashMap<String, BTreeMap<String, bool>>,
    report: Report,
}

#[derive(Debug, Default)]
struct Binding {
    name: String,
    template: String,
    suspended: bool,
    placed: bool,
    clusters: BTreeSet<String>,
    attempt: u64,
    ended: bool,
    gone: bool,
    /// Holds its GPUs.
    holding: bool,
}

impl Replay<'_> {
    fn binding(&mut self, write: &Write) {
        let object = &write.object;
        let spec = &object["spec"];
        let (Some(template), Some(id)) = (spec["resource"]["uid"].as_str(), permanent_id(object))
        else {
            return;
        };
        if !self.subject.jobs.contains_key(template) {
            return;
        }
        let binding = self.bindings.entry(id.clone()).or_default();
        binding.name = name(object);
        binding.template = template.to_owned();
        let was_suspended = binding.suspended;
        binding.suspended = spec["suspension"]["scheduling"] == true;
        let clusters: BTreeSet<String> = cluster_names(spec).collect();
        let placed = !clusters.is_empty() && !binding.suspended;
        let mut wrong = Vec::new();
        if was_suspended && !binding.suspended && clusters.is_empty() {
            wrong.push("opened without a placement".to_owned());
        }
        if placed {
            check_placement(binding, object, &clusters, &mut wrong);
        }
        if placed && !binding.placed {
            *self
                .report
                .placements
                .entry(binding.name.clone())
                .or_default() += 1;
            binding.ended = false;
            binding.holding = true;
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
        self.count(write);
    }

    fn work(&mut self, write: &Write) {
        let Some(id) = permanent_id(&write.object) else {
            return;
        };
        let works = self.works.entry(id.clone()).or_default();
        if is_gone(write) {
            works.remove(&name(&write.object));
        } else {
            let manifests = &write.object["status"]["manifestStatuses"];
            let ended = manifests.as_array().is_some_and(|manifests| {
                !manifests.is_empty() && manifests.iter().all(|manifest| ended(&manifest["status"]))
            });
            works.insert(name(&write.object), ended);
        }
        if let Some(binding) = self.bindings.get_mut(&id) {
            let works = works.values();
            binding.ended |= binding.placed
                && works.len() == binding.clusters.len()
                && works.into_iter().all(|&ended| ended);
        }
        self.settle(&id);
    }

    /// A job gives back what it holds once it ended, or once nothing of it is left.
    fn settle(&mut self, id: &str) {
        let Some(binding) = self.bindings.get_mut(id) else {
            return;
        };
        let no_works = self.works.get(id).is_none_or(BTreeMap::is_empty);
        if binding.ended || ((binding.gone || !binding.placed) && no_works) {
            binding.holding = false;
        }
    }

    /// Adds up what every queue holds now.
    fn count(&mut self, write: &Write) {
        let mut held: BTreeMap<&str, u64> = BTreeMap::new();
        let holding = self.bindings.values().filter(|binding| binding.holding);
        for footprint in holding.map(|binding| &self.subject.jobs[&binding.template]) {
            *held.entry(&footprint.queue).or_default() += footprint.gpus;
        }
        for (queue, gpus) in held {
            let peak = self.report.peaks.entry(queue.to_owned()).or_default();
            *peak = gpus.max(*peak);
            let capability = self.subject.capability.get(queue);
            if let Some(&capability) = capability.filter(|&&capability| gpus > capability) {
                self.report.violations.push(format!(
                    "queue {queue} holds {gpus} of {capability} GPUs at revision {} ({} {} by {})",
                    write.revision,
                    write.verb,
                    name(&write.object),
                    write.user,
                ));
            }
        }
    }

    fn violation(&mut self, write: &Write, id: &str, what: &str) {
        let name = &self.bindings[id].name;
        self.report.violations.push(format!(
            "{name}: {what} at revision {} ({} by {})",
            write.revision, write.verb, write.user
        ));
    }
}

/// Every placement needs a record of this very template, and a new attempt where it is a new one.
fn check_placement(
    binding: &mut Binding,
    object: &Value,
    clusters: &BTreeSet<String>,
    wrong: &mut Vec<String>,
) {
    let record = object["metadata"]["annotations"][RECORD].as_str();
    let record: Value = record
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
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

fn permanent_id(object: &Value) -> Option<String> {
    Some(
        object["metadata"]["labels"][PERMANENT_ID]
            .as_str()?
            .to_owned(),
    )
}

fn name(object: &Value) -> String {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn cluster_names(spec: &Value) -> impl Iterator<Item = String> {
    let clusters = spec["clusters"].as_array().into_iter().flatten();
    clusters.filter_map(|cluster| cluster["name"].as_str().map(str::to_owned))
}

/// Whether a binding's status shows an end in every cluster that it was given.
fn all_ended(binding: &Value, clusters: &BTreeSet<String>) -> bool {
    let items = binding["status"]["aggregatedStatus"].as_array();
    let ended: BTreeSet<&str> = items
        .into_iter()
        .flatten()
        .filter(|item| ended(&item["status"]))
        .filter_map(|item| item["clusterName"].as_str())
        .collect();
    clusters
        .iter()
        .all(|cluster| ended.contains(cluster.as_str()))
}

/// Whether the status of a template, as its member reports it, is final.
fn ended(status: &Value) -> bool {
    let volcano = status["state"]["phase"].as_str();
    let pod = status["phase"].as_str();
    let conditions = status["conditions"].as_array();
    let condition = |condition: &Value| {
        condition["status"] == "True"
            && matches!(
                condition["type"].as_str(),
                Some("Complete" | "Succeeded" | "Failed")
            )
    };
    matches!(
        volcano,
        Some("Completed" | "Failed" | "Terminated" | "Aborted")
    ) || matches!(pod, Some("Succeeded" | "Failed"))
        || conditions.is_some_and(|conditions| conditions.iter().any(condition))
}

#[cfg(test)]
mod tests;
