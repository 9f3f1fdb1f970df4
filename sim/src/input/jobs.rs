//! Jobs, from YAML, from a simple table, or from the public traces of Philly, openb and Tiresias.

use super::amounts::{GPU, ResourceShorthand, Text, millis};
use super::fleet::{MODEL_LABEL, OPENB_GPU};
use super::jobs_yaml::read_yaml;
use super::table::{CsvRow, CsvTable};
use super::{ONE_QUEUE, Read, is_csv, plain};
use crate::error::InputError;
use crate::scenario::{Fleet, SimJob};
use engine::facts::Role;
use engine::matching::{NodeTerm, Operator, Requirement};
use engine::resources::ResourceName;
use engine::{Amount, Resources, Time};
use std::collections::BTreeSet;
use std::path::Path;

/// GPUs of the nodes in the Philly and Tiresias traces; larger jobs are gangs of whole nodes.
const NODE_GPUS: u32 = 8;
/// Reads jobs.
///
/// Jobs of the Philly trace whose virtual cluster has no nodes in `fleet` are left out, as in the
/// published results.
///
/// # Errors
/// Returns the first invalid value.
pub fn read_jobs(path: &Path, fleet: &Fleet) -> Result<Read<Vec<SimJob>>, InputError> {
    if !is_csv(path) {
        let what = read_yaml(path)?;
        return Ok(Read {
            what,
            notes: Vec::new(),
        });
    }
    let table = CsvTable::read(path)?;
    if table.has(&["timestamp", "duration", "num_gpus", "cluster"]) {
        philly(&table, fleet)
    } else if table.has(&["cpu_milli", "num_gpu", "gpu_milli", "gpu_spec"]) {
        openb(&table)
    } else if table.has(&["job_id", "num_gpu", "submit_time", "duration"]) {
        tiresias(&table)
    } else if table.has(&["at", "run"]) {
        simple(&table)
    } else {
        Err(table.unknown_form(
            "timestamp,duration,num_gpus,cluster (Philly); \
             name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,… (openb); \
             job_id,num_gpu,submit_time,duration (Tiresias); \
             at,run with any of name,queue,user,pods,gpus,cpu,memory,priority",
        ))
    }
}

/// Reads the Philly trace; each virtual cluster is a queue.
fn philly(table: &CsvTable, fleet: &Fleet) -> Result<Read<Vec<SimJob>>, InputError> {
    let known: BTreeSet<&str> = fleet.clusters.iter().map(|c| c.name.as_str()).collect();
    let is_philly = table.rows().any(|row| known.contains(row.text("cluster")));
    let mut read = Read::<Vec<SimJob>>::default();
    let (mut without_gpus, mut homeless) = (0, 0);
    for (index, row) in table.rows().enumerate() {
        let gpus: u32 = row.whole("num_gpus")?;
        let queue = row.text("cluster");
        if gpus == 0 {
            without_gpus += 1;
        } else if is_philly && !known.contains(queue) {
            homeless += 1;
        } else {
            let needed = "a time like 2017-10-09 07:01:55 is needed";
            let text = row.text("timestamp");
            let at = text
                .parse::<jiff::civil::DateTime>()
                .ok()
                .and_then(|at| at.to_zoned(jiff::tz::TimeZone::UTC).ok())
                .ok_or_else(|| row.place.refuse("timestamp", text, needed))?;
            let demand = plain::gang(whole_nodes(gpus));
            let name = format!("philly-{index}");
            let mut job = plain::job(&name, queue, Time(at.timestamp().as_millisecond()), demand);
            job.run_ms = row.seconds("duration")?;
            read.what.push(job);
        }
    }
    note(&mut read.notes, without_gpus, "ask for no GPU");
    note(
        &mut read.notes,
        homeless,
        "name a virtual cluster that the fleet has no nodes of",
    );
    Ok(read)
}

fn note(notes: &mut Vec<String>, count: u32, why: &str) {
    if count > 0 {
        notes.push(format!("{count} jobs were left out: they {why}"));
    }
}

/// Splits GPUs into pods of whole nodes, and one pod for the remainder.
fn whole_nodes(gpus: u32) -> Vec<Role> {
    let of = |gpus: u32| Resources::from_iter([(ResourceName::new(GPU), Amount(i64::from(gpus)))]);
    let (nodes, left) = (gpus / NODE_GPUS, gpus % NODE_GPUS);
    let whole = (nodes > 0).then(|| plain::role("worker", nodes, of(NODE_GPUS)));
    let rest = (left > 0).then(|| plain::role("rest", 1, of(left)));
    whole.into_iter().chain(rest).collect()
}

