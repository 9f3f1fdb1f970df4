#![allow(clippy::unwrap_used)]

use super::*;
use crate::parts;
use crate::parts::tests::{field, shares, variable};
use crate::testing::yaml;
use proptest::prelude::*;

/// The first pod, or each pod, is found by its Service.
fn by_services(meeting: Meeting, shares: &[Share]) -> Reach {
    let open = "{service}.team.svc".to_owned();
    let hosts = shares.iter().filter(|_| meeting == Meeting::All);
    Reach {
        leader: Some(open.clone()),
        hosts: hosts
            .map(|share| (share.cluster.clone(), open.clone()))
            .collect(),
    }
}

const TORCH: &str = "
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: tune, namespace: team, uid: u-1}
spec:
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{name: pytorch, command: [train]}]}}}
    Worker: {replicas: 4, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: pytorch, command: [train]}]}}}
";

fn torch_shares() -> Vec<Share> {
    shares(&[
        ("gpu-a", &[("master", 1), ("worker", 1)]),
        ("gpu-b", &[("worker", 3)]),
    ])
}

/// A Service, in one line, without the part label.
fn line(service: &PodService) -> String {
    let consumers: Vec<&str> = service.consumers.iter().map(ClusterName::as_str).collect();
    let selector = service.selector.iter();
    let selector: Vec<String> = selector
        .filter(|(key, _)| *key != PART_LABEL)
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let name = service.name.rsplit_once('-').unwrap().0;
    format!(
        "{name} of {} for {}: {}",
        service.provider,
        consumers.join(","),
        selector.join(" ")
    )
}

fn lines(template: &str, shares: &[Share], meeting: Meeting) -> String {
    let reach = by_services(meeting, shares);
    let services = services(&yaml(template), Attempt(1), shares, &reach).unwrap();
    services.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_master_of_a_pytorchjob_has_a_service_in_all_of_its_clusters() {
    let shares = torch_shares();
    insta::assert_snapshot!(lines(TORCH, &shares, Meeting::First), @"muster-tune-master-0 of gpu-a for gpu-b: training.kubeflow.org/replica-index=0 training.kubeflow.org/replica-type=master");
    let none = services(&yaml(TORCH), Attempt(1), &shares, &Reach::default());
    assert_eq!(none, Ok(Vec::new()), "its queue does not ask for any");
    let one = &shares[..1];
    let reach = by_services(Meeting::First, one);
    let none = services(&yaml(TORCH), Attempt(1), one, &reach);
    assert_eq!(none, Ok(Vec::new()), "all of it is in one cluster");
}

#[test]
fn each_pod_of_a_tfjob_has_a_service() {
    let template = "
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: tune, namespace: team}
spec:
  tfReplicaSpecs:
    Chief: {template: {spec: {containers: [{name: tensorflow, command: [train]}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: tensorflow, command: [train]}]}}}
";
    let shares = shares(&[
        ("a", &[("chief", 1), ("worker", 1)]),
        ("b", &[("worker", 2)]),
    ]);
    insta::assert_snapshot!(lines(template, &shares, Meeting::All), @r"
    muster-tune-chief-0 of a for b: training.kubeflow.org/replica-index=0 training.kubeflow.org/replica-type=chief
    muster-tune-worker-0 of a for b: training.kubeflow.org/replica-index=0 training.kubeflow.org/replica-type=worker
    muster-tune-worker-0 of b for a: training.kubeflow.org/replica-index=0 training.kubeflow.org/replica-type=worker
    muster-tune-worker-1 of b for a: training.kubeflow.org/replica-index=1 training.kubeflow.org/replica-type=worker
    ");
    // Pods use these names for the pods of the other cluster.
    let reach = by_services(Meeting::All, &shares);
    let all = services(&yaml(template), Attempt(1), &shares, &reach).unwrap();
    let parts = parts::parts(&yaml(template), Attempt(1), &shares, &reach, false).unwrap();
    let groups = field(&parts[1], "/spec/tfReplicaSpecs");
    let container = &groups["Worker"]["template"]["spec"]["containers"][0];
    let told = variable(container, "MUSTER_TF_CLUSTER").unwrap();
    for service in all
        .iter()
        .filter(|service| service.provider.as_str() == "a")
    {
        let address = format!("\"{}.team.svc:2222\"", service.name);
        assert!(told.as_str().unwrap().contains(&address), "{told}");
    }
}

