//! The YAML of Muster's CRDs, generated from the types and embedded for `muster install`.
//!
//! `UPDATE_CRDS=1 cargo test -p crds` rewrites `crds/yaml` after a type has changed.

/// Returns name and YAML of every CRD of Muster.
#[must_use]
pub fn manifests() -> [(&'static str, &'static str); 7] {
    [
        (
            "podgroups.scheduling.volcano.sh",
            include_str!("../yaml/podgroups.scheduling.volcano.sh.yaml"),
        ),
        (
            "capacitypolicies.muster.io",
            include_str!("../yaml/capacitypolicies.muster.io.yaml"),
        ),
        (
            "gpupools.muster.io",
            include_str!("../yaml/gpupools.muster.io.yaml"),
        ),
        (
            "faultpolicies.muster.io",
            include_str!("../yaml/faultpolicies.muster.io.yaml"),
        ),
        (
            "noderemediations.muster.io",
            include_str!("../yaml/noderemediations.muster.io.yaml"),
        ),
        (
            "namespacequeues.muster.io",
            include_str!("../yaml/namespacequeues.muster.io.yaml"),
        ),
        (
            "musterconfigs.muster.io",
            include_str!("../yaml/musterconfigs.muster.io.yaml"),
        ),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::manifests;
    use crate::loose::WORDS;
    use crate::{
        capacity_policy::CapacityPolicy, fault_policy::FaultPolicy, gpu_pool::GpuPool,
        muster_config::MusterConfig, namespace_queue::NamespaceQueue,
        node_remediation::NodeRemediation, podgroup::PodGroupDefinition,
    };
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::CustomResourceExt;
    use serde_json::Value;

    /// The one default of Volcano's CRD.
    const KEPT_DEFAULT: (&str, &str) = ("queue", "default");

    /// Returns the CRD without artefacts of the derive. `#[serde(default)]` only makes reading lenient and must not
    /// become a default in stored objects; a default that is meant is `{"stated": VALUE}`. Without `nullable` the API
    /// server drops nulls, so that `has()` in rules means a value.
    fn for_servers(crd: CustomResourceDefinition) -> Value {
        let mut crd = serde_json::to_value(crd).unwrap();
        strip(&mut crd);
        if crd["metadata"]["name"] == "podgroups.scheduling.volcano.sh" {
            // Volcano accepts a PodGroup without a spec, and so does this superset.
            let root = &mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            root.as_object_mut().unwrap().remove("required");
        }
        crd
    }

    fn strip(node: &mut Value) {
        if let Some(Value::Object(properties)) = node.get_mut("properties") {
            for (name, property) in properties {
                let Some(property) = property.as_object_mut() else {
                    continue;
                };
                property.remove("nullable");
                if let Some(words) = property.get_mut("enum").and_then(Value::as_array_mut) {
                    words.retain(|word| !word.is_null());
                }
                if let Some(words) = property.remove(WORDS) {
                    let field = property.get("description").and_then(Value::as_str);
                    let text = format!("{}\n\n{}", field.unwrap(), words.as_str().unwrap());
                    property.insert("description".to_owned(), text.into());
                }
                let default = property.remove("default").unwrap_or_default();
                let is_kept =
                    default.as_str().map(|word| (name.as_str(), word)) == Some(KEPT_DEFAULT);
                let kept = if is_kept {
                    Some(&default)
                } else {
                    default.get("stated")
                };
                if let Some(kept) = kept {
                    property.insert("default".to_owned(), kept.clone());
                }
            }
        }
        match node {
            Value::Object(map) => map.values_mut().for_each(strip),
            Value::Array(list) => list.iter_mut().for_each(strip),
            _ => {}
        }
    }

    #[test]
    fn committed_yaml_is_current() {
        let generated = [
            PodGroupDefinition::crd(),
            CapacityPolicy::crd(),
            GpuPool::crd(),
            FaultPolicy::crd(),
            NodeRemediation::crd(),
            NamespaceQueue::crd(),
            MusterConfig::crd(),
        ];
        for (crd, (name, committed)) in generated.into_iter().zip(manifests()) {
            assert_eq!(crd.metadata.name.as_deref(), Some(name));
            let crd = for_servers(crd);
            let yaml = format!(
                "# Generated from crds/src by `UPDATE_CRDS=1 cargo test -p crds`; do not edit.\n{}",
                serde_saphyr::to_string(&crd).unwrap()
            );
            if std::env::var_os("UPDATE_CRDS").is_some() {
                let path = format!("{}/yaml/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
                std::fs::write(path, &yaml).unwrap();
            } else {
                assert!(
                    yaml == committed,
                    "crds/yaml/{name}.yaml is not what the types say: run UPDATE_CRDS=1 cargo test -p crds"
                );
            }
        }
    }
}
