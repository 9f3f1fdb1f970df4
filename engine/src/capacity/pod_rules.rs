//! Rules between the pods of a job, while they are put on the nodes of one cluster.
//!
//! Where pods of the job stand flows in; how many more of a role a node may take flows out. As the scheduler of a
//! member does, a rule is checked when a pod is put, against the pods that stand then. It must never know pods of
//! other jobs.

use super::{Capacity, ClusterCapacity, NodeInfo};
use facts::matching::untolerated;
use facts::pod_rules::{NodeDomain, PodRule, PodRuleKind};
use facts::{ClusterName, Demand, JobKey, NodeName, Role};
use std::collections::{BTreeMap, BTreeSet};

/// The pods of a job that are on nodes of a cluster, bound or assumed: by role, how many on which node.
pub(crate) type StandingPods = BTreeMap<String, BTreeMap<NodeName, u32>>;

/// Pods that have to be in one domain: what nodes form it, and their roles.
pub(crate) type Together<'a> = (&'a NodeDomain, &'a BTreeSet<String>);

/// The pods of one job on one cluster, by domain.
#[derive(Debug, Clone)]
pub(crate) struct PodRules<'a> {
    /// The roles, each once.
    roles: Vec<&'a Role>,
    /// What nodes form domains by some rule.
    domains: BTreeSet<&'a NodeDomain>,
    /// Pods by what nodes form a domain, its name, and the role.
    counts: BTreeMap<(&'a NodeDomain, &'a str, &'a str), u32>,
    /// The domains over which pods are spread, by role and rule.
    spread_over: BTreeMap<(&'a str, &'a PodRule), BTreeSet<&'a str>>,
    /// The domains that were chosen for pods which have to be in one.
    chosen: Vec<(Together<'a>, &'a str)>,
}

impl<'a> PodRules<'a> {
    /// The rules of `roles`, with the pods that stand on nodes already; `None` if there are no rules.
    pub(crate) fn of(
        room: &'a ClusterCapacity,
        roles: impl Iterator<Item = &'a Role>,
        standing: Option<&'a StandingPods>,
    ) -> Option<Self> {
        let roles: Vec<&Role> = roles.filter(|role| !role.rules.is_empty()).collect();
        if roles.is_empty() {
            return None;
        }
        let all = || roles.iter().flat_map(|role| &role.rules);
        let mut rules = Self {
            domains: all().map(|rule| &rule.domain).collect(),
            counts: BTreeMap::new(),
            spread_over: BTreeMap::new(),
            chosen: Vec::new(),
            roles: Vec::new(),
        };
        for role in &roles {
            for rule in &role.rules {
                if let PodRuleKind::Spread { .. } = rule.kind {
                    let over = spread_over(room, role, rule);
                    rules.spread_over.insert((&role.name, rule), over);
                }
            }
        }
        rules.roles = roles;
        for (role, nodes) in standing.into_iter().flatten() {
            for (name, count) in nodes {
                if let Some(node) = room.nodes().get(name) {
                    rules.count(role, node, *count, true);
                }
            }
        }
        Some(rules)
    }

    /// Chooses the domain of pods that have to be in one.
    pub(crate) fn choose(&mut self, together: Together<'a>, domain: &'a str) {
        self.chosen.push((together, domain));
    }

    /// Returns true if pods of the role that a node may not take now may be put there later.
    pub(crate) fn may_open(role: &Role) -> bool {
        let mut rules = role.rules.iter();
        rules.any(|rule| matches!(rule.kind, PodRuleKind::Spread { .. }))
    }

    /// How many more pods of a role a node may take now, free amounts aside.
    pub(crate) fn most(&self, role: &Role, node: &NodeInfo) -> u32 {
        let most = role.rules.iter().map(|rule| self.most_by(rule, role, node));
        most.min().unwrap_or(u32::MAX)
    }

    /// The same while pods are put in no order: how they are spread is checked at the end.
    pub(crate) fn most_unordered(&self, role: &Role, node: &NodeInfo) -> u32 {
        let most = role.rules.iter().map(|rule| match rule.kind {
            PodRuleKind::Spread { .. } if rule.domain.of(&node.fact).is_some() => u32::MAX,
            PodRuleKind::Spread { .. } => 0,
            PodRuleKind::Apart | PodRuleKind::Together => self.most_by(rule, role, node),
        });
        most.min().unwrap_or(u32::MAX)
    }

