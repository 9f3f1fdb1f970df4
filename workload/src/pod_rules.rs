//! How the pods of a job have to stand to each other on nodes, from its pod templates: required affinity and
//! anti-affinity between pods, topology spread constraints with `DoNotSchedule`, and ports of the host.
//!
//! Selectors are evaluated against the labels that the pods of the same job will have. What a selector says of pods
//! of other jobs is not known here: such a term keeps no cluster out, and [`uncounted`] names it.

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds;
use crate::nodes;
use facts::Role;
use facts::matching::{Operator, Requirement};
use facts::pod_rules::{NodeDomain, PodRule, PodRuleKind};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The fields with such rules. A pod template without any of them is not read further.
const FIELDS: [&str; 3] = [
    "/spec/affinity/podAffinity",
    "/spec/affinity/podAntiAffinity",
    "/spec/topologySpreadConstraints",
];

/// Labels whose value differs from pod to pod of a role.
const LABELS_OF_ONE_POD: [&str; 4] = [
    "apps.kubernetes.io/pod-index",
    "statefulset.kubernetes.io/pod-name",
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
];

/// The pods of one role.
struct PodsOfRole<'a> {
    role: String,
    template: &'a Value,
    labels: BTreeMap<String, String>,
}

/// What is read of a template.
#[derive(Default)]
struct RulesRead {
    /// By role and domain: the roles whose pods must not be there.
    apart: BTreeMap<(String, NodeDomain), BTreeSet<String>>,
    /// By role.
    others: BTreeMap<String, BTreeSet<PodRule>>,
    uncounted: Vec<String>,
}

/// A term that selects pods: a required affinity term, or a spread constraint.
#[derive(PartialEq, Eq)]
struct PodTerm {
    domain: NodeDomain,
    /// The roles of the job that it selects.
    roles: BTreeSet<String>,
    /// True if it may select pods of other jobs only.
    selects_others: bool,
}

/// Sets the rules of `roles` from the pod templates of `template`. The last `surge` pods of the first role start only
/// in a rolling update, and keep no rules.
///
/// # Errors
/// Returns an error if a field has an invalid value.
pub(crate) fn set(template: &Value, roles: &mut [Role], surge: u32) -> Result<(), SpecError> {
    let mut found = read(template, roles)?;
    for role in roles.iter_mut() {
        let of_role = found
            .apart
            .iter()
            .filter(|((name, _), _)| *name == role.name);
        let apart = of_role.map(|((_, domain), roles)| PodRule {
            domain: domain.clone(),
            roles: roles.clone(),
            kind: PodRuleKind::Apart,
        });
        role.rules = apart.collect();
        role.rules
            .extend(found.others.remove(&role.name).into_iter().flatten());
    }
    if let Some(first) = roles.first_mut().filter(|role| !role.rules.is_empty()) {
        first.unruled = surge;
    }
    Ok(())
}

/// Returns the terms of the pods of `template` that depend on pods of other jobs, in words.
pub(crate) fn uncounted(template: &Value) -> Vec<String> {
    let read = || {
        let spec = crate::spec::read_spec(template).ok()?;
        read(template, &spec.roles).ok()
    };
    read().map(|found| found.uncounted).unwrap_or_default()
}

fn read(template: &Value, roles: &[Role]) -> Result<RulesRead, SpecError> {
    let mut found = RulesRead::default();
    let mut near = Vec::new();
    let pods = pods_of_roles(template, roles);
    let namespace = template
        .pointer("/metadata/namespace")
        .and_then(Value::as_str);
    for own in &pods {
        let spec = Field::at(&format!("{}: spec", own.role), &own.template["spec"]);
        let affinity = spec.get("affinity")?;
        let required = |kind: &str| {
            let terms = affinity.get(kind)?;
            terms
                .get("requiredDuringSchedulingIgnoredDuringExecution")?
                .items()
        };
        for term in required("podAntiAffinity")? {
            let read = pod_term(&term, own, &pods, namespace)?;
            found.note_uncounted(&term, &read);
            for other in &read.roles {
                found.keep_apart(&own.role, other, &read.domain);
            }
        }
        for term in required("podAffinity")? {
            let read = pod_term(&term, own, &pods, namespace)?;
            found.note_uncounted(&term, &read);
            if !read.roles.is_empty() {
                near.push((term.path().to_owned(), own.role.clone(), read));
            }
        }
        for term in spec.get("topologySpreadConstraints")?.items()? {
            if term.get("whenUnsatisfiable")?.text()? == Some("DoNotSchedule") {
                let read = pod_term(&term, own, &pods, namespace)?;
                found.note_uncounted(&term, &read);
                found.spread(&term, own, read)?;
            }
        }
    }
    for (path, own, read) in &near {
        let same = |role: &String| {
            let mut near = near.iter();
            near.any(|(_, of, other)| of == role && other == read)
        };
        let all = read.roles.contains(own) && read.roles.iter().all(same);
        found.keep_together(path, own, read, all, roles);
    }
    let ports = pods
        .iter()
        .map(|own| host_ports(own.template))
        .collect::<Vec<_>>();
    for (own, mine) in pods.iter().zip(&ports) {
        for (other, theirs) in pods.iter().zip(&ports) {
            if mine
                .iter()
                .any(|one| theirs.iter().any(|other| one.conflicts(other)))
            {
                found.keep_apart(&own.role, &other.role, &NodeDomain::Node);
            }
        }
    }
    Ok(found)
}

