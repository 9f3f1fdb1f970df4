#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::{asked, shown, yaml};
use crate::*;
use facts::{ClusterName, RolePods, Share};
use insta::assert_snapshot;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn from_binding(spec: &str, template: Option<&str>) -> String {
    let template = template.map(yaml);
    shown(read_spec_from_binding(&yaml(spec), template.as_ref()))
}

#[test]
fn other_kinds_are_sized_from_their_binding() {
    assert_snapshot!(asked("{apiVersion: example.com/v1, kind: Thing}"), @"SizeUnknown: size of example.com/v1 Thing is unknown: this kind is not known");
    assert_snapshot!(from_binding(r#"
resource: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet}
replicas: 3
replicaRequirements:
  resourceRequest: {cpu: 2, nvidia.com/gpu: '1'}
  priorityClassName: high
  nodeClaim:
    nodeSelector: {gpu: a100}
    hardNodeAffinity: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [b]}]}]}
    tolerations: [{key: gpu, operator: Exists}]
"#, Some("{metadata: {labels: {muster.io/queue: q}, annotations: {muster.io/expected-duration: 1h}}, spec: {suspend: true}}")), @r#"
    main 3 × (cpu 2, nvidia.com/gpu 1, pods 1)
      on gpu in ["a100"] and zone in ["b"]
      tolerates "gpu" None None
    min 3 (cpu 6, nvidia.com/gpu 3, pods 3)
    queue q
    class high
    runs 3600000 ms
    suspended
    held
    "#);
    assert_snapshot!(from_binding(r#"
resource: {apiVersion: sparkoperator.k8s.io/v1beta2, kind: SparkApplication}
components:
- {name: executor, replicas: 4, replicaRequirements: {resourceRequest: {cpu: 8}}}
- {name: driver, replicas: 1, replicaRequirements: {priorityClassName: low, resourceRequest: {cpu: 1}}}
"#, None), @r"
    driver 1 × (cpu 1, pods 1)
    executor 4 × (cpu 8, pods 1)
    min 5 (cpu 33, pods 5)
    class low
    ");
}

#[test]
fn a_job_without_pods_is_scaled_to_zero_unless_a_member_completes_or_starts_it() {
    let pods = "template: {spec: {containers: [{name: c}]}}";
    let group =
        "leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {containers: [{name: c}]}}}";
    let surge = "rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 2}}";
    for (api, spec, zero) in [
        (
            "apiVersion: apps/v1, kind: Deployment",
            format!("replicas: 0, {pods}"),
            true,
        ),
        (
            "apiVersion: apps/v1, kind: Deployment",
            pods.to_owned(),
            false,
        ),
        (
            "apiVersion: apps/v1, kind: StatefulSet",
            format!("replicas: 0, {pods}"),
            true,
        ),
        (
            "apiVersion: apps/v1, kind: ReplicaSet",
            format!("replicas: 0, {pods}"),
            true,
        ),
        (
            "apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet",
            format!("replicas: 0, {surge}, {group}"),
            true,
        ),
        (
            "apiVersion: batch/v1, kind: Job",
            format!("parallelism: 0, {pods}"),
            true,
        ),
        (
            "apiVersion: batch/v1, kind: Job",
            format!("completions: 0, {pods}"),
            false,
        ),
        (
            "apiVersion: ray.io/v1, kind: RayJob",
            "submissionMode: HTTPMode, clusterSelector: {ray.io/cluster: c}".to_owned(),
            false,
        ),
    ] {
        let spec = read_spec(&yaml(&format!("{{{api}, spec: {{{spec}}}}}"))).unwrap();
        assert_eq!(spec.scaled_to_zero, zero, "{api}");
    }
    let thing = "{resource: {apiVersion: a.example/v1, kind: Thing}, replicaRequirements: {}}";
    let thing = read_spec_from_binding(&yaml(thing), None).unwrap();
    assert!(thing.scaled_to_zero);
}

#[test]
fn a_binding_without_a_size_leaves_it_unknown() {
    let resource = "resource: {apiVersion: example.com/v1, kind: Thing}";
    for spec in ["", "replicas: 0", "replicas: 3", "components: []"] {
        let got = from_binding(&format!("{resource}\n{spec}"), None);
        assert!(
            got.starts_with(
                "SizeUnknown: size of example.com/v1 Thing is unknown: its binding names no"
            ),
            "{got}"
        );
    }
    let maker = from_binding("resource: {apiVersion: batch/v1, kind: CronJob}", None);
    assert!(
        maker.contains("kubectl create job NAME --from=cronjob/CRONJOB"),
        "{maker}"
    );
    assert_snapshot!(from_binding(&format!("{resource}\nreplicas: -3\nreplicaRequirements: {{}}"), None), @"InvalidTemplate: binding.spec.replicas is -3; needed: a whole number from 0 to 1000000");
    assert_snapshot!(from_binding(&format!("{resource}\ncomponents: [{{name: a, replicas: 1}}, {{name: a, replicas: 1}}]"), None), @r#"InvalidTemplate: binding.spec.components is "a" twice; needed: a name of its own for each group of pods"#);
}

#[test]
fn the_user_of_a_kind_that_no_policy_selects_learns_what_to_do() {
    let advice = |api_version: &str, kind: &str| unselected_advice(api_version, kind).unwrap();
    assert_snapshot!(advice("batch/v1", "CronJob"), @"Muster queues the Jobs that it makes, where an operator runs the cronjob-controller on the control plane (docs/how-to/cronjob.md); else create each Job in this namespace, as with kubectl create job NAME --from=cronjob/CRONJOB");
    assert_snapshot!(advice("trainer.kubeflow.org/v1alpha1", "TrainJob"), @"Muster queues the JobSet that it makes, where an operator runs the controller of Kubeflow Trainer on the control plane (docs/how-to/cronjob.md); else create that JobSet, or a job of the framework, in this namespace");
    assert_snapshot!(advice("flow.volcano.sh/v1alpha1", "JobFlow"), @"Muster queues jobs, not what makes them; create the jobs of the JobFlow in this namespace");
    assert_snapshot!(advice("kubeflow.org/v1", "MXJob"), @"Muster cannot read its size from its template; use one of Deployment, JAXJob, Job, JobSet, LeaderWorkerSet, MPIJob, PaddleJob, Pod, PyTorchJob, RayCluster, RayJob, RayService, ReplicaSet, StatefulSet, TFJob, XGBoostJob, or create a PropagationPolicy in this namespace that selects kubeflow.org/v1 MXJob and has spec.schedulerName: muster, with a ResourceInterpreterCustomization that returns its replicas");
    assert_eq!(unselected_advice("v1", "ConfigMap"), None);
    assert_eq!(unselected_advice("batch/v1", "Job"), None);
    assert_eq!(unselected_advice("kubeflow.org/v1", "XGBoostJob"), None);
}

#[test]
fn the_lists_of_kinds_agree() {
    for kind in known_kinds() {
        assert!(is_known_kind(&kind.api_version(), kind.kind), "{kind:?}");
        assert!(may_start_pods(&kind.api_version(), kind.kind), "{kind:?}");
    }
    assert!(may_start_pods("trainer.kubeflow.org/v1alpha1", "TrainJob"));
    assert!(!is_known_kind("trainer.kubeflow.org/v1alpha1", "TrainJob"));
    assert!(!may_start_pods("v1", "ConfigMap"));
    for kind in known_kinds() {
        assert_eq!(unselected_advice(&kind.api_version(), kind.kind), None);
    }
    for (group, kind) in unselected_kinds() {
        assert!(may_start_pods(&format!("{group}/v1"), kind), "{kind}");
        assert!(
            unselected_advice(&format!("{group}/v1"), kind).is_some(),
            "{kind}"
        );
    }
    // The group distinguishes a Volcano Job from a batch/v1 Job.
    assert!(holds_replicas("batch/v1", "Job"));
    assert!(!holds_replicas("batch.volcano.sh/v1alpha1", "Job"));
}

/// Any JSON with the words of templates, so that it passes the first checks.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (0_i64..2_000_000).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[0-9]{1,4}(m|Gi|%|h|s)?".prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(7, 96, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(word(), inner, 0..6)
                .prop_map(|map| { Value::Object(map.into_iter().collect()) }),
        ]
    })
}

