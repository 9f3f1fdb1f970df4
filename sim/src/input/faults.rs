//! Faults of nodes: a file in YAML, a rate, or both.

use super::amounts::{Text, millis};
use crate::error::{InputError, InputLocation, read};
use crate::faults::{FaultClassPlan, FaultKind, FaultPlan, PlannedFault, RepairTime};
use crate::scenario::Fleet;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The longest duration: a hundred years.
const LONGEST_MS: i64 = 100 * 365 * 86_400_000;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct FaultsFile {
    /// Faults per 1,000 nodes and day.
    rate: Option<Text>,
    /// The share of jobs that are hit by a fault, as `5%`.
    jobs_hit: Option<Text>,
    seed: Option<u64>,
    /// The time after which no random fault comes.
    until: Option<Text>,
    /// The time from a fault until the engine receives it, in both classes.
    detection: Option<Text>,
    /// The time from a fault until the node is as before, in both classes.
    repair: Option<Text>,
    classes: FaultClassesSpec,
    checkpoint_every: Option<Text>,
    restart: Option<Text>,
    recovery_deadline: Option<Text>,
    /// The time until a lost pod is replaced by its controller.
    replacement: Option<Text>,
    preemption_restarts: bool,
    /// Faults at given times.
    faults: Vec<PlannedFaultSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
struct FaultClassesSpec {
    node_lost: FaultClassSpec,
    device_fault: FaultClassSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FaultClassSpec {
    weight: Option<u32>,
    detection: Option<Text>,
    repair: Option<Text>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlannedFaultSpec {
    node: String,
    at: Text,
    /// How long the node is out of service.
    r#for: Text,
    class: Option<String>,
}

/// Reads faults: each of `given` is a file or a rate. A rate goes before that of the file.
///
/// # Errors
/// Returns the first invalid value.
pub fn read_faults(given: &[String], fleet: &Fleet) -> Result<Option<FaultPlan>, InputError> {
    let flag = InputLocation {
        file: "--faults",
        place: "command line".to_owned(),
    };
    let (mut file, mut rate) = (None, None);
    for value in given {
        let (known, what) = match value.parse::<f64>() {
            Ok(_) => (&mut rate, "at most one rate"),
            Err(_) => (&mut file, "at most one file, beside a rate,"),
        };
        if known.replace(value).is_some() {
            return Err(flag.refuse("--faults", value, &format!("{what} is needed")));
        }
    }
    let mut plan = match file {
        Some(path) => read_yaml(Path::new(path), fleet, rate.is_some())?,
        None if rate.is_none() => return Ok(None),
        None => FaultPlan::default(),
    };
    if let Some(rate) = rate {
        plan.rate_milli = rate_milli(&flag, rate)?;
    }
    Ok(Some(plan))
}

fn read_yaml(path: &Path, fleet: &Fleet, has_rate: bool) -> Result<FaultPlan, InputError> {
    let name = path.display().to_string();
    let text = read(path)?;
    let file: FaultsFile =
        serde_saphyr::from_str(&text).map_err(|error| InputError::Malformed {
            file: name.clone(),
            reason: error.to_string(),
        })?;
    let place = InputLocation {
        file: &name,
        place: "faults".to_owned(),
    };
    let has_faults = file.rate.is_some() || file.jobs_hit.is_some() || !file.faults.is_empty();
    if !has_faults && !has_rate {
        return Err(place.refuse("rate", "", "a rate, jobsHit or a list of faults is needed"));
    }
    file.plan(&place, fleet)
}

/// Parses faults per 1,000 nodes and day.
fn rate_milli(place: &InputLocation<'_>, text: &str) -> Result<u64, InputError> {
    let rate = text.trim().parse::<f64>().ok();
    match rate.filter(|rate| (0.0..=1e6).contains(rate)) {
        Some(rate) => Ok((rate * 1000.0).round() as u64),
        None => {
            let needed = "faults per 1,000 nodes and day, from 0 to 1000000, are needed";
            Err(place.refuse("rate", text, needed))
        }
    }
}

/// Parses a percentage to millionths.
fn share_ppm(place: &InputLocation<'_>, text: &str) -> Result<u64, InputError> {
    let percent = text.trim().strip_suffix('%');
    let percent = percent.and_then(|number| number.trim().parse::<f64>().ok());
    match percent.filter(|percent| (0.0..=100.0).contains(percent)) {
        Some(percent) => Ok((percent * 10_000.0).round() as u64),
        None => Err(place.refuse("jobsHit", text, "a share from 0% to 100% is needed")),
    }
}

/// Parses a duration with these bounds.
fn duration(
    place: &InputLocation<'_>,
    field: &str,
    text: &str,
    least: i64,
) -> Result<i64, InputError> {
    let millis = millis(place, field, text)?;
    if (least..=LONGEST_MS).contains(&millis) {
        return Ok(millis);
    }
    let needed = match least {
        0 => "0s or more, up to 100 years, is needed",
        _ => "more than 0s, up to 100 years, is needed",
    };
    Err(place.refuse(field, text, needed))
}

/// Parses `1h`, `30m-4h` or `mean 2h`.
fn repair(place: &InputLocation<'_>, text: &str) -> Result<RepairTime, InputError> {
    let needed = "a duration like 1h, a range like 30m-4h, or a mean like \"mean 2h\" is needed";
    let part = |text: &str| {
        let part = duration(place, "repair", text.trim(), 1);
        let part = part.map_err(|_| place.refuse("repair", text, needed))?;
        Ok(part.unsigned_abs())
    };
    if let Some(mean) = text.trim().strip_prefix("mean ") {
        return Ok(RepairTime::Exponential(part(mean)?));
    }
    let Some((least, most)) = text.split_once('-') else {
        return Ok(RepairTime::Fixed(part(text)?));
    };
    let (least, most) = (part(least)?, part(most)?);
    if least > most {
        return Err(place.refuse(
            "repair",
            text,
            "a range whose end is not before its begin is needed",
        ));
    }
    Ok(RepairTime::Uniform(least, most))
}

impl FaultsFile {
    fn plan(&self, place: &InputLocation<'_>, fleet: &Fleet) -> Result<FaultPlan, InputError> {
        let mut plan = FaultPlan::default();
        if let Some(rate) = &self.rate {
            plan.rate_milli = rate_milli(place, &rate.0)?;
        }
        if let Some(share) = &self.jobs_hit {
            plan.jobs_hit_ppm = share_ppm(place, &share.0)?;
        }
        plan.seed = self.seed.unwrap_or(plan.seed);
        let set = |field: &str, text: &Option<Text>, least: i64, to: &mut i64| {
            if let Some(text) = text {
                *to = duration(place, field, &text.0, least)?;
            }
            Ok(())
        };
        set("until", &self.until, 0, &mut plan.until_ms)?;
        set("restart", &self.restart, 0, &mut plan.restart_ms)?;
        set(
            "recoveryDeadline",
            &self.recovery_deadline,
            0,
            &mut plan.recovery_deadline_ms,
        )?;
        if let Some(every) = &self.checkpoint_every {
            plan.checkpoint_ms = Some(duration(place, "checkpointEvery", &every.0, 1)?);
        }
        if let Some(text) = &self.replacement {
            plan.replace_ms = Some(duration(place, "replacement", &text.0, 1)?);
        }
        plan.preemption_restarts = self.preemption_restarts;
        let both = FaultClassSpec {
            weight: None,
            detection: self.detection.clone(),
            repair: self.repair.clone(),
        };
        for (name, class, own) in [
            (
                "classes.nodeLost",
                &mut plan.node_lost,
                &self.classes.node_lost,
            ),
            (
                "classes.deviceFault",
                &mut plan.device_fault,
                &self.classes.device_fault,
            ),
        ] {
            let at = |part: &str| InputLocation {
                file: place.file,
                place: part.to_owned(),
            };
            both.apply(place, class)?;
            own.apply(&at(name), class)?;
        }
        if plan.node_lost.weight == 0 && plan.device_fault.weight == 0 {
            return Err(place.refuse("classes", "0 and 0", "a weight of 1 or more is needed"));
        }
        plan.planned = self.planned(place, fleet)?;
        Ok(plan)
    }

    fn planned(
        &self,
        place: &InputLocation<'_>,
        fleet: &Fleet,
    ) -> Result<Vec<PlannedFault>, InputError> {
        let mut planned = Vec::new();
        let mut spans = BTreeMap::<usize, Vec<(i64, i64)>>::new();
        for (index, spec) in self.faults.iter().enumerate() {
            let place = InputLocation {
                file: place.file,
                place: format!("faults[{index}]"),
            };
            let fault = spec.planned(&place, fleet)?;
            let end = fault.at_ms + fault.for_ms;
            let known = spans.entry(fault.node).or_default();
            if known
                .iter()
                .any(|(from, to)| fault.at_ms < *to && *from < end)
            {
                let needed = "a time at which no other fault has the node out of service is needed";
                return Err(place.refuse("at", &spec.at.0, needed));
            }
            known.push((fault.at_ms, end));
            planned.push(fault);
        }
        Ok(planned)
    }
}

impl FaultClassSpec {
    fn apply(
        &self,
        place: &InputLocation<'_>,
        class: &mut FaultClassPlan,
    ) -> Result<(), InputError> {
        class.weight = self.weight.unwrap_or(class.weight);
        if let Some(text) = &self.detection {
            class.detection_ms = duration(place, "detection", &text.0, 0)?;
        }
        if let Some(text) = &self.repair {
            class.repair = repair(place, &text.0)?;
        }
        Ok(())
    }
}

impl PlannedFaultSpec {
    fn planned(
        &self,
        place: &InputLocation<'_>,
        fleet: &Fleet,
    ) -> Result<PlannedFault, InputError> {
        let named = |node: &engine::facts::NodeFact| match self.node.split_once('/') {
            Some((cluster, name)) => node.cluster.as_str() == cluster && node.name.as_str() == name,
            None => node.name.as_str() == self.node,
        };
        let nodes = fleet.nodes.iter().zip(0..);
        let mut found = nodes
            .filter(|(node, _)| named(node))
            .map(|(_, index)| index);
        let (Some(node), None) = (found.next(), found.next()) else {
            let needed = "one node of the fleet, as its name or CLUSTER/NAME, is needed";
            return Err(place.refuse("node", &self.node, needed));
        };
        let class = match self.class.as_deref() {
            None | Some("nodeLost") => FaultKind::NodeLost,
            Some("deviceFault") => FaultKind::DeviceFault,
            Some(other) => {
                return Err(place.refuse("class", other, "nodeLost or deviceFault is needed"));
            }
        };
        Ok(PlannedFault {
            at_ms: duration(place, "at", &self.at.0, 0)?,
            node,
            for_ms: duration(place, "for", &self.r#for.0, 1)?,
            class,
        })
    }
}
