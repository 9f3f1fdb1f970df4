//! Merges the lines of several containers by time.
//!
//! ```text
//! reader of a container ──► Feed ──► queue of the container ──┐
//! reader of another ──────► Feed ──► queue ───────────────────┴──► the earliest line of all queues
//! ```
//!
//! The order within a container never changes. A line is printed once each container has a later one or has ended.
//! While lines come as they are written, it waits no longer than [`HOLD`] for earlier lines of others. Each container
//! has a budget of bytes that were read and not printed, so that memory is bounded however much it writes.

use super::line::LineRange;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;

/// How long a line waits for earlier ones of other containers, while they are followed.
pub(super) const HOLD: Duration = Duration::from_millis(50);

/// The number of a container.
pub(super) type SourceId = usize;

/// Lines in the order in which they were written.
pub(super) struct LineBlock {
    pub(super) bytes: Vec<u8>,
    pub(super) lines: Vec<LineRange>,
    /// Its share of the budget; given back when it was printed.
    #[expect(dead_code, reason = "it is held, and not looked at")]
    pub(super) permit: Option<OwnedSemaphorePermit>,
}

/// What a reader has to say.
pub(super) enum Feed {
    /// It begins.
    Opened(SourceId),
    Lines(SourceId, LineBlock),
    /// Something to say between the lines, on standard error.
    Note(SourceId, String),
    /// Nothing more comes.
    Ended(SourceId),
}

/// What is next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Merged<'a> {
    Line(SourceId, &'a [u8]),
    Note(String),
    /// Readers are waited for: what was printed so far should be seen.
    Idle,
}

enum QueuedItem {
    Block {
        block: LineBlock,
        next: usize,
        arrived: Instant,
    },
    Note(String),
}

#[derive(Default)]
struct SourceQueue {
    items: VecDeque<QueuedItem>,
    ended: bool,
    /// The time of its last line.
    last: Timestamp,
}

/// The merged lines.
pub(super) struct Merge {
    feeds: UnboundedReceiver<Feed>,
    queues: BTreeMap<SourceId, SourceQueue>,
    /// The time of the next item of each container that has one.
    heads: BinaryHeap<Reverse<(Timestamp, SourceId)>>,
    /// How many containers have none and have not ended.
    empty: usize,
    /// How long a line waits for those; for ever without it.
    hold: Option<Duration>,
    timestamps: bool,
    began: Instant,
    shown: Vec<u8>,
    /// True if something was returned since it was last idle.
    unflushed: bool,
    /// True if no reader is left.
    closed: bool,
}

impl Merge {
    pub(super) fn new(
        feeds: UnboundedReceiver<Feed>,
        hold: Option<Duration>,
        timestamps: bool,
    ) -> Self {
        Self {
            feeds,
            queues: BTreeMap::new(),
            heads: BinaryHeap::new(),
            empty: 0,
            hold,
            timestamps,
            began: Instant::now(),
            shown: Vec::new(),
            unflushed: false,
            closed: false,
        }
    }

    /// Returns what is next; nothing once all readers have ended and no other can begin.
    pub(super) async fn next(&mut self) -> Option<Merged<'_>> {
        loop {
            while let Ok(feed) = self.feeds.try_recv() {
                self.take(feed);
            }
            let head = self.heads.peek().map(|Reverse((_, id))| *id);
            let Some(id) = head else {
                if self.closed {
                    return None;
                }
                if std::mem::take(&mut self.unflushed) {
                    return Some(Merged::Idle);
                }
                self.receive().await;
                continue;
            };
            let due = match self.empty {
                0 => None,
                _ => self.hold.map(|hold| self.arrival(id) + hold),
            };
            let waits = match (self.empty, due) {
                (0, _) => false,
                (_, Some(due)) => due > Instant::now(),
                (_, None) => true,
            };
            if self.closed || !waits {
                return Some(self.pop(id));
            }
            if std::mem::take(&mut self.unflushed) {
                return Some(Merged::Idle);
            }
            match due {
                // Late or not, the queues are looked at again.
                Some(due) => drop(tokio::time::timeout_at(due, self.receive()).await),
                None => self.receive().await,
            }
        }
    }

    async fn receive(&mut self) {
        match self.feeds.recv().await {
            Some(feed) => self.take(feed),
            None => self.closed = true,
        }
    }

    fn take(&mut self, feed: Feed) {
        let (id, item) = match feed {
            Feed::Opened(id) => {
                self.queues.insert(id, SourceQueue::default());
                self.empty += 1;
                return;
            }
            Feed::Ended(id) => return self.end(id),
            Feed::Note(id, note) => (id, QueuedItem::Note(note)),
            Feed::Lines(_, block) if block.lines.is_empty() => return,
            Feed::Lines(id, block) => {
                let arrived = Instant::now();
                (
                    id,
                    QueuedItem::Block {
                        block,
                        next: 0,
                        arrived,
                    },
                )
            }
        };
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.items.push_back(item);
        if queue.items.len() == 1 {
            self.empty -= 1;
            let time = head_time(queue);
            self.heads.push(Reverse((time, id)));
        }
    }

    fn end(&mut self, id: SourceId) {
        let Some(queue) = self.queues.get_mut(&id) else {
            return;
        };
        queue.ended = true;
        if queue.items.is_empty() {
            self.empty -= 1;
            self.queues.remove(&id);
        }
    }

    fn arrival(&self, id: SourceId) -> Instant {
        let first = self.queues.get(&id).and_then(|queue| queue.items.front());
        match first {
            Some(QueuedItem::Block { arrived, .. }) => *arrived,
            // A note does not wait.
            Some(QueuedItem::Note(_)) | None => self.began,
        }
    }

    /// Takes the next item of a container that has one.
    fn pop(&mut self, id: SourceId) -> Merged<'_> {
        self.heads.pop();
        self.unflushed = true;
        let Some(queue) = self.queues.get_mut(&id) else {
            return Merged::Idle;
        };
        self.shown.clear();
        let mut note = None;
        let is_done = match queue.items.front_mut() {
            Some(QueuedItem::Block { block, next, .. }) => {
                let line = &block.lines[*next];
                self.shown
                    .extend_from_slice(line.bytes(&block.bytes, self.timestamps));
                queue.last = line.time;
                *next += 1;
                *next == block.lines.len()
            }
            Some(QueuedItem::Note(text)) => {
                note = Some(std::mem::take(text));
                true
            }
            None => true,
        };
        if is_done {
            queue.items.pop_front();
        }
        if !queue.items.is_empty() {
            let time = head_time(queue);
            self.heads.push(Reverse((time, id)));
        } else if queue.ended {
            self.queues.remove(&id);
        } else {
            self.empty += 1;
        }
        match note {
            Some(note) => Merged::Note(note),
            None => Merged::Line(id, &self.shown),
        }
    }
}

/// Returns the time of the next item. Lines of a container that are out of order keep their order, and a note has the
/// time of the line before it.
fn head_time(queue: &SourceQueue) -> Timestamp {
    match queue.items.front() {
        Some(QueuedItem::Block { block, next, .. }) => block.lines[*next].time.max(queue.last),
        Some(QueuedItem::Note(_)) | None => queue.last,
    }
}

#[cfg(test)]
mod tests;
