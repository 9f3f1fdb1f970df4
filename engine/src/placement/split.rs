//! A gang over several clusters: over the fewest that take it.
//!
//! The largest role is divided. Roles with one pod go whole with the first part, the other roles where
//! capacity is left beside it. The first part is the one with the most capacity, or if that cannot take
//! the roles with one pod (a launcher that needs nodes with CPUs), the next that can. The clusters with
//! the most capacity are the fewest that can do: so their number is exact for one role. Of that many, all
//! choices are scored while there are at most [`CHOICES`]; beyond that, those around the choice that
//! leaves least free, so the number stays exact for one role and the score is the best of those scored.
//! Within a choice the cluster with the most capacity is filled first, and the last part is the rest.
//! Where bounds on pools are exceeded, each cluster counts with what its bounds allow, before more clusters
//! are taken.

use crate::amounts::bisect::boundary;
use crate::api::charge::pools_of;
use crate::capacity::{FittingPods, Need, NodeView, Packing, Place};
use crate::eligibility::store::Eligible;
use crate::overlay::Overlay;
use crate::placement::candidate::{self, PlacementCandidate, ScoredPart};
use crate::placement::lookup::largest_role;
use crate::placement::plan::{ClusterLack, NoPlan};
use crate::placement::request::GangRequest;
use crate::placement::score::Weights;
use crate::placement::{choices, mixed, plan, spread};
use crate::state::Inputs;
use facts::{ClusterFact, ClusterPlacement, Role, Share};
use std::cell::{LazyCell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Clusters that are tried as the first part beside those with the most capacity, for one gang.
const LEADERS: usize = 64;

/// Clusters that are packed node by node at first, those with the most fitting pods.
const COUNTED: usize = 64;

/// What one cluster could take of the role that is divided.
#[derive(Debug, Clone, Copy)]
struct Part {
    place: Place,
    pods: u32,
    preference: u64,
    fitting: FittingPods,
}

/// What is to be divided, the same for all choices.
struct SplitQuestion<'a> {
    gang: GangRequest<'a>,
    overlay: &'a Overlay,
    weights: &'a Weights<'a>,
    /// The role that is divided, as an index.
    main: usize,
    /// The parts that were looked at, by what they were to take: most choices share most of theirs.
    known: RefCell<BTreeMap<PartRequest, Arc<ScoredPart>>>,
}

/// A cluster, and the pods of each role that it is to take, one role after another.
type PartRequest = (Place, Vec<(usize, u32)>);

impl SplitQuestion<'_> {
    /// Returns what a cluster takes of so many pods of these roles, and what that counts for.
    fn scored_part(
        &self,
        inputs: Inputs<'_>,
        part: Part,
        pods: Vec<(usize, u32)>,
    ) -> Arc<ScoredPart> {
        let request = (part.place, pods);
        if let Some(known) = self.known.borrow().get(&request) {
            return Arc::clone(known);
        }
        let packing = pack_part(inputs, self, part.place, &request.1);
        let (gang, overlay) = (self.gang, self.overlay);
        let packed = (part.place, packing);
        let scored =
            candidate::scored_part(inputs, gang, overlay, packed, part.fitting, self.weights);
        let scored = Arc::new(scored);
        let mut known = self.known.borrow_mut();
        known.insert(request, Arc::clone(&scored));
        scored
    }
}

/// The gang over the fewest clusters, with its weighted score.
pub(crate) fn split(
    inputs: Inputs<'_>,
    gang: GangRequest<'_>,
    overlay: &Overlay,
    eligible: &Eligible,
    weights: &Weights<'_>,
) -> Result<(Vec<Share>, i128), NoPlan> {
    let none = || NoPlan::NoRoom(Vec::new());
    let role = largest_role(&gang.shape.demand).ok_or_else(none)?;
    let roles = gang.shape.demand.roles.iter();
    let main = roles.clone().position(|known| known.name == role.name);
    let question = SplitQuestion {
        gang,
        overlay,
        weights,
        main: main.ok_or_else(none)?,
        known: RefCell::default(),
    };
    let parts = parts(inputs, &question, role, eligible);
    fewest(inputs, &question, &parts)
}

/// Clusters by how many pods of the role they take, most first.
fn parts(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    role: &Role,
    eligible: &Eligible,
) -> Vec<Part> {
    let fitting = inputs.capacity.fitting_for_role(role);
    let upper = |place: Place| {
        let cluster = &inputs.capacity.places()[place];
        if question.overlay.nodes_of(cluster).is_some() {
            u64::MAX
        } else if question.overlay.is_of_empty_fleet() {
            fitting[place].empty
        } else {
            fitting[place].now
        }
    };
    let mut places: Vec<(Reverse<u64>, Place)> = eligible
        .places
        .iter()
        .map(|place| (Reverse(upper(*place).min(u64::from(role.count))), *place))
        .filter(|(fitting, _)| fitting.0 > 0)
        .collect();
    places.sort_unstable();
    let mut parts: Vec<Part> = Vec::new();
    let mut sum = 0_u64;
    for (index, (_, place)) in places.iter().enumerate() {
        if index >= COUNTED && sum >= u64::from(role.count) {
            break;
        }
        let part = pack_part(inputs, question, *place, &[(question.main, role.count)]);
        let cluster = &inputs.capacity.places()[*place];
        let pods = part.pods();
        sum += u64::from(pods);
        parts.push(Part {
            place: *place,
            pods,
            preference: question.weights.preference(cluster),
            fitting: fitting[*place],
        });
    }
    sort(&mut parts);
    parts
}

