#![allow(clippy::unwrap_used)]
use crate::testing::yaml;
use crate::{SpecError, WorkloadSpec, read_spec};

fn job(kind: &str, metadata: &str, spec: &str) -> Result<WorkloadSpec, SpecError> {
    let api = if kind == "Deployment" {
        "apps/v1"
    } else {
        "batch/v1"
    };
    read_spec(&yaml(&format!(
        "{{apiVersion: {api}, kind: {kind}, metadata: {metadata}, spec: {{{spec} template: {{metadata: {{labels: {{volcano.sh/preemptable: 'true'}}}}, spec: {{priorityClassName: high, containers: [{{name: a, resources: {{requests: {{cpu: 2}}}}}}]}}}}}}}}"
    )))
}

fn elastic(kind: &str, annotations: &str, spec: &str) -> String {
    let metadata = format!("{{annotations: {{muster.io/elastic: 'true'{annotations}}}}}");
    match job(kind, &metadata, spec) {
        Ok(spec) => format!(
            "elastic {}: {} to {}, at least {}",
            spec.elastic, spec.min_available, spec.roles[0].count, spec.min_resources
        ),
        Err(error) => error.to_string(),
    }
}

#[test]
fn an_elastic_job_starts_with_its_minimum() {
    let table = [
        ("Job", "", "parallelism: 4,"),
        ("Job", ", muster.io/min-replicas: '2'", "parallelism: 4,"),
        ("Job", ", muster.io/min-available: '3'", "parallelism: 4,"),
        ("Job", ", muster.io/min-replicas: '4'", "parallelism: 4,"),
        ("Job", ", muster.io/min-replicas: '5'", "parallelism: 4,"),
        (
            "Job",
            ", muster.io/min-replicas: '2', muster.io/min-available: '3'",
            "parallelism: 4,",
        ),
        (
            "Job",
            ", muster.io/min-replicas: '3', muster.io/min-available: '3'",
            "parallelism: 4,",
        ),
        ("Deployment", "", "replicas: 3, strategy: {type: Recreate},"),
        ("Deployment", "", "replicas: 3,"),
    ];
    let said: Vec<String> = table
        .iter()
        .map(|(kind, annotations, spec)| elastic(kind, annotations, spec))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    elastic true: 1 to 4, at least cpu 2, pods 1
    elastic true: 2 to 4, at least cpu 4, pods 2
    elastic true: 3 to 4, at least cpu 6, pods 3
    elastic false: 4 to 4, at least cpu 8, pods 4
    metadata.annotations[muster.io/min-replicas] is "5"; needed: a whole number from 1 to 4, the pods it has
    metadata.annotations[muster.io/min-replicas] is "2"; needed: 3, what muster.io/min-available says, or no muster.io/min-available: an elastic job starts with what it may be shrunk to
    elastic true: 3 to 4, at least cpu 6, pods 3
    elastic true: 1 to 3, at least cpu 2, pods 1
    metadata.annotations[muster.io/elastic] is "true"; needed: a Deployment whose updates start no pods beside its replicas: spec.strategy.type Recreate, or rollingUpdate.maxSurge 0
    "#);
}

