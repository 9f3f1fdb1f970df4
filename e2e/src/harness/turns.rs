//! Turns of the stories on one plane: what they share, and what each needs of it.
//!
//! Stories have their own namespaces, queues and nodes. They share Muster itself and the spare
//! members, which a story may remove or drain.
//!
//! - A spare member belongs to one story at a time. The story gets it together with its turn, and
//!   not before: a story that has a member and waits for its mode would block the modes before it.
//! - Muster is in one [`Mode`] at a time, in which the stories that need that mode run in parallel.
//!   The mode changes when no story runs in it any more. The next mode is the first, in the order
//!   of [`Mode`], for which a story waits. So most stories run together, and those that need Muster
//!   alone run last.
//! - Stories of a kill form batches: each runs up to its [`Turn::meet`], and when the whole batch
//!   has reached it, Muster is killed once for all of them.

use std::pin::pin;
use std::time::Duration;

use anyhow::{bail, ensure};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The shortest time that a story stands in line, so that all have arrived before one is chosen.
const GATHER: Duration = Duration::from_millis(500);

/// The state of Muster while a story runs, in the order in which the modes have their turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// One process, which runs undisturbed.
    Running,
    /// One process, which is killed once, when all stories of the batch have reached their middle.
    Killed,
    /// Webhook, controller and scheduler in separate processes.
    Separate,
    /// Muster and everything else on the plane belong to this story alone.
    Exclusive,
}

/// The needs of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoryNeeds {
    /// The mode of Muster while the story runs.
    pub mode: Mode,
    /// The spare member that belongs to it meanwhile.
    pub spare: Option<&'static str>,
    /// True for a long story: it starts before others, so that a run does not end with it alone.
    pub long: bool,
}

/// The line of stories for a plane.
#[derive(Debug)]
pub struct Line {
    state: Mutex<LineState>,
    changed: Notify,
    spares: Vec<&'static str>,
}

#[derive(Debug)]
struct LineState {
    /// The most stories that run in parallel.
    side_by_side: usize,
    /// The mode of the running stories, or of the last ones.
    mode: Mode,
    running: Vec<StoryNeeds>,
    /// The needs of the stories in line.
    waiting: Vec<StoryNeeds>,
    /// The number of running stories that have reached their middle.
    met: usize,
    kill: Kill,
}

/// The result of the kill of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kill {
    Ahead,
    UnderWay,
    Done,
    Failed(String),
}

/// A story's turn, which ends when this is dropped.
#[derive(Debug)]
pub struct Turn<'a> {
    line: &'a Line,
    needs: StoryNeeds,
    met: Mutex<bool>,
}

impl Line {
    /// Returns the line for a plane with these spare members.
    pub fn new(side_by_side: usize, spares: &[&'static str]) -> Self {
        Self {
            state: Mutex::new(LineState::new(side_by_side)),
            changed: Notify::new(),
            spares: spares.to_vec(),
        }
    }

    /// Puts a story in line. While it stands there no later mode has a turn.
    pub fn stand(&self, needs: StoryNeeds) -> PlaceInLine<'_> {
        self.change(|state| state.waiting.push(needs));
        PlaceInLine { line: self, needs }
    }

    /// Waits until no story with [`Mode::Running`] runs or waits.
    pub async fn until_few_are_left(&self) {
        tokio::time::sleep(GATHER).await;
        self.until(|state| state.few_are_left().then_some(())).await;
    }

    /// Waits until `probe` returns `Some`; it may change the state only when it does.
    async fn until<T>(&self, mut probe: impl FnMut(&mut LineState) -> Option<T>) -> T {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let answer = probe(&mut self.state.lock());
            if let Some(answer) = answer {
                self.changed.notify_waiters();
                return answer;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut LineState)) {
        change(&mut self.state.lock());
        self.changed.notify_waiters();
    }
}

impl LineState {
    fn new(side_by_side: usize) -> Self {
        Self {
            side_by_side,
            mode: Mode::Running,
            running: Vec::new(),
            waiting: Vec::new(),
            met: 0,
            kill: Kill::Ahead,
        }
    }

    /// Starts a story if it may start now.
    fn begin(&mut self, needs: StoryNeeds) -> bool {
        if self.running.is_empty() {
            let first = self.waiting.iter().map(|waiting| waiting.mode).min();
            if first != Some(needs.mode) {
                return false;
            }
            (self.mode, self.met, self.kill) = (needs.mode, 0, Kill::Ahead);
        }
        let most = match needs.mode {
            Mode::Exclusive => 1,
            _ => self.side_by_side,
        };
        let may = self.mode == needs.mode
            && self.running.len() < most
            && self.kill == Kill::Ahead
            && self.has_spare(needs)
            && !self.lets_a_long_one_go_first(needs);
        if may {
            self.running.push(needs);
        }
        may
    }

