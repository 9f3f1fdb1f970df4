//! LeaderWorkerSets (leaderworkerset.x-k8s.io): groups of a leader and its workers, which serve together
//! (statements about its controller refer to lws v0.8).
//!
//! A group is whole: it starts with all of its pods, and a LeaderWorkerSet starts with one group, as a
//! Deployment starts with one pod. All groups are charged, and also those that a rolling update starts
//! beside them. It runs until it is deleted.

use super::{KnownKind, WorkloadKind, known};
use crate::error::SpecError;
use crate::field::Field;
use crate::outcome::{self, Outcome, PodCounts};
use crate::parts::Fields;
use crate::pod::PodRequirements;
use crate::size::{self, PriorityOf, Size};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The role of the leaders.
const LEADER: &str = "leader";
/// The role of all other pods.
const WORKER: &str = "worker";
/// The field with the templates of a group.
const GROUP: &str = "/spec/leaderWorkerTemplate";

/// LeaderWorkerSets.
pub(crate) struct LeaderWorkerSetKind;

impl WorkloadKind for LeaderWorkerSetKind {
    fn api(&self) -> KnownKind {
        known(
            "leaderworkerset.x-k8s.io",
            "v1",
            "LeaderWorkerSet",
            "leaderworkersets",
        )
    }

    fn size(&self, template: &Field<'_>, _: PriorityOf<'_>) -> Result<Size, SpecError> {
        size(template)
    }

    fn pod_templates<'a>(&self, template: &'a Value) -> Vec<&'a Value> {
        let group = template.pointer(GROUP);
        let of = |key| group.and_then(|group| group.get(key));
        of("leaderTemplate")
            .into_iter()
            .chain(of("workerTemplate"))
            .collect()
    }

    /// Without a template of their own, leaders have that of the workers.
    fn pod_specs<'a>(&self, spec: &'a mut Value) -> Vec<(String, &'a mut Value)> {
        let group = spec.get_mut("leaderWorkerTemplate");
        let group = group.and_then(Value::as_object_mut);
        let alone = group
            .as_ref()
            .is_some_and(|group| !has_leader(group) && group_size(group) < 2);
        let mut pods = Vec::new();
        for (field, value) in group.into_iter().flatten() {
            let role = match field.as_str() {
                "leaderTemplate" => LEADER,
                "workerTemplate" if alone => LEADER,
                "workerTemplate" => WORKER,
                _ => continue,
            };
            pods.extend(value.get_mut("spec").map(|spec| (role.to_owned(), spec)));
        }
        pods
    }

    /// It never finishes.
    fn part_outcome(&self, status: &Value) -> Outcome {
        outcome::active_if_reported(status)
    }

    /// It reports groups; the number of pods of each is `size`, which
    /// `deploy/interpreter-leaderworkerset.yaml` adds.
    fn counts(&self, status: &Value) -> PodCounts {
        let each = outcome::number(status, "size").max(1);
        let pods = |key| outcome::number(status, key).saturating_mul(each);
        let running = pods("readyReplicas");
        PodCounts {
            pending: pods("replicas").saturating_sub(running),
            running,
            ..PodCounts::default()
        }
    }

    /// The claims of its `volumeClaimTemplates`.
    fn own_claims<'a>(&self, template: &'a Value) -> Vec<&'a str> {
        let claims = template.pointer(&format!("{GROUP}/volumeClaimTemplates"));
        let claims = claims.and_then(Value::as_array).into_iter().flatten();
        claims
            .filter_map(|claim| claim.pointer("/metadata/name")?.as_str())
            .collect()
    }

    fn is_scaled_to_zero(&self, _: &Value) -> bool {
        true
    }

    /// The groups that have a leader and all of their workers, without any beside them.
    fn cap_to_admitted(
        &self,
        _: &Value,
        capped: &Value,
        admitted: &BTreeMap<String, u32>,
    ) -> Option<Fields> {
        let group = capped.pointer(GROUP)?;
        let workers = group_size(group.as_object()?).saturating_sub(1);
        let of = |role| u64::from(admitted.get(role).copied().unwrap_or(0));
        let groups = match workers {
            0 => of(LEADER),
            workers => of(LEADER).min(of(WORKER) / workers),
        };
        let mut fields = vec![
            ("/spec/replicas".to_owned(), json!(groups)),
            (GROUP.to_owned(), group.clone()),
        ];
        let update = "/spec/rolloutStrategy/rollingUpdateConfiguration";
        if let Some(Value::Object(update_fields)) = capped.pointer(update) {
            fields.push((update.to_owned(), without_surge(update_fields)));
        }
        Some(fields)
    }

    fn unsplittable(&self, template: &Value) -> Option<String> {
        let group = template.pointer(GROUP).and_then(Value::as_object);
        let size = group.map_or(1, group_size);
        Some(format!(
            "the pods of each group of a LeaderWorkerSet ({size}) belong together, and pods are divided one by one"
        ))
    }
}