const WORDS: &str = "
    spec metadata annotations labels muster.io/min-available muster.io/expected-duration tasks
    replicas minAvailable template containers initContainers resources requests limits cpu
    nvidia.com/gpu overhead name parallelism completions strategy rollingUpdate maxSurge Worker
    pytorchReplicaSpecs headGroupSpec workerGroupSpecs maxReplicas enableInTreeAutoscaling
    replicatedJobs rayClusterSpec affinity nodeAffinity
    requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms matchExpressions operator In
    tolerations volumes env status conditions partitionPolicy components replicaRequirements
    resourceRequest Always restartPolicy
";

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(
        WORDS
            .split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    )
}

/// A template of a known kind whose parts are any JSON.
fn any_template() -> impl Strategy<Value = Value> {
    let spec = prop::collection::btree_map(word(), any_json(), 0..8);
    (prop::sample::select(known_kinds().collect::<Vec<_>>()), spec, any_json()).prop_map(|(kind, spec, metadata)| {
        let spec: serde_json::Map<String, Value> = spec.into_iter().collect();
        json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec})
    })
}

/// Calls everything that reads a template.
fn read_all(template: &Value, other: &Value) {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let _ = growth(template, other);
    let _ = read_spec_from_binding(template, Some(other));
    let _ = read_spec_from_binding(other, Some(template));
    let _ = queue_of(template, None);
    let _ = dependencies(template);
    let _ = warnings(template);
    let admitted = [
        ("main".to_owned(), 3),
        ("a".to_owned(), 2),
        ("worker".to_owned(), 1),
    ]
    .into();
    let requests: crate::AdmittedRequests = [("worker".to_owned(), Default::default())].into();
    let _ = cap_to_admitted(
        text("apiVersion"),
        text("kind"),
        template,
        &admitted,
        &requests,
    );
    let _ = natively_divisible(template, Some(other));
    let _ = cluster_placement(Some(other), "v1/Pod");
    let statuses = [other.clone(), template.clone()];
    let _ = outcome(
        text("apiVersion"),
        text("kind"),
        &statuses,
        &GangRules::default(),
    );
    let _ = counts(text("apiVersion"), text("kind"), &statuses);
}

