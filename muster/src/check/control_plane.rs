//! Checks of the control plane: Karmada's APIs, CRDs, the webhook and interpreters.

use super::CheckFinding;
use crate::install::{self, PODGROUPS, QUEUES};
use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
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
pub(super) const KARMADA: &str = "karmada";
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// The groups of Karmada that Muster uses.
const GROUPS: [&str; 4] = [
    "work.karmada.io",
    "policy.karmada.io",
    "config.karmada.io",
    "cluster.karmada.io",
];

/// Checks what has to be there before an installation.
pub(super) async fn before_install(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    let groups = with_deadline(client.list_api_groups(), LIMIT).await;
    let groups = groups.context("the API server does not list its API groups")?;
    let served: BTreeSet<&str> = groups.groups.iter().map(|group| &*group.name).collect();
    let missing: Vec<&str> = GROUPS
        .into_iter()
        .filter(|group| !served.contains(group))
        .collect();
    if !missing.is_empty() {
        return Ok(vec![CheckFinding::blocks(
            KARMADA,
            format!("the API server serves no {}", missing.join(", ")),
            "it is no Karmada control plane, or an incomplete one: Muster places jobs by Karmada's bindings",
            "name the control plane with --kubeconfig and --context; without them muster uses KUBECONFIG, ~/.kube/config, \
             or the cluster in which its pod runs",
        )]);
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    if with_deadline(crds.get_opt(QUEUES), LIMIT).await?.is_none() {
        findings.push(CheckFinding::blocks(
            "queue-crd",
            format!("the control plane has no CRD {QUEUES}"),
            "quotas are set in Volcano's Queues",
            "apply Volcano's CRDs (volcano v1.14 config/crd/volcano/bases/, all but podgroups, which Muster brings)",
        ));
    }
    if install::has_volcanos_podgroups(client).await? {
        findings.push(CheckFinding::warns(
            "podgroup-crd",
            format!("the CRD {PODGROUPS} is Volcano's own"),
            "it has no status subresource and fewer columns: `kubectl get podgroups` shows less of why a job waits",
            "kubectl delete crd podgroups.scheduling.volcano.sh, and then muster install",
        ));
    }
    findings.extend(interpreters(client).await?);
    Ok(findings)
}

/// Checks what `muster install` and the webhook write.
pub(super) async fn installed(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    let mut findings = own_crds(client).await?;
    findings.extend(webhook(client).await?);
    Ok(findings)
}

/// Reports interpreters of other managers for the kinds that Muster interprets: Karmada uses one of both.
async fn interpreters(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    let mut own = BTreeSet::new();
    let mut names = BTreeSet::new();
    for manifest in install::MANIFESTS {
        for object in runtime::apply::parse(manifest)? {
            if object["kind"] == "ResourceInterpreterCustomization" {
                own.insert(target(&object["spec"]));
                names.extend(object["metadata"]["name"].as_str().map(str::to_owned));
            }
        }
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
        other => other.context("cannot list the interpreters")?.items,
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
        spec["target"][field]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    (text("apiVersion"), text("kind"))
}

/// Compares Muster's CRDs with those of this program.
async fn own_crds(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut findings = Vec::new();
    for (name, yaml) in crds::yaml::manifests() {
        let seen = with_deadline(crds.get_opt(name), LIMIT).await?;
        let wanted = runtime::apply::parse(yaml)?.pop().unwrap_or_default();
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
            seen.len() == wanted.len()
                && seen
                    .iter()
                    .zip(wanted)
                    .all(|(seen, wanted)| has_schema(seen, wanted))
        }
        // The API server leaves out what is empty or false.
        (Value::Null, wanted) => {
            *wanted == json!({})
                || *wanted == json!([])
                || *wanted == json!(false)
                || wanted.is_null()
        }
        (seen, wanted) => {
            seen == wanted || seen.as_f64().is_some_and(|n| Some(n) == wanted.as_f64())
        }
    }
}

/// Checks the registration of the webhook, and whether its URL accepts connections from here.
async fn webhook(client: &Client) -> anyhow::Result<Vec<CheckFinding>> {
    const CHECK: &str = "webhook";
    let why = "managed namespaces accept no job while their gate does not answer, and gate none without it";
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let name = webhook::register::NAME;
    let Some(seen) = with_deadline(api.get_opt(name), LIMIT).await? else {
        return Ok(vec![CheckFinding::blocks(
            CHECK,
            format!("there is no MutatingWebhookConfiguration {name}"),
            why,
            "start `muster all` or `muster webhook` with --register",
        )]);
    };
    let hooks = seen.webhooks.unwrap_or_default();
    let Some(config) = hooks.first().map(|hook| &hook.client_config) else {
        return Ok(Vec::new());
    };
    let mut findings = Vec::new();
    let bundle = config.ca_bundle.as_ref();
    if !bundle.is_some_and(|bundle| bundle.0.starts_with(b"-----BEGIN CERTIFICATE-----")) {
        findings.push(CheckFinding::blocks(
            CHECK,
            "the caBundle of its registration is no certificate",
            why,
            "restart the webhook with --register, which writes the bundle of its own CA",
        ));
    }
    if let Some((url, address)) = config
        .url
        .as_ref()
        .and_then(|url| Some((url, address(url)?)))
    {
        let connected = tokio::net::TcpStream::connect(&address);
        let reached = tokio::time::timeout(Duration::from_secs(5), connected).await;
        if !matches!(reached, Ok(Ok(_))) {
            findings.push(CheckFinding::blocks(
                CHECK,
                format!("{url} accepts no connection from here; the API server may see it otherwise"),
                why,
                "start the webhook, or register it with a --webhook-url that the API server reaches",
            ));
        }
    }
    Ok(findings)
}

/// Returns host and port of an https URL.
pub(super) fn address(url: &str) -> Option<String> {
    let url: http::Uri = url.parse().ok()?;
    let port = url.port_u16().unwrap_or(443);
    Some(format!("{}:{port}", url.host()?))
}