#[test]
fn each_pod_of_an_mpijob_has_a_service() {
    let template = "
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: bench}
spec:
  mpiReplicaSpecs:
    Launcher: {template: {spec: {containers: [{name: c}]}}}
    Worker: {replicas: 3, template: {spec: {containers: [{name: c}]}}}
";
    let shares = shares(&[
        ("a", &[("launcher", 1), ("worker", 1)]),
        ("b", &[("worker", 2)]),
    ]);
    insta::assert_snapshot!(lines(template, &shares, Meeting::All), @r"
    muster-bench-launcher-0 of a for b: training.kubeflow.org/job-role=launcher
    muster-bench-worker-0 of b for a: training.kubeflow.org/job-role=worker training.kubeflow.org/replica-index=0
    muster-bench-worker-0 of a for b: training.kubeflow.org/job-role=worker training.kubeflow.org/replica-index=0
    muster-bench-worker-1 of b for a: training.kubeflow.org/job-role=worker training.kubeflow.org/replica-index=1
    ");
}

#[test]
fn the_operators_labels_select_the_first_pod() {
    let pods = "template: {spec: {containers: [{name: c}]}}";
    let volcano = format!(
        "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: v}}, spec: {{tasks: [{{name: m, replicas: 4, {pods}}}]}}}}"
    );
    let indexed = |mode: &str| {
        format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: i}}, spec: {{completionMode: {mode}, parallelism: 4, completions: 4, {pods}}}}}"
        )
    };
    let set = |field: &str| {
        format!(
            "{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: s}}, spec: {{{field}replicatedJobs: [{{name: d, replicas: 4, template: {{spec: {{{pods}}}}}}}]}}}}"
        )
    };
    let of = |template: &str, role: &str| {
        let shares = shares(&[
            ("a", &[(role, 0)]),
            ("b", &[(role, 3)]),
            ("c", &[(role, 1)]),
        ]);
        lines(template, &shares, Meeting::First)
    };
    insta::assert_snapshot!(of(&volcano, "m"), @"muster-v-m-0 of b for a,c: volcano.sh/task-index=0 volcano.sh/task-spec=m");
    insta::assert_snapshot!(of(&indexed("Indexed"), "main"), @"muster-i-main-0 of b for a,c: batch.kubernetes.io/job-completion-index=0");
    insta::assert_snapshot!(of(&set(""), "d"), @"muster-s-d-0 of b for a,c: batch.kubernetes.io/job-completion-index=0 jobset.sigs.k8s.io/job-index=0 jobset.sigs.k8s.io/replicatedjob-name=d");
    let ray = format!(
        "{{apiVersion: ray.io/v1, kind: RayCluster, metadata: {{name: r}}, spec: {{headGroupSpec: {{{pods}}}}}}}"
    );
    insta::assert_snapshot!(of(&ray, "ray-head"), @"muster-r-ray-head-0 of b for a,c: ray.io/node-type=head");
    assert_eq!(of(&indexed("NonIndexed"), "main"), "");
    assert_eq!(of(&set("network: {enableDNSHostnames: false}, "), "d"), "");
}

#[test]
fn pods_are_labelled_with_the_part_that_their_service_selects() {
    let shares = torch_shares();
    let reach = by_services(Meeting::First, &shares);
    let template = yaml(TORCH);
    let label = |template: &Value, attempt: u32, reach: &Reach, index: usize| {
        let parts = parts::parts(template, Attempt(attempt), &shares, reach, false).unwrap();
        let groups = field(&parts[index], "/spec/pytorchReplicaSpecs").clone();
        groups["Worker"]["template"]["metadata"]["labels"].clone()
    };
    let service = services(&template, Attempt(1), &shares, &reach).unwrap();
    let selected = &service[0].selector[PART_LABEL];
    let own = label(&template, 1, &reach, 0);
    assert_eq!(own[PART_LABEL], **selected);
    assert_eq!(own["a"], "b", "the user's own stay");
    let other = label(&template, 1, &reach, 1);
    assert_ne!(other[PART_LABEL], **selected, "of another cluster");
    let later = label(&template, 2, &reach, 0);
    assert_ne!(later[PART_LABEL], **selected, "of another attempt");
    let again = yaml(&TORCH.replace("u-1", "u-2"));
    let again = label(&again, 1, &reach, 0);
    assert_ne!(again[PART_LABEL], **selected, "of a job submitted again");
    let named = Reach {
        leader: Some("tune-master-0.team.svc.gpu-a.example".to_owned()),
        ..Reach::default()
    };
    assert_eq!(label(&template, 1, &named, 0)[PART_LABEL], Value::Null);
}