/// Reads the openb trace: all jobs in one queue, one pod per task.
fn openb(table: &CsvTable) -> Result<Read<Vec<SimJob>>, InputError> {
    let mut read = Read::<Vec<SimJob>>::default();
    for row in table.rows() {
        let gpus: i64 = row.whole("num_gpu")?;
        let milli: i64 = row.whole("gpu_milli")?;
        let mut request = Resources::from_iter([
            (
                ResourceName::new(ResourceName::CPU),
                Amount(row.whole("cpu_milli")?),
            ),
            (
                ResourceName::new(ResourceName::MEMORY),
                Amount(row.whole::<i64>("memory_mib")? << 20),
            ),
        ]);
        if gpus * milli > 0 {
            request.set(ResourceName::new(OPENB_GPU), Amount(gpus * milli));
        }
        let mut pod = plain::role("task", 1, request);
        let models: Vec<String> = row.text("gpu_spec").split('|').map(str::to_owned).collect();
        if models.iter().any(|model| !model.is_empty()) {
            pod.node_terms = vec![NodeTerm {
                labels: vec![Requirement {
                    key: MODEL_LABEL.to_owned(),
                    operator: Operator::In,
                    values: models,
                }],
                fields: Vec::new(),
            }];
        }
        let (created, deleted) = (row.seconds("creation_time")?, row.seconds("deletion_time")?);
        let mut job = plain::job(
            row.text("name"),
            ONE_QUEUE,
            Time(created),
            plain::gang(vec![pod]),
        );
        row.text("qos").clone_into(&mut job.fact.user);
        job.run_ms = (deleted - created).max(0);
        read.what.push(job);
    }
    Ok(read)
}

fn tiresias(table: &CsvTable) -> Result<Read<Vec<SimJob>>, InputError> {
    let mut read = Read::<Vec<SimJob>>::default();
    for row in table.rows() {
        let gpus: u32 = row.whole("num_gpu")?;
        if gpus == 0 {
            return Err(row.place.refuse("num_gpu", "0", "1 or more is needed"));
        }
        let name = format!("tiresias-{}", row.text("job_id"));
        let at = Time(row.seconds("submit_time")?);
        let mut job = plain::job(&name, ONE_QUEUE, at, plain::gang(whole_nodes(gpus)));
        row.text("model_name").clone_into(&mut job.fact.user);
        job.run_ms = row.seconds("duration")?;
        read.what.push(job);
    }
    Ok(read)
}

/// Reads the simple table, with columns `at` and `run` and any of the optional ones.
fn simple(table: &CsvTable) -> Result<Read<Vec<SimJob>>, InputError> {
    let mut read = Read::<Vec<SimJob>>::default();
    for (index, row) in table.rows().enumerate() {
        let name = or_else(row.text("name"), || format!("job-{}", index + 1));
        let queue = or_else(row.text("queue"), || ONE_QUEUE.to_owned());
        let at = Time(millis(&row.place, "at", row.text("at"))?);
        let mut job = plain::job(&name, &queue, at, plain::gang(vec![simple_pods(&row)?]));
        job.run_ms = millis(&row.place, "run", row.text("run"))?;
        row.text("user").clone_into(&mut job.fact.user);
        let class = row.text("priority");
        job.fact.priority_class = (!class.is_empty()).then(|| class.to_owned());
        read.what.push(job);
    }
    Ok(read)
}

fn simple_pods(row: &CsvRow<'_>) -> Result<Role, InputError> {
    let number = |column: &str, default: u32| match row.text(column) {
        "" => Ok(default),
        _ => row.whole(column),
    };
    let text = |column: &str| {
        let text = row.text(column);
        (!text.is_empty()).then(|| Text(text.to_owned()))
    };
    let (cpu, memory) = (text("cpu"), text("memory"));
    let shape = ResourceShorthand {
        gpus: Some(number("gpus", 0)?),
        cpu: cpu.as_ref(),
        memory: memory.as_ref(),
        resources: None,
    };
    let pods = number("pods", 1)?;
    if pods == 0 {
        return Err(row.place.refuse("pods", "0", "1 or more is needed"));
    }
    Ok(plain::role("worker", pods, shape.read(&row.place, 1)?))
}

fn or_else(text: &str, other: impl FnOnce() -> String) -> String {
    if text.is_empty() {
        other()
    } else {
        text.to_owned()
    }
}
