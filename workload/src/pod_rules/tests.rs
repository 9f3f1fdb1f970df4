#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::testing::yaml;
use crate::{read_spec, warnings};
use facts::pod_rules::{NodeDomain, PodRule, PodRuleKind};

/// A rule in a few words.
fn words(rule: &PodRule) -> String {
    let domain = match &rule.domain {
        NodeDomain::Node => "the node",
        NodeDomain::Label(key) => key.as_str(),
    };
    let roles = rule.roles.iter().cloned().collect::<Vec<_>>().join("+");
    match &rule.kind {
        PodRuleKind::Apart => format!("apart from {roles} by {domain}"),
        PodRuleKind::Together => format!("together with {roles} by {domain}"),
        PodRuleKind::Spread {
            max_skew,
            min_domains,
            by_terms,
            by_taints,
        } => format!(
            "{roles} spread over {min_domains}+ {domain} by {max_skew}{}{}",
            if *by_terms { "" } else { ", any node" },
            if *by_taints { ", tolerated" } else { "" },
        ),
    }
}

/// The rules of all roles of a template, and how many terms are not counted.
fn rules(template: &str) -> String {
    let template = yaml(template);
    let spec = match read_spec(&template) {
        Ok(spec) => spec,
        Err(error) => return error.to_string(),
    };
    let roles = spec.roles.iter().filter(|role| !role.rules.is_empty());
    let mut all: Vec<String> = roles
        .map(|role| {
            let rules: Vec<String> = role.rules.iter().map(words).collect();
            let unruled = match role.unruled {
                0 => String::new(),
                count => format!(" but {count}"),
            };
            format!("{}{unruled}: {}", role.name, rules.join(", "))
        })
        .collect();
    let uncounted = warnings(&template).into_iter();
    let uncounted = uncounted
        .filter(|text| text.contains("does not count"))
        .count();
    if uncounted > 0 {
        all.push(format!("{uncounted} not counted"));
    }
    all.join("; ")
}

/// A Deployment of three pods labelled `app: a` in the namespace `team`.
fn deployment(spec: &str) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: team}}, spec: {{replicas: 3, strategy: {{type: Recreate}}, template: {{metadata: {{labels: {{app: a, tier: web}}}}, spec: {{containers: [{{}}], {spec}}}}}}}}}"
    )
}

fn anti(term: &str) -> String {
    deployment(&format!(
        "affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: zone, {term}}}]}}}}"
    ))
}

fn spread(term: &str) -> String {
    deployment(&format!(
        "topologySpreadConstraints: [{{topologyKey: zone, maxSkew: 2, {term}}}]"
    ))
}

#[test]
fn anti_affinity_counts_against_the_pods_of_the_job_that_it_selects() {
    let counted = "main: apart from main by zone";
    for (term, wanted) in [
        ("labelSelector: {matchLabels: {app: a}}", counted),
        ("labelSelector: {}", counted),
        ("labelSelector: {matchLabels: {app: b}}", "1 not counted"),
        // No selector selects nothing.
        ("", ""),
        (
            "labelSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}",
            counted,
        ),
        (
            "labelSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}",
            "1 not counted",
        ),
        (
            "labelSelector: {matchExpressions: [{key: app, operator: Exists}]}",
            counted,
        ),
        (
            "labelSelector: {matchExpressions: [{key: spot, operator: DoesNotExist}]}",
            counted,
        ),
        (
            "labelSelector: {matchExpressions: [{key: app, operator: Sometimes}]}",
            "main: spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].operator is \"Sometimes\"; needed: In, NotIn, Exists, DoesNotExist, Gt or Lt",
        ),
        (
            "labelSelector: {}, matchLabelKeys: [pod-template-hash]",
            counted,
        ),
        ("labelSelector: {}, matchLabelKeys: [tier, absent]", counted),
        (
            "labelSelector: {}, mismatchLabelKeys: [tier]",
            "1 not counted",
        ),
        (
            "labelSelector: {}, mismatchLabelKeys: [pod-template-hash]",
            "1 not counted",
        ),
        ("labelSelector: {}, namespaces: [team]", counted),
        ("labelSelector: {}, namespaces: [other]", "1 not counted"),
        ("labelSelector: {}, namespaceSelector: {}", counted),
        (
            "labelSelector: {}, namespaceSelector: {matchLabels: {a: b}}",
            "1 not counted",
        ),
        (
            "labelSelector: {}, namespaces: [team], namespaceSelector: {matchLabels: {a: b}}",
            counted,
        ),
    ] {
        assert_eq!(rules(&anti(term)), wanted, "{term}");
    }
}

#[test]
fn only_constraints_that_keep_pods_from_starting_are_read() {
    for (term, wanted) in [
        (
            "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: a}}",
            "main: main spread over 1+ zone by 2",
        ),
        (
            "whenUnsatisfiable: DoNotSchedule, minDomains: 3, nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor, labelSelector: {}",
            "main: main spread over 3+ zone by 2, any node, tolerated",
        ),
        (
            "whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [pod-template-hash], labelSelector: {matchLabels: {app: a}}",
            "main: main spread over 1+ zone by 2",
        ),
        (
            "whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: a}}",
            "",
        ),
        (
            "whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: b}}",
            "1 not counted",
        ),
    ] {
        assert_eq!(rules(&spread(term)), wanted, "{term}");
    }
    let preferred = "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {}}}]}}";
    assert_eq!(rules(&deployment(preferred)), "");
}

