//! Which queue goes next, without looking at all of them.
//!
//! Every queue keeps those directly below it that have a job to be judged in an ordered set:
//! by [`FairShareKey`], then by who stands first of all in each, then by
//! name. The
//! next job is found by going down the firsts. What a charge, a sleeper or a waker changes is
//! one queue's place on each level of its path; those are put right just before the next
//! question, once for all that happened to a queue since. A queue in which nobody is awake is
//! on no ladder, nor is one that has none below it that is.

use crate::api::ids::QueueName;
use crate::jobs::job::QueueOrder;
use crate::quota::order::FairShareKey;
use crate::quota::queues::{QueueId, QueueNode, Queues};
use std::collections::BTreeSet;

/// The place of a queue among its siblings: the policy is the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SiblingKey {
    fair_share: FairShareKey,
    /// Who stands first in it, of those that are to be judged.
    head: QueueOrder,
    name: QueueName,
    id: QueueId,
}

/// The ladder of those directly below a queue, and its own place on that of its parent.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiblingOrder {
    below: BTreeSet<SiblingKey>,
    own: Option<SiblingKey>,
    /// The first job to be judged of each queue directly below.
    heads: Firsts,
    /// The first job in line of each queue directly below, asleep or awake.
    lines: Firsts,
    /// Who stands first in line in it and below it.
    line: Option<QueueOrder>,
}

/// The first of each of several queues, the first of all first.
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
    /// The first that is to be judged.
    pub(crate) head: Option<QueueOrder>,
    /// The first in line, asleep or awake.
    pub(crate) line: Option<QueueOrder>,
}

/// How queues are asked for a job to be judged.
pub(crate) struct Round<'a, 'j> {
    /// The job of a queue that may be judged, if there is one.
    pub(crate) ask: &'a dyn Fn(QueueId) -> Option<&'j QueueOrder>,
    /// Whether neither a queue nor any below it has to be asked.
    pub(crate) skips: &'a dyn Fn(QueueId) -> bool,
}

