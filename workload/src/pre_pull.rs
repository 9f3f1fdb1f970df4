//! The Job that pulls the images of a waiting job on the nodes that are reserved for it.
//!
//! One pod for each node and one container for each image. It requests nothing, so that it takes nothing from the job
//! or anybody else. No container runs anything of its image: nothing is charged for it, and a tenant's image would run
//! beside the quota. That its containers cannot be started does not matter: their images are there then.

use crate::images::{full_image_name, names_of};
use crate::pod_specs;
use facts::NodeName;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The most images that are pulled for a job.
const MOST_IMAGES: usize = 16;

/// What the containers would run. Runtimes mount `/proc` themselves, so that no image can have this file.
const NO_COMMAND: &str = "/proc/muster-pulls-this-image-only";

/// A user without rights (`nobody`).
const NOBODY: u32 = 65_534;

/// A pull of images ahead of a job's start.
#[derive(Debug, Clone, Copy)]
pub struct ImagePull<'a> {
    /// The name of the Job.
    pub name: &'a str,
    /// The label by which its pods are known, with its value.
    pub label: (&'a str, &'a str),
    /// The role whose images are pulled.
    pub role: &'a str,
    /// The nodes that pull.
    pub nodes: &'a [NodeName],
    /// After how many seconds it is given up.
    pub seconds: i64,
}

/// Returns the Job that pulls the images of a role of `template`, in the namespace of the template; `None` if there is
/// nothing to pull. The template is not changed.
#[must_use]
pub fn image_pull_job(template: &mut Value, pull: &ImagePull<'_>) -> Option<Value> {
    let namespace = template
        .pointer("/metadata/namespace")?
        .as_str()?
        .to_owned();
    let specs = pod_specs::of(template).into_iter();
    let (_, spec) = { specs }.find(|(role, _)| role == pull.role)?;
    let mut seen = BTreeSet::new();
    let images = names_of(spec).into_iter();
    let images: Vec<&str> = images
        .filter(|name| seen.insert(full_image_name(name)))
        .take(MOST_IMAGES)
        .collect();
    if images.is_empty() || pull.nodes.is_empty() {
        return None;
    }
    let (label, value) = pull.label;
    let labels = json!({ label: value });
    let nodes = pull.nodes.len();
    Some(json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": pull.name, "namespace": namespace, "labels": labels},
        "spec": {
            "completions": nodes, "parallelism": nodes, "completionMode": "Indexed",
            // A pod that fails is not started again, and ends no other: its images may be there.
            "backoffLimitPerIndex": 0, "backoffLimit": nodes,
            "activeDeadlineSeconds": pull.seconds,
            "template": {"metadata": {"labels": labels}, "spec": pods(spec, &images, pull)},
        },
    }))
}

