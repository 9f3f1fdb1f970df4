#![allow(clippy::unwrap_used)]

use super::*;
use crate::kinds::jobset::unsplittable::unsplittable;
use crate::parts::tests::{field, leader, shares, variable};
use crate::parts::{RenderedPart, parts};
use crate::rendezvous::Reach;
use crate::testing::yaml;
use facts::{Attempt, ClusterName, RolePods, Share};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A driver, four workers of one pod each, and a Job of four readers that read ten files.
const SET: &str = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: tune, namespace: team}
spec:
  successPolicy: {operator: Any, targetReplicatedJobs: [driver]}
  failurePolicy: {maxRestarts: 0, rules: [{name: a, action: FailJobSet, targetReplicatedJobs: [driver]}]}
  replicatedJobs:
    - {name: driver, template: {spec: {template: {spec: {containers: [{name: d}]}}}}}
    - name: workers
      replicas: 4
      template: {spec: {completions: 1, template: {spec: {containers: [{name: w}]}}}}
    - name: readers
      template: {spec: {parallelism: 4, completions: 10, template: {spec: {containers: [{name: r}]}}}}
";

fn over_two() -> Vec<Share> {
    shares(&[
        ("gpu-a", &[("driver", 1), ("workers", 1)]),
        ("gpu-b", &[("workers", 3), ("readers", 4)]),
    ])
}

fn of(template: &str, shares: &[Share]) -> Vec<RenderedPart> {
    parts(
        &yaml(template),
        Attempt(1),
        shares,
        &Reach::default(),
        false,
    )
    .unwrap()
}

fn jobs(part: &RenderedPart) -> &Vec<Value> {
    field(part, "/spec/replicatedJobs").as_array().unwrap()
}

fn container(job: &Value) -> &Value {
    &job["template"]["spec"]["template"]["spec"]["containers"][0]
}

/// A replicated job, in one line.
fn line(job: &Value) -> String {
    let spec = &job["template"]["spec"];
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |n| n.to_string());
    let offset = variable(container(job), "MUSTER_RANK_OFFSET").unwrap();
    let index = variable(container(job), "MUSTER_REPLICA_INDEX");
    let index = index.map_or("-".to_owned(), |index| {
        let path = index["fieldRef"]["fieldPath"].as_str();
        path.unwrap_or(index.as_str().unwrap_or("?")).to_owned()
    });
    format!(
        "{}: {} Jobs, {} at once, {} in all, from {} + {index}",
        name(job),
        number(&job["replicas"]),
        number(&spec["parallelism"]),
        number(&spec["completions"]),
        offset.as_str().unwrap(),
    )
}

