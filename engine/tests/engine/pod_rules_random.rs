//! Small random gangs with rules between their pods start exactly where a scheduler could start all their pods, one
//! after another in some order.

use crate::pod_rules::{HOST, ZONE, rule, spread, submit, zoned};
use crate::world::{World, gang, queue, role};
use engine::facts::Role;
use engine::pod_rules::{NodeDomain, PodRule, PodRuleKind};
use std::collections::BTreeSet;

/// A small random number.
fn draw(seed: &mut u64, most: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % most
}

/// A fleet of one cluster and a gang, small enough to try everything.
struct SmallCase {
    zones: Vec<&'static str>,
    cpus: u32,
    roles: Vec<Role>,
}

fn small_case(seed: &mut u64) -> SmallCase {
    let nodes = 1 + draw(seed, 4);
    let zones = (0..nodes)
        .map(|_| ["x", "y", "z", "-"][draw(seed, 4) as usize])
        .collect();
    let names = ["worker", "ps"];
    let count = 1 + draw(seed, 2) as usize;
    let mut roles: Vec<Role> = names[..count]
        .iter()
        .map(|name| role(name, 1 + u32::try_from(draw(seed, 3)).unwrap(), "cpu 1"))
        .collect();
    for _ in 0..1 + draw(seed, 2) {
        let key = [HOST, ZONE][draw(seed, 2) as usize];
        let (one, other) = (
            draw(seed, count as u64) as usize,
            draw(seed, count as u64) as usize,
        );
        let (first, second) = (names[one], names[other]);
        match draw(seed, 3) {
            0 => {
                roles[one]
                    .rules
                    .push(rule(key, &[second], PodRuleKind::Apart));
                if one != other {
                    roles[other]
                        .rules
                        .push(rule(key, &[first], PodRuleKind::Apart));
                }
            }
            1 => {
                let group: BTreeSet<&str> = [first, second].into();
                let group: Vec<&str> = group.into_iter().collect();
                for index in BTreeSet::from([one, other]) {
                    roles[index]
                        .rules
                        .push(rule(key, &group, PodRuleKind::Together));
                }
            }
            _ => {
                let skew = u32::try_from(1 + draw(seed, 2)).unwrap();
                let domains = u32::try_from(1 + draw(seed, 3)).unwrap();
                roles[one]
                    .rules
                    .push(rule(key, &[first], spread(skew, domains)));
            }
        }
    }
    SmallCase {
        zones,
        cpus: u32::try_from(1 + draw(seed, 3)).unwrap(),
        roles,
    }
}

impl SmallCase {
    fn domain<'a>(&'a self, key: &str, node: usize) -> Option<&'a str> {
        match (key, self.zones[node]) {
            (HOST, _) => Some(["n0", "n1", "n2", "n3"][node]),
            (_, "-") => None,
            (_, zone) => Some(zone),
        }
    }

    /// Pods of some roles in a domain, as they stand: by role, then by node.
    fn in_domain(&self, stand: &[Vec<u32>], rule: &PodRule, key: &str, domain: &str) -> u32 {
        let mut sum = 0;
        for (role, nodes) in self.roles.iter().zip(stand) {
            for (node, count) in nodes.iter().enumerate() {
                if rule.roles.contains(&role.name) && self.domain(key, node) == Some(domain) {
                    sum += count;
                }
            }
        }
        sum
    }

    /// Returns true if a scheduler would put one more pod of a role on a node.
    fn takes(&self, stand: &[Vec<u32>], role: usize, node: usize) -> bool {
        let used: u32 = stand.iter().map(|nodes| nodes[node]).sum();
        used < self.cpus
            && self.roles[role].rules.iter().all(|rule| {
                let key = match &rule.domain {
                    NodeDomain::Label(key) => key.as_str(),
                    NodeDomain::Node => HOST,
                };
                let domain = self.domain(key, node);
                let here = |domain| self.in_domain(stand, rule, key, domain);
                let own = u32::from(rule.roles.contains(&self.roles[role].name));
                let all: BTreeSet<&str> = (0..self.zones.len())
                    .filter_map(|node| self.domain(key, node))
                    .collect();
                match (&rule.kind, domain) {
                    (PodRuleKind::Apart, domain) => domain.is_none_or(|domain| here(domain) == 0),
                    (_, None) => false,
                    (PodRuleKind::Together, Some(domain)) => {
                        here(domain) > 0 || all.iter().all(|domain| here(domain) == 0)
                    }
                    (
                        PodRuleKind::Spread {
                            max_skew,
                            min_domains,
                            ..
                        },
                        Some(domain),
                    ) => {
                        let few = all.len() < *min_domains as usize;
                        let least = all.iter().map(|domain| here(domain)).min();
                        let least = least.filter(|_| !few).unwrap_or(0);
                        here(domain) + own <= least + max_skew
                    }
                }
            })
    }

    /// Returns true if some order of pods and nodes starts all.
    fn starts(&self, stand: &mut Vec<Vec<u32>>, seen: &mut BTreeSet<Vec<Vec<u32>>>) -> bool {
        let done = |role: usize, stand: &[Vec<u32>]| {
            stand[role].iter().sum::<u32>() == self.roles[role].count
        };
        if (0..self.roles.len()).all(|role| done(role, stand)) {
            return true;
        }
        if !seen.insert(stand.clone()) {
            return false;
        }
        for role in 0..self.roles.len() {
            for node in 0..self.zones.len() {
                if !done(role, stand) && self.takes(stand, role, node) {
                    stand[role][node] += 1;
                    let starts = self.starts(stand, seen);
                    stand[role][node] -= 1;
                    if starts {
                        return true;
                    }
                }
            }
        }
        false
    }
}

#[test]
fn a_gang_starts_exactly_where_a_scheduler_could_start_all_its_pods() {
    let mut seed = 32;
    let mut started = 0;
    for number in 0..2_000 {
        let case = small_case(&mut seed);
        let mut world = World::new();
        world.queue(queue("q"));
        zoned(&mut world, "a", &case.zones, &format!("cpu {}", case.cpus));
        submit(&mut world, "job", gang(case.roles.clone()));
        let starts = world.decide().contains("release");
        let mut stand = vec![vec![0; case.zones.len()]; case.roles.len()];
        let could = case.starts(&mut stand, &mut BTreeSet::new());
        let text = format!(
            "case {number}: {} cpus, {:?}, {:?}",
            case.cpus, case.zones, case.roles
        );
        assert_eq!(starts, could, "{text}");
        started += u32::from(starts);
    }
    assert!((400..1_600).contains(&started), "{started}");
}
