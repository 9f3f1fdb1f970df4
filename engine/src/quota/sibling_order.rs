//! The order of sibling queues, which finds the next queue without a scan of all.
//!
//! Every queue has an ordered set of its children that have an active job in them or below: by
//! [`FairShareKey`], then by the first active job, then by name. The search for the next job
//! follows the first entries down. A charge, or a job that becomes active or inadmissible, moves
//! one queue on each level of its path; the queue is ranked again just before the next search.

use crate::api::job::QueueOrder;
use crate::quota::fair_share::FairShareKey;
use crate::quota::queue::QueueId;
use crate::quota::store::Quota;
use facts::QueueName;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Sort key of a queue among its siblings. The order of the fields is the policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SiblingKey {
    fair_share: FairShareKey,
    /// The first active job in it or below it.
    head: QueueOrder,
    name: QueueName,
    id: QueueId,
}

/// The order of a queue's children, and its own sort key among its siblings.
#[derive(Debug, Clone, Default)]
pub(super) struct SiblingOrder {
    below: BTreeSet<SiblingKey>,
    own: Option<SiblingKey>,
    /// The first active job of each child.
    heads: Firsts,
    /// The first pending job of each child, active or inadmissible.
    pending: Firsts,
    /// The first pending job in it or below it.
    first_pending: Option<QueueOrder>,
    /// Its share when it was last ranked with a pending job in it or below it.
    share: Option<FairShareKey>,
}

/// The topmost queues on a path that come sooner or later among their siblings than when they were last ranked, by
/// what is compared where inadmissible jobs count ([`Quota::compare`]).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RankMoves {
    pub(crate) sooner: Option<QueueId>,
    pub(crate) later: Option<QueueId>,
}

/// The first job of each of several queues, in order.
#[derive(Debug, Clone, Default)]
struct Firsts(BTreeSet<(QueueOrder, QueueId)>);

impl Firsts {
    fn replace(&mut self, id: QueueId, before: Option<&QueueOrder>, now: Option<&QueueOrder>) {
        if let Some(before) = before {
            self.0.remove(&(before.clone(), id));
        }
        if let Some(now) = now {
            self.0.insert((now.clone(), id));
        }
    }

    fn first(&self) -> Option<&QueueOrder> {
        self.0.first().map(|(rank, _)| rank)
    }
}

/// The first jobs of a queue.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueHeads {
    /// The first job that is active and may compete.
    pub(crate) head: Option<QueueOrder>,
    /// The first pending job, active or inadmissible.
    pub(crate) pending: Option<QueueOrder>,
}

/// The callbacks of a search for the next queue.
pub(crate) struct Round<'a, 'j> {
    /// Returns the job of a queue that is evaluated next, if there is one.
    pub(crate) ask: &'a dyn Fn(QueueId) -> Option<&'j QueueOrder>,
    /// Returns true if neither a queue nor one below it has such a job.
    pub(crate) skips: &'a dyn Fn(QueueId) -> bool,
}

