//! Jobs in YAML: each entry is one job, or several equal ones at a fixed interval.

use super::ONE_QUEUE;
use super::amounts::{QuantityTexts, ResourceShorthand, Text, millis};
use super::plain::{self, NAMESPACE};
use crate::error::{InputError, InputLocation, read};
use crate::scenario::SimJob;
use engine::facts::{Demand, Held, Role, Split, Topology};
use engine::matching::{ClusterRule, NodeTerm, Operator, Requirement};
use engine::{ClusterName, JobKey, Time};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobsFile {
    jobs: Vec<JobEntry>,
}

/// One entry.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct JobEntry {
    name: Option<String>,
    #[serde(default = "namespace")]
    namespace: String,
    #[serde(default = "queue")]
    queue: String,
    #[serde(default)]
    user: String,
    /// Time of arrival from the start of the simulation: 90s, 10m, 1h30m.
    #[serde(default = "now")]
    at: Text,
    /// The number of jobs.
    #[serde(default = "one")]
    count: u32,
    /// The interval between their arrivals. Default: all arrive at once.
    every: Option<Text>,
    /// The true run time with all pods.
    run: Text,
    /// The declared run time.
    declared: Option<Text>,
    /// The interval of checkpoints.
    checkpoint: Option<Text>,
    /// The job's PriorityClass.
    priority: Option<String>,
    #[serde(default = "yes")]
    preemptible: bool,
    /// True if the job may run with fewer pods, down to `minimum`.
    #[serde(default)]
    elastic: bool,
    /// Over how many clusters it may be placed, as in the annotation `muster.io/split`. Default: one.
    split: Option<Text>,
    topology: Option<JobDomains>,
    /// The clusters that the job may use. Default: all.
    clusters: Option<BTreeSet<String>>,
    /// The clusters that have the job's data.
    #[serde(default)]
    data_clusters: Vec<String>,
    /// The pods, if all are equal.
    #[serde(flatten)]
    pods: JobPods,
    /// The pods by role, if they differ.
    #[serde(default)]
    roles: Vec<NamedPods>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobPods {
    pods: Option<u32>,
    /// The number of pods that the job needs to start. Default: all.
    minimum: Option<u32>,
    gpus: Option<u32>,
    cpu: Option<Text>,
    memory: Option<Text>,
    resources: Option<QuantityTexts>,
    /// The labels that the job's nodes must have.
    node_selector: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedPods {
    name: String,
    #[serde(flatten)]
    pods: JobPods,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct JobDomains {
    #[serde(default = "yes")]
    hard: bool,
    highest_tier: u32,
}

fn namespace() -> String {
    NAMESPACE.to_owned()
}

fn queue() -> String {
    ONE_QUEUE.to_owned()
}

fn now() -> Text {
    Text("0s".to_owned())
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

/// Reads the file.
pub(super) fn read_yaml(path: &Path) -> Result<Vec<SimJob>, InputError> {
    let file_name = path.display().to_string();
    let text = read(path)?;
    let file: JobsFile = serde_saphyr::from_str(&text).map_err(|error| InputError::Malformed {
        file: file_name.clone(),
        reason: error.to_string(),
    })?;
    let mut jobs = Vec::new();
    let mut names = BTreeSet::new();
    for (index, entry) in file.jobs.iter().enumerate() {
        let name = entry.name.clone();
        let name = name.unwrap_or_else(|| format!("job-{}", index + 1));
        let place = InputLocation {
            file: &file_name,
            place: format!("job {name}"),
        };
        if !names.insert((entry.namespace.clone(), name.clone())) {
            return Err(place.refuse("name", &name, "a name of its own is needed"));
        }
        entry.add(&place, &name, &mut jobs)?;
    }
    Ok(jobs)
}

impl JobEntry {
    fn add(
        &self,
        place: &InputLocation<'_>,
        name: &str,
        jobs: &mut Vec<SimJob>,
    ) -> Result<(), InputError> {
        let optional = |field: &str, text: &Option<Text>| {
            let read = |text: &Text| millis(place, field, &text.0);
            text.as_ref().map(read).transpose()
        };
        let at = millis(place, "at", &self.at.0)?;
        let every = optional("every", &self.every)?.unwrap_or(0);
        let demand = self.demand(place)?;
        for index in 0..self.count {
            let name = if self.count == 1 {
                name.to_owned()
            } else {
                format!("{name}-{}", index + 1)
            };
            let at = Time(at.saturating_add(every.saturating_mul(i64::from(index))));
            let mut job = plain::job(&name, &self.queue, at, demand.clone());
            job.fact.key = JobKey::new(&self.namespace, &name);
            job.fact.user.clone_from(&self.user);
            job.fact.priority_class.clone_from(&self.priority);
            job.fact.preemptible = self.preemptible;
            job.fact.expected_duration_ms = optional("declared", &self.declared)?;
            job.run_ms = millis(place, "run", &self.run.0)?;
            job.checkpoint_ms = optional("checkpoint", &self.checkpoint)?.filter(|ms| *ms > 0);
            jobs.push(job);
        }
        Ok(())
    }

    fn demand(&self, place: &InputLocation<'_>) -> Result<Demand, InputError> {
        let roles = if self.roles.is_empty() {
            vec![self.pods.role(place, "worker")?]
        } else {
            let named = self
                .roles
                .iter()
                .map(|role| role.pods.role(place, &role.name));
            named.collect::<Result<_, _>>()?
        };
        let mut demand = plain::gang(roles);
        demand.elastic = self.elastic;
        // Muster resizes a job only if Karmada controls its replica count.
        demand.held = if self.elastic {
            Held::ByReplicas
        } else {
            Held::Not
        };
        if let Some(Text(split)) = &self.split {
            let read = workload::split_of(split);
            let needed = format!("{} is needed", workload::SPLIT_WORDS);
            (demand.split, demand.placement.max_clusters) =
                read.ok_or_else(|| place.refuse("split", split, &needed))?;
        }
        demand.natively_divisible = demand.split != Split::Never && demand.roles.len() == 1;
        demand.topology = self.topology.map(|domains| Topology {
            hard: domains.hard,
            highest_tier: domains.highest_tier,
        });
        let name = |name: &String| ClusterName::from(name.as_str());
        demand.placement.data_clusters = self.data_clusters.iter().map(name).collect();
        demand.placement.groups = self
            .clusters
            .iter()
            .map(|names| ClusterRule {
                names: Some(names.iter().map(name).collect()),
                ..ClusterRule::default()
            })
            .collect();
        Ok(demand)
    }
}

impl JobPods {
    fn role(&self, place: &InputLocation<'_>, name: &str) -> Result<Role, InputError> {
        let pods = self.pods.unwrap_or(1);
        if pods == 0 {
            return Err(place.refuse("pods", "0", "1 or more is needed"));
        }
        let shape = ResourceShorthand {
            gpus: self.gpus,
            cpu: self.cpu.as_ref(),
            memory: self.memory.as_ref(),
            resources: self.resources.as_ref(),
        };
        let mut role = plain::role(name, pods, shape.read(place, 1)?);
        if let Some(minimum) = self.minimum {
            if minimum > pods {
                let needed = format!("at most its {pods} pods are needed");
                return Err(place.refuse("minimum", &minimum.to_string(), &needed));
            }
            role.min = minimum;
        }
        if let Some(selector) = &self.node_selector {
            let labels = selector.iter().map(|(key, value)| Requirement {
                key: key.clone(),
                operator: Operator::In,
                values: vec![value.clone()],
            });
            role.node_terms = vec![NodeTerm {
                labels: labels.collect(),
                fields: Vec::new(),
            }];
        }
        Ok(role)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Reads a job with this `split`.
    fn split(text: &str) -> Result<(Split, Option<u32>), String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.yaml");
        let jobs = format!("jobs: [{{name: a, run: 1h, pods: 4, split: {text}}}]");
        std::fs::write(&path, jobs).unwrap();
        let jobs = read_yaml(&path).map_err(|error| error.to_string())?;
        let demand = &jobs[0].fact.demand;
        Ok((demand.split, demand.placement.max_clusters))
    }

    #[test]
    fn a_job_is_split_by_the_words_and_numbers_of_the_annotation() {
        for (text, read) in [
            ("Never", (Split::Never, None)),
            ("1", (Split::Never, None)),
            ("Preferred", (Split::Preferred, None)),
            ("2", (Split::Allowed, Some(2))),
            ("\"2\"", (Split::Allowed, Some(2))),
        ] {
            assert_eq!(split(text), Ok(read), "{text}");
        }
        let refused = split("0").unwrap_err();
        let words = "Never, Allowed, Preferred, or the most clusters it may be in is needed";
        assert!(
            refused.contains("split") && refused.ends_with(words),
            "{refused}"
        );
    }
}