/// Returns what a cluster takes of so many pods of these roles, one after another.
fn pack_part(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    place: Place,
    pods: &[(usize, u32)],
) -> Packing {
    let demand = &question.gang.shape.demand;
    let needs: Vec<Need<'_>> = pods
        .iter()
        .map(|(index, count)| Need {
            index: *index,
            role: &demand.roles[*index],
            count: *count,
        })
        .collect();
    let cluster = &inputs.capacity.places()[place];
    let node_view = NodeView::of(question.overlay);
    let topology = demand.topology.as_ref();
    inputs.capacity.fill(cluster, &needs, node_view, topology)
}

/// How many of the pods that fit on a cluster its bounds allow.
fn within_bounds(inputs: Inputs<'_>, question: &SplitQuestion<'_>, part: Part) -> u32 {
    let gang = question.gang;
    let cluster = &inputs.capacity.places()[part.place];
    let find = |pods: u32| {
        let packing = pack_part(inputs, question, part.place, &[(question.main, pods)]);
        let share = plan::share_of(inputs, cluster, &gang.shape.demand, &packing);
        let pools = pools_of(std::slice::from_ref(&share));
        let checked = inputs
            .quota
            .check_pools(gang.queue, &pools, question.overlay);
        checked.ok()
    };
    boundary((0, ()), part.pods.saturating_add(1), find).0
}

/// The best over the fewest clusters that do. Of as many, those filled as far as there is capacity come first, then
/// those filled as far as their bounds allow.
fn fewest(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    parts: &[Part],
) -> Result<(Vec<Share>, i128), NoPlan> {
    let demand = &question.gang.shape.demand;
    let placement = &demand.placement;
    let policy = inputs.quota.policy(question.gang.queue);
    let most = [
        placement.max_clusters,
        policy.and_then(|policy| policy.max_clusters),
    ];
    let most = most.into_iter().flatten().min().unwrap_or(u32::MAX);
    // One alone was tried before.
    let least = placement.min_clusters.unwrap_or(2).max(2);
    let pods = u32::try_from(demand.pods()).unwrap_or(u32::MAX);
    let able = parts.iter().filter(|part| part.pods > 0).count();
    let most = most.min(pods).min(u32::try_from(able).unwrap_or(u32::MAX));
    let verbose = question.gang.verbose;
    let lacks = verbose.then(|| lacks_of(inputs, question, parts));
    let mut why = NoPlan::NoRoom(lacks.unwrap_or_default());
    let mut leaders = LEADERS;
    let bounded = LazyCell::new(|| bounded(inputs, question, parts));
    for clusters in least..=most {
        let clusters = clusters as usize;
        let next = match best_over(inputs, question, parts, clusters, &mut leaders) {
            Ok(found) => return Ok(found),
            Err(next) => next,
        };
        if let Some(next) = next {
            let within = best_over(inputs, question, &bounded, clusters, &mut leaders);
            if let Ok(found) = within {
                return Ok(found);
            }
            why = why.or(next);
        }
    }
    Err(why)
}

/// The same parts, each with no more pods than its bounds allow.
fn bounded(inputs: Inputs<'_>, question: &SplitQuestion<'_>, parts: &[Part]) -> Vec<Part> {
    let parts = parts.iter().map(|part| Part {
        pods: within_bounds(inputs, question, *part),
        ..*part
    });
    let mut parts: Vec<Part> = parts.collect();
    sort(&mut parts);
    parts
}

/// The best over so many clusters; else the bound that the closest choice exceeds, if there is any.
fn best_over(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    parts: &[Part],
    clusters: usize,
    leaders: &mut usize,
) -> Result<(Vec<Share>, i128), Option<NoPlan>> {
    let demand = &question.gang.shape.demand;
    let count = demand.roles[question.main].count;
    let able = parts.iter().take_while(|part| part.pods > 0).count();
    let largest = parts[..able].iter().take(clusters);
    let sum: u64 = largest.map(|part| u64::from(part.pods)).sum();
    if able < clusters || sum < u64::from(count) {
        return Err(None);
    }
    let choices = allowed(inputs, &demand.placement, &parts[..able], clusters, count).into_iter();
    let options = choices.filter_map(|choice| divide_led(inputs, question, choice, leaders));
    let options = options.collect();
    mixed::first_within_bounds(inputs, question.gang, question.overlay, options)
}