/// What must hold for every spec, because the engine does not check it again.
fn check(spec: &WorkloadSpec) -> Result<(), TestCaseError> {
    let pods: u64 = spec.roles.iter().map(|role| u64::from(role.count)).sum();
    let needed: u64 = spec.roles.iter().map(|role| u64::from(role.min)).sum();
    prop_assert!(!spec.roles.is_empty());
    prop_assert!(pods <= 1_000_000);
    prop_assert!(needed <= u64::from(spec.min_available));
    prop_assert!(u64::from(spec.min_available) <= pods);
    prop_assert!(spec.min_available > 0 || pods == 0);
    prop_assert!(spec.roles.iter().all(|role| role.min <= role.count));
    let names: std::collections::BTreeSet<_> = spec.roles.iter().map(|role| &role.name).collect();
    prop_assert_eq!(names.len(), spec.roles.len());
    let total = spec
        .roles
        .iter()
        .try_fold(facts::Resources::new(), |sum, role| {
            sum.checked_add(&role.request.checked_mul(role.count)?)
        });
    prop_assert!(total.is_some());
    Ok(())
}

/// Almost valid templates: valid ones with one value replaced.
fn nearly_right() -> impl Strategy<Value = Value> {
    let valid: Vec<Value> = VALID.iter().map(|text| yaml(text)).collect();
    (
        prop::sample::select(valid),
        any::<prop::sample::Index>(),
        any_json(),
    )
        .prop_map(|(mut template, at, value)| {
            let mut places = Vec::new();
            paths(&template, String::new(), &mut places);
            let place = at.get(&places).clone();
            *template.pointer_mut(&place).unwrap() = value;
            template
        })
}

fn paths(value: &Value, path: String, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            paths(
                value,
                format!("{path}/{}", key.replace('~', "~0").replace('/', "~1")),
                into,
            );
        }),
        Value::Array(items) => items.iter().enumerate().for_each(|(index, value)| {
            paths(value, format!("{path}/{index}"), into);
        }),
        _ => {}
    }
    if !matches!(path.as_str(), "" | "/apiVersion" | "/kind") {
        into.push(path);
    }
}

const VALID: &[&str] = &[
    "{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {annotations: {muster.io/min-available: '3'}}, spec: {replicas: 2, rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 30%}}, leaderWorkerTemplate: {size: 3, leaderTemplate: {spec: {containers: [{}]}}, workerTemplate: {spec: {containers: [{}]}}}}}",
    "{apiVersion: ray.io/v1, kind: RayService, spec: {rayClusterDeletionDelaySeconds: 5, upgradeStrategy: {type: NewCluster}, rayClusterConfig: {headGroupSpec: {template: {spec: {containers: [{}]}}}, workerGroupSpecs: [{groupName: g, replicas: 2, template: {spec: {containers: [{}]}}}]}}}",
    "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {minAvailable: 2, tasks: [{name: a, replicas: 3, minAvailable: 1, partitionPolicy: {minPartitions: 1, partitionSize: 1}, template: {spec: {containers: [{resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}}]}}}, {replicas: 4, template: {spec: {containers: [{}]}}}]}}",
    "{apiVersion: batch/v1, kind: Job, metadata: {annotations: {muster.io/min-available: '2', muster.io/expected-duration: 2h}}, spec: {parallelism: 4, completions: 9, activeDeadlineSeconds: 5, template: {spec: {nodeSelector: {a: b}, tolerations: [{key: a}], overhead: {cpu: 1}, resources: {requests: {cpu: 1}}, initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}}], containers: [{}]}}}}",
    "{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 4, strategy: {rollingUpdate: {maxSurge: 30%}}, template: {spec: {containers: [{}]}}}}",
    "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, spec: {runPolicy: {suspend: false, schedulingPolicy: {minAvailable: 2}}, elasticPolicy: {maxReplicas: 9, metrics: [{}]}, pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {containers: [{}]}}}, Worker: {replicas: 3, template: {spec: {containers: [{}]}}}}}}",
    "{apiVersion: ray.io/v1, kind: RayJob, spec: {submissionMode: K8sJobMode, rayClusterSpec: {enableInTreeAutoscaling: true, headGroupSpec: {template: {spec: {containers: [{}]}}}, workerGroupSpecs: [{groupName: g, replicas: 2, minReplicas: 1, maxReplicas: 3, numOfHosts: 2, template: {spec: {containers: [{}]}}}]}}}",
    "{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {annotations: {muster.io/min-available: '3'}}, spec: {replicatedJobs: [{name: a, replicas: 2, template: {spec: {parallelism: 2, template: {spec: {containers: [{}]}}}}}, {name: b, template: {spec: {template: {spec: {containers: [{}]}}}}}]}}",
];

