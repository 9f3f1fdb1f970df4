#![allow(clippy::unwrap_used)]
use super::*;
use crate::devices::{DeviceDelta, claim_delta};
use serde_json::{Value, json};

fn cluster() -> ClusterName {
    ClusterName::new("m1")
}

fn pod(name: &str, uid: &str, owner: Option<&str>) -> Delta<SeenPod> {
    pod_in("Running", name, uid, owner)
}

pub(super) fn pod_in(phase: &str, name: &str, uid: &str, owner: Option<&str>) -> Delta<SeenPod> {
    let owners: Value = owner.map_or(json!([]), |name| {
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": format!("{name}-uid"),
                "controller": true}])
    });
    let pod = serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": name, "uid": uid, "ownerReferences": owners},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        "status": {"phase": phase},
    }))
    .unwrap();
    pod_delta(&cluster(), Delta::Upserted(pod), None)
}

fn node(name: &str, cpu: &str) -> Delta<SeenNode> {
    let node = serde_json::from_value(json!({
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu}, "conditions": [{"type": "Ready", "status": "True"}]},
    }))
    .unwrap();
    node_delta(&cluster(), Delta::Upserted(node))
}

pub(super) fn gone<K>(namespace: Option<&str>, name: &str) -> Delta<K> {
    Delta::Gone(ObjectKey {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
    })
}

/// Events in short, and the owners asked for.
pub(super) fn sent(view: &mut MemberView) -> String {
    let (events, asks) = view.take();
    let events = events.iter().map(|event| match event {
        Event::NodeUpserted(fact) => format!("+{} {}", fact.name, fact.allocatable),
        Event::NodeGone(_, name) => format!("-{name}"),
        Event::PodUpserted(fact) => {
            let job = fact
                .job
                .as_ref()
                .map_or("others".to_owned(), ToString::to_string);
            format!("+{} of {job}", fact.uid)
        }
        Event::PodGone(_, uid) => format!("-{uid}"),
        other => format!("{other:?}"),
    });
    let asks = asks.iter().map(|owner| format!("?{}", owner.name));
    events.chain(asks).collect::<Vec<_>>().join(", ")
}

#[test]
fn only_changes_come_out() {
    let mut view = MemberView::new(cluster());
    view.node(node("n1", "8"));
    assert_eq!(sent(&mut view), "+n1 cpu 8");
    view.node(node("n1", "8"));
    assert_eq!(sent(&mut view), "");
    view.node(node("n1", "4"));
    view.node(gone(None, "n1"));
    view.node(gone(None, "n1"));
    assert_eq!(sent(&mut view), "+n1 cpu 4, -n1");
    view.pod(pod("p", "u1", None));
    view.pod(pod("p", "u1", None));
    view.pod(pod("p", "u2", None));
    assert_eq!(sent(&mut view), "+u1 of team/, -u1, +u2 of team/");
}

