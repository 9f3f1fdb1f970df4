//! Many jobs of one GPU, submitted and deleted some at a time.

use futures::StreamExt as _;

use crate::case::Case;
use crate::job::Job;

/// The number of concurrent requests.
const AT_A_TIME: usize = 8;

impl Case {
    /// Submits `count` batch Jobs of one pod with one GPU.
    pub(crate) async fn submit_crowd(&self, count: usize) -> anyhow::Result<Vec<Job>> {
        let submitted = (0..count).map(async |index| {
            let gang = self.gang(&format!("job-{index:04}"), 1, 1);
            self.submit(&gang.batch()).await
        });
        some_at_a_time(submitted).await
    }

    /// Submits the jobs with these numbers, of one pod with one GPU that succeeds after some seconds.
    pub(crate) async fn submit_short_crowd(
        &self,
        numbers: std::ops::Range<u32>,
        seconds: u32,
    ) -> anyhow::Result<Vec<Job>> {
        let submitted = numbers.map(async |number| {
            let gang = self.short_gang(&format!("short-{number:04}"), 1, 1, seconds);
            self.submit(&gang.batch()).await
        });
        some_at_a_time(submitted).await
    }

    /// Deletes all of `jobs`.
    pub(crate) async fn delete_crowd(&self, jobs: &[Job]) -> anyhow::Result<()> {
        let deleted = jobs.iter().map(|job| self.delete(job));
        some_at_a_time(deleted).await.map(drop)
    }
}

async fn some_at_a_time<T>(
    calls: impl Iterator<Item = impl Future<Output = anyhow::Result<T>>>,
) -> anyhow::Result<Vec<T>> {
    let results: Vec<_> = futures::stream::iter(calls)
        .buffer_unordered(AT_A_TIME)
        .collect()
        .await;
    results.into_iter().collect()
}