#[test]
fn a_jobset_is_split_by_jobs_or_by_their_pods() {
    let parts = of(SET, &over_two());
    let lines = |part: &RenderedPart| jobs(part).iter().map(line).collect::<Vec<_>>().join("\n");
    insta::assert_snapshot!(lines(&parts[0]), @r"
    driver: - Jobs, - at once, - in all, from 0 + metadata.annotations['batch.kubernetes.io/job-completion-index']
    workers: 1 Jobs, - at once, 1 in all, from 1 + metadata.labels['jobset.sigs.k8s.io/job-index']
    ");
    insta::assert_snapshot!(lines(&parts[1]), @r"
    workers: 3 Jobs, - at once, 1 in all, from 2 + metadata.labels['jobset.sigs.k8s.io/job-index']
    readers: - Jobs, 4 at once, 10 in all, from 5 + metadata.annotations['batch.kubernetes.io/job-completion-index']
    ");
    assert_eq!(parts[1].mark, "attempt 1, part 2 of 2: workers=3 readers=4");
    let told = variable(container(&jobs(&parts[1])[0]), "MUSTER_GANG_SIZE");
    assert_eq!(told, Some(json!("9")));
    let first = variable(container(&jobs(&parts[0])[1]), "MUSTER_LEADER_ADDRESS");
    assert_eq!(first, Some(json!("tune-driver-0-0.tune")));

    // One Job in two clusters: its pods and completions are divided.
    let halves = shares(&[
        ("gpu-a", &[("driver", 1), ("workers", 4), ("readers", 3)]),
        ("gpu-b", &[("readers", 1)]),
    ]);
    let parts = of(SET, &halves);
    insta::assert_snapshot!(line(&jobs(&parts[0])[2]), @"readers: - Jobs, 3 at once, 8 in all, from 5 + metadata.annotations['batch.kubernetes.io/job-completion-index']");
    insta::assert_snapshot!(line(&jobs(&parts[1])[0]), @"readers: - Jobs, 1 at once, 2 in all, from 13 + metadata.annotations['batch.kubernetes.io/job-completion-index']");
}

#[test]
fn a_part_names_only_its_own_replicated_jobs() {
    let parts = of(SET, &over_two());
    let rest = |part: &RenderedPart| {
        let fields = part.fields[1..].iter();
        let lines = fields.map(|(path, value)| format!("{path} {value}"));
        lines.collect::<Vec<_>>().join("\n")
    };
    insta::assert_snapshot!(rest(&parts[0]), @"/spec/failurePolicy/rules null");
    insta::assert_snapshot!(rest(&parts[1]), @r#"
    /spec/successPolicy {"operator":"All"}
    /spec/failurePolicy/rules null
    "#);
    // Without a leading role every part names all replicated jobs that it has.
    let all = SET.replace(
        "{operator: Any, targetReplicatedJobs: [driver]}",
        "{operator: All, targetReplicatedJobs: [readers, workers, driver]}",
    );
    let parts = of(&all, &over_two());
    for part in &parts {
        assert_eq!(
            *field(part, "/spec/successPolicy"),
            json!({"operator": "All"})
        );
    }
}

#[test]
fn pods_without_indexes_receive_none() {
    let plain = SET.replace("spec: {", "spec: {completionMode: NonIndexed, ");
    let parts = of(&plain, &over_two());
    let index = |job: &Value| variable(container(job), "MUSTER_REPLICA_INDEX");
    assert_eq!(index(&jobs(&parts[0])[0]), Some(json!("0")));
    assert!(index(&jobs(&parts[1])[0]).unwrap().is_object());
    assert_eq!(index(&jobs(&parts[1])[1]), None);
    // The first pod has no name either.
    let first = variable(container(&jobs(&parts[0])[1]), "MUSTER_LEADER_ADDRESS");
    assert_eq!(first, None);
}

#[test]
fn other_clusters_get_the_address_of_the_coordinator() {
    let set = SET.replace(
        "spec:\n  successPolicy",
        "spec:\n  coordinator: {replicatedJob: driver}\n  successPolicy",
    );
    let error = parts(
        &yaml(&set),
        Attempt(1),
        &over_two(),
        &Reach::default(),
        false,
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "no address is known at which its other pods could reach tune-driver-0-0.tune on gpu-a"
    );
    let told = |address: &str| {
        let reach = leader(Some(address));
        let parts = parts(&yaml(&set), Attempt(1), &over_two(), &reach, false).unwrap();
        let removed = |part: &RenderedPart| {
            let mut fields = part.fields.iter();
            fields.any(|(path, value)| path == "/spec/coordinator" && value.is_null())
        };
        assert!(!removed(&parts[0]) && removed(&parts[1]));
        let metadata =
            |part: &RenderedPart| jobs(part)[0]["template"]["spec"]["template"]["metadata"].clone();
        assert_eq!(metadata(&parts[0]), Value::Null);
        metadata(&parts[1])
    };
    let address = "tune-driver-0-0.tune.team.svc.gpu-a.example.com";
    assert_eq!(
        told(address),
        json!({"annotations": {(COORDINATOR): address}, "labels": {(COORDINATOR): address}})
    );
    let address = "fd00::1";
    assert_eq!(
        told(address),
        json!({"annotations": {(COORDINATOR): address}})
    );
}

#[test]
fn an_unsplittable_jobset_names_its_field() {
    let why = |spec: &str| {
        let set = "apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: tune}";
        let why = unsplittable(&yaml(&format!("{{{set}, spec: {{{spec}}}}}")));
        why.unwrap_or_else(|| "nothing".to_owned())
    };
    const JOBS: &str = "replicatedJobs: [{name: d}, {name: w, replicas: 3}]";
    let of_jobs = |spec: &str| why(&format!("{JOBS}, {spec}"));
    insta::assert_snapshot!([
        why(JOBS),
        of_jobs("startupPolicy: {startupPolicyOrder: AnyOrder}, failurePolicy: {maxRestarts: 0, rules: [{action: RestartJobSet}]}"),
        of_jobs("successPolicy: {operator: All}"),
        of_jobs("successPolicy: {operator: All, targetReplicatedJobs: [w, d]}"),
        of_jobs("successPolicy: {operator: Any, targetReplicatedJobs: [d]}"),
        of_jobs("coordinator: {replicatedJob: d}"),
        why("replicatedJobs: [{name: d, template: {spec: {parallelism: 4, completions: 9}}}]"),
    ].join("\n"), @r"
    nothing
    nothing
    nothing
    nothing
    nothing
    nothing
    nothing
    ");
    insta::assert_snapshot!([
        of_jobs("startupPolicy: {startupPolicyOrder: InOrder}"),
        of_jobs("volumeClaimPolicies: [{templates: []}]"),
        of_jobs("failurePolicy: {maxRestarts: 3}"),
        of_jobs("failurePolicy: {restartStrategy: InPlaceRestart}"),
        of_jobs("failurePolicy: {rules: [{action: FailJobSet}, {action: RestartJobSetAndIgnoreMaxRestarts}]}"),
    ].join("\n"), @r"
    spec.startupPolicy InOrder waits for pods that may be in another cluster
    spec.volumeClaimPolicies makes all pods share claims of one cluster
    spec.failurePolicy.maxRestarts would restart the pods of one cluster and not the others
    spec.failurePolicy.restartStrategy InPlaceRestart would restart the pods of one cluster and not the others
    spec.failurePolicy.rules[1] would restart the pods of one cluster and not the others
    ");
    insta::assert_snapshot!([
        of_jobs("coordinator: {replicatedJob: w}"),
        of_jobs("coordinator: {replicatedJob: d, podIndex: 1}"),
        of_jobs("coordinator: {replicatedJob: d}, network: {enableDNSHostnames: false}"),
    ].join("\n"), @r"
    spec.coordinator is not the pod of rank 0, the first of replicated job d, the only one that other clusters know
    spec.coordinator is not the pod of rank 0, the first of replicated job d, the only one that other clusters know
    spec.coordinator has no hostname: spec.network.enableDNSHostnames is false, or its Job not Indexed
    ");
    let some = "spec.successPolicy ends the set by some of its Jobs, which may be in several clusters; it may be about all of them, or name a single replicated job of one pod";
    for policy in [
        "{operator: Any}",
        "{operator: All, targetReplicatedJobs: [w]}",
        "{operator: Any, targetReplicatedJobs: [d, w]}",
    ] {
        assert_eq!(of_jobs(&format!("successPolicy: {policy}")), some);
    }
    insta::assert_snapshot!([
        why("replicatedJobs: [{name: d}, {name: w, dependsOn: [{name: d, status: Ready}]}]"),
        why("replicatedJobs: [{name: w, replicas: 2, template: {spec: {parallelism: 4, completions: 4}}}]"),
        why("replicatedJobs: [{name: w, replicas: 2, template: {spec: {completions: 3}}}]"),
        why("replicatedJobs: [{name: w, template: {spec: {parallelism: 4, completions: 4, maxFailedIndexes: 1}}}]"),
    ].join("\n"), @r"
    spec.replicatedJobs[1].dependsOn waits for pods that may be in another cluster
    spec.replicatedJobs[0] has 2 Jobs of 4 pods, and pods are divided one by one; it may have one Job of many pods, or many Jobs of one pod
    spec.replicatedJobs[0] has 2 Jobs of 3 pods, and pods are divided one by one; it may have one Job of many pods, or many Jobs of one pod
    spec.replicatedJobs[0].template.spec.maxFailedIndexes counts indexes of the whole job
    ");
}

#[test]
fn a_jobset_whose_containers_name_its_pods_is_not_split() {
    let why = |container: &str| {
        let job = format!(
            "{{name: w, replicas: 3, template: {{spec: {{template: {{spec: {{containers: [{{name: c, {container}}}]}}}}}}}}}}"
        );
        let set = "apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: tune}";
        unsplittable(&yaml(&format!(
            "{{{set}, spec: {{replicatedJobs: [{{name: d}}, {job}]}}}}"
        )))
    };
    for named in [
        "env: [{name: MASTER_ADDR, value: tune-d-0-0.tune}]",
        "command: [torchrun, --rdzv-endpoint=tune-d-0-0.tune:3389]",
        "command: [sh, -c], args: ['join tune-w-${NEXT}-0.tune']",
    ] {
        let told = why(named).unwrap();
        assert!(
            told.starts_with("spec.replicatedJobs[1] container c names a pod in"),
            "{told}"
        );
    }
    for fine in [
        "command: [tune-d, --log=/logs/tune-w-all]",
        "env: [{name: MASTER_ADDR, value: $(MUSTER_LEADER_ADDRESS)}]",
    ] {
        assert_eq!(why(fine), None, "{fine}");
    }
}

/// Replicated jobs: the pods of each in up to four clusters, whether each pod is a Job, and how many more
/// have to complete than run at the same time.
fn sets() -> impl Strategy<Value = Vec<(Vec<u32>, bool, u32)>> {
    (1usize..=3, 1usize..=4).prop_flat_map(|(jobs, clusters)| {
        let job = (
            prop::collection::vec(0u32..=5, clusters),
            any::<bool>(),
            0u32..=7,
        );
        prop::collection::vec(job, jobs).prop_filter("every job has a pod", |jobs| {
            jobs.iter().all(|(pods, _, _)| pods.iter().sum::<u32>() > 0)
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn every_rank_of_a_jobset_is_there_once(jobs in sets()) {
        let role = |job: usize| format!("r{job}");
        let replicated: Vec<Value> = jobs.iter().enumerate().map(|(job, (pods, own, more))| {
            let pods: u32 = pods.iter().sum();
            let (replicas, at_once, completions) = match own {
                true => (pods, 1, 1),
                false => (1, pods, pods + more),
            };
            json!({"name": role(job), "replicas": replicas, "template": {"spec": {
                "parallelism": at_once, "completions": completions,
                "template": {"spec": {"containers": [{"name": "c"}]}},
            }}})
        }).collect();
        let clusters = jobs[0].0.len();
        let shares: Vec<Share> = (0..clusters).map(|index| Share {
            cluster: ClusterName::new(format!("c{index}")),
            pods: jobs.iter().enumerate().map(|(job, (pods, _, _))| RolePods {
                role: role(job), count: pods[index],
            }).collect(),
            charge: BTreeMap::new(),
            slots: Vec::new(),
        }).collect();
        let set = json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"},
            "spec": {"replicatedJobs": replicated},
        });
        prop_assert_eq!(unsplittable(&set), None);
        let parts = parts(&set, Attempt(1), &shares, &Reach::default(), false).unwrap();
        let mut ranks = BTreeSet::new();
        let (mut at_once, mut completed) = (0, 0);
        for part in &parts {
            for job in super::tests::jobs(part) {
                let shape = ReplicatedJobSize::of(job);
                let own = shape.jobs * shape.completions.unwrap();
                at_once += shape.jobs * shape.at_once;
                completed += own;
                let offset = variable(container(job), "MUSTER_RANK_OFFSET").unwrap();
                let offset: u64 = offset.as_str().unwrap().parse().unwrap();
                for rank in offset..offset + own {
                    prop_assert!(ranks.insert(rank), "rank {} is there twice", rank);
                }
            }
        }
        prop_assert_eq!(ranks.last().copied(), Some(completed - 1));
        let pods: u32 = jobs.iter().flat_map(|(pods, _, _)| pods).sum();
        prop_assert_eq!(at_once, u64::from(pods));
    }
}
