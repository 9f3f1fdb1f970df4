//! The words of a verdict: the needs of a job, and what is free in each cluster.

use crate::api::decision::Blocker;
use crate::placement::plan::{ClusterLack, NoPlan};
use crate::placement::{spread, unmatched};
use crate::quota::Quota;
use facts::pod_rules::{NodeDomain, PodRule, PodRuleKind};
use facts::{Demand, ResourceName, Role, listed};

/// How many clusters or reasons a message names.
const SHOWN: usize = 4;

/// The blocker of a job that fits into no cluster, from what the best of them lacks.
pub(crate) fn room_blocker(lack: &ClusterLack, role: &Role) -> Blocker {
    let name = binding(lack, role);
    let request = role.request_in(&lack.cluster);
    let each = name.map_or(0, |name| request.amount_of(name).0);
    Blocker {
        scope: format!("cluster/{}", lack.cluster),
        resource: name.map(ToString::to_string),
        needs: Some(each.saturating_mul(i64::from(lack.wanted))),
        free: Some(each.saturating_mul(i64::from(lack.placed))),
    }
}

/// Why there is no plan, in words that follow "it".
pub(crate) fn words(queues: &Quota, demand: &Demand, no_plan: &NoPlan) -> String {
    match no_plan {
        NoPlan::Bound(short, _) => short.message(queues),
        NoPlan::NoCluster(why) if why.is_empty() => {
            "has no cluster to go to: no member cluster is known".to_owned()
        }
        NoPlan::NoCluster(why) => {
            let why = why
                .iter()
                .map(|entry| format!("{}: {}", entry.cluster, entry.why));
            format!("has no cluster to go to: {}", listed(why.collect(), SHOWN))
        }
        NoPlan::NoRoom(lacks) => {
            let mut lacks = lacks.clone();
            lacks.sort_by_key(|lack| (std::cmp::Reverse(lack.placed), lack.cluster.clone()));
            let roles = demand.roles.iter().enumerate();
            let asks: Vec<String> = roles
                .filter(|(_, role)| role.count > 0)
                .map(|(index, role)| {
                    let lacks = lacks.iter().filter(|lack| lack.role == index);
                    asks(role, demand.roles.len() > 1, lacks)
                })
                .collect();
            let rooms: Vec<String> = lacks.iter().map(|lack| has(lack, demand)).collect();
            let rooms = if let Some((None, label, role)) = unmatched::of_all(&lacks) {
                format!(
                    "no node of any cluster has {label}{}",
                    for_role(demand, role)
                )
            } else if rooms.is_empty() {
                // A single cluster would take it, but that is not allowed.
                let least = demand.placement.min_clusters.unwrap_or(1);
                format!("no {least} clusters have room for it together")
            } else {
                listed(rooms, SHOWN)
            };
            let spread = match demand.placement.spread.as_slice() {
                [] => String::new(),
                rules => format!("; its policy spreads it over {}", spread::words(rules)),
            };
            format!("needs {}; {rooms}{spread}", asks.join(" and "))
        }
    }
}

/// The resource that is short in a cluster, or else the one that the role is best known by.
fn binding<'a>(lack: &'a ClusterLack, role: &'a Role) -> Option<&'a ResourceName> {
    let short = lack.short.as_ref().map(|short| &short.resource);
    short.or_else(|| crate::capacity::leading(role.request_in(&lack.cluster)))
}

/// `8 pods × nvidia.com/gpu 8`, or with the role's name where there are several: what is short in the
/// clusters, those that come closest first.
fn asks<'a>(role: &Role, named: bool, lacks: impl Iterator<Item = &'a ClusterLack>) -> String {
    let mut names: Vec<&ResourceName> = Vec::new();
    for lack in lacks {
        let name = lack.short.as_ref().map(|short| &short.resource);
        names.extend(name.filter(|name| !names.contains(name)));
    }
    let request = role.largest_request();
    if names.is_empty() {
        names.extend(crate::capacity::leading(&request));
    }
    let amounts = names.into_iter().map(|name| {
        let amount = name.format(request.amount_of(name));
        format!("{name} {amount}")
    });
    let amounts = amounts.collect::<Vec<_>>().join(", ");
    let each = match amounts.as_str() {
        "" => String::new(),
        amounts => format!(" × {amounts}"),
    };
    let pods = if role.count == 1 { "pod" } else { "pods" };
    let name = if named {
        format!("{} ", role.name)
    } else {
        String::new()
    };
    format!("{} {name}{pods}{each}{}", role.count, rules(role, named))
}

/// How the pods of a role have to stand to each other.
fn rules(role: &Role, named: bool) -> String {
    let rule = |rule: &PodRule| {
        let mut others = rule.roles.iter().filter(|other| **other != role.name);
        let domain = match &rule.domain {
            NodeDomain::Label(key) if !rule.domain.is_node() => key.as_str(),
            NodeDomain::Label(_) | NodeDomain::Node => "node",
        };
        let others = match (named, others.next()) {
            (true, Some(_)) => format!(
                " (with {})",
                listed(rule.roles.iter().cloned().collect(), SHOWN)
            ),
            _ => String::new(),
        };
        match &rule.kind {
            PodRuleKind::Apart => format!("each in another {domain}{others}"),
            PodRuleKind::Together => format!("all in one {domain}{others}"),
            PodRuleKind::Spread { max_skew, .. } => {
                format!("spread over each {domain} with a maxSkew of {max_skew}{others}")
            }
        }
    };
    let rules = role.rules.iter().map(|one| format!(", {}", rule(one)));
    rules.collect::<Vec<_>>().concat()
}

/// Returns which role, if there are several.
fn for_role(demand: &Demand, role: usize) -> String {
    match demand.roles.len() {
        0 | 1 => String::new(),
        _ => format!(" for {}", demand.roles[role].name),
    }
}

/// Returns what a pod requests in a cluster that adds to its template's request.
fn added(role: &Role, lack: &ClusterLack) -> String {
    let request = role.requests_in.get(&lack.cluster);
    request.map_or_else(String::new, |request| {
        format!(" (with its LimitRanges and RuntimeClass each requests {request})")
    })
}

/// Returns what a cluster could take of a role, or that its pods may run on no node there.
fn has(lack: &ClusterLack, demand: &Demand) -> String {
    let (role, pods) = if demand.roles.len() > 1 {
        let name = &demand.roles[lack.role].name;
        (format!(" {name}"), format!(" {name} pods"))
    } else {
        (String::new(), String::new())
    };
    if let Some(label) = lack.unmatched.iter().flatten().next() {
        let role = for_role(demand, lack.role);
        return format!("no node of {} has {label}{role}", lack.cluster);
    }
    if lack.nodes == 0 {
        return format!(
            "{} has no usable node that its{role} pods may run on",
            lack.cluster
        );
    }
    let domain = lack.domain.as_ref();
    let domain = domain.map_or_else(String::new, |domain| format!(" in {domain}"));
    // Of the resource that a pod is best known by, the numbers of pods say enough.
    let asked = &demand.roles[lack.role];
    let best_known = crate::capacity::leading(asked.request_in(&lack.cluster));
    let short = lack.short.as_ref();
    let short = short.filter(|short| best_known != Some(&short.resource));
    let short = short.map_or_else(String::new, |short| {
        let (name, most) = (&short.resource, short.resource.format(short.most));
        format!(" ({name}: at most {most} free on a node)")
    });
    format!(
        "{}{domain} has room for {} of {}{pods}{short}{}",
        lack.cluster,
        lack.placed,
        lack.wanted,
        added(asked, lack)
    )
}