proptest! {
    #[test]
    fn no_input_panics(template in any_template(), other in any_json()) {
        read_all(&template, &other);
        read_all(&other, &template);
        if let Ok(spec) = read_spec(&template) {
            check(&spec)?;
        }
    }

    #[test]
    fn nearly_right_templates_are_sized_soundly_or_refused_by_name(template in nearly_right()) {
        read_all(&template, &template);
        match read_spec(&template) {
            Ok(spec) => check(&spec)?,
            Err(SpecError::Invalid { field, .. }) => prop_assert!(!field.is_empty()),
            Err(SpecError::SizeUnknown { .. } | SpecError::Uncounted { .. }) => {
                prop_assert!(false, "known kinds have a size");
            }
        }
    }

    #[test]
    fn an_edit_that_changes_nothing_is_no_growth(template in nearly_right()) {
        if read_spec(&template).is_ok() {
            prop_assert_eq!(growth(&template, &template), Ok(Growth::None));
        }
    }
}

#[test]
fn a_job_is_reached_and_led_where_its_pods_went() {
    let shares: Vec<Share> = [("a", "worker"), ("b", "chief")]
        .map(|(cluster, role)| Share {
            cluster: ClusterName::new(cluster),
            pods: vec![RolePods {
                role: role.to_owned(),
                count: 1,
            }],
            charge: BTreeMap::new(),
            slots: Vec::new(),
        })
        .into();
    let text = ("*".to_owned(), "{host}.{namespace}.{cluster}".to_owned());
    let addresses = Addresses::new(&[text].into());
    let job = |kind: &str, field: &str, chief: &str| {
        let container = "{template: {spec: {containers: [{name: c}]}}}";
        let groups = format!("{{{chief}: {container}, Worker: {container}}}");
        let spec = format!("{{{field}: {groups}}}");
        let job = format!(
            "{{apiVersion: kubeflow.org/v1, kind: {kind}, metadata: {{name: j}}, spec: {spec}}}"
        );
        read_spec(&yaml(&job)).unwrap()
    };
    let tensorflow = job("TFJob", "tfReplicaSpecs", "Chief");
    assert_eq!(
        tensorflow.leading_cluster(&shares),
        Some(ClusterName::new("b"))
    );
    let open = |cluster: &str| {
        (
            ClusterName::new(cluster),
            format!("{{host}}.team.{cluster}"),
        )
    };
    let reach = tensorflow.reach(&addresses, "team", &shares);
    assert_eq!(
        (reach.leader, reach.hosts),
        (None, [open("a"), open("b")].into())
    );
    let torch = job("PyTorchJob", "pytorchReplicaSpecs", "Master");
    let mut shares = shares;
    shares[1].pods[0].role = "master".to_owned();
    let reach = torch.reach(&addresses, "team", &shares);
    assert_eq!(reach.leader.as_deref(), Some("j-master-0.team.b"));
    assert!(reach.hosts.is_empty(), "only the first has to be found");
}

#[test]
fn what_a_job_makes_beside_itself_is_no_job_of_its_own() {
    let controlled = |owner: &str| {
        let text = format!(
            "{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{ownerReferences: [{{name: other}}, {{{owner}}}]}}, spec: {{template: {{spec: {{containers: [{{}}]}}}}}}}}"
        );
        read_spec(&yaml(&text)).map_err(|error| error.to_string())
    };
    let error = controlled("apiVersion: apps/v1, kind: Deployment, name: web, controller: true");
    assert_eq!(
        error.unwrap_err(),
        "metadata.ownerReferences[1] is Deployment web; needed: no controller that is a job itself: its pods are those of that job, which is queued by itself"
    );
    // A CronJob makes jobs and has no pods, and an owner that does not control has its own.
    assert!(
        controlled("apiVersion: batch/v1, kind: CronJob, name: nightly, controller: true").is_ok()
    );
    assert!(controlled("apiVersion: apps/v1, kind: Deployment, name: web").is_ok());
}