#[test]
fn other_images_of_a_node_are_sent_once() {
    let node = |images: Value| {
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "8"}, "images": images,
                       "conditions": [{"type": "Ready", "status": "True"}]},
        }));
        node_delta(&cluster(), Delta::Upserted(node.unwrap()))
    };
    let large = |name: &str| json!({"names": [name], "sizeBytes": 1_i64 << 30});
    let small = json!({"names": ["small"], "sizeBytes": 1});
    let mut view = MemberView::new(cluster());
    let mut told = |images: Value| {
        view.node(node(images));
        let (events, _) = view.take();
        let told = events.iter().filter_map(|event| match event {
            Event::NodeImages(fact) => Some(format!("{}: {}", fact.node, fact.images.join(" "))),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(told(json!([small])), [""; 0]);
    let (a, b) = ("n1: r.io/a:1", "n1: r.io/a:1 r.io/b:1");
    assert_eq!(told(json!([large("r.io/a:1"), small])), [a]);
    assert_eq!(told(json!([small, large("r.io/a:1")])), [""; 0]);
    assert_eq!(told(json!([large("r.io/b:1"), large("r.io/a:1")])), [b]);
    assert_eq!(told(json!([])), ["n1: "]);
    assert_eq!(told(json!([])), [""; 0]);
    // A node of the same name comes with its own.
    assert_eq!(told(json!([large("r.io/a:1")])), [a]);
    view.node(gone(None, "n1"));
    view.node(node(json!([large("r.io/a:1")])));
    let (events, _) = view.take();
    assert!(matches!(events[2], Event::NodeImages(_)), "{events:?}");
}

#[test]
fn pods_that_have_ended_stay_known_for_their_job_and_cause_no_climb() {
    let mut view = MemberView::new(cluster());
    view.pod(pod_in("Succeeded", "a", "u1", Some("train")));
    assert_eq!(sent(&mut view), "+u1 of team/train-job");
    view.pod(pod("b", "u2", Some("train")));
    assert_eq!(sent(&mut view), "+u2 of team/train-job, ?train");
    view.pod(gone(Some("team"), "a"));
    view.pod(pod_in("Failed", "b", "u2", Some("train")));
    view.owner_known("train-uid", Some(JobKey::new("team", "train")));
    assert_eq!(
        sent(&mut view),
        "-u1, +u2 of team/train-job, +u2 of team/train"
    );
    // No job needs to know of those without an owner.
    view.pod(pod_in("Succeeded", "c", "u3", None));
    view.pod(pod("d", "u4", None));
    view.pod(pod_in("Succeeded", "d", "u4", None));
    assert_eq!(sent(&mut view), "+u4 of team/, -u4");
}

#[test]
fn the_climb_corrects_the_likely_job_once_for_each_owner() {
    let mut view = MemberView::new(cluster());
    view.pod(pod("a", "u1", Some("set-0")));
    view.pod(pod("b", "u2", Some("set-0")));
    assert_eq!(
        sent(&mut view),
        "+u1 of team/set-0-job, +u2 of team/set-0-job, ?set-0"
    );
    view.pod(gone(Some("team"), "b"));
    view.owner_known("set-0-uid", Some(JobKey::new("team", "set-jobset")));
    assert_eq!(sent(&mut view), "-u2, +u1 of team/set-jobset");
    view.pod(pod("c", "u3", Some("set-0")));
    assert_eq!(sent(&mut view), "+u3 of team/set-jobset");
    // The last pod removes the answer; another owner of that name is asked about again.
    view.pod(gone(Some("team"), "a"));
    view.pod(gone(Some("team"), "c"));
    view.pod(pod("d", "u4", Some("set-0")));
    view.owner_known("set-0-uid", None);
    assert_eq!(
        sent(&mut view),
        "-u1, -u3, +u4 of team/set-0-job, +u4 of team/, ?set-0"
    );
}

#[test]
fn objects_deleted_between_two_connections_are_gone_once_both_have_listed() {
    let mut view = MemberView::new(cluster());
    view.begin();
    view.node(node("n1", "8"));
    view.node(node("n2", "8"));
    view.pod(pod("a", "u1", Some("j")));
    view.pod(pod("b", "u2", None));
    view.node(Delta::Listed);
    assert!(!view.has_listed());
    view.pod(Delta::Listed);
    assert!(view.has_listed());
    sent(&mut view);
    view.begin();
    assert!(!view.has_listed());
    assert_eq!(
        sent(&mut view),
        "?j",
        "nothing is forgotten while the member is away"
    );
    view.pod(pod("b", "u2", None));
    view.pod(Delta::Listed);
    view.node(node("n2", "8"));
    view.node(Delta::Listed);
    assert_eq!(sent(&mut view), "-u1, -n1");
    assert_eq!(view.counts(), (1, 1));
}

fn gpus(node: &str, count: u32) -> DeviceDelta {
    let devices = (0..count).map(|index| json!({"name": format!("gpu-{index}")}));
    let slice = json!({
        "metadata": {"name": node},
        "spec": {
            "driver": "gpu.x", "nodeName": node, "devices": devices.collect::<Vec<_>>(),
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        },
    });
    DeviceDelta::Slice(Delta::Upserted(serde_json::from_value(slice).unwrap()))
}

/// A claim in the namespace `team`, created for `pod` if given, with these devices of `n1`.
fn claim(name: &str, pod: Option<&str>, devices: Option<&[&str]>) -> DeviceDelta {
    let owners: Vec<Value> = pod
        .iter()
        .map(|uid| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true}))
        .collect();
    let mut claim = json!({"metadata": {
        "namespace": "team", "name": name, "uid": format!("{name}-uid"), "ownerReferences": owners,
    }});
    if let Some(devices) = devices {
        let results = devices.iter().map(
            |device| json!({"request": "r", "driver": "gpu.x", "pool": "n1", "device": device}),
        );
        claim["status"] =
            json!({"allocation": {"devices": {"results": results.collect::<Vec<_>>()}}});
    }
    let claim = serde_json::from_value(claim).unwrap();
    DeviceDelta::Claim(claim_delta(Delta::Upserted(claim)))
}