    fn most_by(&self, rule: &PodRule, role: &Role, node: &NodeInfo) -> u32 {
        let domain = rule.domain.of(&node.fact);
        let own = rule.roles.contains(&role.name);
        match (&rule.kind, domain) {
            (PodRuleKind::Apart, None) => u32::MAX,
            (PodRuleKind::Apart, Some(domain)) => match self.in_domain(rule, domain) {
                0 if own => 1,
                0 => u32::MAX,
                _ => 0,
            },
            (_, None) => 0,
            (PodRuleKind::Together, Some(domain)) => {
                let mut chosen = self.chosen.iter();
                let together = (&rule.domain, &rule.roles);
                match chosen.find(|(of, _)| *of == together) {
                    Some((_, chosen)) if *chosen == domain => u32::MAX,
                    _ => 0,
                }
            }
            (PodRuleKind::Spread { max_skew, .. }, Some(domain)) => {
                let most = self.fewest(role, rule).saturating_add(*max_skew);
                match most.checked_sub(self.in_domain(rule, domain)) {
                    Some(more) if own => more,
                    Some(_) => u32::MAX,
                    None => 0,
                }
            }
        }
    }

    /// Returns true if the pods are spread as they have to be, in whatever order they were put.
    pub(crate) fn are_spread(&self) -> bool {
        let holds = |rule: &PodRule, role: &Role, max_skew: u32| {
            let most = self.fewest(role, rule).saturating_add(max_skew);
            let with_pods = self.counts.iter().filter(|((of, _, name), count)| {
                **of == rule.domain && *name == role.name && **count > 0
            });
            let mut domains = with_pods.map(|((_, domain, _), _)| *domain);
            domains.all(|domain| self.in_domain(rule, domain) <= most)
        };
        let rules = self.roles.iter();
        let mut rules = rules.flat_map(|role| role.rules.iter().map(move |rule| (*role, rule)));
        rules.all(|(role, rule)| match rule.kind {
            PodRuleKind::Spread { max_skew, .. } => holds(rule, role, max_skew),
            PodRuleKind::Apart | PodRuleKind::Together => true,
        })
    }

    /// Pods of a role are put on a node, or taken off it.
    pub(crate) fn count(&mut self, role: &'a str, node: &'a NodeInfo, count: u32, come: bool) {
        for domain in &self.domains {
            if let Some(name) = domain.of(&node.fact) {
                let known = self.counts.entry((*domain, name, role)).or_default();
                *known = if come {
                    known.saturating_add(count)
                } else {
                    known.saturating_sub(count)
                };
            }
        }
    }

    /// Returns what makes nodes differ for the rules. Nodes that are domains themselves differ if pods stand there.
    pub(crate) fn look<'n>(&self, node: &'n NodeInfo) -> Vec<Option<&'n str>> {
        let look = |domain: &&NodeDomain| {
            let name = domain.of(&node.fact)?;
            let mut counts = self.counts.iter();
            let stands = |((of, at, _), count): (&(&NodeDomain, &str, &str), &u32)| {
                of == domain && *at == name && *count > 0
            };
            let alike = domain.is_node() && !counts.any(stands);
            Some(if alike { "" } else { name })
        };
        self.domains.iter().map(look).collect()
    }

    fn in_domain(&self, rule: &PodRule, domain: &str) -> u32 {
        let roles = rule.roles.iter();
        let counts = roles.filter_map(|role| self.counts.get(&(&rule.domain, domain, &**role)));
        counts.sum()
    }

    /// How many pods are in the domain of a rule that has the fewest.
    fn fewest(&self, role: &Role, rule: &PodRule) -> u32 {
        let PodRuleKind::Spread { min_domains, .. } = rule.kind else {
            return 0;
        };
        let Some(over) = self.spread_over.get(&(role.name.as_str(), rule)) else {
            return 0;
        };
        if over.len() < min_domains as usize {
            return 0;
        }
        let counts = over.iter().map(|domain| self.in_domain(rule, domain));
        counts.min().unwrap_or(0)
    }
}

/// The domains over which a rule spreads pods of a role: nodes that take no pods now count as well.
fn spread_over<'a>(room: &'a ClusterCapacity, role: &Role, rule: &PodRule) -> BTreeSet<&'a str> {
    let PodRuleKind::Spread {
        by_terms,
        by_taints,
        ..
    } = rule.kind
    else {
        return BTreeSet::new();
    };
    let nodes = room.nodes().values().filter(|node| {
        let mut terms = role.node_terms.iter();
        let selected = role.node_terms.is_empty() || terms.any(|term| term.matches(&node.fact));
        let tolerated = || untolerated(&node.fact.taints, &role.tolerations).is_none();
        (selected || !by_terms) && (!by_taints || tolerated())
    });
    nodes
        .filter_map(|node| rule.domain.of(&node.fact))
        .collect()
}

