//! The validity of queues: why a queue takes no jobs.
//!
//! The rules are those of Volcano's webhook. For each resource that is named, guarantee ≤ deserved
//! ≤ capability; none of them is above the parent's capability; the guarantees of the children
//! together are within the queue's own guarantee and capability. The same holds for each bound of
//! its policy, against the parent's bound on the same pools. A queue that breaks a rule takes no
//! jobs, nor do those below it, and counts as one without quota; its siblings are not affected. Only from
//! eviction its guarantee still protects its jobs: they could not start again, and the mistake may be in
//! another object. A queue that its policy stops takes no jobs either, and keeps its quota.
//!
//! Some rules of Volcano's webhook do not apply here: the deserved amounts of the children may
//! exceed their parent's, a guarantee needs no deserved amount, and the tree may have more than
//! five levels. Deserved amounts may be oversubscribed since reclaim compares queues level by
//! level. `docs/scheduling.md` has the list.

use crate::amounts::resource_ids::ResourceId;
use crate::amounts::totals::clamp;
use crate::quota::accounts::{Account, NamedQuota};
use crate::quota::bounds::Bounds;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::{OVERALL, ScopeId};
use crate::quota::store::Quota;
use facts::{QueueFact, QueueName, QueueState, Reason, StopPolicy};

impl Quota {
    /// Why a queue takes no jobs, if so.
    pub(crate) fn problem(&self, name: &QueueName) -> Option<(Reason, String)> {
        match self.id(name) {
            Some(id) => self.problem_of(id),
            None => Some(not_found(name)),
        }
    }

    pub(super) fn problem_of(&self, id: QueueId) -> Option<(Reason, String)> {
        let node = self.node(id);
        if node.fact.is_none() {
            return Some(not_found(&node.name));
        }
        let mut up = self.upwards(id);
        if let Some(broken) = up.find_map(|(_, node)| node.broken.clone()) {
            return Some((Reason::QueueInvalid, broken));
        }
        let mut up = self.upwards(id);
        let wrong = up.find_map(|(_, node)| node.wrong.clone());
        wrong.or_else(|| stopped(node)).or_else(|| {
            let children = node.child_names(self);
            let children: Vec<&str> = children.iter().map(QueueName::as_str).collect();
            (!children.is_empty()).then(|| {
                let message = format!(
                    "queue {} has children ({}); only a queue without children takes jobs",
                    node.name,
                    children.join(", ")
                );
                (Reason::QueueNotLeaf, message)
            })
        })
    }

    /// Why nothing more is charged to a queue by growth, if so: it, or one above it, is deleted. Its bounds may be
    /// unknown.
    pub(crate) fn is_deleted(&self, name: &QueueName) -> Option<String> {
        let mut up = self.upwards(self.id(name)?);
        let gone = |fact: &QueueFact| fact.state == QueueState::Deleting;
        let found = up.find(|(_, node)| node.fact.as_ref().is_some_and(gone));
        found.map(|(_, node)| deleted(&node.name))
    }

    /// True if a queue takes jobs: it has no [`Self::problem_of`].
    pub(crate) fn takes_jobs(&self, id: QueueId) -> bool {
        let node = self.node(id);
        let fine = |node: &QueueNode| node.broken.is_none() && node.wrong.is_none();
        node.fact.is_some()
            && node.children.is_empty()
            && node.stop().is_none()
            && self.upwards(id).all(|(_, node)| fine(node))
    }

    /// Updates the problem with a queue itself. True if it has changed.
    pub(super) fn revalidate(&mut self, id: QueueId) -> bool {
        let wrong = self.wrong_with(id);
        let changed = self.node(id).wrong != wrong;
        if changed {
            self.node_mut(id).wrong = wrong;
            self.unranked.extend(self.subtree(id));
        }
        changed
    }

    /// Updates the validity, the subtree quota and the bounds of a queue after a change of its
    /// parent.
    pub(super) fn propagate_all(&mut self, id: QueueId) {
        let scopes: Vec<ScopeId> = self.node(id).accounts.iter().map(|(s, _)| *s).collect();
        for scope in scopes {
            self.propagate(id, scope);
        }
    }

    fn wrong_with(&self, id: QueueId) -> Option<(Reason, String)> {
        let node = self.node(id);
        let name = &node.name;
        let fact = node.fact.as_ref().and_then(|fact| fact.invalid.clone());
        let policy = || node.policy.as_ref()?.invalid.clone();
        let invalid = fact.or_else(policy).or_else(|| {
            let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
            let scopes = bounds.filter_map(|bound| self.scopes.find(&bound.into()));
            let mut scopes = std::iter::once(OVERALL).chain(scopes);
            scopes.find_map(|scope| self.broken_rule(id, scope, node.account(scope)?))
        });
        if let Some(what) = invalid {
            return Some((Reason::QueueInvalid, format!("queue {name}: {what}")));
        }
        let closed = |how| {
            let message =
                format!("queue {name} is {how} and takes no jobs; open it to let them in");
            Some((Reason::QueueClosed, message))
        };
        match node.fact.as_ref()?.state {
            QueueState::Open => None,
            QueueState::Closing => closed("closing"),
            QueueState::Closed => closed("closed"),
            QueueState::Deleting => Some((Reason::QueueClosed, deleted(name))),
        }
    }