/// A pod of team that has claimed devices by a template, and whose claim has this name.
fn claiming(name: &str, uid: &str, made: Option<&str>) -> Delta<SeenPod> {
    let statuses: Vec<Value> = made
        .iter()
        .map(|name| json!({"name": "gpus", "resourceClaimName": name}))
        .collect();
    let pod = json!({
        "metadata": {"namespace": "team", "name": name, "uid": uid},
        "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "two"}],
        },
        "status": {"phase": "Running", "resourceClaimStatuses": statuses},
    });
    pod_delta(
        &cluster(),
        Delta::Upserted(serde_json::from_value(pod).unwrap()),
        None,
    )
}

/// Requests of pods and resources of nodes, in short.
fn amounts(view: &mut MemberView) -> String {
    let (events, _) = view.take();
    let events = events.iter().map(|event| match event {
        Event::NodeUpserted(fact) => format!("{} {} {}", fact.name, fact.class, fact.allocatable),
        Event::PodUpserted(fact) => {
            let node = fact.node.as_ref().map_or("-", NodeName::as_str);
            format!("{} on {node} {}", fact.uid, fact.request)
        }
        Event::PodGone(_, uid) => format!("-{uid}"),
        other => format!("{other:?}"),
    });
    let sent = events.collect::<Vec<_>>().join("; ");
    sent.replace("deviceclass.resource.kubernetes.io/", "")
}

/// A view of a node `n1` with eight devices of class `gpu.x`.
fn with_devices() -> MemberView {
    let mut view = MemberView::new(cluster());
    let class = serde_json::from_value(json!({"metadata": {"name": "gpu.x"}})).unwrap();
    view.device(DeviceDelta::Class(Delta::Upserted(class)));
    view.device(DeviceDelta::Class(Delta::Listed));
    view.device(DeviceDelta::Claim(Delta::Listed));
    view.device(DeviceDelta::Rule(Delta::Listed));
    view.node(node("n1", "8"));
    assert_eq!(amounts(&mut view), "n1 cpu cpu 8");
    view.device(gpus("n1", 8));
    view.device(DeviceDelta::Slice(Delta::Listed));
    assert_eq!(amounts(&mut view), "n1 gpu-x cpu 8, gpu.x 8");
    view
}

#[test]
fn devices_are_resources_of_their_node_in_any_order_of_events() {
    let mut view = with_devices();
    view.device(gpus("n2", 4));
    assert_eq!(amounts(&mut view), "");
    view.node(node("n2", "8"));
    assert_eq!(amounts(&mut view), "n2 gpu-x cpu 8, gpu.x 4");
    view.device(gpus("n1", 6));
    assert_eq!(amounts(&mut view), "n1 gpu-x cpu 8, gpu.x 6");
    view.device(DeviceDelta::Slice(gone(None, "n1")));
    assert_eq!(amounts(&mut view), "n1 cpu cpu 8");
}

#[test]
fn a_pod_requests_the_devices_of_its_claim_and_is_bound_once_they_are_seen() {
    let mut view = with_devices();
    view.pod(claiming("a", "u1", Some("a-gpus")));
    assert_eq!(amounts(&mut view), "u1 on - cpu 1, pods 1");
    view.device(claim("a-gpus", Some("u1"), None));
    assert_eq!(amounts(&mut view), "");
    view.device(claim("a-gpus", Some("u1"), Some(&["gpu-0", "gpu-1"])));
    assert_eq!(amounts(&mut view), "u1 on n1 cpu 1, gpu.x 2, pods 1");
    // In the other order: the allocation is seen before the pod is seen as bound.
    view.device(claim("b-gpus", Some("u2"), Some(&["gpu-2"])));
    assert_eq!(amounts(&mut view), "b-gpus-uid@n1 on n1 gpu.x 1");
    view.pod(claiming("b", "u2", Some("b-gpus")));
    assert_eq!(
        amounts(&mut view),
        "u2 on n1 cpu 1, gpu.x 1, pods 1; -b-gpus-uid@n1"
    );
    // The pod ends before its claim does.
    view.pod(gone(Some("team"), "b"));
    assert_eq!(amounts(&mut view), "-u2; b-gpus-uid@n1 on n1 gpu.x 1");
    view.device(DeviceDelta::Claim(gone(Some("team"), "b-gpus")));
    assert_eq!(amounts(&mut view), "-b-gpus-uid@n1");
    // A pod whose claim is removed stays bound.
    view.device(DeviceDelta::Claim(gone(Some("team"), "a-gpus")));
    assert_eq!(amounts(&mut view), "u1 on n1 cpu 1, pods 1");
}