impl RulesRead {
    /// A rule against pods of a role holds for those pods too, whichever starts first.
    fn keep_apart(&mut self, one: &str, other: &str, domain: &NodeDomain) {
        for (one, other) in [(one, other), (other, one)] {
            let roles = self
                .apart
                .entry((one.to_owned(), domain.clone()))
                .or_default();
            roles.insert(other.to_owned());
        }
    }

    /// Pods that all select each other are in one domain, and so are those that select a single pod. Pods that
    /// select several pods of other roles may follow any of them, which is not counted.
    fn keep_together(&mut self, path: &str, own: &str, read: &PodTerm, all: bool, roles: &[Role]) {
        let selected = roles.iter().filter(|role| read.roles.contains(&role.name));
        let pods: u64 = selected.map(|role| u64::from(role.count)).sum();
        if !all && pods > 1 {
            self.uncounted
                .push(format!("{path}: selects several pods of other roles"));
            return;
        }
        let mut group = read.roles.clone();
        group.insert(own.to_owned());
        for role in &group {
            let rule = PodRule {
                domain: read.domain.clone(),
                roles: group.clone(),
                kind: PodRuleKind::Together,
            };
            self.others.entry(role.clone()).or_default().insert(rule);
        }
    }

    fn spread(
        &mut self,
        term: &Field<'_>,
        own: &PodsOfRole<'_>,
        read: PodTerm,
    ) -> Result<(), SpecError> {
        if read.roles.is_empty() {
            return Ok(());
        }
        let policy = |field: &str| Ok(term.get(field)?.text()?.map(|policy| policy == "Honor"));
        let rule = PodRule {
            domain: read.domain,
            roles: read.roles,
            kind: PodRuleKind::Spread {
                max_skew: term.get("maxSkew")?.count()?.unwrap_or(1),
                min_domains: term.get("minDomains")?.count()?.unwrap_or(1),
                by_terms: policy("nodeAffinityPolicy")?.unwrap_or(true),
                by_taints: policy("nodeTaintsPolicy")?.unwrap_or(false),
            },
        };
        self.others
            .entry(own.role.clone())
            .or_default()
            .insert(rule);
        Ok(())
    }

    fn note_uncounted(&mut self, term: &Field<'_>, read: &PodTerm) {
        if read.selects_others {
            self.uncounted
                .push(format!("{}: selects pods of other jobs", term.path()));
        }
    }
}

/// Reads the pods that a term selects.
fn pod_term(
    term: &Field<'_>,
    own: &PodsOfRole<'_>,
    pods: &[PodsOfRole<'_>],
    namespace: Option<&str>,
) -> Result<PodTerm, SpecError> {
    let key = term.get("topologyKey")?;
    let domain = key
        .name()?
        .ok_or_else(|| key.invalid("the label of nodes that form a domain"))?;
    let mut selects = requirements(&term.get("labelSelector")?)?;
    let texts = |field: &str| {
        let items = term.get(field)?.items()?;
        let texts = items
            .iter()
            .map(|item| Ok(item.text()?.unwrap_or_default().to_owned()));
        texts.collect::<Result<Vec<String>, SpecError>>()
    };
    let mut only_itself = false;
    for (field, operator) in [
        ("matchLabelKeys", Operator::In),
        ("mismatchLabelKeys", Operator::NotIn),
    ] {
        for key in texts(field)? {
            only_itself |= operator == Operator::In && LABELS_OF_ONE_POD.contains(&key.as_str());
            // A key that the pod does not have is ignored.
            if let (Some(value), Some(selects)) = (own.labels.get(&key), &mut selects) {
                let values = vec![value.clone()];
                selects.push(Requirement {
                    key,
                    operator,
                    values,
                });
            }
        }
    }
    let namespaces = texts("namespaces")?;
    let by_label = term.get("namespaceSelector")?;
    let named = namespaces
        .iter()
        .any(|name| Some(name.as_str()) == namespace);
    let everywhere = requirements(&by_label)?.is_some_and(|all| all.is_empty());
    let in_own = named || everywhere || (namespaces.is_empty() && !by_label.is_set());
    let selected = |pods: &&PodsOfRole<'_>| {
        let selects = selects.as_ref().filter(|_| in_own && !only_itself);
        selects.is_some_and(|all| {
            let mut all = all.iter();
            all.all(|one| one.matches(pods.labels.get(&one.key).map(String::as_str)))
        })
    };
    let roles: BTreeSet<String> = pods
        .iter()
        .filter(selected)
        .map(|pods| pods.role.clone())
        .collect();
    Ok(PodTerm {
        domain: NodeDomain::Label(domain.to_owned()),
        selects_others: roles.is_empty() && selects.is_some() && !only_itself,
        roles,
    })
}