/// The groups of pods of these roles that have to be in one domain, each once.
pub(crate) fn together<'a>(roles: impl Iterator<Item = &'a Role>) -> Vec<Together<'a>> {
    let rules = roles.flat_map(|role| &role.rules);
    let groups = rules.filter(|rule| rule.kind == PodRuleKind::Together);
    let groups: BTreeSet<Together<'a>> = groups.map(|rule| (&rule.domain, &rule.roles)).collect();
    groups.into_iter().collect()
}

/// The first `most` ways to take one of each of `choices`: those of the first one change first.
pub(crate) fn combined<T>(choices: &[Vec<T>], most: usize) -> impl Iterator<Item = Vec<&T>> {
    let ways = choices.iter().map(Vec::len);
    let ways = ways.fold(1, usize::saturating_mul).min(most);
    (0..ways).map(move |mut way| {
        let pick = |of: &'_ Vec<T>| {
            let index = way % of.len();
            way /= of.len();
            index
        };
        let indexes: Vec<usize> = choices.iter().map(pick).collect();
        choices
            .iter()
            .zip(indexes)
            .map(|(of, index)| &of[index])
            .collect()
    })
}

/// The most pods of a role on one node by its rules.
pub(crate) fn most_on_a_node(role: &Role) -> u32 {
    let mut rules = role.rules.iter();
    let alone = rules.any(|rule| {
        rule.kind == PodRuleKind::Apart && rule.domain.is_node() && rule.roles.contains(&role.name)
    });
    if alone { 1 } else { u32::MAX }
}

impl ClusterCapacity {
    /// The domains in which pods may be together, with their usable nodes, those with the fewest nodes first. Where
    /// some of the pods stand already, the others have to go there.
    pub(crate) fn domains_for(
        &self,
        (domain, roles): Together<'_>,
        standing: Option<&StandingPods>,
    ) -> Vec<(&str, BTreeSet<NodeName>)> {
        let nodes = self.nodes().values();
        let mut found: BTreeMap<&str, BTreeSet<NodeName>> = BTreeMap::new();
        for node in nodes.filter(|node| node.fact.usable) {
            if let Some(name) = domain.of(&node.fact) {
                let nodes = found.entry(name).or_default();
                nodes.insert(node.fact.name.clone());
            }
        }
        let standing = standing.into_iter().flatten();
        let standing = standing.filter(|(role, _)| roles.contains(*role));
        let names = standing.flat_map(|(_, nodes)| nodes.keys());
        let nodes = names.filter_map(|name| self.nodes().get(name));
        let taken: BTreeSet<&str> = nodes.filter_map(|node| domain.of(&node.fact)).collect();
        if !taken.is_empty() {
            found.retain(|name, _| taken.contains(name));
        }
        let mut found: Vec<_> = found.into_iter().collect();
        found.sort_by_key(|(name, nodes)| (nodes.len(), *name));
        found
    }
}

impl Capacity {
    /// Where pods of a job stand in a cluster; nothing is looked up for a job without rules. A pod is of the first
    /// role with its request.
    pub(crate) fn standing(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
        demand: &Demand,
        with_assumed: bool,
    ) -> StandingPods {
        let mut standing = StandingPods::new();
        if !demand.has_rules() {
            return standing;
        }
        let mut stand = |role: &Role, node: &NodeName, count: u32| {
            let nodes = standing.entry(role.name.clone()).or_default();
            *nodes.entry(node.clone()).or_default() += count;
        };
        for pod in self.pods_in(key, cluster).filter(|pod| !pod.ended()) {
            let mut roles = demand.roles.iter();
            let role = roles.find(|role| *role.request_in(cluster) == pod.request);
            if let Some((role, node)) = role.or(demand.roles.first()).zip(pod.node.as_ref()) {
                stand(role, node, 1);
            }
        }
        let assumption = self.assumed.get(key).filter(|_| with_assumed);
        for pod in assumption.into_iter().flat_map(|assumed| &assumed.assumed) {
            let role = demand.roles.get(pod.role);
            if let Some((role, node)) = role.zip(pod.node.as_ref())
                && pod.cluster == *cluster
            {
                stand(role, node, pod.count);
            }
        }
        standing
    }
}
