//! `muster install` converts stored objects of `muster.io/v1alpha1`, also if it was interrupted before.

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{CAPACITY_POLICY, FAULT_POLICY, MUSTER_CONFIG, ObjectKind};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::SOON;
use crate::plane::{Plane, of_one_member, on_own_plane};

const DEFINITION: ObjectKind = ObjectKind {
    group: "apiextensions.k8s.io",
    version: "v1",
    name: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};
const OLD_CAPACITY_POLICY: ObjectKind = ObjectKind {
    version: "v1alpha1",
    ..CAPACITY_POLICY
};
const OLD_FAULT_POLICY: ObjectKind = ObjectKind {
    version: "v1alpha1",
    ..FAULT_POLICY
};

#[test]
fn stored_objects_of_an_earlier_api_are_converted() {
    on_own_plane("earlierapi", of_one_member("member1"), async |plane| {
        converted(plane).await
    });
}

async fn converted(plane: &Plane) -> anyhow::Result<()> {
    let (karmada, testbed) = (&plane.karmada, &plane.testbed);
    for kind in [OLD_CAPACITY_POLICY, OLD_FAULT_POLICY] {
        let name = format!("{}.{}", kind.plural, kind.group);
        karmada.delete(DEFINITION, None, &name).await?;
        create(plane, DEFINITION, &definition(kind)).await?;
    }
    let spec = json!({
        "pools": [{"class": "h100", "resources": {"nvidia.com/gpu": {"capability": 8}}}],
        "preemption": {"withinQueue": true, "minRuntime": "10m"},
    });
    let policy = json!({"metadata": {"name": "team"}, "spec": spec});
    create(plane, OLD_CAPACITY_POLICY, &policy).await?;
    let rule = json!({
        "name": "xid", "class": "Device", "pod": {"messages": ["xid 79"]}, "avoidNode": {"jobs": 2, "for": "1h"},
    });
    let policy = json!({"metadata": {"name": "faults"}, "spec": {"rules": [rule], "dryRun": true}});
    create(plane, OLD_FAULT_POLICY, &policy).await?;
    let root = json!({"metadata": {"name": "root"}, "spec": {"tenancy": "Closed"}});
    create(plane, OLD_CAPACITY_POLICY, &root).await?;
    // This one cannot be converted: the installation stops there, and loses nothing.
    let wrong = json!({"metadata": {"name": "wrong"}, "spec": {"limits": {"runtime": "a day"}}});
    create(plane, OLD_CAPACITY_POLICY, &wrong).await?;
    let refused = plane.muster.install_again(testbed, &[]).await.unwrap_err();
    let refused = format!("{refused:#}");
    ensure!(
        refused.contains("CapacityPolicy wrong")
            && refused.contains("spec.limits.runtime: \"a day\""),
        "{refused}"
    );
    let right = json!({"spec": {"limits": {"runtime": "24h"}}});
    karmada
        .merge(OLD_CAPACITY_POLICY, None, "wrong", &right)
        .await?;

    plane.muster.install_again(testbed, &[]).await?;
    let policy = read(plane, CAPACITY_POLICY, "team").await?;
    let pool = json!({
        "name": "h100", "class": "h100", "resources": [{"name": "nvidia.com/gpu", "capability": 8}],
    });
    ensure!(policy["spec"]["pools"] == json!([pool]), "{policy}");
    let preemption = &policy["spec"]["preemption"];
    ensure!(preemption["withinQueue"] == "LowerPriority", "{policy}");
    ensure!(preemption["minRuntimeSeconds"] == 600, "{policy}");
    // The server shows the defaults of what was not stated.
    ensure!(preemption["reclaim"] == "Any", "{policy}");
    let policy = read(plane, CAPACITY_POLICY, "wrong").await?;
    ensure!(
        policy["spec"]["limits"] == json!({"runtimeSeconds": 86400}),
        "{policy}"
    );
    let policy = read(plane, FAULT_POLICY, "faults").await?;
    let action = &policy["spec"]["rules"][0]["actions"][0];
    ensure!(policy["spec"]["mode"] == "DryRun", "{policy}");
    ensure!(action["avoidNode"]["avoidSeconds"] == 3600, "{policy}");
    closed_by_the_config(plane).await?;
    for kind in [CAPACITY_POLICY, FAULT_POLICY] {
        let name = format!("{}.{}", kind.plural, kind.group);
        let definition = read(plane, DEFINITION, &name).await?;
        let versions = definition["spec"]["versions"].as_array().map(Vec::len);
        let stored = &definition["status"]["storedVersions"];
        ensure!(
            versions == Some(1) && *stored == json!([kind.version]),
            "{}: {versions:?} {stored}",
            name
        );
    }
    // What was converted is not converted again.
    plane.muster.install_again(testbed, &[]).await
}

/// What the CapacityPolicy `root` said of all queues is in the one MusterConfig now.
async fn closed_by_the_config(plane: &Plane) -> anyhow::Result<()> {
    let config = read(plane, MUSTER_CONFIG, "default").await?;
    ensure!(config["spec"] == json!({"tenancy": "Closed"}), "{config}");
    let open = json!({"spec": {"tenancy": "Open"}});
    plane
        .karmada
        .merge(MUSTER_CONFIG, None, "default", &open)
        .await?;
    plane.muster.install_again(&plane.testbed, &[]).await?;
    let config = read(plane, MUSTER_CONFIG, "default").await?;
    ensure!(config["spec"] == open["spec"], "written again: {config}");
    let another = json!({"metadata": {"name": "another"}, "spec": {}});
    let refused = plane.karmada.create(MUSTER_CONFIG, &another).await;
    let refused = refused.unwrap_err().to_string();
    let says = "there is one MusterConfig, and its name is default, not another";
    ensure!(refused.contains(says), "{refused}");
    Ok(())
}

/// Creates a definition that is being deleted still, or an object of a kind that is served after a moment.
async fn create(plane: &Plane, kind: ObjectKind, object: &Value) -> anyhow::Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let since = std::time::Instant::now();
    eventually(SOON, "the object can be created", async || {
        let error = match plane.karmada.create(kind, object).await {
            Ok(_) => return Ok(()),
            Err(error) => error.to_string(),
        };
        if kind == DEFINITION {
            // The API server deletes a kind once its storage has begun ("storage is (re)initializing"), and looks again
            // only after a change.
            let touched =
                json!({"annotations": {"touched": since.elapsed().as_millis().to_string()}});
            let touched = json!({ "metadata": touched });
            let _ = plane.karmada.merge(kind, None, name, &touched).await;
        }
        Err(error)
    })
    .await
}

async fn read(plane: &Plane, kind: ObjectKind, name: &str) -> anyhow::Result<Value> {
    let found = plane.karmada.get(kind, None, name).await?;
    found.with_context(|| format!("there is no {} {name}", kind.name))
}

/// A CRD that stores the kind as it is sent.
fn definition(kind: ObjectKind) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": format!("{}.{}", kind.plural, kind.group)},
        "spec": {
            "group": kind.group, "scope": "Cluster",
            "names": {"kind": kind.name, "plural": kind.plural, "listKind": format!("{}List", kind.name)},
            "versions": [{
                "name": kind.version, "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
