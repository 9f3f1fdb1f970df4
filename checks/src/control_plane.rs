//! Checks of what is installed on the control plane: CRDs, interpreters and admission policies.

use crate::{CheckError, CheckFinding, CheckReport};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use runtime::client::{CallError, with_deadline};
use runtime::pages;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The CRD that Volcano also has.
pub const PODGROUPS: &str = "podgroups.scheduling.volcano.sh";
/// Volcano's CRD that Muster does not change.
const QUEUES: &str = "queues.scheduling.volcano.sh";
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);

/// The interpreters that Muster installs: how Karmada reads the kinds of jobs.
pub const INTERPRETERS: &[&str] = &[
    include_str!("../../deploy/interpreter-volcano-job.yaml"),
    include_str!("../../deploy/interpreter-job.yaml"),
    include_str!("../../deploy/interpreter-deployment.yaml"),
    include_str!("../../deploy/interpreter-jaxjob.yaml"),
    include_str!("../../deploy/interpreter-jobset.yaml"),
    include_str!("../../deploy/interpreter-leaderworkerset.yaml"),
    include_str!("../../deploy/interpreter-mpijob.yaml"),
    include_str!("../../deploy/interpreter-paddlejob.yaml"),
    include_str!("../../deploy/interpreter-pod.yaml"),
    include_str!("../../deploy/interpreter-pytorchjob.yaml"),
    include_str!("../../deploy/interpreter-raycluster.yaml"),
    include_str!("../../deploy/interpreter-rayjob.yaml"),
    include_str!("../../deploy/interpreter-rayservice.yaml"),
    include_str!("../../deploy/interpreter-replicaset.yaml"),
    include_str!("../../deploy/interpreter-statefulset.yaml"),
    include_str!("../../deploy/interpreter-tfjob.yaml"),
    include_str!("../../deploy/interpreter-xgboostjob.yaml"),
];
/// The admission policies, which the controller restores.
const POLICIES: [&str; 2] = [
    include_str!("../../deploy/admission-policies.yaml"),
    include_str!("../../deploy/admission-permitted-queue.yaml"),
];

/// Checks what has to be there before an installation.
pub(crate) async fn before_install(
    client: &Client,
    report: &mut CheckReport,
) -> Result<(), CheckError> {
    let found = volcanos_crds(client).await;
    report.absorb("queue-crd", found)?;
    let found = interpreters(client).await;
    report.absorb("interpreter", found)
}

/// Checks what `muster install` writes.
pub(crate) async fn installed(client: &Client, report: &mut CheckReport) -> Result<(), CheckError> {
    let found = own_crds(client).await;
    report.absorb("muster-crds", found)?;
    let found = admission_policies(client).await;
    report.absorb("admission-policies", found)
}

/// Returns true if the PodGroup CRD is Volcano's own, which has no status subresource.
///
/// # Errors
/// Returns an error if the API server refuses, or cannot be reached.
pub async fn has_volcanos_podgroups(client: &Client) -> Result<bool, CallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let Some(crd) = with_deadline(api.get_opt(PODGROUPS), LIMIT).await? else {
        return Ok(false);
    };
    Ok(!crd.spec.versions.iter().any(|version| {
        let status = version.subresources.as_ref();
        status.is_some_and(|subresources| subresources.status.is_some())
    }))
}

async fn volcanos_crds(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    let queues = with_deadline(crds.get_opt(QUEUES), LIMIT).await;
    if queues.map_err(CheckError::call("the CRDs"))?.is_none() {
        findings.push(CheckFinding::blocks(
            "queue-crd",
            format!("the control plane has no CRD {QUEUES}"),
            "quotas are set in Volcano's Queues",
            "apply Volcano's CRDs (volcano v1.14 config/crd/volcano/bases/, all but podgroups, which Muster brings)",
        ));
    }
    let podgroups = has_volcanos_podgroups(client).await;
    if podgroups.map_err(CheckError::call("the CRDs"))? {
        findings.push(CheckFinding::warns(
            "podgroup-crd",
            format!("the CRD {PODGROUPS} is Volcano's own"),
            "it has no status subresource and fewer columns: `kubectl get podgroups` shows less of why a job waits",
            "kubectl delete crd podgroups.scheduling.volcano.sh, and then muster install",
        ));
    }
    Ok(findings)
}

/// Returns the objects of manifests of this program.
fn parsed(manifests: &[&str]) -> Result<Vec<Value>, CheckError> {
    let mut objects = Vec::new();
    for manifest in manifests {
        let parsed = runtime::apply::parse(manifest);
        objects.extend(parsed.map_err(|error| CheckError::Manifest(error.to_string()))?);
    }
    Ok(objects)
}