#[test]
fn a_deleted_pod_without_devices_waits_for_nothing() {
    let mut view = with_devices();
    view.pod(claiming("a", "u1", Some("a-gpus")));
    assert_eq!(view.waiting.len(), 1);
    view.pod(gone(Some("team"), "a"));
    assert_eq!(amounts(&mut view), "u1 on - cpu 1, pods 1; -u1");
    assert!(view.waiting.is_empty());
}

#[test]
fn claims_without_a_pod_count_as_used_by_others() {
    let mut view = with_devices();
    view.device(claim("shared", None, Some(&["gpu-0", "gpu-1", "gpu-2"])));
    assert_eq!(amounts(&mut view), "shared-uid@n1 on n1 gpu.x 3");
    view.device(claim("shared", None, Some(&["gpu-0"])));
    assert_eq!(amounts(&mut view), "shared-uid@n1 on n1 gpu.x 1");
    view.device(claim("shared", None, None));
    assert_eq!(amounts(&mut view), "-shared-uid@n1");
    // The devices of a claim are found when the slices are.
    view.device(DeviceDelta::Slice(gone(None, "n1")));
    view.device(claim("shared", None, Some(&["gpu-0"])));
    assert_eq!(amounts(&mut view), "n1 cpu cpu 8");
    view.device(gpus("n1", 8));
    assert_eq!(
        amounts(&mut view),
        "n1 gpu-x cpu 8, gpu.x 8; shared-uid@n1 on n1 gpu.x 1"
    );
}

#[test]
fn devices_that_a_container_requests_by_their_class_count_once() {
    let mut view = with_devices();
    let pod = json!({
        "metadata": {"namespace": "team", "name": "p", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": {
            "requests": {"deviceclass.resource.kubernetes.io/gpu.x": "2"},
        }}]},
    });
    let pod = serde_json::from_value(pod).unwrap();
    view.pod(pod_delta(&cluster(), Delta::Upserted(pod), None));
    assert_eq!(amounts(&mut view), "u1 on n1 gpu.x 2, pods 1");
    view.device(claim("p-extended", Some("u1"), Some(&["gpu-0", "gpu-1"])));
    assert_eq!(amounts(&mut view), "");
}

#[test]
fn the_health_of_a_node_is_sent_only_when_it_changes() {
    let mut view = MemberView::new(cluster());
    let seen = |view: &mut MemberView, conditions: Value| {
        let node = serde_json::from_value(json!({
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "8"}, "conditions": conditions},
        }));
        view.node(node_delta(&cluster(), Delta::Upserted(node.unwrap())));
        let healths = view.take_healths();
        let conditions = healths
            .into_iter()
            .map(|(_, health)| health.conditions.len());
        conditions.collect::<Vec<_>>()
    };
    let ready = json!({"type": "Ready", "status": "True"});
    let fault = json!({"type": "GpuMemWatch", "status": "True", "message": "row remap failed"});
    assert!(seen(&mut view, json!([ready])).is_empty());
    assert_eq!(seen(&mut view, json!([ready, fault])), [1]);
    assert!(seen(&mut view, json!([ready, fault])).is_empty());
    assert_eq!(seen(&mut view, json!([ready])), [0]);
    view.node(gone(None, "n1"));
    assert!(seen(&mut view, json!([ready])).is_empty());
}

#[test]
fn pods_of_no_job_that_an_operator_selects_are_not_charged() {
    let selector = kube::core::Selector::from_iter([("app", "agent")]);
    let labelled = |name: &str, owner: Option<&str>| {
        let owners: Value = owner.map_or(json!([]), |name| {
            json!([{"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": "o", "controller": true}])
        });
        let pod = serde_json::from_value(json!({
            "metadata": {
                "namespace": "team", "name": name, "uid": name, "ownerReferences": owners,
                "labels": {"app": "agent"},
            },
            "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"},
        }));
        pod_delta(&cluster(), Delta::Upserted(pod.unwrap()), Some(&selector))
    };
    let mut view = MemberView::new(cluster());
    view.pod(labelled("bare", None));
    view.pod(labelled("owned", Some("train")));
    assert_eq!(
        sent(&mut view),
        "+bare of others, +owned of team/train-job, ?train"
    );
    view.owner_known("o", None);
    assert_eq!(sent(&mut view), "+owned of others");
    view.owner_known("o", Some(JobKey::new("team", "real-job")));
    assert_eq!(
        sent(&mut view),
        "+owned of team/real-job",
        "who has a job is charged, whatever labels"
    );
}
