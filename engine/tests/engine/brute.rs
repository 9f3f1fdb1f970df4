//! Placement compared with an exhaustive search.

use crate::world::{World, cluster, foreign, gang, key, node, queue, role};
use engine::facts::{Demand, Role};
use engine::{Event, JobState};
use proptest::prelude::*;

/// Free devices and cores.
type Free = (u32, u32);

/// Returns true if all pods fit, by trying every node for each.
fn fits(nodes: &mut Vec<Free>, pods: &[Free]) -> bool {
    let Some(((gpus, cores), rest)) = pods.split_first() else {
        return true;
    };
    (0..nodes.len()).any(|at| {
        let (free_gpus, free_cores) = nodes[at];
        if free_gpus < *gpus || free_cores < *cores {
            return false;
        }
        nodes[at] = (free_gpus - gpus, free_cores - cores);
        let found = fits(nodes, rest);
        nodes[at] = (free_gpus, free_cores);
        found
    })
}

fn fleet(clusters: &[Vec<Free>]) -> World {
    let mut world = World::new();
    world.queue(queue("q"));
    for (index, nodes) in clusters.iter().enumerate() {
        let name = format!("c{index:02}");
        world.apply(Event::ClusterUpserted(cluster(&name)));
        for (at, (gpus, cores)) in nodes.iter().enumerate() {
            let mut fact = node(&name, &format!("n{at}"), "cpu 16, gpu 8");
            fact.domains = vec![format!("r{}", at / 2)];
            world.apply(Event::NodeUpserted(fact));
            let taken = format!("gpu {}, cpu {}", 8 - gpus, 16 - cores);
            world.apply(foreign(&name, &format!("n{at}"), &taken));
        }
    }
    world
}

fn request((gpus, cores): Free) -> String {
    format!("gpu {gpus}, cpu {cores}")
}

fn free() -> impl Strategy<Value = Free> {
    (0..=8_u32, 0..=16_u32)
}

fn asked() -> impl Strategy<Value = (u32, Free)> {
    (1..=3_u32, (0..=8_u32, 1..=12_u32))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(crate::random::cases(128)))]

    #[test]
    fn a_gang_is_placed_whenever_one_cluster_takes_it(
        clusters in prop::collection::vec(prop::collection::vec(free(), 1..4), 1..12),
        roles in prop::collection::vec(asked(), 1..4),
    ) {
        let mut world = fleet(&clusters);
        let roles_of_job: Vec<Role> = roles.iter().enumerate()
            .map(|(index, (count, each))| role(&format!("r{index}"), *count, &request(*each)))
            .collect();
        let job = world.job("job", "q", gang(roles_of_job));
        world.submit(job);
        world.decided();
        let pods: Vec<Free> = roles.iter()
            .flat_map(|(count, each)| std::iter::repeat_n(*each, *count as usize))
            .collect();
        let possible = clusters.iter().any(|nodes| fits(&mut nodes.clone(), &pods));
        let placed = world.state("job") == JobState::Assumed;
        prop_assert_eq!(placed, possible);
    }

    #[test]
    fn a_divided_gang_takes_the_fewest_clusters(
        clusters in prop::collection::vec(prop::collection::vec(free(), 1..4), 1..7),
        (count, each) in (1..=12_u32, (1..=8_u32, 1..=12_u32)),
    ) {
        let mut world = fleet(&clusters);
        let demand = Demand {
            split: engine::facts::Split::Allowed,
            ..gang(vec![role("w", count, &request(each))])
        };
        let job = world.job("job", "q", demand);
        world.submit(job);
        world.decided();
        let assumed = |nodes: &Vec<Free>| nodes.iter()
            .map(|(gpus, cores)| (gpus / each.0).min(cores / each.1))
            .sum::<u32>();
        let mut rooms: Vec<u32> = clusters.iter().map(assumed).collect();
        rooms.sort_unstable_by(|a, b| b.cmp(a));
        let mut sum = 0;
        let fewest = rooms.iter().position(|room| { sum += room; sum >= count });
        let view = world.engine.job(&key("job")).unwrap();
        let taken = view.admission.map(|admission| admission.shares.len() - 1);
        prop_assert_eq!(taken, fewest);
    }
}
