//! The Works that the watch shows, by the binding that they belong to.

use crate::mirror::BindingIdentity;
use crate::mirror::seen_work::{ReadWork, SeenWork};
use crds::karmada::ResourceBinding;
use engine::ClusterName;
use runtime::watch::{Delta, ObjectKey};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct SeenWorks {
    /// Works by their binding, then by namespace and name.
    by_binding: HashMap<BindingIdentity, BTreeMap<ObjectKey, SeenWork>>,
    /// By binding, the clusters in which deleted Works have left their objects.
    left: HashMap<BindingIdentity, BTreeSet<ClusterName>>,
    /// The binding under which a Work is filed, for deltas that carry only its name.
    index: HashMap<ObjectKey, BindingIdentity>,
}

impl SeenWorks {
    /// Applies a Work's delta; returns the binding that it belongs to if it changed.
    pub(crate) fn file(&mut self, delta: Delta<ReadWork>) -> Option<BindingIdentity> {
        let (object, seen) = match delta {
            Delta::Upserted(work) => (work.object, work.owner.map(|owner| (owner, work.seen))),
            Delta::Gone(object) => (object, None),
            Delta::Listed => return None,
        };
        let owner = match &seen {
            Some((owner, _)) => owner.clone(),
            None => self.index.get(&object)?.clone(),
        };
        if seen.is_some() {
            self.refile(&object, &owner);
        }
        if let Some((_, work)) = &seen
            && work.deleting
            && work.preserves
        {
            let left = self.left.entry(owner.clone()).or_default();
            left.insert(ClusterName::new(&work.cluster));
        }
        let filed = self.by_binding.entry(owner.clone()).or_default();
        let changed = match seen {
            Some((_, work)) => filed.insert(object, work.clone()) != Some(work),
            None => {
                self.index.remove(&object);
                filed.remove(&object).is_some()
            }
        };
        if filed.is_empty() {
            self.by_binding.remove(&owner);
        }
        changed.then_some(owner)
    }

    /// Files a Work under `owner`. If an earlier binding of the same name left the Work, Karmada gives it the id
    /// of the new binding; it then no longer belongs to the earlier one.
    fn refile(&mut self, object: &ObjectKey, owner: &BindingIdentity) {
        let before = self.index.insert(object.clone(), owner.clone());
        let Some(before) = before.filter(|before| before != owner) else {
            return;
        };
        if let Some(filed) = self.by_binding.get_mut(&before) {
            filed.remove(object);
            if filed.is_empty() {
                self.by_binding.remove(&before);
            }
        }
    }

    /// Returns the Works of a binding that the watch shows.
    pub(crate) fn of<'a>(
        &'a self,
        binding: &ResourceBinding,
    ) -> impl Iterator<Item = &'a SeenWork> {
        BindingIdentity::of(binding)
            .and_then(|owner| self.by_binding.get(&owner))
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// Returns the clusters in which deleted Works of a binding have left their objects.
    pub(crate) fn left_by(&self, binding: &ResourceBinding) -> BTreeSet<ClusterName> {
        let left = BindingIdentity::of(binding).and_then(|owner| self.left.get(&owner));
        left.cloned().unwrap_or_default()
    }

    /// Drops the clusters of [`Self::left_by`]: no member has anything of the binding.
    pub(crate) fn drop_left(&mut self, binding: &ResourceBinding) {
        if let Some(owner) = BindingIdentity::of(binding) {
            self.left.remove(&owner);
        }
    }

    /// Returns the Works of a binding, even if it is gone.
    pub(crate) fn with(&self, owner: &BindingIdentity) -> impl Iterator<Item = &SeenWork> {
        let works = self.by_binding.get(owner).into_iter();
        works.flat_map(BTreeMap::values)
    }

    /// Returns all Works, by their binding.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&BindingIdentity, Vec<&SeenWork>)> {
        let works = self.by_binding.iter();
        works.map(|(owner, works)| (owner, works.values().collect()))
    }

    /// Returns true if nothing is kept of any Work.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_binding.is_empty() && self.index.is_empty()
    }
}
