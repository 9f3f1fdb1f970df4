//! What parts of Kubeflow's jobs have in common.
//!
//! training-operator sets each pod's place in its own cluster after everything in the template (v1.9: of
//! two variables with one name the last one counts). So a shell sets the values for the whole gang, after
//! which nothing follows, and then executes the container's own command.

use crate::apportion::apportion;
use crate::parts::{Environment, Fields, Gang, add_environment};
use serde_json::{Map, Value, json};

/// What differs between frameworks.
pub(super) struct Framework {
    /// The field of the spec with its groups of pods.
    pub(super) groups: &'static str,
    /// The container that the operator uses.
    pub(super) container: &'static str,
    /// The port that it uses there, and the one that it adds if there is none.
    pub(super) port: (&'static str, u64),
    /// The script of the shell.
    pub(super) script: &'static str,
    /// Variables that differ from the operator's values, or that the operator does not set.
    pub(super) overridden: &'static [&'static str],
}

const MIN_AVAILABLE: &str = "/spec/runPolicy/schedulingPolicy/minAvailable";
const MIN_RESOURCES: &str = "/spec/runPolicy/schedulingPolicy/minResources";
/// The label in which the operator writes a pod's index within its group.
const INDEX_LABEL: &str = "training.kubeflow.org/replica-index";

/// Returns its groups of pods, each led by the framework's script. `told` returns what the script needs in
/// the pods of a group, besides their index.
pub(super) fn fields(
    framework: &Framework,
    template: &Value,
    gang: &Gang<'_>,
    index: usize,
    told: impl Fn(&str) -> Environment,
) -> Fields {
    groups(framework.groups, template, gang, index, |name, pods| {
        framework.lead(pods);
        let mut told = told(name);
        told.push(("MUSTER_REPLICA_INDEX", own_index()));
        told
    })
}

/// Returns the `field` with its groups of pods, with the replicas of the cluster at `index`; a group
/// without replicas is left out. With several clusters, `place` changes the pods of a group and returns
/// what they receive.
pub(super) fn groups(
    field: &str,
    template: &Value,
    gang: &Gang<'_>,
    index: usize,
    place: impl Fn(&str, &mut Map<String, Value>) -> Environment,
) -> Fields {
    let path = format!("/spec/{field}");
    let groups = template.pointer(&path);
    let mut own = Map::new();
    for (key, group) in groups.and_then(Value::as_object).into_iter().flatten() {
        let name = key.to_lowercase();
        let each = gang.per_cluster(&name);
        let (count, Some(group)) = (each[index], group.as_object()) else {
            continue;
        };
        if count == 0 {
            continue;
        }
        let mut group = group.clone();
        group.insert("replicas".to_owned(), count.into());
        if let Some(pods) = group.get_mut("template").and_then(Value::as_object_mut) {
            let mut environment = gang.environment(index, gang.rank_offset(&name, &each, index));
            if gang.shares.len() > 1 {
                environment.extend(place(&name, pods));
            }
            add_environment(pods, &environment);
            gang.label(index, pods);
        }
        own.insert(key.clone(), Value::Object(group));
    }
    let mut fields = vec![(path, Value::Object(own))];
    let stated = template.pointer(MIN_AVAILABLE).and_then(Value::as_u64);
    if let Some(stated) = stated {
        let all = gang.replicas();
        let minimum = apportion(stated, &all)[index].max(1);
        fields.push((MIN_AVAILABLE.to_owned(), minimum.into()));
    }
    fields
}

/// Returns where a pod finds its index within its group.
pub(super) fn own_index() -> Value {
    json!({"fieldRef": {"fieldPath": format!("metadata.labels['{INDEX_LABEL}']")}})
}

impl Framework {
    /// Returns the port of the pods of a group.
    pub(super) fn port(&self, template: &Value, name: &str) -> u64 {
        let (port_name, default) = self.port;
        let group = self.group(template, name);
        let container =
            group.and_then(|group| containers(group).find(|c| c["name"] == self.container));
        let ports = container.and_then(|container| container.get("ports")?.as_array());
        let mut ports = ports.into_iter().flatten();
        let port = ports.find(|port| port["name"] == port_name);
        port.and_then(|port| port.get("containerPort")?.as_u64())
            .unwrap_or(default)
    }

    /// Returns the group of this name, whatever its case in the template.
    pub(super) fn group<'a>(&self, template: &'a Value, name: &str) -> Option<&'a Value> {
        let groups = template.get("spec")?.get(self.groups)?.as_object()?;
        let mut groups = groups.iter();
        groups
            .find(|(key, _)| key.to_lowercase() == name)
            .map(|(_, group)| group)
    }

    /// Makes the shell run first in the container that trains.
    fn lead(&self, pods: &mut Map<String, Value>) {
        let containers = pods
            .get_mut("spec")
            .and_then(|spec| spec.get_mut("containers"))
            .and_then(Value::as_array_mut);
        let mut containers = containers.into_iter().flatten();
        if let Some(container) = containers.find(|container| container["name"] == self.container) {
            put_first(container, self.script);
        }
    }

    /// Returns why a job of any framework cannot be split.
    pub(super) fn unsplittable(&self, template: &Value) -> Option<String> {
        if let Some(why) = of_the_whole(template) {
            return Some(why);
        }
        let groups = template.get("spec")?.get(self.groups)?.as_object()?;
        groups
            .iter()
            .find_map(|(key, group)| self.cannot_lead(key, group))
    }

    /// Returns why the shell cannot run first in the pods of a group.
    fn cannot_lead(&self, key: &str, group: &Value) -> Option<String> {
        let Self {
            groups,
            container: name,
            overridden,
            ..
        } = self;
        let container = containers(group).find(|container| container["name"] == *name)?;
        let path = format!("spec.{groups}[{key}] container {name}");
        cannot_be_led(container, &path, overridden)
    }
}

/// Makes the shell of a `script` run first in a container.
pub(super) fn put_first(container: &mut Value, script: &str) {
    if let Some(Value::Array(command)) = container.get_mut("command") {
        let shell = ["/bin/sh", "-c", script, "muster"].map(|word| json!(word));
        command.splice(0..0, shell);
    }
}

/// Returns why no shell can run first in the container at `path`; the shell sets the variables in `retold`.
pub(super) fn cannot_be_led(container: &Value, path: &str, overridden: &[&str]) -> Option<String> {
    if words(container, "command").next().is_none() {
        return Some(format!(
            "{path} has no command: a shell that sets the values for all clusters has to start it, and the command of its image is unknown"
        ));
    }
    let mut all = words(container, "command").chain(words(container, "args"));
    let overridden = all.find_map(|word| {
        let mut named = overridden.iter();
        named.find(|name| word.contains(&format!("$({name})")))
    })?;
    Some(format!(
        "{path} uses $({overridden}), which Kubernetes expands before the value for all clusters is set; let it read the variable {overridden} itself"
    ))
}

/// Returns a field, common to all its kinds, that no cluster can handle for the others.
pub(super) fn of_the_whole(template: &Value) -> Option<String> {
    let set = |path| template.pointer(path).is_some_and(|value| !value.is_null());
    set(MIN_RESOURCES)
        .then(|| "spec.runPolicy.schedulingPolicy.minResources is of the whole job".to_owned())
}

/// Returns the strings of a container's `command` or `args`.
pub(super) fn words<'a>(container: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    let words = container.get(field).and_then(Value::as_array);
    words.into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn containers(group: &Value) -> impl Iterator<Item = &Value> {
    let containers = group.pointer("/template/spec/containers");
    containers.and_then(Value::as_array).into_iter().flatten()
}