/// Reads a label selector; `None` if there is none, which selects nothing.
fn requirements(selector: &Field<'_>) -> Result<Option<Vec<Requirement>>, SpecError> {
    if !selector.is_set() {
        return Ok(None);
    }
    let mut all = nodes::requirements(&selector.get("matchExpressions")?)?;
    for (key, value) in selector.get("matchLabels")?.entries()? {
        all.push(Requirement {
            key: key.to_owned(),
            operator: Operator::In,
            values: vec![value.text()?.unwrap_or_default().to_owned()],
        });
    }
    Ok(Some(all))
}

/// Returns the pods of each role, with the labels that they will have; none if no pod template has such rules.
fn pods_of_roles<'a>(template: &'a Value, roles: &[Role]) -> Vec<PodsOfRole<'a>> {
    let Some(kind) = kinds::of_template(template) else {
        return Vec::new();
    };
    let templates = kind.pod_templates(template);
    if !templates.iter().any(|pods| has_rules(pods)) {
        return Vec::new();
    }
    let mut spec = template.get("spec").cloned().unwrap_or_default();
    let specs = kind.pod_specs(&mut spec);
    let specs: Vec<(String, &Value)> = specs
        .into_iter()
        .map(|(role, spec)| (role, &*spec))
        .collect();
    let mut left = templates.clone();
    let mut of_roles = BTreeMap::new();
    for (role, spec) in specs {
        let same = left.iter().position(|pods| pods.get("spec") == Some(spec));
        if let Some(index) = same {
            of_roles.insert(role, left.remove(index));
        }
    }
    let pods = roles.iter().filter_map(|role| {
        // A role without a template of its own has that of the other one (LeaderWorkerSet).
        let only = || templates.first().copied().filter(|_| templates.len() == 1);
        let template_of = of_roles.get(&role.name).copied().or_else(only)?;
        let mut labels = kind.gang_labels(template, &role.name);
        let own = template_of
            .pointer("/metadata/labels")
            .and_then(Value::as_object);
        let own = own.into_iter().flatten();
        labels
            .extend(own.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))));
        Some(PodsOfRole {
            role: role.name.clone(),
            template: template_of,
            labels,
        })
    });
    pods.collect()
}

fn has_rules(pods: &Value) -> bool {
    FIELDS.iter().any(|field| pods.pointer(field).is_some()) || !host_ports(pods).is_empty()
}

/// A port of the node.
struct HostPort<'a> {
    protocol: &'a str,
    address: &'a str,
    port: u64,
}

impl HostPort<'_> {
    /// Returns true if two pods with these ports cannot be on one node (kube-scheduler, `HostPortInfo.CheckConflict`).
    fn conflicts(&self, other: &Self) -> bool {
        let any = |port: &Self| port.address.is_empty() || port.address == "0.0.0.0";
        let same_address = any(self) || any(other) || self.address == other.address;
        (self.protocol, self.port) == (other.protocol, other.port) && same_address
    }
}

/// Returns the ports of the node that pods of a template take, those of sidecars included.
fn host_ports(pods: &Value) -> Vec<HostPort<'_>> {
    let spec = &pods["spec"];
    // In the network of its node, a pod has each of its ports there.
    let of_node = spec["hostNetwork"].as_bool().unwrap_or(false);
    let sidecars = spec["initContainers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let sidecars = sidecars
        .iter()
        .filter(|one| one["restartPolicy"] == "Always");
    let containers = spec["containers"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let containers = containers.iter().chain(sidecars);
    let ports = containers.flat_map(|container| {
        let ports = container["ports"].as_array().map(Vec::as_slice);
        ports.unwrap_or_default()
    });
    let ports = ports.filter_map(|port| {
        let stated = port["hostPort"].as_u64().filter(|port| *port > 0);
        let number = stated.or_else(|| port["containerPort"].as_u64().filter(|_| of_node))?;
        Some(HostPort {
            protocol: port["protocol"].as_str().unwrap_or("TCP"),
            address: port["hostIP"].as_str().unwrap_or_default(),
            port: number,
        })
    });
    ports.collect()
}

#[cfg(test)]
mod tests;