/// Reports interpreters of other managers for the kinds that Muster interprets: Karmada uses one of both.
async fn interpreters(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let mut own = BTreeSet::new();
    let mut names = BTreeSet::new();
    for object in parsed(INTERPRETERS)? {
        own.insert(target(&object["spec"]));
        names.extend(object["metadata"]["name"].as_str().map(str::to_owned));
    }
    let gvk = GroupVersionKind::gvk(
        "config.karmada.io",
        "v1alpha1",
        "ResourceInterpreterCustomization",
    );
    let resource = ApiResource::from_gvk_with_plural(&gvk, "resourceinterpretercustomizations");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let all = match pages::list(&api, &ListParams::default(), LIMIT).await {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        other => other.map_err(CheckError::call("the interpreters"))?.items,
    };
    let collides = |object: &&DynamicObject| {
        !names.contains(&object.name_any()) && own.contains(&target(&object.data["spec"]))
    };
    let findings = all.iter().filter(collides).map(|object| {
        let (version, kind) = target(&object.data["spec"]);
        CheckFinding::warns(
            "interpreter",
            format!("ResourceInterpreterCustomization {} also interprets {kind} of {version}", object.name_any()),
            "Karmada uses only one interpreter of a kind for each operation: statuses and dependencies may be wrong",
            &format!("kubectl delete resourceinterpretercustomization {}", object.name_any()),
        )
    });
    Ok(findings.collect())
}

fn target(spec: &Value) -> (String, String) {
    let text = |field: &str| {
        let text = spec["target"][field].as_str();
        text.unwrap_or_default().to_owned()
    };
    (text("apiVersion"), text("kind"))
}

/// Compares Muster's CRDs with those of this program.
async fn own_crds(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    for (name, yaml) in crds::yaml::manifests() {
        let seen = with_deadline(crds.get_opt(name), LIMIT).await;
        let seen = seen.map_err(CheckError::call("the CRDs"))?;
        let wanted = parsed(&[yaml])?.pop().unwrap_or_default();
        let found = match seen {
            None => format!("the CRD {name} is missing"),
            Some(_) if name == PODGROUPS => continue,
            Some(seen) if has_schema(&json!(seen)["spec"], &wanted["spec"]) => continue,
            Some(_) => format!("the CRD {name} is that of another version of Muster"),
        };
        findings.push(CheckFinding::blocks(
            "muster-crds",
            found,
            "Muster cannot read or write its objects, or fields of them are lost",
            concat!(
                "run `muster install` of version ",
                env!("CARGO_PKG_VERSION")
            ),
        ));
    }
    Ok(findings)
}

/// Returns true if `seen` has every field of `wanted`.
fn has_schema(seen: &Value, wanted: &Value) -> bool {
    match (seen, wanted) {
        (Value::Object(seen), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, value)| has_schema(seen.get(name).unwrap_or(&Value::Null), value)),
        (Value::Array(seen), Value::Array(wanted)) => {
            let mut pairs = seen.iter().zip(wanted);
            seen.len() == wanted.len() && pairs.all(|(seen, wanted)| has_schema(seen, wanted))
        }
        // The API server leaves out what is empty or false.
        (Value::Null, wanted) => {
            let empty = [json!({}), json!([]), json!(false), Value::Null];
            empty.contains(wanted)
        }
        (seen, wanted) => {
            seen == wanted || seen.as_f64().is_some_and(|n| Some(n) == wanted.as_f64())
        }
    }
}

/// Checks that each admission policy is bound. Whether it refuses, the controller probes.
async fn admission_policies(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let all = pages::list(&api, &ListParams::default(), LIMIT).await;
    let all = all.map_err(CheckError::call("the bindings of admission policies"))?;
    let bound: BTreeSet<String> = all.iter().map(kube::ResourceExt::name_any).collect();
    let wanted = parsed(&POLICIES)?;
    let wanted = wanted
        .iter()
        .filter(|object| object["kind"] == "ValidatingAdmissionPolicyBinding");
    let names = wanted.filter_map(|object| object["metadata"]["name"].as_str());
    let missing: Vec<&str> = names.filter(|name| !bound.contains(*name)).collect();
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let found = format!(
        "these admission policies are not bound: {}",
        missing.join(", ")
    );
    Ok(vec![CheckFinding::warns(
        "admission-policies",
        found,
        "editors of a namespace can exceed its quota, so Muster decides nothing, unless it runs with \
         --without-admission-policies",
        "muster install",
    )])
}
