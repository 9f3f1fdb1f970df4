//! Objects in its namespace that a job's pods name and need.

use crate::kinds;
use serde_json::Value;
use std::collections::BTreeSet;

/// An object that must exist in the clusters of the job's pods.
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

/// The ConfigMap that Kubernetes creates in every namespace of every cluster.
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
    let Some(kind) = kinds::of_template(template) else {
        return Vec::new();
    };
    let mut named = NamedObjects::default();
    for pods in kind.pod_templates(template) {
        if let Some(spec) = pods.get("spec") {
            of_pod(spec, &mut named);
        }
    }
    kind.add_dependencies(template, &mut named);
    let claims_of_its_own = kind.own_claims(template);
    named.0.retain(|(kind, name)| {
        *kind != "PersistentVolumeClaim" || !claims_of_its_own.contains(name)
    });
    let namespace = template
        .pointer("/metadata/namespace")
        .and_then(Value::as_str)
        .unwrap_or_default();
    named.into_dependencies(namespace)
}

/// The objects that a template names, by kind and name.
#[derive(Default)]
pub(crate) struct NamedObjects<'a>(BTreeSet<(&'static str, &'a str)>);

impl<'a> NamedObjects<'a> {
    /// Adds one, unless there is no name, or one that every namespace has.
    pub(crate) fn add(&mut self, kind: &'static str, name: Option<&'a Value>) {
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

fn of_pod<'a>(spec: &'a Value, named: &mut NamedObjects<'a>) {
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

fn of_volume<'a>(volume: &'a Value, named: &mut NamedObjects<'a>) {
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

fn of_container<'a>(container: &'a Value, named: &mut NamedObjects<'a>) {
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

fn list<'a>(object: &'a Value, key: &str) -> &'a [Value] {
    let items = object.get(key).and_then(Value::as_array);
    items.map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
