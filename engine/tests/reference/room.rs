//! Whether a gang fits on nodes, by trying every placement.

use crate::case::{Amounts, Role};

/// A node: its free capacity.
#[derive(Debug, Clone)]
pub struct Free {
    /// The index of the caller's node.
    pub node: usize,
    pub amounts: Amounts,
}

/// A placement of all pods of all roles on `nodes` that `holds` accepts: the pods of each role on
/// each node. `None` if there is none.
pub fn place(
    roles: &[Role],
    nodes: &[Free],
    holds: &dyn Fn(&[Vec<u32>]) -> bool,
) -> Option<Vec<Vec<u32>>> {
    let mut free: Vec<Amounts> = nodes.iter().map(|node| node.amounts).collect();
    let mut placed = vec![vec![0; nodes.len()]; roles.len()];
    let counts: Vec<u32> = roles.iter().map(|role| role.count).collect();
    search(roles, &mut free, &mut placed, (0, 0), &counts, holds).then_some(placed)
}

/// Tries every number of pods of role `at.0` on node `at.1`, the most first, then the next node or
/// role.
fn search(
    roles: &[Role],
    free: &mut [Amounts],
    placed: &mut [Vec<u32>],
    at: (usize, usize),
    left: &[u32],
    holds: &dyn Fn(&[Vec<u32>]) -> bool,
) -> bool {
    let (role, node) = at;
    if role == roles.len() {
        return holds(placed);
    }
    if left[role] == 0 {
        return search(roles, free, placed, (role + 1, 0), left, holds);
    }
    if node == free.len() {
        return false;
    }
    let each = roles[role].each;
    let most = fits(free[node], each).min(left[role]);
    for count in (0..=most).rev() {
        let before = free[node];
        free[node] = minus(before, each, count);
        placed[role][node] = count;
        let mut still = left.to_vec();
        still[role] -= count;
        if search(roles, free, placed, (role, node + 1), &still, holds) {
            return true;
        }
        free[node] = before;
        placed[role][node] = 0;
    }
    false
}

/// The number of pods of `each` that fit into `free`.
pub fn fits(free: Amounts, each: Amounts) -> u32 {
    let resource_ids = free.into_iter().zip(each).filter(|(_, each)| *each > 0);
    let most = resource_ids.map(|(free, each)| free.max(0) / each).min();
    most.map_or(u32::MAX, |most| u32::try_from(most).unwrap())
}

pub fn minus(from: Amounts, each: Amounts, count: u32) -> Amounts {
    std::array::from_fn(|dim| from[dim] - each[dim] * i64::from(count))
}

pub fn plus(to: Amounts, each: Amounts, count: u32) -> Amounts {
    std::array::from_fn(|dim| to[dim] + each[dim] * i64::from(count))
}
