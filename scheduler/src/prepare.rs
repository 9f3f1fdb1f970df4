//! What a job needs in a member besides itself: its Queue and its PriorityClass.
//!
//! Both are created if they are missing, before the placement, and never updated: changes by the member's
//! own users or controllers stay. A class of Muster's there never preempts: which job is evicted for which
//! is decided on the control plane, and the member's scheduler knows no queue. One that an earlier version created
//! otherwise is replaced. A queue is created without limits or parent, because limits apply on the
//! control plane, and a member's Volcano with only some of them would decide differently on the same pods. For
//! the same reason it has the highest weight, and nothing is reclaimed from it there ([`WEIGHT`]). Karmada creates
//! the namespace.

use crate::metrics::PlanMetrics;
use crds::capacity_policy::is_system_class;
use engine::{ClusterName, QueueName, Reason};
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use members::Members;
use parking_lot::Mutex;
use runtime::Leadership;
use runtime::client::{CallError, CallFault, while_leading, with_deadline};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(5);
/// How long an object seen in a member counts as existing: a member may come back empty.
const CACHED_FOR: Duration = Duration::from_secs(20);
/// The weight of its queues in members, the highest that Volcano's API allows.
///
/// Volcano's plugin `proportion` starts a pod only if its queue then has no more than it deserves. If more is
/// requested in a member than there is, a queue deserves the smaller of its requests and its weight × λ, with λ
/// such that all is given away. What Muster has admitted fits in its member, but the pending jobs of the member's
/// own queues are requests too: with equal weights, a gang that needs more than half of the member would wait for
/// ever. Let R be the requests of Muster's queues, r the largest of one queue, w the sum of the other queues'
/// weights and T the member's total. Each of Muster's queues deserves all that it requests if R + r · w ÷ WEIGHT ≤ T.
/// At the highest weight the second term is r ÷ 65,535 for each other queue of weight 1, which is less than the
/// member's own pods use. The other queues share what is left, as before.
const WEIGHT: u32 = 65_535;
/// The preemption policy of pods that evict no others.
const NEVER: &str = "Never";
/// Label of what Muster creates in members, and its value.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "muster");
/// The group of Volcano's own jobs, which do not start without their queue.
const VOLCANO_JOBS: &str = "batch.volcano.sh/";

/// An object that a job needs in a member.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum MemberNeed {
    Queue(String),
    PriorityClass(String),
}

impl fmt::Display for MemberNeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(name) => write!(f, "queue {name}"),
            Self::PriorityClass(name) => write!(f, "priorityclass {name}"),
        }
    }
}

/// Why a member could not be prepared.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("{need} does not exist on the control plane, from which it would be copied")]
    NoSource { need: MemberNeed },
    #[error("{need} cannot be read on the control plane: {error}")]
    Source { need: MemberNeed, error: String },
    #[error("member {cluster} is not connected")]
    NotConnected { cluster: ClusterName },
    #[error("{need} cannot be created in member {cluster}: {error}")]
    Member {
        need: MemberNeed,
        cluster: ClusterName,
        error: String,
        refused: bool,
    },
}

impl PrepareError {
    /// Returns the reason.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::NoSource {
                need: MemberNeed::PriorityClass(_),
            } => Reason::PriorityClassNotFound,
            Self::NoSource {
                need: MemberNeed::Queue(_),
            } => Reason::QueueNotFound,
            Self::Member { refused: true, .. } => Reason::MemberRefused,
            Self::Source { .. } | Self::NotConnected { .. } | Self::Member { .. } => {
                Reason::PlanRefused
            }
        }
    }

    /// Returns the member where it failed, if any.
    pub(crate) fn cluster(&self) -> Option<&ClusterName> {
        match self {
            Self::NotConnected { cluster } | Self::Member { cluster, .. } => Some(cluster),
            Self::NoSource { .. } | Self::Source { .. } => None,
        }
    }
}

/// Prepares members. Clones share what is known to exist.
#[derive(Clone)]
pub(crate) struct Preparer {
    control_plane: Client,
    members: Members,
    leadership: Option<Arc<Leadership>>,
    metrics: PlanMetrics,
    seen: Arc<Mutex<HashMap<(ClusterName, MemberNeed), Instant>>>,
    /// One preparation at a time for each member, so that a hundred jobs of one queue ask once.
    turns: Arc<Mutex<HashMap<ClusterName, Arc<tokio::sync::Mutex<()>>>>>,
}