    /// Returns true if its spare member is free, or if it needs none.
    fn has_spare(&self, needs: StoryNeeds) -> bool {
        let taken = |running: &StoryNeeds| running.spare == needs.spare;
        needs.spare.is_none() || !self.running.iter().any(taken)
    }

    fn lets_a_long_one_go_first(&self, needs: StoryNeeds) -> bool {
        let mut waiting = self.waiting.iter();
        !needs.long
            && waiting.any(|other| other.long && other.mode == needs.mode && self.has_spare(*other))
    }

    fn few_are_left(&self) -> bool {
        let mut all = self.running.iter().chain(&self.waiting);
        !all.any(|needs| needs.mode == Mode::Running)
    }

    /// Returns whether this story must kill Muster for the batch, or the result of the kill.
    fn meeting(&mut self) -> Option<MidwayOutcome> {
        match &self.kill {
            Kill::Done => Some(MidwayOutcome::Over),
            Kill::Failed(why) => Some(MidwayOutcome::Failed(why.clone())),
            Kill::Ahead if self.met == self.running.len() => {
                self.kill = Kill::UnderWay;
                Some(MidwayOutcome::Kills)
            }
            Kill::Ahead | Kill::UnderWay => None,
        }
    }
}

/// The result for a story that reached its middle.
enum MidwayOutcome {
    Kills,
    Over,
    Failed(String),
}

impl Turn<'_> {
    /// Marks the middle of a story: waits until its whole batch has reached it, and returns after
    /// one of the stories has called its `kill`. It returns at once in modes without a kill.
    ///
    /// # Errors
    /// Returns an error if the kill failed, or if the story called this before: there is one kill
    /// for each batch.
    pub async fn meet(&self, kill: impl AsyncFnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        if self.needs.mode != Mode::Killed {
            return Ok(());
        }
        let again = std::mem::replace(&mut *self.met.lock(), true);
        ensure!(!again, "the story has already reached its middle");
        self.line.change(|state| state.met += 1);
        match self.line.until(LineState::meeting).await {
            MidwayOutcome::Over => Ok(()),
            MidwayOutcome::Failed(why) => {
                bail!("the kill for all stories of the batch failed: {why}")
            }
            MidwayOutcome::Kills => {
                let outcome = kill().await;
                let result = match &outcome {
                    Ok(()) => Kill::Done,
                    Err(error) => Kill::Failed(format!("{error:#}")),
                };
                self.line.change(|state| state.kill = result);
                outcome
            }
        }
    }

    /// Returns true if the story has reached its middle, or has none.
    pub fn has_met(&self) -> bool {
        self.needs.mode != Mode::Killed || *self.met.lock()
    }

    /// Returns the needs of the story, which are met while the turn lasts.
    pub fn needs(&self) -> StoryNeeds {
        self.needs
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let met = *self.met.lock();
        self.line.change(|state| {
            remove(&mut state.running, self.needs);
            state.met -= usize::from(met);
        });
    }
}

/// A story's place in line, which it leaves when this is dropped.
#[derive(Debug)]
pub struct PlaceInLine<'a> {
    line: &'a Line,
    needs: StoryNeeds,
}

impl<'a> PlaceInLine<'a> {
    /// Waits until the story may run.
    ///
    /// # Errors
    /// Returns an error if there is no spare member of that name.
    pub async fn turn(self) -> anyhow::Result<Turn<'a>> {
        let (line, needs) = (self.line, self.needs);
        if let Some(spare) = needs.spare {
            let known = line.spares.contains(&spare);
            ensure!(known, "{spare} is not a spare member of the plane");
        }
        tokio::time::sleep(GATHER).await;
        line.until(|state| state.begin(needs).then_some(())).await;
        drop(self);
        Ok(Turn {
            line,
            needs,
            met: Mutex::new(false),
        })
    }
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        self.line
            .change(|state| remove(&mut state.waiting, self.needs));
    }
}

