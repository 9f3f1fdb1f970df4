//! Ended pods of owners that have very many of them.
//!
//! A Job of many completions keeps its ended pods for as long as it is there. Only their number is of use: what was
//! wrong with one matters when it ends. So of each owner at most [`KEPT`] ended pods are kept and sent as facts. Of
//! further ones a hash of the name is kept, to know which are gone, and their number is sent
//! ([`Event::PodsEnded`]). One that its node ended is not counted: another takes its place.

use super::{MemberView, SeenPod};
use crate::matching::Belongs;
use facts::{Event, JobKey, PodPhase, Uid};
use runtime::watch::ObjectKey;
use std::collections::HashSet;
use std::hash::BuildHasher;

/// The ended pods of one owner that are kept.
const KEPT: usize = 100;

/// The ended pods of one owner of which only the number is kept.
#[derive(Debug)]
pub(super) struct EndedPods {
    /// The hashes of their names.
    seen: HashSet<u64>,
    /// From an earlier connection, and not seen over the present one.
    unseen: HashSet<u64>,
    /// The job of their owner, until that is known.
    likely: JobKey,
}

impl EndedPods {
    /// A new connection lists them.
    pub(super) fn begin(&mut self) {
        self.unseen.extend(self.seen.drain());
    }

    fn has(&self, name: u64) -> bool {
        self.seen.contains(&name) || self.unseen.contains(&name)
    }

    fn remove(&mut self, name: u64) -> bool {
        self.seen.remove(&name) | self.unseen.remove(&name)
    }

    fn len(&self) -> usize {
        self.seen.len() + self.unseen.len()
    }
}

impl MemberView {
    /// Returns true if a pod is one of those of which only the number is kept, and has still ended. If it has not,
    /// it is another of the same name, and is not counted any more.
    pub(super) fn is_counted(&mut self, pod: &SeenPod) -> bool {
        let Belongs::Owned { owner, .. } = &pod.belongs else {
            return false;
        };
        let name = self.hasher.hash_one(&pod.key);
        let Some(ended) = self.ended.get_mut(&owner.uid) else {
            return false;
        };
        if !ended.has(name) {
            return false;
        }
        if pod.fact.phase == PodPhase::Ended {
            ended.unseen.remove(&name);
            ended.seen.insert(name);
            return true;
        }
        ended.remove(name);
        self.emit_ended(&owner.uid);
        false
    }

    /// Notes whether a pod of an owner has ended, before it replaces what is known of it.
    pub(super) fn note_ended(&mut self, uid: &Uid, pod: &SeenPod) {
        let before = self.pods.get(uid);
        let had_ended = before.is_some_and(|known| known.seen.fact.ended());
        let Belongs::Owned { owner, .. } = &pod.belongs else {
            return;
        };
        let ended = usize::from(pod.fact.ended());
        // A new owner has its entry a moment later, without this pod.
        let entry = self.owner_entry(owner);
        entry.ended = (entry.ended + ended).saturating_sub(usize::from(had_ended));
    }

    /// Returns true if a pod has ended whose owner has enough others that have. A pod with claims of devices is kept:
    /// it has them until its member takes them back.
    pub(super) fn has_many_ended(&self, pod: &SeenPod) -> bool {
        let Belongs::Owned { owner, .. } = &pod.belongs else {
            return false;
        };
        let entry = self.owners.get(&owner.uid);
        let many = entry.is_some_and(|entry| entry.ended >= KEPT);
        many && pod.fact.ended() && pod.claims.is_empty()
    }

    /// Counts an ended pod, which is not kept.
    pub(super) fn count_ended(&mut self, pod: &SeenPod) {
        let Belongs::Owned { owner, likely } = &pod.belongs else {
            return;
        };
        if pod.fact.phase != PodPhase::Ended || pod.fact.node.is_none() {
            return;
        }
        let name = self.hasher.hash_one(&pod.key);
        let ended = self.ended.entry(owner.uid.clone());
        let ended = ended.or_insert_with(|| EndedPods {
            seen: HashSet::new(),
            unseen: HashSet::new(),
            likely: likely.clone(),
        });
        ended.seen.insert(name);
        self.emit_ended(&owner.uid);
    }

    /// A pod that is not known one by one is gone.
    pub(super) fn counted_gone(&mut self, key: &ObjectKey) {
        let name = self.hasher.hash_one(key);
        let mut all = self.ended.iter_mut();
        let owner = all.find_map(|(owner, ended)| ended.remove(name).then(|| owner.clone()));
        if let Some(owner) = owner {
            self.emit_ended(&owner);
        }
    }

    /// All pods were listed: those that were not seen are gone.
    pub(super) fn ended_listed(&mut self) {
        let mut owners = Vec::new();
        for (owner, ended) in &mut self.ended {
            if !std::mem::take(&mut ended.unseen).is_empty() {
                owners.push(owner.clone());
            }
        }
        owners.iter().for_each(|owner| self.emit_ended(owner));
    }

    /// Sends how many ended pods of an owner are not known one by one, if there are or were any.
    pub(super) fn emit_ended(&mut self, owner: &str) {
        let Some(ended) = self.ended.get(owner) else {
            return;
        };
        let entry = self.owners.get(owner);
        let job = entry.and_then(|entry| entry.answer.clone());
        let pods = ended.len();
        self.events.push(Event::PodsEnded {
            cluster: self.cluster.clone(),
            owner: Uid::new(owner),
            job: job.unwrap_or_else(|| Some(ended.likely.clone())),
            pods: u32::try_from(pods).unwrap_or(u32::MAX),
        });
        if pods == 0 {
            self.ended.remove(owner);
            if self
                .owners
                .get(owner)
                .is_some_and(|entry| entry.pods.is_empty())
            {
                self.owners.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests;