impl fmt::Debug for Preparer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preparer")
            .field("seen", &self.seen.lock().len())
            .finish_non_exhaustive()
    }
}

impl Preparer {
    /// With `leadership`, it writes to members only while this process leads.
    pub(crate) fn new(
        control_plane: Client,
        members: Members,
        leadership: Option<Leadership>,
        metrics: PlanMetrics,
    ) -> Self {
        Self {
            control_plane,
            members,
            leadership: leadership.map(Arc::new),
            metrics,
            seen: Arc::default(),
            turns: Arc::default(),
        }
    }

    /// Makes sure that `cluster` has what a job of `api` (`batch/v1/Job`) in `queue` needs.
    pub(crate) async fn prepare(
        &self,
        cluster: &ClusterName,
        api: &str,
        queue: &QueueName,
        priority_classes: &BTreeSet<String>,
    ) -> Result<(), PrepareError> {
        for name in priority_classes
            .iter()
            .filter(|name| !is_system_class(name))
        {
            self.ensure(cluster, MemberNeed::PriorityClass(name.clone()))
                .await?;
        }
        let queue = self
            .ensure(cluster, MemberNeed::Queue(queue.to_string()))
            .await;
        match queue {
            // Pods that Volcano does not start need no queue there.
            Err(error) if !api.starts_with(VOLCANO_JOBS) => {
                tracing::warn!(%cluster, %error, "continuing without the queue in the member");
                Ok(())
            }
            other => other,
        }
    }

    async fn ensure(&self, cluster: &ClusterName, need: MemberNeed) -> Result<(), PrepareError> {
        if self.is_cached(cluster, &need) {
            return Ok(());
        }
        let turn = Arc::clone(self.turns.lock().entry(cluster.clone()).or_default());
        let _turn = turn.lock().await;
        if self.is_cached(cluster, &need) {
            return Ok(());
        }
        let member = self
            .members
            .client(cluster)
            .ok_or_else(|| PrepareError::NotConnected {
                cluster: cluster.clone(),
            })?;
        let member = match &self.leadership {
            Some(leadership) => while_leading(&member, leadership),
            None => member,
        };
        self.create_if_absent(&member, cluster, &need).await?;
        self.seen
            .lock()
            .insert((cluster.clone(), need), Instant::now());
        Ok(())
    }

    fn is_cached(&self, cluster: &ClusterName, need: &MemberNeed) -> bool {
        let seen = self.seen.lock();
        seen.get(&(cluster.clone(), need.clone()))
            .is_some_and(|at| at.elapsed() < CACHED_FOR)
    }