#[test]
fn ports_of_the_host_keep_pods_on_different_nodes() {
    let containers = |text: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: StatefulSet, metadata: {{name: s}}, spec: {{replicas: 2, template: {{spec: {{{text}}}}}}}}}"
        )
    };
    let apart = "main: apart from main by the node";
    for (text, wanted) in [
        (
            "containers: [{ports: [{containerPort: 1, hostPort: 80}]}]",
            apart,
        ),
        ("containers: [{ports: [{containerPort: 1}]}]", ""),
        (
            "containers: [{ports: [{containerPort: 1}]}], hostNetwork: true",
            apart,
        ),
        (
            "containers: [{}], initContainers: [{restartPolicy: Always, ports: [{containerPort: 1, hostPort: 80}]}]",
            apart,
        ),
        (
            "containers: [{}], initContainers: [{ports: [{containerPort: 1, hostPort: 80}]}]",
            "",
        ),
    ] {
        assert_eq!(rules(&containers(text)), wanted, "{text}");
    }
}

/// A Volcano Job with two tasks.
fn tasks(ps: &str, worker: &str) -> String {
    format!(
        "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: v, namespace: team}}, spec: {{tasks: [{{name: ps, replicas: 1, template: {{metadata: {{labels: {{role: ps}}}}, spec: {{containers: [{{}}], {ps}}}}}}}, {{name: worker, replicas: 2, template: {{metadata: {{labels: {{role: worker}}}}, spec: {{containers: [{{}}], {worker}}}}}}}]}}}}"
    )
}

fn required(kind: &str, selector: &str) -> String {
    format!(
        "affinity: {{{kind}: {{requiredDuringSchedulingIgnoredDuringExecution: [{{topologyKey: zone, labelSelector: {{matchLabels: {{{selector}}}}}}}]}}}}"
    )
}

#[test]
fn rules_hold_between_roles() {
    let anti = |selector: &str| required("podAntiAffinity", selector);
    let near = |selector: &str| required("podAffinity", selector);
    let none = "tolerations: []".to_owned();
    for (ps, worker, wanted) in [
        (
            anti("role: worker"),
            none.clone(),
            "ps: apart from worker by zone; worker: apart from ps by zone",
        ),
        (
            none.clone(),
            anti("volcano.sh/job-name: v"),
            "ps: apart from worker by zone; worker: apart from ps+worker by zone",
        ),
        (
            none.clone(),
            anti("volcano.sh/task-spec: worker"),
            "worker: apart from worker by zone",
        ),
        (
            none.clone(),
            near("role: ps"),
            "ps: together with ps+worker by zone; worker: together with ps+worker by zone",
        ),
        (
            none.clone(),
            near("role: worker"),
            "worker: together with worker by zone",
        ),
        (
            near("volcano.sh/job-name: v"),
            near("volcano.sh/job-name: v"),
            "ps: together with ps+worker by zone; worker: together with ps+worker by zone",
        ),
        // Near any of the workers: which of them is not known before.
        (near("role: worker"), none.clone(), "1 not counted"),
        (near("app: cache"), none.clone(), "1 not counted"),
    ] {
        assert_eq!(rules(&tasks(&ps, &worker)), wanted, "{ps} / {worker}");
    }
}

#[test]
fn ports_of_two_roles_conflict_on_one_address_or_any() {
    let role = |address: &str| {
        format!(
            "{{template: {{spec: {{containers: [{{ports: [{{containerPort: 1, hostPort: 80, hostIP: '{address}'}}]}}]}}}}, replicas: 1}}"
        )
    };
    for (master, worker, conflict) in [
        ("", "", true),
        ("10.0.0.1", "0.0.0.0", true),
        ("10.0.0.1", "10.0.0.1", true),
        ("10.0.0.1", "10.0.0.2", false),
    ] {
        let job = format!(
            "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: p}}, spec: {{pytorchReplicaSpecs: {{Master: {}, Worker: {}}}}}}}",
            role(master),
            role(worker)
        );
        let wanted = "master: apart from master+worker by the node; worker: apart from master+worker by the node";
        let alone = "master: apart from master by the node; worker: apart from worker by the node";
        assert_eq!(
            rules(&job),
            if conflict { wanted } else { alone },
            "{master} {worker}"
        );
    }
}

#[test]
fn the_pods_of_a_rolling_update_keep_no_rules() {
    let rolling = anti("labelSelector: {}").replace("Recreate", "RollingUpdate");
    assert_eq!(rules(&rolling), "main but 1: apart from main by zone");
}

#[test]
fn labels_of_operators_select_the_pods_of_a_job() {
    let selects = |label: &str| {
        format!(
            "{{containers: [{{}}], {}}}",
            required("podAntiAffinity", label)
        )
    };
    let spec = |label: &str| format!("{{replicas: 2, template: {{spec: {}}}}}", selects(label));
    let cases = [
        format!(
            "{{apiVersion: batch/v1, kind: Job, metadata: {{name: j}}, spec: {{parallelism: 2, completions: 2, template: {{spec: {}}}}}}}",
            selects("job-name: j")
        ),
        format!(
            "{{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {{name: j}}, spec: {{pytorchReplicaSpecs: {{Worker: {}}}}}}}",
            spec("training.kubeflow.org/job-name: j")
        ),
        format!(
            "{{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {{name: j}}, spec: {{replicatedJobs: [{{name: w, replicas: 2, template: {{spec: {{template: {{spec: {}}}}}}}}}]}}}}",
            selects("jobset.sigs.k8s.io/jobset-name: j")
        ),
    ];
    for case in cases {
        let found = rules(&case);
        assert!(
            found.contains("apart from") && !found.contains("not counted"),
            "{found}: {case}"
        );
    }
}
