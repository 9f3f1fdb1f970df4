//! Asks the API server by SubjectAccessReview who may use a queue.
//!
//! The right is the verb `use` on the Queue, in the namespace of the job: a ClusterRoleBinding grants it
//! everywhere, a RoleBinding in its namespace. Answers are cached for seconds ([`RightsCache`]), so that a
//! namespace with many submissions sends few requests, and changes take effect soon.

use crate::client::{CallError, with_deadline};
use crds::names::USE_VERB;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Deadline of a question, including the wait for its turn. Below the deadline of a webhook.
const ASK_LIMIT: Duration = Duration::from_secs(1);
/// How long a yes is cached.
const GRANTED_FOR: Duration = Duration::from_secs(10);
/// How long a no is cached. A user who was just given the right should not wait.
const REFUSED_FOR: Duration = Duration::from_secs(2);
/// Most answers in the cache.
const KEPT: usize = 4_096;
/// Most questions at a time.
const AT_A_TIME: usize = 8;

/// The user of a request, as the API server authenticated it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Principal {
    /// The user's name; empty to ask for the groups only.
    pub user: String,
    /// Its UID.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// Additional information of authenticators.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Principal {
    /// The groups of every service account of `namespace`: their rights count as the namespace's.
    #[must_use]
    pub fn of_namespace(namespace: &str) -> Self {
        Self {
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            ..Self::default()
        }
    }
}

/// Returns true if `who` may use `queue` for jobs of `namespace`.
///
/// # Errors
/// Returns an error if the API server does not answer within a second, or refuses the question.
pub async fn may_use(
    client: &Client,
    who: &Principal,
    namespace: &str,
    queue: &str,
) -> Result<bool, CallError> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: some(&who.user),
            uid: some(&who.uid),
            groups: Some(who.groups.clone()),
            extra: (!who.extra.is_empty()).then(|| who.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some("scheduling.volcano.sh".to_owned()),
                resource: Some("queues".to_owned()),
                verb: Some(USE_VERB.to_owned()),
                namespace: some(namespace),
                name: some(queue),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let params = PostParams::default();
    let answer = with_deadline(api.create(&params, &review), ASK_LIMIT).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RightsQuestion {
    who: Principal,
    namespace: String,
    queue: String,
}

/// [`may_use`] with a bounded cache of answers. Clones share it.
#[derive(Clone)]
pub struct RightsCache {
    client: Client,
    answers: Arc<Mutex<HashMap<RightsQuestion, (Instant, bool)>>>,
    turns: Arc<Semaphore>,
}

impl RightsCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            answers: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
        }
    }

    /// Returns true if `who` may use `queue` for jobs of `namespace`.
    ///
    /// # Errors
    /// As [`may_use`]; errors are not cached.
    pub async fn may_use(
        &self,
        who: &Principal,
        namespace: &str,
        queue: &str,
    ) -> Result<bool, CallError> {
        let question = RightsQuestion {
            who: who.clone(),
            namespace: namespace.to_owned(),
            queue: queue.to_owned(),
        };
        if let Some(known) = self.known(&question) {
            return Ok(known);
        }
        let ask = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            match self.known(&question) {
                // An earlier caller with the same question may have got the answer by now.
                Some(known) => Ok(known),
                None => may_use(&self.client, who, namespace, queue).await,
            }
        };
        let answer = tokio::time::timeout(ASK_LIMIT, ask).await;
        let allowed = answer.map_err(|_| CallError::Timeout(ASK_LIMIT))??;
        self.keep(question, allowed);
        Ok(allowed)
    }

    fn known(&self, question: &RightsQuestion) -> Option<bool> {
        let answers = self.answers.lock();
        let (until, allowed) = answers.get(question)?;
        (*until > Instant::now()).then_some(*allowed)
    }

    fn keep(&self, question: RightsQuestion, allowed: bool) {
        let now = Instant::now();
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            answers.retain(|_, (until, _)| *until > now);
        }
        if answers.len() >= KEPT {
            answers.clear();
        }
        let cached_for = if allowed { GRANTED_FOR } else { REFUSED_FOR };
        answers.insert(question, (now + cached_for, allowed));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::{FakeApi, Fault};
    use serde_json::json;

    const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

    fn alice() -> Principal {
        Principal {
            user: "alice".to_owned(),
            groups: vec!["research".to_owned()],
            extra: [("scopes".to_owned(), vec!["a".to_owned()])].into(),
            ..Principal::default()
        }
    }

    /// An API server where group `research` may use queue `gold`.
    fn server() -> FakeApi {
        let api = FakeApi::new();
        api.answers(REVIEWS, |review| {
            let spec = &review["spec"];
            let group = spec["groups"]
                .as_array()
                .unwrap()
                .contains(&json!("research"));
            let gold = spec["resourceAttributes"]["name"] == "gold";
            json!({"spec": spec, "status": {"allowed": group && gold}})
        });
        api
    }

    #[tokio::test(start_paused = true)]
    async fn the_question_names_user_groups_verb_queue_and_namespace() {
        let api = server();
        assert!(
            may_use(&api.client(), &alice(), "team-a", "gold")
                .await
                .unwrap()
        );
        let asked = api.requests().pop().unwrap();
        assert_eq!(asked.path, REVIEWS);
        assert_eq!(
            asked.body["spec"],
            json!({
                "user": "alice", "groups": ["research"], "extra": {"scopes": ["a"]},
                "resourceAttributes": {
                    "group": "scheduling.volcano.sh", "resource": "queues", "verb": "use",
                    "namespace": "team-a", "name": "gold",
                },
            })
        );
        let namespace = Principal::of_namespace("team-a");
        assert!(
            !may_use(&api.client(), &namespace, "team-a", "gold")
                .await
                .unwrap()
        );
        let asked = api.requests().pop().unwrap();
        assert_eq!(asked.body["spec"].get("user"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn answers_are_cached_for_seconds_and_errors_are_not() {
        let api = server();
        let rights = RightsCache::new(api.client());
        let ask = async |queue: &str| rights.may_use(&alice(), "team-a", queue).await.unwrap();
        let asked = || api.requests().len();
        for _ in 0..3 {
            assert!(ask("gold").await && !ask("iron").await);
        }
        assert_eq!(asked(), 2);
        tokio::time::sleep(REFUSED_FOR).await;
        assert!(ask("gold").await && !ask("iron").await);
        assert_eq!(asked(), 3, "only the no is asked again");
        tokio::time::sleep(GRANTED_FOR).await;
        assert!(ask("gold").await);
        assert_eq!(asked(), 4);

        api.fault(1, Fault::Hang, |_| true);
        let started = Instant::now();
        let error = rights.may_use(&alice(), "team-b", "gold").await;
        assert!(matches!(error, Err(CallError::Timeout(_))));
        assert_eq!(started.elapsed(), ASK_LIMIT);
        assert!(rights.may_use(&alice(), "team-b", "gold").await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_limited_at_a_time_and_in_the_cache() {
        let api = server();
        let rights = RightsCache::new(api.client());
        let who = alice();
        let same = (0..100).map(|_| rights.may_use(&who, "team-a", "gold"));
        for answer in futures::future::join_all(same).await {
            assert!(answer.unwrap());
        }
        assert!(
            api.requests().len() <= AT_A_TIME,
            "{}",
            api.requests().len()
        );
        assert!(api.most_at_once() <= AT_A_TIME);
        for index in 0..KEPT + 10 {
            rights
                .may_use(&who, "team-a", &format!("q{index}"))
                .await
                .unwrap();
        }
        assert!(rights.answers.lock().len() <= KEPT);
    }
}
