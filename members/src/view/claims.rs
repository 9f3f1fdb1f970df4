//! Claims of devices in the view of a member. They are part of the requests of their pods; without a known
//! pod they count as used by other pods.

use super::{MemberView, SeenPod};
use crate::devices::{DeviceDelta, SeenClaim, Touched};
use facts::{Event, NodeName, PodFact, PodPhase, Resources, Uid};
use runtime::watch::ObjectKey;
use std::collections::BTreeSet;

impl MemberView {
    /// Applies a delta of slices, classes, claims or rules.
    pub(crate) fn device(&mut self, delta: DeviceDelta) {
        let had = self.nodes_with_devices();
        let Touched { devices, claims } = self.devices.take(delta);
        let claims = match devices {
            true => {
                let nodes: BTreeSet<_> = had.into_iter().chain(self.nodes_with_devices()).collect();
                nodes.iter().for_each(|name| self.emit_node(name));
                self.all_claims()
            }
            false => claims,
        };
        for (key, pod) in claims {
            self.emit_claim(&key);
            let waiting = self.waiting.get(&key).into_iter().flatten();
            let pods: BTreeSet<Uid> = pod.into_iter().chain(waiting.cloned()).collect();
            pods.iter().for_each(|pod| self.emit_pod(pod));
        }
    }

    fn nodes_with_devices(&self) -> Vec<String> {
        let tainted = self.devices.tainted_nodes();
        self.devices
            .nodes()
            .chain(tainted)
            .map(str::to_owned)
            .collect()
    }

    fn all_claims(&self) -> Vec<(ObjectKey, Option<Uid>)> {
        let claims = self.devices.claims();
        claims
            .map(|(key, claim)| (key.clone(), claim.pod.clone()))
            .collect()
    }

    /// Sends a pod with the devices that it has claimed, if that has changed.
    pub(super) fn emit_pod(&mut self, uid: &Uid) {
        let Some(known) = self.pods.get(uid) else {
            return;
        };
        let mut fact = known.seen.fact.clone();
        let was_bound = known.sent.as_ref().is_some_and(|sent| sent.node.is_some());
        let open = self.unseen_claims(&known.seen.claims);
        // A pod is bound after devices were allocated to it, but may be seen before the allocation. Until then
        // it counts as unbound, so that the capacity assumed for it stays assumed.
        if !open.is_empty() && !was_bound {
            fact.node = None;
        }
        if let Some(node) = &fact.node {
            for (class, count) in self.claimed(uid, node.as_str()).iter() {
                // Devices that its containers request by the name of their class are also in a claim, which the member
                // created.
                let requested = fact.request.amount_of(class);
                fact.request.set(class.clone(), requested.max(count));
            }
        }
        for claim in open.into_iter().flatten() {
            self.waiting.entry(claim).or_default().insert(uid.clone());
        }
        if let Some(known) = self.pods.get_mut(uid)
            && known.sent.as_ref() != Some(&fact)
        {
            known.sent = Some(fact.clone());
            self.events.push(Event::PodUpserted(fact));
        }
    }

    /// Removes a deleted pod from the claims that it waits for.
    pub(super) fn stop_waiting(&mut self, uid: &Uid, pod: Option<&SeenPod>) {
        for claim in pod.into_iter().flat_map(|pod| pod.claims.iter().flatten()) {
            if let Some(pods) = self.waiting.get_mut(claim) {
                pods.remove(uid);
                if pods.is_empty() {
                    self.waiting.remove(claim);
                }
            }
        }
    }

    /// Returns the claims of a pod whose allocation has not been seen.
    fn unseen_claims(&self, claims: &[Option<ObjectKey>]) -> Vec<Option<ObjectKey>> {
        let is_seen = |claim: &Option<ObjectKey>| {
            claim
                .as_ref()
                .is_some_and(|key| self.devices.is_allocated(key))
        };
        let open = claims.iter().filter(|claim| !is_seen(claim));
        open.cloned().collect()
    }

    /// Returns the devices on its node of the claims that were created for a pod.
    fn claimed(&self, uid: &Uid, node: &str) -> Resources {
        let claims = self.devices.claims_of(uid);
        claims
            .filter_map(|key| self.devices.held(self.devices.claim_of(key)?).remove(node))
            // Numbers of devices are too small to overflow.
            .fold(Resources::new(), |sum, held| {
                sum.checked_add(&held).unwrap_or(sum)
            })
    }

    /// Sends the claims of a pod that came or went: they count as its own, or as used by others.
    pub(super) fn emit_claims_of(&mut self, pod: &Uid) {
        let claims: Vec<ObjectKey> = self.devices.claims_of(pod).cloned().collect();
        claims.iter().for_each(|key| self.emit_claim(key));
    }

    /// Sends what a claim without a known bound pod holds, if that has changed: the claim was created by hand,
    /// or its pod has ended or is not bound yet.
    fn emit_claim(&mut self, key: &ObjectKey) {
        let claim = self.devices.claim_of(key);
        if claim.is_some_and(|claim| self.devices.is_allocated(&claim.key)) {
            self.waiting.remove(key);
        }
        let loose = claim.filter(|claim| {
            let pod = claim.pod.as_ref();
            !pod.is_some_and(|pod| self.pods.contains_key(pod))
        });
        let facts = loose.map_or_else(Vec::new, |claim| self.facts_of(claim));
        let sent = self.loose.remove(key).unwrap_or_default();
        for fact in &sent {
            if !facts.iter().any(|now| now.uid == fact.uid) {
                let gone = Event::PodGone(self.cluster.clone(), fact.uid.clone());
                self.events.push(gone);
            }
        }
        for fact in facts.iter().filter(|fact| !sent.contains(fact)) {
            self.events.push(Event::PodUpserted(fact.clone()));
        }
        if !facts.is_empty() {
            self.loose.insert(key.clone(), facts);
        }
    }

    /// Returns what a claim holds as facts of pods of no job, one for each node.
    fn facts_of(&self, claim: &SeenClaim) -> Vec<PodFact> {
        let held = self.devices.held(claim).into_iter();
        held.map(|(node, request)| PodFact {
            cluster: self.cluster.clone(),
            uid: Uid::new(format!("{}@{node}", claim.uid)),
            node: Some(NodeName::new(&node)),
            request,
            job: None,
            phase: PodPhase::Running,
            symptom: None,
            grace_s: 0,
        })
        .collect()
    }
}