#[test]
fn the_first_pod_has_the_name_of_its_own_cluster() {
    let leader = |template: &str, role: &str, path: &str, at: &str| {
        let shares = shares(&[("a", &[(role, 2)]), ("b", &[(role, 2)])]);
        let reach = by_services(Meeting::First, &shares);
        let parts = parts::parts(&yaml(template), Attempt(1), &shares, &reach, false).unwrap();
        let told = |index: usize| {
            let container = field(&parts[index], path).pointer(at).unwrap();
            let told = variable(container, "MUSTER_LEADER_ADDRESS").unwrap();
            told.as_str().unwrap().to_owned()
        };
        let service = services(&yaml(template), Attempt(1), &shares, &reach).unwrap();
        (told(0), told(1), service[0].name.clone())
    };
    let with = |plugins: &str| {
        let template = format!(
            "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: j}}, spec: {{{plugins}tasks: [{{name: w, replicas: 4, template: {{spec: {{containers: [{{name: c}}]}}}}}}]}}}}"
        );
        leader(
            &template,
            "w",
            "/spec/tasks",
            "/0/template/spec/containers/0",
        )
    };
    let (own, other, service) = with("plugins: {svc: []}, ");
    assert_eq!(own, "j-w-0.j");
    assert_eq!(other, format!("{service}.team.svc"));
    let (own, other, service) = with("");
    assert_eq!(own, service, "the Service is there, too");
    assert_eq!(other, format!("{service}.team.svc"));
}

#[test]
fn the_label_of_a_batch_job_is_a_field_of_its_own() {
    let label = |metadata: &str| {
        let template = yaml(&format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{completionMode: Indexed, parallelism: 4, template: {{{metadata}spec: {{containers: [{{name: c}}]}}}}}}}}"
        ));
        let shares = shares(&[("a", &[("main", 2)]), ("b", &[("main", 2)])]);
        let reach = by_services(Meeting::First, &shares);
        let parts = parts::parts(&template, Attempt(1), &shares, &reach, false).unwrap();
        let own = Whose::of(&template, Attempt(1)).part_label(&ClusterName::new("a"));
        let (path, value) = parts[0].fields.last().unwrap();
        (path.clone(), value.to_string().replace(&own, "ID"))
    };
    let text = |(path, value): (String, String)| format!("{path} {value}");
    insta::assert_snapshot!(text(label("metadata: {labels: {job-name: j}}, ")), @r#"/spec/template/metadata/labels/muster.io~1part-id "ID""#);
    insta::assert_snapshot!(text(label("metadata: {annotations: {a: b}}, ")), @r#"/spec/template/metadata/labels {"muster.io/part-id":"ID"}"#);
    insta::assert_snapshot!(text(label("")), @r#"/spec/template/metadata {"labels":{"muster.io/part-id":"ID"}}"#);
}

#[test]
fn names_are_the_same_in_every_version() {
    let template = yaml(TORCH);
    let whose = Whose::of(&template, Attempt(3));
    let cluster = ClusterName::new("gpu-a");
    insta::assert_snapshot!(whose.service(&cluster, "master", 0), @"muster-tune-master-0-26e30c78ae8f98d7");
    insta::assert_snapshot!(whose.part_label(&cluster), @"c335576f71bc723d");
}

proptest! {
    #[test]
    fn a_service_name_is_a_label_and_unique(
        job in "[a-z0-9]([-a-z0-9.]{0,80}[a-z0-9])?",
        role in "[a-zA-Z0-9]([-a-zA-Z0-9]{0,40}[a-zA-Z0-9])?",
        index in 0_u32..10_000,
    ) {
        let template = serde_json::json!({"metadata": {"name": job, "uid": "u"}});
        let name = |attempt, cluster: &str, index| {
            Whose::of(&template, Attempt(attempt)).service(&ClusterName::new(cluster), &role, index)
        };
        let own = name(1, "a", index);
        prop_assert!(own.len() <= LONGEST_NAME, "{own}");
        prop_assert!(own.starts_with("muster-") && !own.ends_with('-'), "{own}");
        prop_assert!(own.bytes().all(|c| c == b'-' || c.is_ascii_lowercase() || c.is_ascii_digit()));
        prop_assert_eq!(&own, &name(1, "a", index));
        for other in [name(2, "a", index), name(1, "b", index), name(1, "a", index + 1)] {
            prop_assert_ne!(&own, &other);
        }
    }
}
