//! What a job needs beside itself: objects of its namespace that its pods name.

use crate::kinds;
use serde_json::Value;
use std::collections::BTreeSet;

/// An object that must be where the job's pods are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dependency {
    /// `v1`, `resource.k8s.io/v1`.
    pub api_version: String,
    /// `ConfigMap`, `Secret`, `PersistentVolumeClaim`, `ServiceAccount` or
    /// `ResourceClaimTemplate`.
    pub kind: String,
    /// The job's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The ConfigMap that every namespace of every cluster has of its own.
const ROOT_CA: &str = "kube-root-ca.crt";

/// What devices are claimed by; in the version that is current since Kubernetes 1.34.
const CLAIM_TEMPLATE: &str = "ResourceClaimTemplate";

/// Where volumes name Secrets (karmada v1.18, pkg/util/lifted/podtemplate.go and its likes).
const VOLUME_SECRETS: &[&str] = &[
    "/secret/secretName",
    "/azureFile/secretName",
    "/cephfs/secretRef/name",
    "/cinder/secretRef/name",
    "/csi/nodePublishSecretRef/name",
    "/flexVolume/secretRef/name",
    "/iscsi/secretRef/name",
    "/rbd/secretRef/name",
    "/scaleIO/secretRef/name",
    "/storageos/secretRef/name",
];

/// The ConfigMaps, Secrets, PersistentVolumeClaims, ServiceAccounts and ResourceClaimTemplates
/// that the pod templates of `template` name, in order; none for kinds that are not known. What cannot be read is left
/// out: the member's API server will say.
#[must_use]
pub fn dependencies(template: &Value) -> Vec<Dependency> {
    let text = |key| {
        template
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let Some(kind) = kinds::of(text("apiVersion"), text("kind")) else {
        return Vec::new();
    };
    let mut named = Named::default();
    for pods in (kind.pod_templates)(template) {
        if let Some(spec) = pods.get("spec") {
            of_pod(spec, &mut named);
        }
    }
    if kinds::group(text("apiVersion")) == "batch.volcano.sh" {
        of_volcano_volumes(template, &mut named);
    }
    if text("kind") == "MPIJob" {
        let annotations = template.pointer("/metadata/annotations");
        named.add(
            "Secret",
            annotations.and_then(|all| all.get(kinds::kubeflow::mpi::SSH_SECRET)),
        );
    }
    let claims_of_its_own = own_claims(template);
    named.0.retain(|(kind, name)| {
        *kind != "PersistentVolumeClaim" || !claims_of_its_own.contains(name)
    });
    let namespace = template
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    named.into_dependencies(namespace)
}

#[derive(Default)]
struct Named<'a>(BTreeSet<(&'static str, &'a str)>);

impl<'a> Named<'a> {
    fn add(&mut self, kind: &'static str, name: Option<&'a Value>) {
        let name = name.and_then(Value::as_str).unwrap_or_default();
        let is_everywhere = matches!(
            (kind, name),
            ("ConfigMap", ROOT_CA) | ("ServiceAccount", "default")
        );
        if !name.is_empty() && !is_everywhere {
            self.0.insert((kind, name));
        }
    }

    fn into_dependencies(self, namespace: &str) -> Vec<Dependency> {
        let of = |(kind, name): (&str, &str)| Dependency {
            api_version: api_version(kind).to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.0.into_iter().map(of).collect()
    }
}

fn api_version(kind: &str) -> &'static str {
    match kind {
        CLAIM_TEMPLATE => "resource.k8s.io/v1",
        _ => "v1",
    }
}

fn of_pod<'a>(spec: &'a Value, named: &mut Named<'a>) {
    named.add("ServiceAccount", spec.get("serviceAccountName"));
    for secret in list(spec, "imagePullSecrets") {
        named.add("Secret", secret.get("name"));
    }
    for volume in list(spec, "volumes") {
        of_volume(volume, named);
    }
    for claim in list(spec, "resourceClaims") {
        named.add(CLAIM_TEMPLATE, claim.get("resourceClaimTemplateName"));
    }
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        for container in list(spec, containers) {
            of_container(container, named);
        }
    }
}

fn of_volume<'a>(volume: &'a Value, named: &mut Named<'a>) {
    named.add("ConfigMap", volume.pointer("/configMap/name"));
    named.add(
        "PersistentVolumeClaim",
        volume.pointer("/persistentVolumeClaim/claimName"),
    );
    for path in VOLUME_SECRETS {
        named.add("Secret", volume.pointer(path));
    }
    for source in volume
        .get("projected")
        .map(|p| list(p, "sources"))
        .unwrap_or_default()
    {
        named.add("ConfigMap", source.pointer("/configMap/name"));
        named.add("Secret", source.pointer("/secret/name"));
    }
}

fn of_container<'a>(container: &'a Value, named: &mut Named<'a>) {
    for from in list(container, "envFrom") {
        named.add("ConfigMap", from.pointer("/configMapRef/name"));
        named.add("Secret", from.pointer("/secretRef/name"));
    }
    for variable in list(container, "env") {
        named.add(
            "ConfigMap",
            variable.pointer("/valueFrom/configMapKeyRef/name"),
        );
        named.add("Secret", variable.pointer("/valueFrom/secretKeyRef/name"));
    }
}

/// Claims that a Volcano Job mounts into all its pods; those it brings along are made by the
/// member's Volcano.
fn of_volcano_volumes<'a>(template: &'a Value, named: &mut Named<'a>) {
    for volume in template
        .get("spec")
        .map(|spec| list(spec, "volumes"))
        .unwrap_or_default()
    {
        if volume.get("volumeClaim").is_none_or(Value::is_null) {
            named.add("PersistentVolumeClaim", volume.get("volumeClaimName"));
        }
    }
}

/// Names of the claims that a StatefulSet makes in the member.
fn own_claims(template: &Value) -> BTreeSet<&str> {
    let claims = template
        .get("spec")
        .map(|spec| list(spec, "volumeClaimTemplates"))
        .unwrap_or_default();
    claims
        .iter()
        .filter_map(|claim| claim.pointer("/metadata/name")?.as_str())
        .collect()
}

fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    let items = object.get(key).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
