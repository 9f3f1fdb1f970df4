//! Claims of devices in the view of a member: part of what their pods request, or, where no pod
//! that is known has them, used by others.

use super::{SeenPod, View};
use crate::devices::{DeviceDelta, SeenClaim, Touched};
use engine::facts::{PodFact, PodPhase};
use engine::{Event, NodeName, Resources, Uid};
use runtime::watch::ObjectKey;
use std::collections::BTreeSet;

impl View {
    /// Takes in a delta of devices, of their classes, or of claims.
    pub(crate) fn device(&mut self, delta: DeviceDelta) {
        let had = self.nodes_with_devices();
        let Touched { devices, claims } = self.devices.take(delta);
        let claims = match devices {
            true => {
                let nodes: BTreeSet<_> = had.into_iter().chain(self.nodes_with_devices()).collect();
                nodes.iter().for_each(|name| self.tell_node(name));
                self.all_claims()
            }
            false => claims,
        };
        for (key, pod) in claims {
            self.tell_claim(&key);
            let waiting = self.waiting.get(&key).into_iter().flatten();
            let pods: BTreeSet<Uid> = pod.into_iter().chain(waiting.cloned()).collect();
            pods.iter().for_each(|pod| self.tell_pod(pod));
        }
    }

    fn nodes_with_devices(&self) -> Vec<String> {
        self.devices.nodes().map(str::to_owned).collect()
    }

    fn all_claims(&self) -> Vec<(ObjectKey, Option<Uid>)> {
        let claims = self.devices.claims();
        claims
            .map(|(key, claim)| (key.clone(), claim.pod.clone()))
            .collect()
    }

    /// Tells of a pod with the devices that it has claimed, where that is new.
    pub(super) fn tell_pod(&mut self, uid: &Uid) {
        let Some(known) = self.pods.get(uid) else {
            return;
        };
        let mut fact = known.seen.fact.clone();
        let was_bound = known.told.as_ref().is_some_and(|told| told.node.is_some());
        let open = self.unseen_claims(&known.seen.claims);
        // A pod is bound after devices were allocated to it, and may be seen before these are.
        // Until then it counts as not bound: what is held for it is held on.
        if !open.is_empty() && !was_bound {
            fact.node = None;
        }
        if let Some(node) = &fact.node {
            for (class, count) in self.claimed(uid, node.as_str()).iter() {
                // Devices that its containers request by the name of their class are in a claim
                // too, which the member made.
                let requested = fact.request.amount_of(class);
                fact.request.set(class.clone(), requested.max(count));
            }
        }
        for claim in open.into_iter().flatten() {
            self.waiting.entry(claim).or_default().insert(uid.clone());
        }
        if let Some(known) = self.pods.get_mut(uid)
            && known.told.as_ref() != Some(&fact)
        {
            known.told = Some(fact.clone());
            self.events.push(Event::PodUpserted(fact));
        }
    }

    /// A pod that is gone waits for none of its claims.
    pub(super) fn wait_no_more(&mut self, uid: &Uid, pod: Option<&SeenPod>) {
        for claim in pod.into_iter().flat_map(|pod| pod.claims.iter().flatten()) {
            if let Some(pods) = self.waiting.get_mut(claim) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.waiting.remove(claim);
                }
            }
        }
    }

    /// Of the claims that a pod names, those that have not been seen with what they got.
    fn unseen_claims(&self, claims: &[Option<ObjectKey>]) -> Vec<Option<ObjectKey>> {
        let is_seen = |claim: &Option<ObjectKey>| {
            claim
                .as_ref()
                .is_some_and(|key| self.devices.is_allocated(key))
        };
        let open = claims.iter().filter(|claim| !is_seen(claim));
        open.cloned().collect()
    }

    /// What the claims that were made for a pod hold on its node.
    fn claimed(&self, uid: &Uid, node: &str) -> Resources {
        let claims = self.devices.claims_of(uid);
        claims
            .filter_map(|key| self.devices.held(self.devices.claim_of(key)?).remove(node))
            // These are numbers of devices, far from what could not be counted.
            .fold(Resources::new(), |sum, held| {
                sum.checked_add(&held).unwrap_or(sum)
            })
    }

    /// A pod came or went: what its claims hold is its own, or others'.
    pub(super) fn tell_claims_of(&mut self, pod: &Uid) {
        let claims: Vec<ObjectKey> = self.devices.claims_of(pod).cloned().collect();
        claims.iter().for_each(|key| self.tell_claim(key));
    }

    /// Tells what a claim holds that is no known pod's: one that was made by hand, who uses
    /// it, or one whose pod has ended or is not bound yet. Where that is new.
    fn tell_claim(&mut self, key: &ObjectKey) {
        let claim = self.devices.claim_of(key);
        if claim.is_some_and(|claim| self.devices.is_allocated(&claim.key)) {
            self.waiting.remove(key);
        }
        let loose = claim.filter(|claim| {
            let pod = claim.pod.as_ref();
            !pod.is_some_and(|pod| self.pods.contains_key(pod))
        });
        let facts = loose.map_or_else(Vec::new, |claim| self.facts_of(claim));
        let told = self.loose.remove(key).unwrap_or_default();
        for fact in &told {
            if !facts.iter().any(|now| now.uid == fact.uid) {
                let gone = Event::PodGone(self.cluster.clone(), fact.uid.clone());
                self.events.push(gone);
            }
        }
        for fact in facts.iter().filter(|fact| !told.contains(fact)) {
            self.events.push(Event::PodUpserted(fact.clone()));
        }
        if !facts.is_empty() {
            self.loose.insert(key.clone(), facts);
        }
    }

    /// What a claim holds, as if a pod of others did; one fact a node.
    fn facts_of(&self, claim: &SeenClaim) -> Vec<PodFact> {
        let held = self.devices.held(claim).into_iter();
        held.map(|(node, request)| PodFact {
            cluster: self.cluster.clone(),
            uid: Uid::new(format!("{}@{node}", claim.uid)),
            node: Some(NodeName::new(&node)),
            request,
            job: None,
            phase: PodPhase::Active,
        })
        .collect()
    }
}
