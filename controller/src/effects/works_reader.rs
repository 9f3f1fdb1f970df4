//! Fresh reads of Works, with one read for many jobs.
//!
//! Before a charge ends, a read from the API server shows whether Works of the job are left, because a
//! watch may lag. One read answers all jobs that are waiting: a deleted namespace asks for thousands, and a
//! read covers the Works of all clusters.
//!
//! ```text
//! left(binding) ─┐
//! left(binding) ─┼─► at most 100 ids, one read at a time, 50 ms apart ─► LIST where id in (…) ─► answers
//! left(binding) ─┘
//! ```
//!
//! It must never answer from a read that began before the question, and never from a cache: the lists carry
//! no resourceVersion. It must never answer with the Works of another binding that has the same id.

use crate::mirror::BindingIdentity;
use crds::karmada::Work;
use crds::names::BINDING_PERMANENT_ID;
use kube::api::{Api, ListParams};
use kube::core::ObjectMeta;
use runtime::pages;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Most jobs in one read. Each takes 39 bytes of the request's URL, which some proxies limit to 8 KiB.
const JOBS_PER_READ: usize = 100;
/// Least time between the starts of two reads.
const APART: Duration = Duration::from_millis(50);
/// Deadline of one page of a read; callers ask again after a failure.
const READ_DEADLINE: Duration = Duration::from_secs(10);

/// The remaining Works of a job: their metadata.
pub(crate) type WorksLeft = Result<Vec<ObjectMeta>, String>;

struct WorksQuery {
    owner: BindingIdentity,
    answer: oneshot::Sender<WorksLeft>,
}

/// The handle. Clones share the reader.
#[derive(Debug, Clone)]
pub(crate) struct WorksReader(mpsc::UnboundedSender<WorksQuery>);

impl WorksReader {
    /// Starts a reader, which ends with its last clone.
    pub(crate) fn spawn(client: kube::Client) -> Self {
        let (sender, asked) = mpsc::unbounded_channel();
        runtime::task::spawn(read(Api::all(client), asked));
        Self(sender)
    }

    /// Returns the Works of the binding `owner`, by a read that begins after this call.
    pub(crate) async fn left(&self, owner: BindingIdentity) -> WorksLeft {
        let (answer, answered) = oneshot::channel();
        let asked = WorksQuery { owner, answer };
        let gone = || "the reader of Works is gone".to_owned();
        self.0.send(asked).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

async fn read(works: Api<Work>, mut asked: mpsc::UnboundedReceiver<WorksQuery>) {
    let mut batch = Vec::with_capacity(JOBS_PER_READ);
    let mut next = Instant::now();
    while asked.recv_many(&mut batch, JOBS_PER_READ).await > 0 {
        tokio::time::sleep_until(next).await;
        while batch.len() < JOBS_PER_READ
            && let Ok(more) = asked.try_recv()
        {
            batch.push(more);
        }
        next = Instant::now() + APART;
        answer(&works, std::mem::take(&mut batch)).await;
    }
}

async fn answer(works: &Api<Work>, batch: Vec<WorksQuery>) {
    let ids: BTreeSet<&str> = batch.iter().map(|asked| &*asked.owner.id).collect();
    let ids: Vec<&str> = ids.into_iter().collect();
    let own = format!("{BINDING_PERMANENT_ID} in ({})", ids.join(","));
    let params = ListParams::default().labels(&own);
    let mut left: HashMap<BindingIdentity, Vec<ObjectMeta>> = HashMap::new();
    let error = match pages::list_metadata(works, &params, READ_DEADLINE).await {
        Ok(list) => {
            for work in list.items {
                if let Some(owner) = BindingIdentity::of_work(&work.metadata) {
                    left.entry(owner).or_default().push(work.metadata);
                }
            }
            None
        }
        Err(error) => Some(error.message()),
    };
    for asked in batch {
        let own = left.get(&asked.owner).cloned().unwrap_or_default();
        // The caller may have ended meanwhile.
        let _ = asked.answer.send(error.clone().map_or(Ok(own), Err));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crds::names;
    use engine::JobKey;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::json;
    use tokio::task::JoinSet;

    fn put(api: &FakeApi, cluster: &str, id: &str) {
        let path =
            format!("/apis/work.karmada.io/v1alpha1/namespaces/karmada-es-{cluster}/works/{id}");
        let labels = json!({ BINDING_PERMANENT_ID: id });
        let annotations = json!({
            names::BINDING_NAMESPACE_ANNOTATION: "team", names::BINDING_NAME_ANNOTATION: id,
        });
        let metadata = json!({"labels": labels, "annotations": annotations});
        api.put(&path, json!({ "metadata": metadata }));
    }

    /// The binding of the job `team/ID` with the permanent id `id`.
    fn of(id: &str) -> BindingIdentity {
        BindingIdentity {
            job: JobKey::new("team", id),
            id: id.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ten_thousand_jobs_are_answered_by_a_hundred_reads() {
        let api = FakeApi::new();
        for (cluster, id) in [("m1", "7"), ("m2", "7000")] {
            put(&api, cluster, id);
        }
        let reader = WorksReader::spawn(api.client());
        let started = Instant::now();
        let ids: Vec<String> = (0..10_000).map(|id| id.to_string()).collect();
        let mut answers = JoinSet::new();
        for id in ids {
            let reader = reader.clone();
            answers.spawn(async move { (reader.left(of(&id)).await.unwrap().len(), id) });
        }
        while let Some(answer) = answers.join_next().await {
            let (works, id) = answer.unwrap();
            assert_eq!(works, usize::from(id == "7" || id == "7000"), "{id}");
        }
        assert_eq!(api.requests_of("GET").len(), 100);
        assert!(started.elapsed() < Duration::from_secs(6));
        assert_eq!(api.most_at_once(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn another_binding_with_the_same_id_has_none_of_its_works() {
        let api = FakeApi::new();
        put(&api, "m1", "a");
        let reader = WorksReader::spawn(api.client());
        let other = BindingIdentity {
            job: JobKey::new("elsewhere", "a"),
            id: "a".to_owned(),
        };
        let (own, others) = tokio::join!(reader.left(of("a")), reader.left(other));
        assert_eq!(own.unwrap().len(), 1);
        assert!(others.unwrap().is_empty());
        assert_eq!(api.requests_of("GET").len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_that_had_begun_answers_no_later_query() {
        let api = FakeApi::new();
        let reader = WorksReader::spawn(api.client());
        // The read begins after a second; Works that exist now do not count.
        api.fault(1, Fault::Delay(Duration::from_secs(1)), |_| true);
        let (first, second) = tokio::join!(reader.left(of("a")), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let answer = reader.left(of("b")).await;
            (answer, api.requests_of("GET"))
        });
        assert!(first.unwrap().is_empty());
        let (answer, reads) = second;
        assert!(answer.unwrap().is_empty());
        assert_eq!(reads.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_read_never_says_that_all_works_are_gone() {
        let api = FakeApi::new();
        let reader = WorksReader::spawn(api.client());
        api.fault(1, Fault::Hang, |_| true);
        let (a, b) = tokio::join!(reader.left(of("a")), reader.left(of("b")));
        assert!(a.is_err() && b.is_err());
        api.fault(1, Fault::Status(500, "no"), |_| true);
        assert!(reader.left(of("a")).await.unwrap_err().contains("no"));
        assert!(reader.left(of("a")).await.unwrap().is_empty());
    }
}