/// The same led by the first of these clusters that takes what exists once, as long as there
/// are `leaders` to be tried.
fn divide_led(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    mut choice: Vec<Part>,
    leaders: &mut usize,
) -> Option<PlacementCandidate> {
    let roles = &question.gang.shape.demand.roles;
    let led = (0..roles.len()).any(|role| exists_once(roles, question.main, role));
    let first = divide(inputs, question, &choice);
    if first.is_some() || !led {
        return first;
    }
    (1..choice.len()).find_map(|leader| {
        *leaders = leaders.checked_sub(1)?;
        choice[..=leader].rotate_right(1);
        let found = divide(inputs, question, &choice);
        choice[..=leader].rotate_left(1);
        found
    })
}

/// All roles over these clusters, if they take them.
fn divide(
    inputs: Inputs<'_>,
    question: &SplitQuestion<'_>,
    choice: &[Part],
) -> Option<PlacementCandidate> {
    let demand = &question.gang.shape.demand;
    let mut left: Vec<u32> = demand.roles.iter().map(|role| role.count).collect();
    let mut parts = Vec::new();
    for (index, part) in choice.iter().enumerate() {
        let after = u32::try_from(choice.len() - index - 1).unwrap_or(u32::MAX);
        let roles = demand.roles.as_slice();
        let pods = shares_of(&left, roles, question.main, *part, index, after);
        let scored = question.scored_part(inputs, *part, pods);
        let placed = &scored.packing.placed;
        for placed in placed {
            left[placed.role] -= placed.count;
        }
        if !placed.iter().any(|placed| placed.role == question.main) {
            return None;
        }
        parts.push(scored);
    }
    if left.iter().any(|count| *count > 0) {
        return None;
    }
    let all: u64 = choice.iter().map(|part| u64::from(part.pods)).sum();
    let spare = all.saturating_sub(u64::from(demand.roles[question.main].count));
    let candidate = candidate::scored_together(inputs, parts, spare, question.weights);
    Some(candidate)
}

fn lacks_of(inputs: Inputs<'_>, question: &SplitQuestion<'_>, parts: &[Part]) -> Vec<ClusterLack> {
    let demand = &question.gang.shape.demand;
    let count = demand.roles[question.main].count;
    let lacks = parts.iter().filter(|part| part.pods < count);
    lacks
        .filter_map(|part| {
            let packing = Packing::shortfall(question.main, count, part.pods);
            let cluster = &inputs.capacity.places()[part.place];
            plan::lack_of(inputs, question.gang, cluster, &packing, question.overlay)
        })
        .collect()
}

/// True if a role beside the one that is divided has one pod.
fn exists_once(roles: &[Role], main: usize, role: usize) -> bool {
    role != main && roles[role].count == 1
}

/// Returns what a part is to take: the first one all roles with one pod, each of the divided role as much as
/// leaves a pod for every part after it, and of the other roles what fits.
fn shares_of(
    left: &[u32],
    roles: &[Role],
    main: usize,
    part: Part,
    index: usize,
    after: u32,
) -> Vec<(usize, u32)> {
    let once = |role: usize| exists_once(roles, main, role);
    let others = |role: usize| role != main && roles[role].count > 1;
    let mut pods = Vec::new();
    if index == 0 {
        pods.extend(
            (0..roles.len())
                .filter(|role| once(*role))
                .map(|role| (role, 1)),
        );
    }
    let of_main = part.pods.min(left[main].saturating_sub(after));
    pods.push((main, of_main));
    let others = (0..roles.len()).filter(|role| others(*role));
    pods.extend(others.map(|role| (role, left[role])));
    pods
}

fn sort(parts: &mut [Part]) {
    parts.sort_by_key(|part| (Reverse(part.pods), part.preference, part.place));
}

/// The usual choices, of which those that break the spread constraints of the job are left out. Others that meet them
/// are added: where there are many clusters, none of the usual ones may do.
fn allowed(
    inputs: Inputs<'_>,
    placement: &ClusterPlacement,
    parts: &[Part],
    clusters: usize,
    count: u32,
) -> Vec<Vec<Part>> {
    let enough = |choice: &[Part]| {
        let sum: u64 = choice.iter().map(|part| u64::from(part.pods)).sum();
        sum >= u64::from(count)
    };
    let mut found = choices::choices(parts, clusters, enough);
    let rules = placement.spread.as_slice();
    if rules.is_empty() {
        return found;
    }
    let fact = |part: &Part| {
        let cluster = &inputs.capacity.places()[part.place];
        inputs.capacity.cluster_fact(cluster)
    };
    found.retain(|choice| {
        let facts: Vec<_> = choice.iter().filter_map(fact).collect();
        spread::is_met(rules, &facts)
    });
    let known: Vec<(Part, &ClusterFact)> = parts
        .iter()
        .filter_map(|part| Some((*part, fact(part)?)))
        .collect();
    let facts: Vec<&ClusterFact> = known.iter().map(|(_, fact)| *fact).collect();
    let others = spread::choices(rules, &facts, clusters).into_iter();
    let others = others.map(|choice| choice.into_iter().map(|index| known[index].0).collect());
    for choice in others.filter(|choice: &Vec<Part>| enough(choice)) {
        let places = |choice: &[Part]| choice.iter().map(|part| part.place).collect::<Vec<_>>();
        if !found.iter().any(|known| places(known) == places(&choice)) {
            found.push(choice);
        }
    }
    found
}
