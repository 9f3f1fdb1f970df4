#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::dependencies;
use crate::testing::yaml;
use insta::assert_snapshot;

fn named(template: &str) -> String {
    let each = dependencies(&yaml(template));
    each.iter()
        .map(|d| format!("{} {} {}/{}", d.api_version, d.kind, d.namespace, d.name))
        .collect::<Vec<_>>()
        .join("\n")
}

const SPEC: &str = r#"
serviceAccountName: trainer
imagePullSecrets: [{name: pull}, {}]
initContainers:
- envFrom: [{configMapRef: {name: init-env}}, {secretRef: {name: init-secret}}]
containers:
- env:
  - {name: A, value: plain}
  - {name: B, valueFrom: {configMapKeyRef: {name: keys, key: a}}}
  - {name: C, valueFrom: {secretKeyRef: {name: token, key: a}}}
  - {name: D, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
volumes:
- {name: c, configMap: {name: config}}
- {name: s, secret: {secretName: tls}}
- {name: d, persistentVolumeClaim: {claimName: data}}
- {name: p, projected: {sources: [{configMap: {name: kube-root-ca.crt}}, {configMap: {name: more}}, {secret: {name: keys}}, {serviceAccountToken: {path: t}}]}}
- {name: e, emptyDir: {}}
- {name: x, csi: {driver: d, nodePublishSecretRef: {name: csi}}}
- {name: own, persistentVolumeClaim: {claimName: scratch}}
resourceClaims:
- {name: gpus, resourceClaimTemplateName: two-gpus}
- {name: shared, resourceClaimName: there-already}
"#;

fn indented(by: usize) -> String {
    SPEC.lines()
        .map(|line| format!("{}{line}\n", " ".repeat(by)))
        .collect()
}

#[test]
fn every_object_that_pods_name_is_a_dependency() {
    assert_snapshot!(named(&format!("apiVersion: batch/v1\nkind: Job\nmetadata: {{namespace: team-a}}\nspec:\n  template:\n    spec:\n{}", indented(6))), @r"
    v1 ConfigMap team-a/config
    v1 ConfigMap team-a/init-env
    v1 ConfigMap team-a/keys
    v1 ConfigMap team-a/more
    v1 PersistentVolumeClaim team-a/data
    v1 PersistentVolumeClaim team-a/scratch
    resource.k8s.io/v1 ResourceClaimTemplate team-a/two-gpus
    v1 Secret team-a/csi
    v1 Secret team-a/init-secret
    v1 Secret team-a/keys
    v1 Secret team-a/pull
    v1 Secret team-a/tls
    v1 Secret team-a/token
    v1 ServiceAccount team-a/trainer
    ");
}

#[test]
fn a_volcano_jobs_volumes_are_dependencies_unless_it_defines_them() {
    assert_snapshot!(named(r#"
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {namespace: team-a}
spec:
  volumes: [{mountPath: /a, volumeClaimName: shared}, {mountPath: /b, volumeClaimName: fresh, volumeClaim: {}}]
  tasks:
  - {template: {spec: {serviceAccountName: default}}}
  - {template: {spec: {serviceAccountName: one}}}
  - {template: {spec: {serviceAccountName: one}}}
"#), @r"
    v1 PersistentVolumeClaim team-a/shared
    v1 ServiceAccount team-a/one
    ");
}

#[test]
fn a_stateful_sets_own_claims_are_no_dependencies() {
    assert_snapshot!(named(r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {namespace: ns}
spec:
  volumeClaimTemplates: [{metadata: {name: scratch}}]
  template: {spec: {volumes: [{persistentVolumeClaim: {claimName: scratch}}, {persistentVolumeClaim: {claimName: data}}]}}
"#), @"v1 PersistentVolumeClaim ns/data");
}

#[test]
fn every_kind_s_templates_are_looked_at() {
    let pods = |name: &str| format!("{{spec: {{serviceAccountName: {name}}}}}");
    for (kind, spec) in [
        (
            "kubeflow.org/v1, kind: PyTorchJob",
            format!(
                "pytorchReplicaSpecs: {{Worker: {{template: {}}}}}",
                pods("a")
            ),
        ),
        (
            "ray.io/v1, kind: RayCluster",
            format!("headGroupSpec: {{template: {}}}", pods("a")),
        ),
        (
            "ray.io/v1, kind: RayJob",
            format!(
                "rayClusterSpec: {{workerGroupSpecs: [{{template: {}}}]}}",
                pods("a")
            ),
        ),
        (
            "ray.io/v1, kind: RayJob",
            format!("submitterPodTemplate: {}", pods("a")),
        ),
        (
            "jobset.x-k8s.io/v1alpha2, kind: JobSet",
            format!(
                "replicatedJobs: [{{template: {{spec: {{template: {}}}}}}}]",
                pods("a")
            ),
        ),
        (
            "apps/v1, kind: Deployment",
            format!("template: {}", pods("a")),
        ),
        ("v1, kind: Pod", "serviceAccountName: a".to_owned()),
    ] {
        let text = format!("{{apiVersion: {kind}, metadata: {{namespace: ns}}, spec: {{{spec}}}}}");
        assert_eq!(named(&text), "v1 ServiceAccount ns/a", "{kind}");
    }
    assert_eq!(
        named(
            "{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {namespace: ns, annotations: {muster.io/ssh-auth-secret: keys}}, spec: {}}"
        ),
        "v1 Secret ns/keys"
    );
    assert_eq!(
        named(
            "{apiVersion: example.com/v1, kind: Thing, spec: {template: {spec: {serviceAccountName: a}}}}"
        ),
        ""
    );
}