#[test]
fn a_kind_that_cannot_be_resized_is_not_elastic() {
    let torch = read_spec(&yaml(
        "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {annotations: {muster.io/elastic: 'true'}}, spec: {pytorchReplicaSpecs: {Worker: {replicas: 2, template: {spec: {containers: [{name: a}]}}}}}}",
    ));
    insta::assert_snapshot!(torch.unwrap_err(), @r#"metadata.annotations[muster.io/elastic] is "true"; needed: false, or a kind that is resized while it runs: a Deployment, StatefulSet, batch/v1 Job or Volcano Job"#);
    let word = job("Job", "{annotations: {muster.io/elastic: often}}", "");
    insta::assert_snapshot!(word.unwrap_err(), @r#"metadata.annotations[muster.io/elastic] is "often"; needed: true or false"#);
}

#[test]
fn an_elastic_volcano_job_has_its_minimum_in_its_spec() {
    let said = |annotations: &str, spec: &str, task: &str| {
        let job = read_spec(&yaml(&format!(
            "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{annotations: {{muster.io/elastic: 'true'{annotations}}}}}, spec: {{{spec} tasks: [\
             {{name: master, replicas: 1, template: {{spec: {{containers: [{{name: a}}]}}}}}}, \
             {{name: worker, replicas: 4, {task} template: {{spec: {{containers: [{{name: a}}]}}}}}}]}}}}"
        )));
        match job {
            Ok(spec) => {
                let placement = facts::ClusterPlacement::default();
                let demand = spec.demand(false, facts::Split::Never, placement);
                let roles = demand.roles.iter();
                let roles: Vec<String> = roles
                    .map(|role| format!("{} {} to {}", role.name, role.min, role.count))
                    .collect();
                let (least, held) = (demand.min_available, demand.held);
                format!("at least {least}, {}, held {held:?}", roles.join(", "))
            }
            Err(error) => error.to_string(),
        }
    };
    let table = [
        said("", "minAvailable: 2,", ""),
        said("", "minAvailable: 3,", "minAvailable: 2,"),
        said("", "minAvailable: 5,", ""),
        said("", "", ""),
        said(", muster.io/min-replicas: '2'", "minAvailable: 2,", ""),
        said(
            "",
            "minAvailable: 2,",
            "partitionPolicy: {totalPartitions: 2, partitionSize: 2},",
        ),
    ];
    insta::assert_snapshot!(table.join("\n"), @r#"
    at least 2, master 0 to 1, worker 0 to 4, held ByOverride
    at least 3, master 1 to 1, worker 2 to 4, held ByOverride
    at least 5, master 1 to 1, worker 4 to 4, held Not
    spec.minAvailable is absent; needed: with how few of its 5 pods it may run, since muster.io/elastic is true
    metadata.annotations[muster.io/min-replicas] is "2"; needed: no value: this kind has its minimum in spec.minAvailable
    spec.tasks[1].partitionPolicy is an object; needed: nothing, since muster.io/elastic is true: all of its partitions have to be there
    "#);
}

#[test]
fn a_job_is_preemptible_unless_it_says_no() {
    for (metadata, want) in [
        ("{}", true),
        ("{labels: {volcano.sh/preemptable: 'false'}}", false),
        ("{annotations: {volcano.sh/preemptable: 'False'}}", false),
        ("{annotations: {volcano.sh/preemptable: 'true'}}", true),
    ] {
        assert_eq!(
            job("Job", metadata, "").unwrap().preemptible,
            want,
            "{metadata}"
        );
    }
    let pods = "{apiVersion: batch/v1, kind: Job, spec: {template: {metadata: {annotations: {volcano.sh/preemptable: 'false'}}, spec: {containers: [{name: a}]}}}}";
    assert!(!read_spec(&yaml(pods)).unwrap().preemptible);
    let odd = job("Job", "{labels: {volcano.sh/preemptable: maybe}}", "");
    insta::assert_snapshot!(odd.unwrap_err(), @r#"metadata.labels[volcano.sh/preemptable] is "maybe"; needed: true or false"#);
}

#[test]
fn data_and_priority_classes_are_named() {
    let spec = job(
        "Job",
        "{annotations: {muster.io/data-clusters: 'b, a,'}}",
        "",
    )
    .unwrap();
    assert_eq!(spec.data_clusters, ["b".into(), "a".into()]);
    assert_eq!(spec.pod_priority_classes, ["high".to_owned()].into());
}

#[test]
fn volcanos_topology_is_read() {
    let topology = |stated: &str| {
        let job = format!(
            "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {{networkTopology: {stated}, tasks: [{{replicas: 1, template: {{spec: {{containers: [{{name: a}}]}}}}}}]}}}}"
        );
        match read_spec(&yaml(&job)) {
            Ok(spec) => spec.topology.map_or("none".to_owned(), |topology| {
                format!("hard {}, tier {}", topology.hard, topology.highest_tier)
            }),
            Err(error) => error.to_string(),
        }
    };
    for (stated, want) in [
        ("null", "none"),
        ("{}", "hard true, tier 1"),
        ("{mode: hard, highestTierAllowed: 2}", "hard true, tier 2"),
        ("{mode: soft, highestTierAllowed: 3}", "hard false, tier 3"),
        ("{mode: hard, highestTierName: spine}", "hard false, tier 1"),
        (
            "{mode: firm}",
            "spec.networkTopology.mode is \"firm\"; needed: hard or soft",
        ),
    ] {
        assert_eq!(topology(stated), want, "{stated}");
    }
}
