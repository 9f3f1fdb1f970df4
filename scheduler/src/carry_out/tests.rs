//! Plans against a fake control plane and a fake member.

#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crds::names;
use engine::facts::{ClusterFact, ClusterPlacement, NodeFact, Role, RolePods, Share, Slot};
use engine::{Attempt, Event, NodeName, PoolClass, Resources, Time, Uid};
use runtime::testing::{FakeApi, Fault};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

const QUEUE: &str = "/apis/scheduling.volcano.sh/v1beta1/queues/vision";
const CLASS: &str = "/apis/scheduling.k8s.io/v1/priorityclasses/high";

/// A scheduler, and member `m1` with one node of 8 GPUs that serves batch/v1 Jobs.
pub(crate) struct Stage {
    pub(crate) karmada: FakeApi,
    pub(crate) member: FakeApi,
    pub(crate) scheduler: Scheduler,
    _cancel: tokio_util::sync::DropGuard,
}

pub(crate) fn stage() -> Stage {
    let (karmada, member) = (FakeApi::new(), FakeApi::new());
    karmada.put(
        QUEUE,
        json!({"spec": {"weight": 3, "capability": {"cpu": "1"}}}),
    );
    karmada.put(CLASS, json!({"value": 100, "globalDefault": true}));
    let cancel = CancellationToken::new();
    let (_events, receiver) = mpsc::channel(1);
    let scheduler = Scheduler::spawn(
        karmada.client(),
        Members::reached_by(&[("m1", member.client())]),
        receiver,
        SchedulerOptions::default(),
        cancel.clone(),
    );
    for fact in [
        Event::ClusterUpserted(cluster("")),
        Event::NodeUpserted(node()),
    ] {
        scheduler.live.apply(MemberEvent::Fact(fact));
    }
    scheduler.live.apply(MemberEvent::Ready);
    Stage {
        karmada,
        member,
        scheduler,
        _cancel: cancel.drop_guard(),
    }
}

fn cluster(unusable_because: &str) -> ClusterFact {
    ClusterFact {
        name: ClusterName::new("m1"),
        labels: BTreeMap::new(),
        provider: String::new(),
        region: String::new(),
        zones: Vec::new(),
        taints: Vec::new(),
        price_milli: None,
        network: BTreeMap::new(),
        apis: Some(["batch/v1/Job".to_owned()].into()),
        usable: unusable_because.is_empty(),
        unusable_because: unusable_because.to_owned(),
        paused: None,
    }
}

fn node() -> NodeFact {
    NodeFact {
        cluster: ClusterName::new("m1"),
        name: NodeName::new("n1"),
        class: PoolClass::new("a100"),
        labels: BTreeMap::new(),
        taints: Vec::new(),
        domains: Vec::new(),
        allocatable: resources("96", "8", "110"),
        usable: true,
        lost: false,
    }
}

fn resources(cpu: &str, gpus: &str, pods: &str) -> Resources {
    Resources::parse([("cpu", cpu), ("nvidia.com/gpu", gpus), ("pods", pods)]).unwrap()
}

/// A plan of `pods` pods with 2 GPUs each in `m1`.
fn request(name: &str, api: &str, pods: u32) -> PlacementRequest {
    let mut binding = ResourceBinding::default();
    binding.metadata.namespace = Some("team".into());
    binding.metadata.name = Some(name.into());
    binding.spec.replicas = Some(i64::from(pods));
    let role = Role::of("main", pods, resources("1", "2", "1"));
    let share = Share {
        cluster: ClusterName::new("m1"),
        pods: vec![RolePods {
            role: "main".into(),
            count: pods,
        }],
        charge: BTreeMap::new(),
        slots: vec![Slot {
            node: NodeName::new("n1"),
            role: "main".into(),
            count: pods,
        }],
    };
    PlacementRequest {
        binding: Arc::new(binding),
        admission: Admission {
            uid: Uid::new("u"),
            attempt: Attempt(1),
            queue: QueueName::new("vision"),
            admitted_at: Time(0),
            declared_ms: None,
            shares: vec![share],
        },
        demand: Demand {
            roles: vec![role],
            min_available: pods,
            natively_divisible: false,
            held: engine::facts::Held::ByReplicas,
            elastic: false,
            split: engine::facts::Split::Never,
            topology: None,
            placement: ClusterPlacement {
                api: api.into(),
                ..ClusterPlacement::default()
            },
        },
        queue: QueueName::new("vision"),
        reach: Reach::default(),
        leading: None,
        avoided: Vec::new(),
        time_to_live: None,
        priority_classes: ["high".to_owned()].into(),
    }
}

fn job(name: &str, pods: u32) -> PlacementRequest {
    request(name, "batch/v1/Job", pods)
}

async fn refusal(stage: &Stage, request: PlacementRequest) -> Refusal {
    match stage.scheduler.prepare(request).await {
        Err(refusal) => refusal,
        Ok(write) => panic!("not refused: {write:?}"),
    }
}

