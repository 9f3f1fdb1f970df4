//! Controllers of gangs: they start pods in the place of those that were lost, on nodes where the engine holds
//! capacity for them.

use super::inject::{FaultInjector, Sides};
use super::pods::{SimulatedPod, SimulatedPods};
use engine::facts::PodPhase;
use engine::{ClusterName, Event};

impl FaultInjector<'_> {
    /// The controller of a job starts pods in the place of the lost ones. They wait until there is room for all of
    /// them.
    pub(super) fn replaces(&mut self, job: usize, sides: &mut Sides<'_>) {
        let recovery = &self.jobs[job];
        if recovery.runs && recovery.stalled && recovery.detected_at.is_some() {
            self.replacing.insert(job);
            self.replace_waiting(sides);
        }
    }

    /// Places the pods that wait, where there is room for all of a job. Returns true if there was for any.
    pub(crate) fn replace_waiting(&mut self, sides: &mut Sides<'_>) -> bool {
        let mut any = false;
        for job in self.replacing.clone() {
            if let Some(places) = self.places(job, sides) {
                self.replacing.remove(&job);
                any = true;
                for (lost, node) in places {
                    self.replaced(job, &lost, node, sides);
                }
                self.goes_on(job, sides);
            }
        }
        any
    }

    /// The lost pods of a job, each with the node for the one in its place; `None` while not all have one.
    fn places(&self, job: usize, sides: &Sides<'_>) -> Option<Vec<(SimulatedPod, usize)>> {
        let sim = self.job(job);
        let nodes = &self.scenario.fleet.nodes;
        let mut open: Vec<(ClusterName, String, usize, u32)> = Vec::new();
        for (cluster, slot) in sides.engine.pods_of(&sim.fact.key).assumed() {
            let node = self.pods.index_of(&cluster, &slot.node)?;
            open.push((cluster, slot.role, node, slot.count));
        }
        let mut places = Vec::new();
        for lost in self.pods.of(job).iter().filter(|pod| pod.failed) {
            let role = &sim.fact.demand.roles[lost.role].name;
            let cluster = &nodes[lost.node].cluster;
            let place = open.iter_mut().find(|(at, of, node, left)| {
                at == cluster && of == role && *left > 0 && !self.down.contains_key(node)
            })?;
            place.3 -= 1;
            places.push((*lost, place.2));
        }
        Some(places)
    }

    fn replaced(&mut self, job: usize, lost: &SimulatedPod, node: usize, sides: &mut Sides<'_>) {
        let (sim, fleet) = (self.job(job), &self.scenario.fleet);
        let cluster = fleet.nodes[lost.node].cluster.clone();
        let gone = Event::PodGone(cluster, SimulatedPods::uid(lost));
        sides.engine.apply(gone);
        let pod = self.pods.replace(job, lost, node);
        self.placed(job, &pod, sides.now);
        let fact = SimulatedPods::fact(&pod, sim, fleet, PodPhase::Running);
        sides.engine.apply(Event::PodUpserted(fact));
    }
}