    /// The first rule that an account breaks, in words: fields, values, and how to correct them.
    fn broken_rule(&self, id: QueueId, scope: ScopeId, account: &Account) -> Option<String> {
        let NamedQuota {
            guarantee,
            deserved,
            capability,
            ..
        } = &account.named;
        let own = [
            ("guarantee", guarantee, "deserved", deserved),
            ("guarantee", guarantee, "capability", capability),
            ("deserved", deserved, "capability", capability),
        ];
        for (low, lower, high, upper) in own {
            if let Some((resource, low_is, high_is)) = self.exceeds(lower, upper) {
                let field = |name| self.field(scope, name, resource);
                let [low_is, high_is] = [low_is, high_is].map(|a| self.text(resource, a));
                return Some(format!(
                    "{} {low_is} is more than {} {high_is}; lower the one to {high_is} or raise \
                     the other to {low_is}",
                    field(low),
                    field(high)
                ));
            }
        }
        let parent = self.node(id).parent;
        let rule = parent.and_then(|parent| self.over_parent(parent, scope, account));
        // The root has what its children have together.
        rule.or_else(|| parent.and_then(|_| self.guaranteed_below_exceeds(scope, account)))
    }

    /// Returns which amount is above the capability of the parent, in words.
    fn over_parent(&self, parent: QueueId, scope: ScopeId, account: &Account) -> Option<String> {
        let above = &self.node(parent).account(scope)?.named.capability;
        let named = &account.named;
        let fields = [
            ("capability", &named.capability),
            ("deserved", &named.deserved),
            ("guarantee", &named.guarantee),
        ];
        fields.into_iter().find_map(|(name, bounds)| {
            let (resource, is, most) = self.exceeds(bounds, above)?;
            let [is, most] = [is, most].map(|amount| self.text(resource, amount));
            let parent = &self.node(parent).name;
            Some(format!(
                "{} {is} is more than the {} {most} of its parent {parent}; lower it to {most} or \
                 raise the parent's to {is}",
                self.field(scope, name, resource),
                self.field(scope, "capability", resource),
            ))
        })
    }

    /// Returns which own amount is below the guarantees of the children together, in words.
    fn guaranteed_below_exceeds(&self, scope: ScopeId, account: &Account) -> Option<String> {
        let mut guaranteed = Bounds::default();
        for (resource, sum) in account.below.guarantee.iter() {
            guaranteed.set(resource, sum);
        }
        let fields = [
            ("guarantee", &account.named.guarantee),
            ("capability", &account.named.capability),
        ];
        fields.into_iter().find_map(|(name, own)| {
            let (resource, sum, own) = self.exceeds(&guaranteed, own)?;
            let [sum, own] = [sum, own].map(|amount| self.text(resource, amount));
            Some(format!(
                "{} {own} is less than the {sum} that the queues below it are guaranteed \
                 together; raise it to {sum} or lower theirs",
                self.field(scope, name, resource),
            ))
        })
    }

    /// The first resource by name whose amount in `low` exceeds that in `high`, with both amounts.
    fn exceeds(&self, low: &Bounds, high: &Bounds) -> Option<(ResourceId, i128, i128)> {
        low.iter()
            .filter_map(|(id, amount)| Some((id, amount, high.get(id)?)))
            .filter(|(_, low, high)| low > high)
            .min_by_key(|(id, ..)| self.resource_ids.name(*id))
    }

    fn field(&self, scope: ScopeId, name: &str, resource: ResourceId) -> String {
        let resource = self.resource_ids.name(resource);
        if scope == OVERALL {
            return format!("{name}.{resource}");
        }
        let pools = self.scopes.get(scope).pools.to_string();
        format!("pools[{pools}].{name}.{resource}")
    }

    fn text(&self, resource: ResourceId, amount: i128) -> String {
        self.resource_ids.name(resource).format(clamp(amount))
    }
}

/// Why a queue takes no jobs of its own, if its policy stops it. Queues below it are not affected.
fn stopped(node: &QueueNode) -> Option<(Reason, String)> {
    let stop = match node.stop()? {
        StopPolicy::Hold => "Hold",
        StopPolicy::HoldAndDrain => "HoldAndDrain",
    };
    let name = &node.name;
    let message = format!(
        "queue {name} is stopped: spec.stopPolicy of capacitypolicy {name} is {stop}; users who may change \
         that policy resume the queue with: kubectl patch capacitypolicy {name} --type merge -p \
         '{{\"spec\":{{\"stopPolicy\":\"None\"}}}}'"
    );
    Some((Reason::QueueStopped, message))
}

fn deleted(name: &QueueName) -> String {
    format!(
        "queue {name} is deleted and takes no jobs; its place stays in the tree until nothing is charged to it \
         or below; create it again or name another queue"
    )
}

fn not_found(name: &QueueName) -> (Reason, String) {
    (
        Reason::QueueNotFound,
        format!("queue {name} does not exist; create it or name another"),
    )
}
