//! Whether pods fit on the nodes of one cluster, node by node.
//!
//! Roles are packed most constrained first: by devices, then by how picky they are about
//! nodes, then by CPU and memory. Each goes where the least becomes unusable per pod (see
//! [`super::mix`]), then best fit: the fewest free devices, the least free CPU and memory, the
//! name. For one role that finds a packing whenever there is one; where several roles do not
//! fit that way, [`super::search`] tries other ways.

use crate::amounts::resource_ids::{CPU, MEMORY, ResourceIds};
use crate::capacity::field::{Packer, Wanted};
use crate::capacity::{Capacity, NodeInfo, StandingPods, Together, pod_rules, search};
use crate::overlay::Overlay;
use facts::matching::untolerated;
use facts::{ClusterName, Demand, NodeName, PoolClass, ResourceName, Resources, Role, RolePods};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Most choices of domains that are tried for pods which have to be in one.
const CHOICES: usize = 4_096;

/// Pods of one role that have to be placed.
#[derive(Debug, Clone)]
pub(crate) struct Need<'a> {
    /// Its index in the demand.
    pub(crate) index: usize,
    /// What each of its pods requests.
    pub(crate) role: &'a Role,
    /// How many.
    pub(crate) count: u32,
}

/// How a cluster is looked at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeView<'a> {
    /// What is assumed of nodes beside the facts.
    pub(crate) overlay: &'a Overlay,
    /// The class of the nodes that pods with devices may use; `None` means any.
    pub(crate) class: Option<&'a PoolClass>,
    /// The pods of the job that stand in the cluster already.
    pub(crate) standing: Option<&'a StandingPods>,
}

impl<'a> NodeView<'a> {
    /// All nodes, with an overlay.
    pub(crate) fn of(overlay: &'a Overlay) -> Self {
        Self {
            overlay,
            class: None,
            standing: None,
        }
    }

    /// The same, with pods of the job that stand there already.
    pub(crate) fn beside(self, standing: &'a StandingPods) -> Self {
        Self {
            standing: Some(standing),
            ..self
        }
    }
}

/// Pods of one role on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlacedPods {
    /// Index of the role in the demand.
    pub(crate) role: usize,
    /// The node.
    pub(crate) node: NodeName,
    /// How many.
    pub(crate) count: u32,
}

/// Where a packing stopped: the first role that did not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoleShortfall {
    /// Index of the role in the demand.
    pub(crate) role: usize,
    /// Pods of it that have to be placed.
    pub(crate) wanted: u32,
    /// Pods of it that fit.
    pub(crate) placed: u32,
    /// The domain that comes closest, where all must be in one.
    pub(crate) domain: Option<String>,
}

/// The result of packing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Packing {
    /// What fits, role after role.
    pub(crate) placed: Vec<PlacedPods>,
    /// What does not, if something does not.
    pub(crate) lack: Option<RoleShortfall>,
}

impl Packing {
    /// A packing that stopped at a role, its pods left out.
    pub(crate) fn shortfall(role: usize, wanted: u32, placed: u32) -> Self {
        Self {
            placed: Vec::new(),
            lack: Some(RoleShortfall {
                role,
                wanted,
                placed,
                domain: None,
            }),
        }
    }

    /// Pods that fit.
    pub(crate) fn pods(&self) -> u32 {
        self.placed.iter().map(|pods| pods.count).sum()
    }
}

/// The needs of `pods`, which name roles of `demand`; roles it does not know are left out.
pub(crate) fn needs_of<'a>(demand: &'a Demand, pods: &[RolePods]) -> Vec<Need<'a>> {
    demand
        .roles
        .iter()
        .enumerate()
        .filter_map(|(index, role)| {
            let count = pods.iter().find(|pods| pods.role == role.name)?.count;
            Some(Need { index, role, count })
        })
        .collect()
}

/// True if pods of `role` may run on `node`, free amounts aside.
pub(crate) fn can_run_on(role: &Role, node: &NodeInfo) -> bool {
    node.fact.usable
        && (role.node_terms.is_empty()
            || role.node_terms.iter().any(|term| term.matches(&node.fact)))
        && untolerated(&node.fact.taints, &role.tolerations).is_none()
}