    async fn create_if_absent(
        &self,
        member: &Client,
        cluster: &ClusterName,
        need: &MemberNeed,
    ) -> Result<(), PrepareError> {
        let failed = |error: CallError| PrepareError::Member {
            need: need.clone(),
            cluster: cluster.clone(),
            refused: error.fault() == CallFault::Refused,
            error: error.message(),
        };
        let objects = need.api(member.clone());
        match with_deadline(objects.get(need.name()), LIMIT).await {
            Ok(found) if !need.preempts(&found) => return Ok(()),
            Ok(found) => match self.remove(&objects, cluster, need, &found).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => return Err(failed(error)),
            },
            // The member does not serve the kind, and so does not need the object.
            Err(error)
                if error.fault() == CallFault::NoSuchKind
                    && matches!(need, MemberNeed::Queue(_)) =>
            {
                return Ok(());
            }
            Err(error) if error.fault() == CallFault::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let copy = self.copy(need).await?;
        match with_deadline(objects.create(&PostParams::default(), &copy), LIMIT).await {
            Ok(_) => {
                tracing::info!(%cluster, object = %need, "created in member");
                self.metrics.created.inc();
                Ok(())
            }
            // Another client was faster.
            Err(error) if error.fault() == CallFault::Conflict => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Removes a class whose pods would preempt, so that it can be created again: its policy cannot be changed. Pods
    /// that exist keep what they have. Returns false if it stays, since it is the member's own or Muster may not.
    async fn remove(
        &self,
        objects: &Api<DynamicObject>,
        cluster: &ClusterName,
        need: &MemberNeed,
        found: &DynamicObject,
    ) -> Result<bool, CallError> {
        let (key, value) = MANAGED_BY;
        if found.labels().get(key).is_none_or(|by| by != value) {
            tracing::debug!(%cluster, object = %need, "is the member's own, and its pods may preempt there");
            return Ok(false);
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions {
                uid: found.uid(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        match with_deadline(objects.delete(need.name(), &params), LIMIT).await {
            Ok(_) => Ok(true),
            Err(error) if error.fault() == CallFault::NotFound => Ok(true),
            Err(error) if error.fault() == CallFault::Refused => {
                tracing::warn!(%cluster, object = %need, error = error.message(), "pods of this class may preempt in the member: \
                    Muster may not delete it there to create it with preemptionPolicy Never");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a copy of the control plane's object for a member.
    async fn copy(&self, need: &MemberNeed) -> Result<DynamicObject, PrepareError> {
        let source = with_deadline(
            need.api(self.control_plane.clone()).get_opt(need.name()),
            LIMIT,
        )
        .await;
        let unreadable = |error: String| PrepareError::Source {
            need: need.clone(),
            error,
        };
        let source = source
            .map_err(|error| unreadable(error.message()))?
            .ok_or_else(|| PrepareError::NoSource { need: need.clone() })?;
        serde_json::from_value(need.body(&source.data))
            .map_err(|error| unreadable(error.to_string()))
    }
}

impl MemberNeed {
    fn name(&self) -> &str {
        match self {
            Self::Queue(name) | Self::PriorityClass(name) => name,
        }
    }

    fn resource(&self) -> ApiResource {
        let (group, version, kind, plural) = match self {
            Self::Queue(_) => ("scheduling.volcano.sh", "v1beta1", "Queue", "queues"),
            Self::PriorityClass(_) => (
                "scheduling.k8s.io",
                "v1",
                "PriorityClass",
                "priorityclasses",
            ),
        };
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }

    fn api(&self, client: Client) -> Api<DynamicObject> {
        Api::all_with(client, &self.resource())
    }

    /// Returns true if `found` is a PriorityClass whose pods evict others where they find no capacity.
    fn preempts(&self, found: &DynamicObject) -> bool {
        let is_class = matches!(self, Self::PriorityClass(_));
        is_class && found.data["preemptionPolicy"] != NEVER
    }

    /// Returns the object for a member, derived from the control plane's `source`. Weight and `reclaimable` of a
    /// queue there are about shares of the federation: a member must not reclaim what the federation has admitted.
    fn body(&self, source: &Value) -> Value {
        let resource = self.resource();
        let mut body = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self.name(), "labels": {MANAGED_BY.0: MANAGED_BY.1}},
        });
        let take = |field: &str| source.get(field).cloned();
        match self {
            Self::Queue(_) => body["spec"] = json!({"weight": WEIGHT, "reclaimable": false}),
            Self::PriorityClass(_) => {
                body["value"] = take("value").unwrap_or(json!(0));
                // Never the default class of a member: that would change the pods of other users.
                body["globalDefault"] = json!(false);
                body["preemptionPolicy"] = json!(NEVER);
            }
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_gets_a_queue_without_bounds_that_holds_nothing_up() {
        let source = json!({"spec": {
            "weight": 4, "reclaimable": true, "parent": "org", "capability": {"cpu": "8"},
            "guarantee": {"resource": {"cpu": "2"}}, "deserved": {"cpu": "4"},
        }});
        insta::assert_json_snapshot!(MemberNeed::Queue("vision".into()).body(&source), @r#"
        {
          "apiVersion": "scheduling.volcano.sh/v1beta1",
          "kind": "Queue",
          "metadata": {
            "labels": {
              "app.kubernetes.io/managed-by": "muster"
            },
            "name": "vision"
          },
          "spec": {
            "reclaimable": false,
            "weight": 65535
          }
        }
        "#);
    }

    #[test]
    fn a_member_gets_a_class_that_is_no_default_and_never_preempts() {
        let source = json!({
            "value": 1000, "globalDefault": true, "preemptionPolicy": "PreemptLowerPriority", "description": "x",
        });
        insta::assert_json_snapshot!(MemberNeed::PriorityClass("high".into()).body(&source), @r#"
        {
          "apiVersion": "scheduling.k8s.io/v1",
          "globalDefault": false,
          "kind": "PriorityClass",
          "metadata": {
            "labels": {
              "app.kubernetes.io/managed-by": "muster"
            },
            "name": "high"
          },
          "preemptionPolicy": "Never",
          "value": 1000
        }
        "#);
    }
}