/// Removes one entry with these needs.
fn remove(from: &mut Vec<StoryNeeds>, needs: StoryNeeds) {
    if let Some(at) = from.iter().position(|other| *other == needs) {
        from.swap_remove(at);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    fn needs(mode: Mode) -> StoryNeeds {
        StoryNeeds {
            mode,
            spare: None,
            long: false,
        }
    }

    /// Runs a story of each mode, and returns the order in which they started and ended.
    async fn order(line: &Line, modes: &[Mode]) -> Vec<String> {
        let log = Mutex::new(Vec::new());
        let stories = modes.iter().enumerate().map(async |(index, &mode)| {
            let _turn = line.stand(needs(mode)).turn().await.unwrap();
            log.lock().push(format!("{index} begins"));
            tokio::time::sleep(Duration::from_secs(1)).await;
            log.lock().push(format!("{index} ends"));
        });
        join_all(stories).await;
        log.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn stories_of_one_mode_run_side_by_side_and_the_exclusive_ones_last_and_alone() {
        let line = Line::new(2, &[]);
        let modes = [
            Mode::Exclusive,
            Mode::Running,
            Mode::Exclusive,
            Mode::Running,
            Mode::Running,
        ];
        let order = order(&line, &modes).await;
        assert_eq!(order[..2], ["1 begins", "3 begins"]);
        assert_eq!(
            order[5..],
            ["4 ends", "0 begins", "0 ends", "2 begins", "2 ends"]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_story_begins_before_the_short_ones_that_wait() {
        let line = Line::new(1, &[]);
        let log = Mutex::new(Vec::new());
        let stories = [false, false, true].map(async |long| {
            let needs = StoryNeeds {
                long,
                ..needs(Mode::Running)
            };
            let _turn = line.stand(needs).turn().await.unwrap();
            log.lock().push(long);
        });
        join_all(stories).await;
        assert_eq!(log.into_inner(), [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_that_stands_in_line_holds_up_modes_after_its_own() {
        let line = Line::new(2, &[]);
        let place = line.stand(needs(Mode::Running));
        let exclusive = line.stand(needs(Mode::Exclusive)).turn();
        let mut exclusive = pin!(exclusive);
        let wait = tokio::time::timeout(Duration::from_secs(60), exclusive.as_mut());
        assert!(wait.await.is_err());
        let few = tokio::time::timeout(Duration::from_secs(60), line.until_few_are_left());
        assert!(few.await.is_err());
        drop(place);
        exclusive.await.unwrap();
        line.until_few_are_left().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_killed_once_when_all_of_it_are_in_their_middle() {
        let line = Line::new(8, &[]);
        let (kills, before) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let stories = (1..=3_u64).map(async |index| {
            let turn = line.stand(needs(Mode::Killed)).turn().await.unwrap();
            tokio::time::sleep(Duration::from_secs(index)).await;
            before.fetch_add(1, Ordering::SeqCst);
            let kill = async || {
                assert_eq!(before.load(Ordering::SeqCst), 3);
                kills.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            turn.meet(kill).await.unwrap();
            assert!(turn.has_met());
            assert!(turn.meet(async || Ok(())).await.is_err());
        });
        join_all(stories).await;
        assert_eq!(kills.into_inner(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_story_that_fails_before_its_middle_does_not_hold_up_its_batch() {
        let line = Line::new(8, &[]);
        let fails = async {
            let turn = line.stand(needs(Mode::Killed)).turn().await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(!turn.has_met());
        };
        let meets = async {
            let turn = line.stand(needs(Mode::Killed)).turn().await.unwrap();
            turn.meet(async || bail!("no such process")).await
        };
        let ((), met) = tokio::join!(fails, meets);
        assert_eq!(met.unwrap_err().to_string(), "no such process");
    }

    #[tokio::test(start_paused = true)]
    async fn a_killed_batch_takes_no_story_in_after_the_kill() {
        let line = Line::new(8, &[]);
        let first = line.stand(needs(Mode::Killed)).turn().await.unwrap();
        first.meet(async || Ok(())).await.unwrap();
        let mut second = pin!(line.stand(needs(Mode::Killed)).turn());
        let wait = tokio::time::timeout(Duration::from_secs(60), second.as_mut());
        assert!(wait.await.is_err());
        drop(first);
        let second = second.await.unwrap();
        second.meet(async || Ok(())).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_spare_member_is_one_storys_at_a_time() {
        let line = Line::new(8, &["spare1"]);
        let spare = |name| StoryNeeds {
            spare: Some(name),
            ..needs(Mode::Running)
        };
        let first = line.stand(spare("spare1")).turn().await.unwrap();
        let second =
            tokio::time::timeout(Duration::from_secs(60), line.stand(spare("spare1")).turn());
        assert!(second.await.is_err());
        // A story in line for a later mode does not have the member yet.
        let later = StoryNeeds {
            mode: Mode::Killed,
            ..spare("spare1")
        };
        let mut later = pin!(line.stand(later).turn());
        let wait = tokio::time::timeout(Duration::from_secs(60), later.as_mut());
        assert!(wait.await.is_err());
        drop(first);
        drop(line.stand(spare("spare1")).turn().await.unwrap());
        later.await.unwrap();
        assert!(line.stand(spare("spare2")).turn().await.is_err());
    }
}