/// The device that a request requests, if it requests any.
pub(crate) fn device(request: &Resources) -> Option<&ResourceName> {
    request
        .iter()
        .filter(|(name, amount)| name.is_device() && amount.0 > 0)
        .map(|(name, _)| name)
        .next()
}

/// The resource that a request is best known by: its device, else its CPU, else its first.
pub(crate) fn leading(request: &Resources) -> Option<&ResourceName> {
    let named = |wanted: &str| {
        request
            .iter()
            .find(|(name, amount)| name.as_str() == wanted && amount.0 > 0)
            .map(|(name, _)| name)
    };
    device(request)
        .or_else(|| named(ResourceName::CPU))
        .or_else(|| request.iter().find(|(_, a)| a.0 > 0).map(|(name, _)| name))
}

/// How much a request requests of its leading resource.
pub(crate) fn leading_amount(request: &Resources) -> i64 {
    leading(request).map_or(0, |name| request.amount_of(name).0)
}

/// Packs on some nodes of a cluster, or on all, with the domains that were chosen for pods which have to be in one.
type PackWithin<'p, 'a> = dyn Fn(Option<&BTreeSet<NodeName>>, &[ChosenDomain<'a>]) -> Packing + 'p;

impl Capacity {
    /// Places `needs` on the nodes of `cluster`, as far as they fit.
    pub(crate) fn pack(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
    ) -> Packing {
        self.pack_within(cluster, needs, node_view, None)
    }

    /// The same, on some of its nodes only.
    pub(super) fn pack_within(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        within: Option<&BTreeSet<NodeName>>,
    ) -> Packing {
        self.in_domains(cluster, needs, node_view, within, &|within, chosen| {
            self.pack_chosen(cluster, needs, node_view, within, chosen)
        })
    }

    fn pack_chosen<'a>(
        &'a self,
        cluster: &ClusterName,
        needs: &[Need<'a>],
        node_view: NodeView<'a>,
        within: Option<&'a BTreeSet<NodeName>>,
        chosen: &[ChosenDomain<'a>],
    ) -> Packing {
        let Some(mut field) = self.field(cluster, node_view, within) else {
            return nothing(needs);
        };
        field.rule(needs, node_view.standing, chosen);
        let wanted = most_constrained_first(&field, cluster, needs, &self.resource_ids);
        let several = wanted.len() > 1 || field.rules.is_some();
        let again = several.then(|| (field.touched.clone(), field.rules.clone()));
        let mut packing = Packing::default();
        for one in &wanted {
            let placed = field.place(one, several, &mut packing.placed);
            if placed < one.count {
                packing.lack = Some(RoleShortfall {
                    role: one.index,
                    wanted: one.count,
                    placed,
                    domain: None,
                });
                break;
            }
        }
        if let (Some(_), Some(untouched)) = (&packing.lack, again) {
            (field.touched, field.rules) = untouched;
            if let Some(placed) = search::other_ways(&field, &wanted) {
                return Packing { placed, lack: None };
            }
        }
        packing
    }

    /// Places as many as fit of each of `needs`, one after another, on a cluster or on some of
    /// its nodes.
    pub(super) fn fill_within(
        &self,
        cluster: &ClusterName,
        needs: &[Need<'_>],
        node_view: NodeView<'_>,
        within: Option<&BTreeSet<NodeName>>,
    ) -> Packing {
        self.in_domains(cluster, needs, node_view, within, &|within, chosen| {
            let mut packing = Packing::default();
            if let Some(mut field) = self.field(cluster, node_view, within) {
                field.rule(needs, node_view.standing, chosen);
                let several = needs.len() > 1 || field.rules.is_some();
                for need in needs.iter().filter(|need| need.count > 0) {
                    let one = wanted(need, cluster, &self.resource_ids);
                    field.place(&one, several, &mut packing.placed);
                }
            }
            packing
        })
    }

    /// The packing that places most, by the domain of the pods that have to be in one.
    fn in_domains<'a>(
        &'a self,
        cluster: &ClusterName,
        needs: &[Need<'a>],
        node_view: NodeView<'_>,
        within: Option<&BTreeSet<NodeName>>,
        pack: &PackWithin<'_, 'a>,
    ) -> Packing {
        let groups = pod_rules::together(needs.iter().map(|need| need.role));
        let room = self.cluster(cluster).filter(|_| !groups.is_empty());
        let Some(room) = room else {
            return pack(within, &[]);
        };
        let choices: Vec<_> = groups
            .iter()
            .map(|group| room.domains_for(*group, node_view.standing))
            .collect();
        let pods: u32 = needs.iter().map(|need| need.count).sum();
        let mut closest: Option<Packing> = None;
        for choice in pod_rules::combined(&choices, CHOICES) {
            let mut nodes = within.cloned();
            let mut chosen = Vec::new();
            for (group, (domain, inside)) in groups.iter().zip(choice) {
                chosen.push((*group, *domain));
                let mut roles = needs.iter().map(|need| &need.role.name);
                if roles.all(|role| group.1.contains(role)) {
                    nodes = Some(match nodes {
                        Some(nodes) => nodes.intersection(inside).cloned().collect(),
                        None => inside.clone(),
                    });
                }
            }
            let mut packing = pack(nodes.as_ref(), &chosen);
            if packing.pods() == pods {
                return packing;
            }
            if let Some(lack) = packing.lack.as_mut().filter(|lack| lack.domain.is_none()) {
                lack.domain = chosen.first().map(|(_, domain)| (*domain).to_owned());
            }
            if closest
                .as_ref()
                .is_none_or(|known| packing.pods() > known.pods())
            {
                closest = Some(packing);
            }
        }
        closest.unwrap_or_else(|| nothing(needs))
    }

    pub(super) fn field<'a>(
        &'a self,
        cluster: &ClusterName,
        node_view: NodeView<'a>,
        within: Option<&'a BTreeSet<NodeName>>,
    ) -> Option<Packer<'a>> {
        let room = self.cluster(cluster)?;
        let mut field = Packer {
            room,
            mix: &self.mix,
            empty: node_view.overlay.is_of_empty_fleet(),
            class: node_view.class,
            within,
            touched: BTreeMap::new(),
            rules: None,
        };
        let differ = node_view.overlay.nodes_of(cluster);
        for (name, taken) in differ.into_iter().flatten() {
            if let Some(node) = room.nodes().get(name).filter(|node| node.fact.usable) {
                let mut free = node.free_if(field.empty).clone();
                free.add_all(&self.resource_ids.vector_of(taken), -1);
                field.touched.insert(name.clone(), free);
            }
        }
        Some(field)
    }
}

/// The domain that is chosen for pods which have to be in one.
type ChosenDomain<'a> = (Together<'a>, &'a str);

fn nothing(needs: &[Need<'_>]) -> Packing {
    let first = needs.iter().find(|need| need.count > 0);
    first.map_or_else(Packing::default, |need| {
        Packing::shortfall(need.index, need.count, 0)
    })
}

fn wanted<'a>(need: &Need<'a>, cluster: &ClusterName, resource_ids: &ResourceIds) -> Wanted<'a> {
    let request = need.role.request_in(cluster);
    Wanted {
        index: need.index,
        role: need.role,
        count: need.count,
        ask: resource_ids.request(request),
        device: device(request),
    }
}

fn most_constrained_first<'a>(
    field: &Packer<'_>,
    cluster: &ClusterName,
    needs: &[Need<'a>],
    resource_ids: &ResourceIds,
) -> Vec<Wanted<'a>> {
    let mut ordered: Vec<Wanted<'a>> = needs
        .iter()
        .filter(|need| need.count > 0)
        .map(|need| wanted(need, cluster, resource_ids))
        .collect();
    if ordered.len() > 1 {
        let picky = |role: &Role| !role.node_terms.is_empty() || field.room.has_taints();
        ordered.sort_by_cached_key(|one| {
            let devices = one.device.and_then(|name| resource_ids.find(name));
            let nodes = if picky(one.role) {
                field.nodes().filter(|n| can_run_on(one.role, n)).count()
            } else {
                usize::MAX
            };
            (
                Reverse(devices.map_or(0, |resource| one.ask.get(resource))),
                nodes,
                Reverse((one.ask.get(CPU), one.ask.get(MEMORY))),
                one.index,
            )
        });
    }
    ordered
}