impl Queues {
    /// The queue whose job is judged next. Queues without one are passed over where they stand:
    /// what stops them may be gone the next moment.
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
            // Those who stand alike are told apart by who goes first in each. A head may be of
            // one who may not go: then its queue goes later than its rung says, never earlier.
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
            let rank = self.first_to_go(sibling.id, round).unwrap_or(&sibling.head);
            if best.as_ref().is_none_or(|(_, known, _)| rank < *known) {
                best = Some((sibling, rank, found));
            }
        }
        best.map(|(_, _, queue)| queue)
    }

    /// Who goes first of all that may go in a queue and below it.
    fn first_to_go<'j>(&'j self, at: QueueId, round: &Round<'_, 'j>) -> Option<&'j QueueOrder> {
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
            let rank = self.first_to_go(*below, round);
            first = first.into_iter().chain(rank).min();
        }
        first
    }

    /// Who stands first in line in a queue or below it, as of when it was last ranked.
    pub(crate) fn first_in_line(&self, id: QueueId) -> Option<&QueueOrder> {
        self.node(id).siblings.line.as_ref()
    }

    /// Queues whose place has to be put right.
    pub(crate) fn take_unranked(&mut self) -> Vec<QueueId> {
        std::mem::take(&mut self.unranked).into_iter().collect()
    }

    /// Something about the waiting jobs of a queue changed.
    pub(crate) fn unrank(&mut self, name: &QueueName) {
        if let Some(id) = self.id(name) {
            self.unranked.insert(id);
        }
    }

    /// Puts a queue in its place, and all above it.
    pub(crate) fn rank(&mut self, id: QueueId, own: &QueueHeads) {
        let mut at = id;
        let mut own = Some(own);
        while let Some(parent) = self.node(at).parent {
            let siblings = &self.node(at).siblings;
            let own = own.take();
            let first = |below: &Firsts, own: Option<&QueueOrder>| {
                below.first().into_iter().chain(own).min().cloned()
            };
            let head = first(&siblings.heads, own.and_then(|own| own.head.as_ref()));
            let line = first(&siblings.lines, own.and_then(|own| own.line.as_ref()));
            if siblings.line != line {
                let before = std::mem::replace(&mut self.node_mut(at).siblings.line, line.clone());
                let lines = &mut self.node_mut(parent).siblings.lines;
                lines.replace(at, before.as_ref(), line.as_ref());
            }
            self.step_onto(at, parent, head);
            at = parent;
        }
    }

    fn step_onto(&mut self, id: QueueId, parent: QueueId, head: Option<QueueOrder>) {
        let node = self.node(id);
        let sibling = head.map(|head| SiblingKey {
            fair_share: self.fair_share(id),
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

    /// Takes a queue off the ladder of its parent.
    pub(crate) fn step_off(&mut self, id: QueueId) {
        let Some(parent) = self.node(id).parent else {
            return;
        };
        self.step_onto(id, parent, None);
        let line = self.node_mut(id).siblings.line.take();
        let lines = &mut self.node_mut(parent).siblings.lines;
        lines.replace(id, line.as_ref(), None);
    }

    /// Whether a queue stands elsewhere than its own first jobs, those below it and its standing
    /// put it: in words.
    pub(crate) fn misplaced(
        &self,
        id: QueueId,
        node: &QueueNode,
        own: &QueueHeads,
    ) -> Option<String> {
        let parent = node.parent?;
        let above = &self.node(parent).siblings;
        let below = node
            .children
            .iter()
            .map(|child| &self.node(*child).siblings);
        let heads = below
            .clone()
            .filter_map(|siblings| Some(&siblings.own.as_ref()?.head));
        let head = heads.chain(&own.head).min();
        let lines = below.filter_map(|siblings| siblings.line.as_ref());
        let line = lines.chain(&own.line).min();
        let should = head.map(|head| SiblingKey {
            fair_share: self.fair_share(id),
            head: head.clone(),
            name: node.name.clone(),
            id,
        });
        let stands = node.siblings.own.as_ref();
        let entry = |rank: &QueueOrder| (rank.clone(), id);
        let listed = node
            .siblings
            .own
            .iter()
            .all(|own| above.below.contains(own) && above.heads.0.contains(&entry(&own.head)));
        let in_line = node.siblings.line.as_ref() == line;
        let listed = listed && line.is_none_or(|line| above.lines.0.contains(&entry(line)));
        (stands != should.as_ref() || !listed || !in_line).then(|| {
            format!(
                "queue {}: stands at {stands:?}, should at {should:?}; first in line {:?}, \
                 should be {line:?}",
                node.name, node.siblings.line
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amounts::resources::Resources;
    use crate::amounts::tally::Tally;
    use crate::api::facts::{QueueFact, QueueState};
    use crate::api::ids::{ClusterName, JobKey, PoolClass, Time};
    use std::cmp::Reverse;
    use std::collections::BTreeMap;
    use std::time::Instant;

    fn fact(name: &QueueName, parent: Option<&QueueName>) -> QueueFact {
        let gpus = |amount| [(crate::ResourceName::new("nvidia.com/gpu"), amount)];
        let all = |amount| {
            gpus(crate::Amount(amount))
                .into_iter()
                .collect::<Resources>()
        };
        QueueFact {
            name: name.clone(),
            parent: parent.cloned(),
            priority: 0,
            weight: 1,
            guarantee: Resources::new(),
            deserved: parent.map_or_else(Resources::new, |_| all(50)),
            capability: all(1_000_000),
            reclaimable: true,
            state: QueueState::Open,
            invalid: None,
        }
    }

    fn rank(at: i64) -> QueueOrder {
        QueueOrder {
            priority: Reverse(0),
            at: Time(at),
            key: JobKey::new("ns", &format!("j{at}")),
        }
    }

    /// Who is next of queues of equal standing: each with the queue above it, when the first of
    /// its jobs was queued, and when the first of those that may go.
    fn next_of(told: &[(&str, Option<&str>, i64, i64)]) -> Option<QueueName> {
        let mut queues = Queues::default();
        for (name, above, ..) in told {
            let above = above.map(QueueName::from);
            let name = QueueName::from(*name);
            queues.set_fact(&name, Some(fact(&name, above.as_ref())));
        }
        let mut goes = BTreeMap::new();
        for (name, _, head, first) in told {
            let id = queues.id(&QueueName::from(*name))?;
            if queues.node(id).children.is_empty() {
                let head = Some(rank(*head));
                let line = head.clone();
                queues.rank(id, &QueueHeads { head, line });
                goes.insert(id, rank(*first));
            }
        }
        let round = Round {
            ask: &|id| goes.get(&id),
            skips: &|_| false,
        };
        let next = queues.next(&round)?;
        Some(queues.node(next).name.clone())
    }

    #[test]
    fn among_equals_who_may_go_decides_and_not_who_stands_first() {
        let next = next_of(&[("a", None, 1, 9), ("b", None, 2, 4), ("c", None, 3, 3)]);
        assert_eq!(next, Some(QueueName::from("c")));
    }

    #[test]
    fn among_equals_a_queue_goes_by_the_first_that_may_go_of_all_below_it() {
        let next = next_of(&[
            ("p", None, 0, 0),
            ("a", Some("p"), 1, 9),
            ("b", Some("p"), 2, 2),
            ("q", None, 0, 0),
            ("c", Some("q"), 3, 3),
        ]);
        assert_eq!(next, Some(QueueName::from("b")));
    }

    /// By hand: `cargo test --release -p engine --lib admissions_a_second -- --ignored
    /// --nocapture`. A thousand leaves below a hundred queues below ten: each admission asks who
    /// is next, checks and charges it, ends an earlier one, and ranks both queues anew.
    #[test]
    #[ignore = "a measurement"]
    fn admissions_a_second() {
        let begin = Instant::now();
        let mut queues = Queues::default();
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
        let total = BTreeMap::from([(pool.1.clone(), Tally::from(&request))]);
        queues.set_fleet(&pool.0, &total);
        let charge = crate::quota::queues::Pools::from([(pool, request.clone())]);
        let rank = |number: usize| QueueOrder {
            priority: Reverse(0),
            at: Time(i64::try_from(number).unwrap_or(0)),
            key: JobKey::new("ns", "job"),
        };
        let rank_again = |queues: &mut Queues, number| {
            for id in queues.take_unranked() {
                let head = queues.takes_jobs(id).then(|| rank(number));
                let line = head.clone();
                queues.rank(id, &QueueHeads { head, line });
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
            queues.charge(&queue, &charge, 1);
            running.push_back(queue);
            if running.len() > 5_000
                && let Some(ended) = running.pop_front()
            {
                queues.charge(&ended, &charge, -1);
            }
            rank_again(&mut queues, 1_000 + number);
        }
        let took = begin.elapsed();
        let each = took / u32::try_from(ADMISSIONS).unwrap_or(1);
        println!("{ADMISSIONS} admissions, and as many ends, in {took:?}: {each:?} each");
    }
}