fn created(api: &FakeApi) -> Vec<Value> {
    api.requests_of("POST")
        .into_iter()
        .map(|request| request.body)
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_possible_plan_becomes_one_placement_and_prepares_its_member_once() {
    let stage = stage();
    let write = stage.scheduler.prepare(job("a", 2)).await.unwrap();
    let Write::Place {
        record,
        clusters,
        affinity_name,
    } = write
    else {
        panic!("{write:?}")
    };
    assert_eq!(
        (record.state, record.attempt),
        (RecordState::Admitted, Attempt(1))
    );
    assert_eq!(
        (clusters[0].name.as_str(), clusters[0].replicas),
        ("m1", Some(2))
    );
    assert_eq!(affinity_name, None);
    let in_member = created(&stage.member);
    assert_eq!(in_member.len(), 2);
    assert_eq!(in_member[0]["value"], 100);
    assert_eq!(in_member[0]["globalDefault"], false);
    assert_eq!(
        in_member[1]["spec"],
        json!({"weight": 65535, "reclaimable": false})
    );
    let before = stage.member.requests().len();
    stage.scheduler.prepare(job("b", 2)).await.unwrap();
    assert_eq!(
        stage.member.requests().len(),
        before,
        "what was seen is believed"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_stay_assumed_until_the_job_is_forgotten() {
    let stage = stage();
    stage.scheduler.prepare(job("a", 3)).await.unwrap();
    let refused = refusal(&stage, job("b", 2)).await;
    assert_eq!(
        (refused.reason, refused.avoid),
        (Reason::PlanRefused, Some(ClusterName::new("m1")))
    );
    assert_eq!(
        refused.message,
        "member m1 has too little capacity: its pods that are not bound yet need nvidia.com/gpu 4, \
         and 2 of that fit on its nodes now"
    );
    // A repeated plan does not conflict with itself.
    stage.scheduler.prepare(job("a", 4)).await.unwrap();
    stage.scheduler.forget(&JobKey::new("team", "a"));
    stage.scheduler.prepare(job("b", 4)).await.unwrap();
    // Nothing reports the outcome of b, and its pods do not come.
    assert!(stage.scheduler.prepare(job("c", 4)).await.is_err());
    tokio::time::sleep(Duration::from_secs(121)).await;
    stage.scheduler.prepare(job("c", 4)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_unusable_member_and_the_reason() {
    let stage = stage();
    let message = refusal(&stage, request("a", "batch.volcano.sh/v1alpha1/Job", 1))
        .await
        .message;
    assert_eq!(
        message,
        "member m1 does not serve batch.volcano.sh/v1alpha1/Job"
    );
    let away = MemberEvent::Fact(Event::ClusterUpserted(cluster("it does not answer")));
    stage.scheduler.live.apply(away);
    assert_eq!(
        refusal(&stage, job("a", 1)).await.message,
        "member m1 is not usable: it does not answer"
    );
    stage
        .scheduler
        .live
        .apply(MemberEvent::Fact(Event::ClusterGone(ClusterName::new(
            "m1",
        ))));
    assert_eq!(
        refusal(&stage, job("a", 1)).await.message,
        "member m1 no longer exists"
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_preparation_is_refused_and_assumes_nothing() {
    let stage = stage();
    let unknown = PlacementRequest {
        priority_classes: ["absent".to_owned()].into(),
        ..job("a", 4)
    };
    let refused = refusal(&stage, unknown).await;
    assert_eq!(
        (refused.reason, refused.avoid),
        (Reason::PriorityClassNotFound, None)
    );
    stage
        .member
        .fault(1, Fault::Status(403, "not allowed here"), |request| {
            request.verb == "POST"
        });
    let refused = refusal(&stage, job("b", 4)).await;
    assert_eq!(
        (refused.reason, refused.avoid),
        (Reason::MemberRefused, Some(ClusterName::new("m1")))
    );
    assert_eq!(
        refused.message,
        "priorityclass high cannot be created in member m1: not allowed here"
    );
    stage.scheduler.prepare(job("c", 4)).await.unwrap();
}

/// The policy of a class is immutable, so one of an earlier version is replaced; the member's own stays.
#[tokio::test(start_paused = true)]
async fn a_class_of_musters_that_preempts_in_a_member_is_replaced() {
    let own = json!({"managed-by": "x"});
    let musters = json!({"app.kubernetes.io/managed-by": "muster"});
    for (labels, policy, refused, becomes) in [
        (&musters, "PreemptLowerPriority", false, "Never"),
        (
            &musters,
            "PreemptLowerPriority",
            true,
            "PreemptLowerPriority",
        ),
        (&musters, "Never", false, "Never"),
        (&own, "PreemptLowerPriority", false, "PreemptLowerPriority"),
    ] {
        let stage = stage();
        let class =
            json!({"metadata": {"labels": labels}, "value": 100, "preemptionPolicy": policy});
        stage.member.put(CLASS, class);
        if refused {
            let fault = Fault::Status(403, "cannot delete");
            stage
                .member
                .fault(1, fault, |request| request.verb == "DELETE");
        }
        stage.scheduler.prepare(job("a", 1)).await.unwrap();
        let class = stage.member.get(CLASS).unwrap();
        assert_eq!(class["preemptionPolicy"], becomes, "{labels} {policy}");
        assert_eq!(class["value"], 100);
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_without_volcano_needs_no_queue() {
    let stage = stage();
    stage.member.put(CLASS, json!({"value": 7}));
    let queues = |request: &runtime::testing::Recorded| request.path.contains("/queues");
    stage
        .member
        .fault(usize::MAX, Fault::Status(404, "no such kind"), queues);
    stage.scheduler.prepare(job("a", 1)).await.unwrap();
    assert_eq!(
        stage.member.get(CLASS).unwrap()["value"],
        7,
        "what is there is left as it is"
    );
}

const POLICY: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a";

#[tokio::test(start_paused = true)]
async fn a_placement_without_parts_removes_the_override_of_an_earlier_attempt() {
    let stage = stage();
    let override_of = |manager: &str| {
        let managed = json!([{"manager": manager, "operation": "Apply"}]);
        stage
            .karmada
            .put(POLICY, json!({"metadata": {"managedFields": managed}}))
    };
    let attempt = |number: u32| {
        let mut request = job("a", 1);
        request.admission.attempt = Attempt(number);
        request
    };
    override_of("somebody");
    stage.scheduler.prepare(attempt(2)).await.unwrap();
    assert!(stage.karmada.get(POLICY).is_some(), "not ours");
    override_of(binding_writer::overrides::MANAGER);
    stage.scheduler.prepare(attempt(1)).await.unwrap();
    assert!(stage.karmada.get(POLICY).is_some(), "there was none before");
    let Ok(Write::Place { record, .. }) = stage.scheduler.prepare(attempt(2)).await else {
        panic!("refused");
    };
    assert_eq!(record.parts, None);
    assert!(stage.karmada.get(POLICY).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_job_that_asks_for_it_is_split_before_its_placement() {
    let stage = stage();
    let mut request = job("a", 2);
    request.demand.split = engine::facts::Split::Allowed;
    let mut binding = (*request.binding).clone();
    binding.spec.resource = serde_json::from_value(json!({
        "apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "a", "uid": "u",
    }))
    .unwrap();
    request.binding = Arc::new(binding);
    request.leading = Some(ClusterName::new("m1"));
    request.reach = Reach {
        leader: Some("a-0.example.com".into()),
        hosts: [(ClusterName::new("m1"), "{host}.m1".into())].into(),
    };
    let template = |pods: u32| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "u"},
            "spec": {"parallelism": pods, "template": {"spec": {"containers": [{"name": "c"}]}}},
        })
    };
    let path = "/apis/batch/v1/namespaces/team/jobs/a";
    let refused = refusal(&stage, request.clone()).await;
    assert_eq!(refused.message, "its template is gone or has changed");
    stage.karmada.put(path, template(3));
    let refused = refusal(&stage, request.clone()).await;
    assert_eq!(
        refused.message,
        "its template changed since it was planned: main has 3 pods, 2 were planned"
    );
    assert!(stage.karmada.get(POLICY).is_none());
    stage.karmada.put(path, template(2));
    let Ok(Write::Place { record, .. }) = stage.scheduler.prepare(request.clone()).await else {
        panic!("refused");
    };
    assert_eq!(record.parts, Some(Parts::Held));
    assert_eq!(record.leading, request.leading);
    assert_eq!(record.reach(), request.reach);
    let policy = stage.karmada.get(POLICY).unwrap();
    assert_eq!(
        policy["spec"]["overrideRules"][0]["targetCluster"]["clusterNames"][0],
        "m1"
    );
    // Its policy suspends it, so Muster must not dispatch it. The plan of the controller has its retries.
    let mut binding = (*request.binding).clone();
    let plan = json!({
        "templateUID": "u", "attempt": request.admission.attempt, "state": "Planned", "queue": "vision",
        "retries": 2, "maxRetry": 3, "restartPhase": "Terminated", "time": "2026-11-21T04:00:00Z",
        "infrastructureFailures": 4, "templateGeneration": 5,
    });
    let plan = (names::ADMISSION_ANNOTATION.to_owned(), plan.to_string());
    binding
        .metadata
        .annotations
        .get_or_insert_default()
        .extend([plan]);
    binding.spec.suspension = serde_json::from_value(json!({"dispatching": true})).unwrap();
    let request = PlacementRequest {
        binding: Arc::new(binding),
        ..request
    };
    let Ok(Write::Place { record, .. }) = stage.scheduler.prepare(request).await else {
        panic!("refused");
    };
    assert_eq!(record.parts, Some(Parts::Dispatched));
    assert_eq!((record.retries, record.max_retry), (2, Some(3)));
    assert_eq!(record.restart_phase.as_deref(), Some("Terminated"));
    let kept = (record.infrastructure_failures, record.template_generation);
    assert_eq!(kept, (4, Some(5)));
}
