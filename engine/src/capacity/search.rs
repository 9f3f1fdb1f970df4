//! Other ways to pack several roles, where one role after another, each at its best, fails.
//!
//! Node by node every way is tried, most pods first, roles in their order; nodes that look
//! alike to the first role are taken in one order only. The search looks at [`SITES`] nodes and
//! ends after [`STEPS`] choices: it is exact where it ends before, and beyond that may miss a
//! packing. Two roles on four nodes of eight devices are always within.

use super::field::{Packer, Wanted};
use super::pack::{PlacedPods, can_run_on};
use super::{NodeInfo, PodRules};
use crate::amounts::resource_ids::ResourceVec;
use facts::NodeName;
use std::collections::BTreeMap;

/// Most choices that are tried.
const STEPS: u32 = 4_096;
/// Most nodes that are looked at, those with the least free first.
const SITES: usize = 64;

struct SearchNode<'a> {
    name: &'a NodeName,
    free: ResourceVec,
    /// Which roles may run there.
    roles: Vec<bool>,
    /// What it looks like: equal numbers are equal nodes.
    kind: usize,
    node: &'a NodeInfo,
}

struct PackingSearch<'a> {
    wanted: &'a [Wanted<'a>],
    sites: Vec<SearchNode<'a>>,
    fitting: Vec<(usize, usize, u32)>,
    /// How the pods have to stand to each other, if there are rules.
    rules: Option<PodRules<'a>>,
    steps: u32,
}

/// A packing of all of `wanted`, if one is found.
pub(super) fn other_ways<'a>(field: &Packer<'a>, wanted: &[Wanted<'a>]) -> Option<Vec<PlacedPods>> {
    let mut search = PackingSearch {
        wanted,
        sites: sites(field, wanted),
        fitting: Vec::new(),
        rules: field.rules.clone(),
        steps: 0,
    };
    // Pods without rules are placed last.
    if wanted.iter().any(|one| one.role.unruled > 0) {
        return None;
    }
    let alone = |role: usize| search.most(role, 0) >= u64::from(wanted[role].count);
    if !(0..wanted.len()).all(alone) || !search.place(0, 0, wanted[0].count, None) {
        return None;
    }
    let fitting = search.fitting.iter().map(|(role, site, count)| PlacedPods {
        role: wanted[*role].index,
        node: search.sites[*site].name.clone(),
        count: *count,
    });
    Some(fitting.collect())
}

/// Nodes that can take a pod of some role; those that look alike stand together, fewest units
/// first.
fn sites<'a>(field: &Packer<'a>, wanted: &[Wanted<'_>]) -> Vec<SearchNode<'a>> {
    let mut sites: Vec<(i128, SearchNode<'a>)> = field
        .nodes()
        .filter_map(|node| {
            let free = field.free(node);
            let may = |one: &Wanted<'_>| {
                field.in_class(one, &node.fact.class)
                    && one.ask.fits(free)
                    && can_run_on(one.role, node)
            };
            let roles: Vec<bool> = wanted.iter().map(may).collect();
            roles.contains(&true).then(|| {
                let site = SearchNode {
                    name: &node.fact.name,
                    free: free.clone(),
                    roles,
                    kind: 0,
                    node,
                };
                (free.get(node.units), site)
            })
        })
        .collect();
    let mut kinds = BTreeMap::new();
    for (_, site) in &mut sites {
        let next = kinds.len();
        let rules = field.rules.as_ref();
        let domains = rules.map(|rules| rules.look(site.node));
        let look = (site.free.clone(), site.roles.clone(), domains);
        site.kind = *kinds.entry(look).or_insert(next);
    }
    sites.sort_by(|(a, x), (b, y)| (a, x.kind, x.name).cmp(&(b, y.kind, y.name)));
    // Of nodes that look alike no more can be of use than there are pods.
    let pods: u32 = wanted
        .iter()
        .map(|one| one.count)
        .fold(0, u32::saturating_add);
    let mut of_kind = vec![0; kinds.len()];
    sites.retain(|(_, site)| {
        of_kind[site.kind] += 1;
        of_kind[site.kind] <= pods
    });
    let sites = sites.into_iter().map(|(_, site)| site);
    sites.take(SITES).collect()
}

impl<'a> PackingSearch<'a> {
    /// Places `left` pods of a role on the sites from `from` on, then the roles after it.
    /// `before` is what the site before it was given, where it looks like this one.
    fn place(&mut self, role: usize, from: usize, left: u32, before: Option<u32>) -> bool {
        if left == 0 {
            return match self.wanted.get(role + 1) {
                None => self.rules.as_ref().is_none_or(PodRules::are_spread),
                Some(next) => self.place(role + 1, 0, next.count, None),
            };
        }
        if self.steps >= STEPS || self.most(role, from) < u64::from(left) {
            return false;
        }
        let Some(site) = self.sites.get(from) else {
            return false;
        };
        let ask = &self.wanted[role].ask;
        let fits = if site.roles[role] {
            ask.count_in(&site.free, left)
        } else {
            0
        };
        let rules = self.rules.as_ref();
        let allowed = rules.map(|rules| rules.most_unordered(self.wanted[role].role, site.node));
        let fits = fits.min(allowed.unwrap_or(u32::MAX));
        let kind = site.kind;
        // Of sites that look alike the first gets most. That only holds for the first role:
        // what it took makes them differ.
        let most = if role == 0 {
            before.map_or(fits, |before| fits.min(before))
        } else {
            fits
        };
        for count in (0..=most).rev() {
            self.steps += 1;
            self.put(role, from, count, true);
            let next_alike = self.sites.get(from + 1).is_some_and(|s| s.kind == kind);
            let before = next_alike.then_some(count);
            if self.place(role, from + 1, left - count, before) {
                return true;
            }
            self.put(role, from, count, false);
        }
        false
    }

    fn put(&mut self, role: usize, site: usize, count: u32, come: bool) {
        if count == 0 {
            return;
        }
        let wanted: &'a [Wanted<'a>] = self.wanted;
        let ask = &wanted[role].ask;
        let times = i64::from(count);
        if let Some(rules) = &mut self.rules {
            rules.count(&wanted[role].role.name, self.sites[site].node, count, come);
        }
        if come {
            self.sites[site].free.add_pods(ask, -times);
            self.fitting.push((role, site, count));
        } else {
            self.sites[site].free.add_pods(ask, times);
            self.fitting.pop();
        }
    }

    /// The most pods of a role on the sites from `from` on.
    fn most(&self, role: usize, from: usize) -> u64 {
        let wanted = &self.wanted[role];
        let fits = |site: &SearchNode<'_>| u64::from(wanted.ask.count_in(&site.free, wanted.count));
        let sites = self.sites.iter().skip(from);
        sites.filter(|site| site.roles[role]).map(fits).sum()
    }
}
