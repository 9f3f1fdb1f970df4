//! Caps the requests of pods to what was admitted.
//!
//! Only the sum that a pod of each role was admitted with is known, so an excess is removed from the
//! containers that request it: sidecars keep their requests first, then containers in order. Nothing else
//! of the template changes. Devices that pods claim are in other objects and do not change.

use crate::field::Field;
use crate::pod::{self, PodRequirements};
use crate::pod_shape::AddedInit;
use crate::pod_specs;
use crate::spec::read_spec;
use facts::{Amount, ResourceName, Resources};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The requests that one pod of each role was admitted with.
pub type AdmittedRequests = BTreeMap<String, Resources>;

/// Returns how one pod of a role requests more than it was admitted with: the resource, the old and the new
/// amount, as text; empty if none does. Roles that are not in `admitted` are skipped.
#[must_use]
pub fn raised_requests(roles: &[facts::Role], admitted: &AdmittedRequests) -> Vec<String> {
    let mut raised = Vec::new();
    for role in roles.iter().filter(|role| role.count > 0) {
        let Some(before) = admitted.get(&role.name) else {
            continue;
        };
        for (name, to) in role.request.iter() {
            let from = before.amount_of(name);
            if to > from {
                let [from, to] = [from, to].map(|amount| name.format(amount));
                raised.push(format!(
                    "{name} of each pod of {} {from} -> {to}",
                    role.name
                ));
            }
        }
    }
    raised
}

/// Returns `template` in which no pod requests more than a pod of its role was admitted with. A template
/// that cannot be read does not change: members cannot read it either.
#[must_use]
pub fn cap_requests(template: &Value, admitted: &AdmittedRequests) -> Value {
    let Ok(whole) = read_spec(template) else {
        return template.clone();
    };
    let added_init = AddedInit::of(template);
    let mut capped = template.clone();
    for (role, spec) in pod_specs::of(&mut capped) {
        let asked = whole.roles.iter().find(|asked| asked.name == role);
        let (Some(most), Some(asked)) = (admitted.get(&role), asked) else {
            continue;
        };
        let init = added_init.as_ref().and_then(|added| added.in_role(&role));
        let read = |init| PodRequirements::read_with(&Field::root(spec), init);
        let (Ok(own), Ok(with_init)) = (read(None), read(init)) else {
            continue;
        };
        for (name, amount) in own.request.iter() {
            // Containers that the operator adds beside these are part of the charge; an init container needs nothing
            // besides them.
            let added = asked.request.amount_of(name).0 - with_init.request.amount_of(name).0;
            let most = Amount((most.amount_of(name).0 - added.max(0)).max(0));
            if amount > most && name.as_str() != ResourceName::PODS {
                cap(spec, name, most);
            }
        }
    }
    capped
}

/// Lowers a pod's request of a resource to `most`.
fn cap(spec: &mut Value, name: &ResourceName, most: Amount) {
    let mut left = Left(most);
    // Overhead is needed in addition to all containers, all the time.
    if let Some(overhead) = spec.get_mut("overhead").and_then(Value::as_object_mut) {
        let own = overhead
            .get(name.as_str())
            .and_then(|own| amount(name, own));
        if let Some(own) = own {
            put(overhead, name, left.take(own));
        }
    }
    if let Some(resources) = spec.get_mut("resources") {
        for part in ["requests", "limits"] {
            lower(resources, part, name, left.0);
        }
    }
    let is_sidecar = |container: &Value| container["restartPolicy"] == "Always";
    for sidecar in containers(spec, "initContainers").filter(|container| is_sidecar(container)) {
        let own = requested(sidecar, name);
        hold(sidecar, name, left.take(own));
    }
    let starting = left.0;
    for container in containers(spec, "containers") {
        let own = requested(container, name);
        hold(container, name, left.take(own));
    }
    for container in containers(spec, "initContainers").filter(|container| !is_sidecar(container)) {
        let own = requested(container, name);
        hold(container, name, own.min(starting));
    }
}

/// The amount that the pod may still request.
struct Left(Amount);

impl Left {
    /// Takes up to `own` from what is left.
    fn take(&mut self, own: Amount) -> Amount {
        let kept = own.min(self.0);
        self.0 = Amount(self.0.0 - kept.0);
        kept
    }
}

fn containers<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = spec.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

fn requested(container: &Value, name: &ResourceName) -> Amount {
    let request = pod::container_request(&Field::root(container));
    request.map_or(Amount::ZERO, |request| request.amount_of(name))
}

/// Lowers a container's request of a resource to `most`. Only a resource that may be overcommitted keeps a
/// limit above its request.
fn hold(container: &mut Value, name: &ResourceName, most: Amount) {
    if requested(container, name) <= most {
        return;
    }
    let resources = &mut container["resources"];
    let overcommits = matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY)
        || name.as_str() == "ephemeral-storage";
    if overcommits {
        if !resources["requests"].is_object() {
            resources["requests"] = json!({});
        }
        if let Some(requests) = resources["requests"].as_object_mut() {
            requests.insert(name.to_string(), name.format(most).into());
        }
    } else {
        lower(resources, "requests", name, most);
        lower(resources, "limits", name, most);
    }
}

/// Lowers one amount if it is set.
fn lower(resources: &mut Value, part: &str, name: &ResourceName, most: Amount) {
    let Some(list) = resources.get_mut(part).and_then(Value::as_object_mut) else {
        return;
    };
    let own = list.get(name.as_str()).and_then(|own| amount(name, own));
    if own.is_some_and(|own| own > most) {
        put(list, name, most);
    }
}

fn put(list: &mut Map<String, Value>, name: &ResourceName, amount: Amount) {
    list.insert(name.to_string(), name.format(amount).into());
}

fn amount(name: &ResourceName, value: &Value) -> Option<Amount> {
    let number = || value.is_number().then(|| value.to_string());
    let text = value.as_str().map(str::to_owned).or_else(number)?;
    name.amount(&text).ok()
}

#[cfg(test)]
mod tests;
