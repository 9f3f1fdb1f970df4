//! What makes a queue one that takes no jobs.
//!
//! The rules are taken from Volcano's webhook: per resource, guarantee ≤ deserved ≤
//! capability, as far as they are named; none of the three above what the parent's capability
//! names; what the queues below are guaranteed together within the queue's own guarantee and
//! capability, where it names them. The same for each bound of its policy, against the bound of
//! the parent over the same pools. A queue that breaks a rule stops, with all below it, and counts
//! as one that names no quota; its siblings go on.
//!
//! Not taken over: Volcano's webhook also refuses queues whose deserved add up to more than that of
//! their parent, a guarantee without a deserved amount, and more than five levels. Deserved of the
//! queues below may exceed that of the parent together here: it is a way to oversubscribe, and
//! breaks no promise, since reclaim compares queues level by level. `docs/scheduling.md` has the
//! list.

use crate::amounts::resource_ids::ResourceId;
use crate::amounts::totals::clamp;
use crate::api::facts::QueueState;
use crate::api::ids::QueueName;
use crate::api::reason::Reason;
use crate::quota::accounts::{Account, NamedQuota};
use crate::quota::bounds::Bounds;
use crate::quota::queue::{QueueId, QueueNode};
use crate::quota::scopes::{OVERALL, ScopeId};
use crate::quota::store::Quota;

impl Quota {
    /// Why the queue takes no jobs, if so.
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
        up.find_map(|(_, node)| node.wrong.clone()).or_else(|| {
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

    /// True if a queue takes jobs: [`Self::problem_of`] without the words.
    pub(crate) fn takes_jobs(&self, id: QueueId) -> bool {
        let node = self.node(id);
        let fine = |node: &QueueNode| node.broken.is_none() && node.wrong.is_none();
        node.fact.is_some()
            && node.children.is_empty()
            && self.upwards(id).all(|(_, node)| fine(node))
    }

    /// Works out what is wrong with one queue itself. True if that has changed.
    pub(super) fn revalidate(&mut self, id: QueueId) -> bool {
        let wrong = self.wrong_with(id);
        let changed = self.node(id).wrong != wrong;
        if changed {
            self.node_mut(id).wrong = wrong;
            self.unranked.extend(self.subtree(id));
        }
        changed
    }

    /// Updates a queue whose surroundings changed: what is wrong with it, and with that its
    /// subtree quota, may have changed.
    pub(super) fn propagate_all(&mut self, id: QueueId) {
        let scopes: Vec<ScopeId> = self.node(id).accounts.iter().map(|(s, _)| *s).collect();
        for scope in scopes {
            self.propagate(id, scope);
        }
    }

    fn wrong_with(&self, id: QueueId) -> Option<(Reason, String)> {
        let node = self.node(id);
        let name = &node.name;
        let told = node.fact.as_ref().and_then(|fact| fact.invalid.clone());
        let told = told.or_else(|| {
            node.policy
                .as_ref()
                .and_then(|policy| policy.invalid.clone())
        });
        let invalid = told.or_else(|| {
            let bounds = node.policy.iter().flat_map(|policy| &policy.pools);
            let scopes = bounds.filter_map(|bound| self.scopes.find(bound));
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
            QueueState::Deleting => {
                let message = format!(
                    "queue {name} is deleted and takes no jobs; it stays in the tree until nothing \
                     is charged to it or below; name another queue"
                );
                Some((Reason::QueueClosed, message))
            }
        }
    }

    /// The first rule that one account breaks: field, value, and what would be right.
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
        // What the root is guaranteed and deserves is what those below it are and do.
        rule.or_else(|| parent.and_then(|_| self.promised_too_much(scope, account)))
    }

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

    fn promised_too_much(&self, scope: ScopeId, account: &Account) -> Option<String> {
        let mut promised = Bounds::default();
        for (resource, sum) in account.below.guarantee.iter() {
            promised.set(resource, sum);
        }
        let fields = [
            ("guarantee", &account.named.guarantee),
            ("capability", &account.named.capability),
        ];
        fields.into_iter().find_map(|(name, own)| {
            let (resource, sum, own) = self.exceeds(&promised, own)?;
            let [sum, own] = [sum, own].map(|amount| self.text(resource, amount));
            Some(format!(
                "{} {own} is less than the {sum} that the queues below it are guaranteed \
                 together; raise it to {sum} or lower theirs",
                self.field(scope, name, resource),
            ))
        })
    }

    /// The first resource by name of which `low` names more than `high` does, with both amounts.
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
        let pools = self.scopes.get(scope).to_string();
        format!("pools[{pools}].{name}.{resource}")
    }

    fn text(&self, resource: ResourceId, amount: i128) -> String {
        self.resource_ids.name(resource).format(clamp(amount))
    }
}

fn not_found(name: &QueueName) -> (Reason, String) {
    (
        Reason::QueueNotFound,
        format!("queue {name} does not exist; create it or name another"),
    )
}