impl Quota {
    /// The queue whose job is evaluated next. Queues without such a job keep their positions, since
    /// they may have one again soon.
    pub(crate) fn next<'j>(&'j self, round: &Round<'_, 'j>) -> Option<QueueId> {
        if self.node(QueueId::ROOT).siblings.below.is_empty() {
            return None;
        }
        self.first_of(QueueId::ROOT, round)
    }

    fn first_of<'j>(&'j self, at: QueueId, round: &Round<'_, 'j>) -> Option<QueueId> {
        let below = &self.node(at).siblings.below;
        if below.is_empty() {
            return (round.ask)(at).map(|_| at);
        }
        let mut best: Option<(&SiblingKey, &QueueOrder, QueueId)> = None;
        let mut siblings = below.iter().peekable();
        while let Some(sibling) = siblings.next() {
            // Siblings with equal shares are ordered by the first job of each that may be
            // evaluated. That is the head or a later job, so a queue never moves ahead of its
            // position.
            let decided = best.as_ref().is_some_and(|(known, rank, _)| {
                sibling.fair_share != known.fair_share || sibling.head >= **rank
            });
            if decided {
                break;
            }
            if (round.skips)(sibling.id) {
                continue;
            }
            let Some(found) = self.first_of(sibling.id, round) else {
                continue;
            };
            let next = siblings.peek();
            let alone = next.is_none_or(|next| next.fair_share != sibling.fair_share);
            if best.is_none() && alone {
                return Some(found);
            }
            let rank = self.first_asked(sibling.id, round).unwrap_or(&sibling.head);
            if best.as_ref().is_none_or(|(_, known, _)| rank < *known) {
                best = Some((sibling, rank, found));
            }
        }
        best.map(|(_, _, queue)| queue)
    }

    /// The first job in a queue or below it that may be evaluated.
    fn first_asked<'j>(&'j self, at: QueueId, round: &Round<'_, 'j>) -> Option<&'j QueueOrder> {
        let siblings = &self.node(at).siblings;
        if siblings.below.is_empty() {
            return (round.ask)(at);
        }
        let mut first: Option<&QueueOrder> = None;
        for (head, below) in &siblings.heads.0 {
            if first.is_some_and(|first| first <= head) {
                break;
            }
            if (round.skips)(*below) {
                continue;
            }
            let rank = self.first_asked(*below, round);
            first = first.into_iter().chain(rank).min();
        }
        first
    }

    /// The first pending job in a queue or below it when it was last ranked.
    pub(super) fn first_pending(&self, id: QueueId) -> Option<&QueueOrder> {
        self.node(id).siblings.first_pending.as_ref()
    }

    /// True if some queues must be ranked again.
    pub(crate) fn has_unranked(&self) -> bool {
        !self.unranked.is_empty()
    }

    /// Takes the queues that must be ranked again.
    pub(crate) fn take_unranked(&mut self) -> Vec<QueueId> {
        std::mem::take(&mut self.unranked).into_iter().collect()
    }

    /// Marks a queue to be ranked again after a change of its pending jobs.
    pub(crate) fn unrank(&mut self, name: &QueueName) {
        if let Some(id) = self.id(name) {
            self.unranked.insert(id);
        }
    }

    /// Ranks a queue and all above it among their siblings. Returns which of them moved.
    pub(crate) fn rank(&mut self, id: QueueId, own: &QueueHeads) -> RankMoves {
        let mut moves = RankMoves::default();
        let mut at = id;
        let mut own = Some(own);
        while let Some(parent) = self.node(at).parent {
            let siblings = &self.node(at).siblings;
            let own = own.take();
            let first = |below: &Firsts, own: Option<&QueueOrder>| {
                below.first().into_iter().chain(own).min().cloned()
            };
            let head = first(&siblings.heads, own.and_then(|own| own.head.as_ref()));
            let pending = first(&siblings.pending, own.and_then(|own| own.pending.as_ref()));
            let share = (head.is_some() || pending.is_some()).then(|| self.fair_share(at));
            let ranked = share.filter(|_| pending.is_some());
            if let (Some(before), Some(now)) = (siblings.share, ranked) {
                let shares = now.cmp(&before);
                match shares.then_with(|| pending.cmp(&siblings.first_pending)) {
                    Ordering::Less => moves.sooner = Some(at),
                    Ordering::Greater => moves.later = Some(at),
                    Ordering::Equal => {}
                }
            }
            self.node_mut(at).siblings.share = ranked;
            let siblings = &self.node(at).siblings;
            if siblings.first_pending != pending {
                let known = &mut self.node_mut(at).siblings.first_pending;
                let before = std::mem::replace(known, pending.clone());
                let above = &mut self.node_mut(parent).siblings.pending;
                above.replace(at, before.as_ref(), pending.as_ref());
            }
            self.set_place(at, parent, share.zip(head));
            at = parent;
        }
        moves
    }

    fn set_place(
        &mut self,
        id: QueueId,
        parent: QueueId,
        place: Option<(FairShareKey, QueueOrder)>,
    ) {
        let node = self.node(id);
        let sibling = place.map(|(fair_share, head)| SiblingKey {
            fair_share,
            head,
            name: node.name.clone(),
            id,
        });
        let own = node.siblings.own.clone();
        if own == sibling {
            return;
        }
        let above = &mut self.node_mut(parent).siblings;
        let [before, now] =
            [&own, &sibling].map(|sibling| sibling.as_ref().map(|sibling| &sibling.head));
        if before != now {
            above.heads.replace(id, before, now);
        }
        if let Some(own) = &own {
            above.below.remove(own);
        }
        above.below.extend(sibling.clone());
        self.node_mut(id).siblings.own = sibling;
    }

    /// Removes a queue from the order of its siblings.
    pub(super) fn leave_order(&mut self, id: QueueId) {
        let Some(parent) = self.node(id).parent else {
            return;
        };
        self.set_place(id, parent, None);
        let siblings = &mut self.node_mut(id).siblings;
        siblings.share = None;
        let pending = siblings.first_pending.take();
        let above = &mut self.node_mut(parent).siblings.pending;
        above.replace(id, pending.as_ref(), None);
    }

    /// How the position of a queue differs from the one that follows from its share, its jobs and
    /// the queues below it, in words.
    fn audit_place(&self, id: QueueId, own: &QueueHeads) -> Option<String> {
        let node = self.node(id);
        let above = &self.node(node.parent?).siblings;
        let below = || {
            let children = node.children.iter();
            children.map(|child| &self.node(*child).siblings)
        };
        let heads = below().filter_map(|siblings| Some(&siblings.own.as_ref()?.head));
        let head = heads.chain(&own.head).min();
        let pending = below().filter_map(|siblings| siblings.first_pending.as_ref());
        let pending = pending.chain(&own.pending).min();
        let should = head.map(|head| SiblingKey {
            fair_share: self.fair_share(id),
            head: head.clone(),
            name: node.name.clone(),
            id,
        });
        let is = node.siblings.own.as_ref();
        let entry = |order: &QueueOrder| (order.clone(), id);
        let listed = is.is_none_or(|own| {
            above.below.contains(own) && above.heads.0.contains(&entry(&own.head))
        });
        let listed = listed && pending.is_none_or(|of| above.pending.0.contains(&entry(of)));
        let first = node.siblings.first_pending.as_ref();
        (is != should.as_ref() || !listed || first != pending).then(|| {
            format!(
                "queue {}: ranked as {is:?}, should be {should:?}; first pending {first:?}, \
                 should be {pending:?}",
                node.name
            )
        })
    }

    /// Queues whose position does not follow from their share and their jobs; none while some
    /// queues must be ranked again.
    pub(crate) fn audit_order(&self, heads: impl Fn(QueueId) -> QueueHeads) -> Vec<String> {
        if self.has_unranked() {
            return Vec::new();
        }
        let ids = self.iter().filter_map(|(name, _)| self.id(name));
        let places = ids.filter_map(|id| self.audit_place(id, &heads(id)));
        places.chain(self.audit_users()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::totals::ResourceTotals;
    use crate::api::job::UserId;
    use crate::quota::testing::{ann, queue};
    use facts::{ClusterName, JobKey, PoolClass, QueueFact, Resources, Time};
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::time::Instant;

    fn fact(name: &QueueName, parent: Option<&QueueName>) -> QueueFact {
        let gpus = |amount| Resources::parse([("nvidia.com/gpu", amount)]).unwrap_or_default();
        QueueFact {
            deserved: parent.map_or_else(Resources::new, |_| gpus("50")),
            capability: gpus("1000000"),
            ..queue(name, parent)
        }
    }

    fn rank(at: i64) -> QueueOrder {
        QueueOrder {
            priority: Reverse(0),
            at: Time(at),
            key: JobKey::new("ns", &format!("j{at}")),
            user: UserId::NONE,
        }
    }

    /// The next of several queues with equal shares, each given with its parent, the time of its
    /// first job, and the time of its first job that may be evaluated.
    fn next_of(given: &[(&str, Option<&str>, i64, i64)]) -> Option<QueueName> {
        let mut queues = Quota::default();
        for (name, above, ..) in given {
            let above = above.map(QueueName::from);
            let name = QueueName::from(*name);
            queues.set_fact(&name, Some(fact(&name, above.as_ref())));
        }
        let mut asked = BTreeMap::new();
        for (name, _, head, first) in given {
            let id = queues.id(&QueueName::from(*name))?;
            if queues.node(id).children.is_empty() {
                let head = Some(rank(*head));
                let pending = head.clone();
                queues.rank(id, &QueueHeads { head, pending });
                asked.insert(id, rank(*first));
            }
        }
        let round = Round {
            ask: &|id| asked.get(&id),
            skips: &|_| false,
        };
        let next = queues.next(&round)?;
        Some(queues.node(next).name.clone())
    }

    #[test]
    fn the_first_job_to_evaluate_decides_between_equal_queues() {
        let next = next_of(&[("a", None, 1, 9), ("b", None, 2, 4), ("c", None, 3, 3)]);
        assert_eq!(next, Some(QueueName::from("c")));
    }

    #[test]
    fn the_first_job_to_evaluate_may_be_in_any_queue_below() {
        let next = next_of(&[
            ("p", None, 0, 0),
            ("a", Some("p"), 1, 9),
            ("b", Some("p"), 2, 2),
            ("q", None, 0, 0),
            ("c", Some("q"), 3, 3),
        ]);
        assert_eq!(next, Some(QueueName::from("b")));
    }

    /// Run it with `cargo test --release -p engine --lib admissions_a_second -- --ignored
    /// --nocapture`. There are a thousand leaves below a hundred queues below ten. Each admission
    /// searches the next queue, checks and charges it, ends an earlier job, and ranks both queues.
    #[test]
    #[ignore = "a measurement"]
    fn admissions_a_second() {
        let begin = Instant::now();
        let mut queues = Quota::default();
        let mut pending_queues = Vec::new();
        for top in 0..10 {
            let top = QueueName::from(format!("q{top}").as_str());
            queues.set_fact(&top, Some(fact(&top, None)));
            for mid in 0..10 {
                let mid = QueueName::from(format!("{top}-{mid}").as_str());
                queues.set_fact(&mid, Some(fact(&mid, Some(&top))));
                for pending_queue in 0..10 {
                    let pending_queue = QueueName::from(format!("{mid}-{pending_queue}").as_str());
                    queues.set_fact(&pending_queue, Some(fact(&pending_queue, Some(&mid))));
                    pending_queues.push(pending_queue);
                }
            }
        }
        println!(
            "made {} queues in {:?}",
            pending_queues.len() + 110,
            begin.elapsed()
        );
        let pool = (ClusterName::from("a"), PoolClass::from("gpu"));
        let list = [
            ("cpu", "8"),
            ("memory", "64Gi"),
            ("nvidia.com/gpu", "1"),
            ("pods", "1"),
        ];
        let request = Resources::parse(list).unwrap_or_default();
        let total = BTreeMap::from([(pool.1.clone(), ResourceTotals::from(&request))]);
        queues.set_fleet([(&pool.0, total)]);
        let charge = crate::api::charge::Pools::from([(pool, request.clone())]);
        let rank = |number: usize| QueueOrder {
            priority: Reverse(0),
            at: Time(i64::try_from(number).unwrap_or(0)),
            key: JobKey::new("ns", "job"),
            user: UserId::NONE,
        };
        let rank_again = |queues: &mut Quota, number| {
            for id in queues.take_unranked() {
                let head = queues.takes_jobs(id).then(|| rank(number));
                let pending = head.clone();
                queues.rank(id, &QueueHeads { head, pending });
            }
        };
        for (number, pending_queue) in pending_queues.iter().enumerate() {
            queues.unrank(pending_queue);
            rank_again(&mut queues, number);
        }
        const ADMISSIONS: usize = 200_000;
        let begin = Instant::now();
        let mut running = std::collections::VecDeque::new();
        for number in 0..ADMISSIONS {
            let first = rank(0);
            let round = Round {
                ask: &|_| Some(&first),
                skips: &|_| false,
            };
            let Some(id) = queues.next(&round) else {
                break;
            };
            let queue = queues.node(id).name.clone();
            let fits = queues.check_total(&queue, &request, &Default::default());
            assert!(
                fits.is_ok()
                    && queues
                        .check_pools(&queue, &charge, &Default::default())
                        .is_ok()
            );
            queues.charge(&queue, ann(), &charge, 1);
            running.push_back(queue);
            if running.len() > 5_000
                && let Some(ended) = running.pop_front()
            {
                queues.charge(&ended, ann(), &charge, -1);
            }
            rank_again(&mut queues, 1_000 + number);
        }
        let took = begin.elapsed();
        let each = took / u32::try_from(ADMISSIONS).unwrap_or(1);
        println!("{ADMISSIONS} admissions, and as many ends, in {took:?}: {each:?} each");
    }
}