/// Returns the update strategy without groups beside the others; one of them is then updated at a time.
fn without_surge(update: &Map<String, Value>) -> Value {
    let mut update = update.clone();
    update.insert("maxSurge".to_owned(), json!(0));
    if matches!(
        update
            .get("maxUnavailable")
            .map(|most| most == 0 || most == "0%"),
        None | Some(true)
    ) {
        update.insert("maxUnavailable".to_owned(), json!(1));
    }
    Value::Object(update)
}

/// Returns true if leaders have a template of their own.
fn has_leader(group: &Map<String, Value>) -> bool {
    group
        .get("leaderTemplate")
        .is_some_and(|leader| !leader.is_null())
}

/// Returns the pods of a group, its leader included.
fn group_size(group: &Map<String, Value>) -> u64 {
    group.get("size").and_then(Value::as_u64).unwrap_or(1)
}

/// Returns all groups, and those that a rolling update starts, as leaders and workers.
fn size(template: &Field<'_>) -> Result<Size, SpecError> {
    let spec = template.get("spec")?;
    let group = spec.get("leaderWorkerTemplate")?;
    let size = group.get("size")?;
    let pods = size.count()?.unwrap_or(1);
    let workers = pods
        .checked_sub(1)
        .ok_or_else(|| size.invalid("at least 1, the leader"))?;
    let replicas = spec.get("replicas")?.count()?.unwrap_or(1);
    let surge = surge(&spec, replicas)?;
    let least = least_groups(template, replicas, pods)?;
    let groups = replicas.saturating_add(surge);
    let worker = PodRequirements::read(&group.get("workerTemplate.spec")?)?;
    let own = group.get("leaderTemplate")?;
    let leader = match own.is_set() {
        true => PodRequirements::read(&own.get("spec")?)?,
        false => worker.clone(),
    };
    let priority_class = leader.priority_class.clone();
    let roles = vec![
        leader.role(LEADER, size::times(&spec, groups, 1)?, least)?,
        worker.role(
            WORKER,
            size::times(&spec, groups, workers)?,
            size::times(&spec, least, workers)?,
        )?,
    ];
    let min_available = size::times(&spec, least, pods)?;
    Ok(Size {
        priority_class,
        ..Size::gang(&spec, roles, min_available)?
    })
}

/// Returns the groups with which it may start: one, or as many as the annotation has pods for.
fn least_groups(template: &Field<'_>, replicas: u32, pods: u32) -> Result<u32, SpecError> {
    let all = size::times(&template.get("spec")?, replicas, pods)?;
    let Some(stated) = size::annotated_minimum(template, all)? else {
        return Ok(replicas.min(1));
    };
    if stated % pods == 0 {
        return Ok(stated / pods);
    }
    let annotation = template
        .get("metadata.annotations")?
        .entry(size::MIN_AVAILABLE)?;
    Err(annotation.invalid(format!("a multiple of {pods}, the pods of a group")))
}

/// Returns the groups beside its replicas during a rolling update: `maxSurge`, by default none; percentages
/// are rounded up, and there are no more than its replicas (`rollingUpdateParameters` in its controller).
fn surge(spec: &Field<'_>, replicas: u32) -> Result<u32, SpecError> {
    let field = spec.get("rolloutStrategy.rollingUpdateConfiguration.maxSurge")?;
    let surge = size::number_or_percent(&field, replicas, 0, "groups")?;
    Ok(surge.min(replicas))
}

#[cfg(test)]
mod tests;
