//! Asks which namespaces have the right to use which queues, if the queues' policies do not say so.
//!
//! ```text
//! QueueRights::of, nothing known ─► AskRight ─► reviewer ─► SubjectAccessReview
//!               Input::RightAsked ◄──────────────┘  and again at intervals
//! ```
//!
//! The question is about the right of the namespace's service accounts. Only the webhook knows the user who
//! submitted a job, and records in the template which queue that user may use; the record counts without
//! another question. No answer is guessed: until there is one the job waits.

use crate::facts::queue_rights::Pair;
use crate::messages::input::Input;
use futures::StreamExt as _;
use kube::Client;
use runtime::Principal;
use runtime::rights::may_use;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a yes counts until it is asked again: no event reports changed roles.
const GRANTED_FOR: Duration = Duration::from_secs(60);
/// How long a no counts: a user may be waiting for the right.
const REFUSED_FOR: Duration = Duration::from_secs(10);
/// Pause after a failed question.
const RETRY: Duration = Duration::from_secs(5);
/// Most questions at a time.
const AT_A_TIME: usize = 4;
/// The least time in which an answer is asked again, for each answer that is known: at most ten are asked in a second.
const FOR_EACH: Duration = Duration::from_millis(100);

/// The handle of the task that asks.
#[derive(Debug)]
pub(crate) struct RightsReviewer {
    /// Unbounded: each job asks once while the answer is unknown.
    asks: mpsc::UnboundedSender<Pair>,
}

impl RightsReviewer {
    /// Starts the task.
    pub(crate) fn spawn(
        client: Client,
        inputs: mpsc::Sender<Input>,
        cancel: CancellationToken,
    ) -> Self {
        let (asks, asked) = mpsc::unbounded_channel();
        runtime::task::spawn(async move {
            cancel
                .run_until_cancelled(keep_asking(client, asked, inputs))
                .await;
        });
        Self { asks }
    }

    /// Submits the question whether a namespace may use a queue, if it is new.
    pub(crate) fn ask(&self, pair: Pair) {
        // The reviewer ends with the term, after which nothing is decided.
        let _ = self.asks.send(pair);
    }
}

/// The last answer, and when it is asked again.
type Answered = (Option<bool>, Instant);

async fn keep_asking(
    client: Client,
    mut asked: mpsc::UnboundedReceiver<Pair>,
    inputs: mpsc::Sender<Input>,
) {
    let mut pairs: BTreeMap<Pair, Answered> = BTreeMap::new();
    loop {
        let next = pairs.values().map(|(_, at)| *at).min();
        let wait = async {
            match next {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            pair = asked.recv() => match pair {
                Some(pair) => _ = pairs.entry(pair).or_insert((None, Instant::now())),
                None => return,
            },
            () = wait => {}
        }
        let now = Instant::now();
        let due = pairs.iter().filter(|(_, (_, at))| *at <= now);
        let due: Vec<Pair> = due.map(|(pair, _)| pair.clone()).collect();
        let mut answers = futures::stream::iter(due)
            .map(|pair| ask(&client, pair))
            .buffer_unordered(AT_A_TIME);
        while let Some((pair, answer)) = answers.next().await {
            let before = pairs.get(&pair).and_then(|(known, _)| *known);
            let all = FOR_EACH * u32::try_from(pairs.len()).unwrap_or(u32::MAX);
            let (known, again) = match answer {
                Some(true) => (Some(true), GRANTED_FOR),
                Some(false) => (Some(false), REFUSED_FOR),
                // The previous answer stays valid.
                None => (before, RETRY),
            };
            pairs.insert(pair.clone(), (known, Instant::now() + again.max(all)));
            let Some(allowed) = known.filter(|_| known != before) else {
                continue;
            };
            let (namespace, queue) = pair;
            let input = Input::RightAsked {
                namespace,
                queue,
                allowed,
            };
            if inputs.send(input).await.is_err() {
                return;
            }
        }
    }
}

/// Asks whether a namespace may use a queue; `None` if there is no answer.
pub(crate) async fn ask(client: &Client, pair: Pair) -> (Pair, Option<bool>) {
    let (namespace, queue) = &pair;
    let who = Principal::of_namespace(namespace);
    let answer = may_use(client, &who, namespace, queue.as_str()).await;
    if let Err(error) = &answer {
        let error = error.message();
        tracing::warn!(namespace, %queue, error, "cannot ask who may use a queue; its jobs wait");
    }
    (pair, answer.ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::facts::queue_rights::QueueRights;
    use engine::QueueName;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::json;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_question_is_answered_once_and_refreshed() {
        let api = FakeApi::new();
        let granted = Arc::new(AtomicBool::new(false));
        let grants = granted.clone();
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        api.answers(path, move |review| {
            json!({"spec": review["spec"], "status": {"allowed": grants.load(Ordering::SeqCst)}})
        });
        api.fault(1, Fault::Status(500, "away"), |_| true);
        let (sender, mut inputs) = mpsc::channel(8);
        let cancel = CancellationToken::new();
        let mut rights = QueueRights::default();
        let reviewer = RightsReviewer::spawn(api.client(), sender, cancel.clone());
        let _guard = cancel.drop_guard();
        let queue = QueueName::new("gold");
        let started = Instant::now();
        for _ in 0..3 {
            assert_eq!(rights.of("team-a", &queue), None);
            rights
                .take_asked()
                .into_iter()
                .for_each(|pair| reviewer.ask(pair));
        }
        let mut answer = async || match inputs.recv().await.unwrap() {
            Input::RightAsked {
                namespace, allowed, ..
            } => (namespace, allowed),
            other => panic!("{other:?}"),
        };
        assert_eq!(answer().await, ("team-a".to_owned(), false));
        assert_eq!(started.elapsed(), RETRY, "the first call failed");
        assert_eq!(api.requests().len(), 2);
        assert!(rights.note(("team-a".to_owned(), queue.clone()), false));
        assert_eq!(rights.of("team-a", &queue), Some(false));

        granted.store(true, Ordering::SeqCst);
        assert!(answer().await.1);
        assert_eq!(started.elapsed(), RETRY + REFUSED_FOR);
        granted.store(false, Ordering::SeqCst);
        assert!(!answer().await.1);
        assert_eq!(started.elapsed(), RETRY + REFUSED_FOR + GRANTED_FOR);
    }
}
