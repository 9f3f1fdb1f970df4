//! Climbs from a pod's controller to the object that Karmada applied.
//!
//! One task for each connection takes the owners that a view asks about and climbs from a few at a time, by
//! requests for metadata only. If a climb fails (not permitted, gone, no answer), the answer by names
//! stays; an answer is never guessed here. [`PodJobs`] climbs the same way for a client that asks about a few pods.

use super::{CoordinatorMessage, Origin};
use crate::matching::{Belongs, Owner, applied_by, belongs, controller};
use backon::{ExponentialBuilder, Retryable};
use facts::JobKey;
use futures::StreamExt;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Client, ResourceExt};
use runtime::client::{CallError, CallFault, with_deadline};
use runtime::kinds::{KindCache, KindError};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};

/// Most climbs at a time, for each member.
const CONCURRENT: usize = 8;
/// Deadline of one request.
const LIMIT: Duration = Duration::from_secs(5);
/// Most owners above each other; a longer chain is a cycle.
const MAX_HEIGHT: usize = 10;

/// The jobs of a member's pods, for a client that lists pods and watches nothing. Each owner is asked for once.
pub struct PodJobs {
    kinds: KindCache,
    /// The job of each owner by UID; `None` inside if the climb has failed.
    owners: Mutex<HashMap<String, Option<Option<JobKey>>>>,
}

impl PodJobs {
    /// Creates it for the member of `client`.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            kinds: KindCache::new(client),
            owners: Mutex::default(),
        }
    }

    /// Returns the job that `pod` belongs to. The names that the pod has suffice if `is_known` says that they name a
    /// job; else its owners are asked for, and if they cannot be read the names count.
    pub async fn of(&self, pod: &ObjectMeta, is_known: impl Fn(&JobKey) -> bool) -> Option<JobKey> {
        let (owner, likely) = match belongs(pod) {
            Belongs::Applied(job) => return Some(job),
            Belongs::Owned { likely, .. } if is_known(&likely) => return Some(likely),
            Belongs::Owned { owner, likely } => (owner, likely),
            Belongs::Namespace(_) | Belongs::Nobody => return None,
        };
        // Locked during the climb, so that the pods of one owner ask once.
        let mut owners = self.owners.lock().await;
        let climbed = match owners.get(&owner.uid) {
            Some(climbed) => climbed.clone(),
            None => {
                let climbed = climb(&self.kinds, &owner).await.ok();
                owners.insert(owner.uid.clone(), climbed.clone());
                climbed
            }
        };
        climbed.unwrap_or(Some(likely))
    }
}

/// Why a climb has no answer.
#[derive(Debug, thiserror::Error)]
enum ClimbError {
    #[error("{0}")]
    Call(#[from] CallError),
    #[error("owner {0} is gone")]
    Gone(String),
    #[error("{0}")]
    Kind(#[from] KindError),
    #[error("more than {MAX_HEIGHT} owners above each other")]
    TooHigh,
}

/// Answers the owners in `asks` until the sender is dropped.
pub(super) async fn run(
    client: Client,
    origin: Origin,
    asks: mpsc::UnboundedReceiver<Owner>,
    answers: mpsc::Sender<CoordinatorMessage>,
) {
    let kinds = &KindCache::new(client);
    let asks = futures::stream::unfold(asks, async |mut asks| Some((asks.recv().await?, asks)));
    asks.for_each_concurrent(CONCURRENT, |owner| {
        let (origin, answers) = (origin.clone(), answers.clone());
        async move {
            let retries = ExponentialBuilder::default()
                .with_max_times(4)
                .with_jitter();
            let climbed = (|| climb(kinds, &owner))
                .retry(retries)
                .when(is_passing)
                .await;
            match climbed {
                Ok(job) => {
                    // The coordinator ends only with the process.
                    let _ = answers
                        .send(CoordinatorMessage::Owner(origin, owner.uid, job))
                        .await;
                }
                Err(error) => {
                    let (kind, namespace, name) = (&owner.kind, &owner.namespace, &owner.name);
                    tracing::debug!(cluster = %origin.cluster, kind, namespace, name, %error,
                        "the job of an owner is unknown; using its name");
                }
            }
        }
    })
    .await;
}

/// Returns true if a retry may help.
fn is_passing(error: &ClimbError) -> bool {
    match error {
        ClimbError::Call(call) | ClimbError::Kind(KindError::Call(call)) => {
            matches!(call.fault(), CallFault::Unknown | CallFault::TryAgain)
        }
        ClimbError::Gone(_) | ClimbError::Kind(_) | ClimbError::TooHigh => false,
    }
}

/// Returns the job that `owner` belongs to; `None` if its topmost owner belongs to none.
async fn climb(kinds: &KindCache, owner: &Owner) -> Result<Option<JobKey>, ClimbError> {
    let mut at = owner.clone();
    for _ in 0..MAX_HEIGHT {
        let objects = kinds.api(&at.api_version, &at.kind, &at.namespace).await?;
        let found = with_deadline(objects.get_metadata_opt(&at.name), LIMIT).await?;
        let object = found
            .filter(|object| object.uid().as_deref() == Some(&at.uid))
            .ok_or_else(|| ClimbError::Gone(at.name.clone()))?;
        if let Some(job) = applied_by(&at.kind, &object.metadata) {
            return Ok(Some(job));
        }
        match controller(&object.metadata) {
            Some(above) => at = above,
            None => return Ok(None),
        }
    }
    Err(ClimbError::TooHigh)
}
