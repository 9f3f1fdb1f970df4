//! Checks of Karmada: its APIs, its version, and what can be seen of the flags of its processes.
//!
//! Nothing on the control plane names Karmada's version, and the processes run elsewhere. The fields of its CRDs
//! tell how old it is, and what its controllers write tells whether a feature is on.

use crate::{CheckError, CheckFinding, CheckReport};
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use runtime::client::with_deadline;
use runtime::pages;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The check that the kubeconfig leads to Karmada.
pub(crate) const KARMADA: &str = "karmada";
const VERSION: &str = "karmada-version";
const SERVICES: &str = "karmada-services";
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// Older MultiClusterServices have been seen by Karmada's controller, if that runs.
const SEEN_SECONDS: i64 = 60;
/// The groups of Karmada that Muster uses.
const GROUPS: [&str; 4] = [
    "work.karmada.io",
    "policy.karmada.io",
    "config.karmada.io",
    "cluster.karmada.io",
];
const BINDINGS: &str = "resourcebindings.work.karmada.io";
const POLICIES: &str = "propagationpolicies.policy.karmada.io";

/// Checks that the server is a Karmada control plane, and returns true if so.
pub(crate) async fn apis(client: &Client, report: &mut CheckReport) -> Result<bool, CheckError> {
    let groups = with_deadline(client.list_api_groups(), LIMIT).await;
    let groups = groups.map_err(CheckError::call("the API groups of the server"))?;
    let served: BTreeSet<&str> = groups.groups.iter().map(|group| &*group.name).collect();
    let missing = GROUPS.into_iter().filter(|group| !served.contains(group));
    let missing: Vec<&str> = missing.collect();
    if missing.is_empty() {
        return Ok(true);
    }
    let found = format!("the API server serves no {}", missing.join(", "));
    report.findings.push(CheckFinding::blocks(
        KARMADA,
        found,
        "it is no Karmada control plane, or an incomplete one: Muster places jobs by Karmada's bindings",
        "name the control plane with --kubeconfig and --context; without them muster uses KUBECONFIG, ~/.kube/config, \
         or the cluster in which its pod runs",
    ));
    Ok(false)
}

/// Tells by the fields of its CRDs whether Karmada is as old or as new as the one that Muster is tested with.
pub(crate) async fn version(client: &Client, report: &mut CheckReport) -> Result<(), CheckError> {
    let found = version_of(client).await;
    report.absorb(VERSION, found)
}

async fn version_of(client: &Client) -> Result<Vec<CheckFinding>, CheckError> {
    let bindings = schema(client, BINDINGS).await?;
    let policies = schema(client, POLICIES).await?;
    let (Some(bindings), Some(policies)) = (bindings, policies) else {
        let found = format!("the control plane has no CRD {BINDINGS} or {POLICIES}");
        let why = "Muster places jobs by bindings, which Karmada makes by policies";
        let finding = CheckFinding::blocks(KARMADA, found, why, "apply the CRDs of Karmada 1.18");
        return Ok(vec![finding]);
    };
    let spec = &bindings["properties"]["spec"]["properties"];
    let has = |field: &str| !spec.pointer(field).unwrap_or(&Value::Null).is_null();
    let finding = if !has("/suspension/properties/scheduling") {
        Some(CheckFinding::blocks(
            VERSION,
            "Karmada is older than 1.13: its bindings have no spec.suspension.scheduling",
            "Muster keeps Karmada from placing a job by this field: without it jobs start at once and exceed the quota",
            "upgrade Karmada to 1.18",
        ))
    } else if !policies.to_string().contains("\"overflowAffinities\"") {
        Some(CheckFinding::warns(
            VERSION,
            "Karmada is older than 1.18: its policies have no overflowAffinities",
            "Muster is not tested with it, and it reports fewer kinds of jobs by its components",
            "upgrade Karmada to 1.18",
        ))
    } else if has("/clusters/items/properties/components") {
        Some(CheckFinding::warns(
            VERSION,
            "Karmada is newer than 1.18: the clusters of its bindings have components",
            "Muster is not tested with it",
            "read Karmada's notes of the release before you rely on it; a newer Muster may know it",
        ))
    } else {
        None
    };
    Ok(Vec::from_iter(finding))
}

/// Returns the schema of the stored version of a CRD.
async fn schema(client: &Client, name: &str) -> Result<Option<Value>, CheckError> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = with_deadline(crds.get_opt(name), LIMIT).await;
    let crd = crd.map_err(CheckError::call("the CRDs of Karmada"))?;
    let versions = crd.map(|crd| crd.spec.versions).unwrap_or_default();
    let stored = versions.into_iter().find(|version| version.storage);
    Ok(stored.map(|version| json!(version.schema)["openAPIV3Schema"].clone()))
}

/// Tells by its effect whether the feature gate MultiClusterService is on, and says which flags show nowhere.
pub(crate) async fn services(client: &Client, report: &mut CheckReport) -> Result<(), CheckError> {
    report.unchecked(
        "karmada-flags",
        "the flags of karmada-controller-manager show nowhere on the control plane",
        "look at its Deployment on the host cluster: --skipped-propagating-apis=scheduling.volcano.sh/v1beta1 keeps \
         Karmada from rechecking every PodGroup",
    );
    let found = services_of(client, Timestamp::now()).await;
    report.absorb(SERVICES, found)
}

async fn services_of(client: &Client, now: Timestamp) -> Result<Vec<CheckFinding>, CheckError> {
    let gvk = GroupVersionKind::gvk("networking.karmada.io", "v1alpha1", "MultiClusterService");
    let resource = ApiResource::from_gvk_with_plural(&gvk, "multiclusterservices");
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let all = match pages::list(&api, &ListParams::default(), LIMIT).await {
        Err(error) if error.is_missing() => return Ok(Vec::new()),
        other => other.map_err(CheckError::call("the MultiClusterServices"))?,
    };
    let is_old = |object: &&DynamicObject| {
        let created = object.creation_timestamp();
        created.is_some_and(|at| now.as_second() - at.0.as_second() > SEEN_SECONDS)
    };
    // Its controller puts a finalizer on each.
    let mut ignored = all.iter().filter(is_old).filter(|object| {
        let has_conditions = object.data["status"]["conditions"].is_array();
        object.finalizers().is_empty() && !has_conditions
    });
    let Some(one) = ignored.next() else {
        return Ok(Vec::new());
    };
    let name = format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
    let found = format!(
        "Karmada ignores MultiClusterService {name}{}",
        match ignored.count() {
            0 => String::new(),
            more => format!(" and {more} more"),
        }
    );
    Ok(vec![CheckFinding::warns(
        SERVICES,
        found,
        "jobs in queues whose addresses contain {service} run in several clusters only if their pods find each other by it",
        "the feature gate MultiClusterService in karmada-controller-manager, and in karmada-agent of members in pull mode",
    )])
}