/// Returns the spec of its pods. Only what decides which images the job may pull, and on which nodes, is taken from the
/// job's own pods.
fn pods(own: &Value, images: &[&str], pull: &ImagePull<'_>) -> Value {
    let (label, value) = pull.label;
    let containers = images.iter().enumerate().map(|(index, image)| {
        json!({
            "name": format!("image-{index}"), "image": image, "imagePullPolicy": "IfNotPresent",
            "command": [NO_COMMAND],
            // Images of NVIDIA ask for all GPUs of the node, and some runtimes give them.
            "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
            "resources": {
                "requests": {"cpu": "0", "memory": "0"}, "limits": {"cpu": "100m", "memory": "64Mi"},
            },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "capabilities": {"drop": ["ALL"]},
            },
        })
    });
    // A requirement on a field takes one name.
    let nodes = pull.nodes.iter().map(|node| {
        json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node.as_str()]}]})
    });
    let mut spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": false, "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": NOBODY, "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": nodes.collect::<Vec<_>>(),
            }},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
                "labelSelector": {"matchLabels": {label: value}},
                "topologyKey": "kubernetes.io/hostname",
            }]},
        },
        "containers": containers.collect::<Vec<_>>(),
    });
    for field in ["serviceAccountName", "imagePullSecrets", "tolerations"] {
        if let Some(known) = own.get(field).filter(|known| !known.is_null()) {
            spec[field] = known.clone();
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::yaml;

    fn job() -> Value {
        yaml(
            "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: train, namespace: team}, spec: {tasks: [
               {name: launcher, template: {spec: {containers: [{name: c, image: r.io/mpi:1}]}}},
               {name: worker, replicas: 2, template: {spec: {
                 hostNetwork: true, priorityClassName: high, nodeName: n9, serviceAccountName: trainer,
                 imagePullSecrets: [{name: registry}], tolerations: [{key: gpu, operator: Exists}],
                 volumes: [{name: v, hostPath: {path: /}}],
                 initContainers: [{name: i, image: busybox}],
                 containers: [{name: c, image: r.io/train:1, securityContext: {privileged: true},
                               command: [run], resources: {limits: {nvidia.com/gpu: 8}}},
                              {name: d, image: docker.io/library/busybox:latest}]}}}]}}",
        )
    }

    fn pulled(template: &mut Value, role: &str, nodes: &[&str]) -> Option<Value> {
        let nodes: Vec<NodeName> = nodes.iter().map(|node| NodeName::from(*node)).collect();
        let pull = ImagePull {
            name: "muster-pre-pull-uid",
            label: ("muster.io/pre-pull", "uid"),
            role,
            nodes: &nodes,
            seconds: 900,
        };
        image_pull_job(template, &pull)
    }

    #[test]
    fn each_image_of_the_role_is_pulled_once_on_each_node() {
        let mut template = job();
        let before = template.clone();
        let pull = pulled(&mut template, "worker", &["n1", "n2"]).unwrap();
        assert_eq!(template, before);
        assert_eq!(pull["metadata"]["namespace"], "team");
        let spec = &pull["spec"];
        for (field, wanted) in [
            ("completions", 2),
            ("parallelism", 2),
            ("activeDeadlineSeconds", 900),
        ] {
            assert_eq!(spec[field], wanted, "{field}");
        }
        let pods = &spec["template"]["spec"];
        let containers = pods["containers"].as_array().unwrap();
        let images: Vec<&str> = containers
            .iter()
            .map(|c| c["image"].as_str().unwrap())
            .collect();
        assert_eq!(images, ["busybox", "r.io/train:1"]);
        // A shell of the tenant's image would run without a charge.
        assert!(
            containers
                .iter()
                .all(|c| c["command"] == json!([NO_COMMAND]))
        );
        let terms =
            &pods["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
        let terms = terms["nodeSelectorTerms"].as_array().unwrap();
        let nodes: Vec<&Value> = terms
            .iter()
            .map(|term| &term["matchFields"][0]["values"])
            .collect();
        assert_eq!(nodes, [&json!(["n1"]), &json!(["n2"])]);
    }

    #[test]
    fn it_has_no_right_that_a_pod_of_the_job_lacks_and_requests_nothing() {
        let pull = pulled(&mut job(), "worker", &["n1"]).unwrap();
        let pods = &pull["spec"]["template"]["spec"];
        assert_eq!(pods["serviceAccountName"], "trainer");
        assert_eq!(pods["imagePullSecrets"], json!([{"name": "registry"}]));
        assert_eq!(
            pods["tolerations"],
            json!([{"key": "gpu", "operator": "Exists"}])
        );
        assert_eq!(pods["automountServiceAccountToken"], false);
        for absent in [
            "hostNetwork",
            "priorityClassName",
            "nodeName",
            "volumes",
            "initContainers",
        ] {
            assert_eq!(pods.get(absent), None, "{absent}");
        }
        assert!(!pull.to_string().contains("privileged") && !pull.to_string().contains("gpu\":"));
        let request = crate::pod_request(pods).unwrap();
        assert_eq!(request.to_string(), "pods 1");
    }

    #[test]
    fn without_images_or_nodes_there_is_nothing_to_pull() {
        assert_eq!(pulled(&mut job(), "worker", &[]), None);
        assert_eq!(pulled(&mut job(), "absent", &["n1"]), None);
        let mut unknown = yaml("{apiVersion: x/v1, kind: Train, metadata: {namespace: team}}");
        assert_eq!(pulled(&mut unknown, "worker", &["n1"]), None);
    }
}
