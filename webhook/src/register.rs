//! The webhook's registrations on the control plane: which requests are sent to it, and the CA to trust.
//!
//! They are applied server-side as a whole, so that applying them again undoes any change.

use crate::WebhookTarget;
use crate::server::{
    GATE_NAMESPACE, GATE_SCHEDULER, PROBE, TEMPLATES, TEMPLATES_MANAGED, USERS, WARN_NAMESPACES,
    WARN_OBJECTS, WARN_POLICIES,
};
use crate::templates::SCALE;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crds::names::{
    GROUP, MANAGED_LABEL, QUEUE_KEY, SCHEDULER_NAME, SYSTEM_NAMESPACE, WEBHOOK_PROBE,
    WEBHOOK_PROBE_LABEL,
};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, Resource};
use runtime::client::{CallError, CallFault};
use runtime::with_deadline;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;
use workload::{KnownKind, holds_replicas, known_kinds};

/// Name of both configurations.
pub use crds::names::WEBHOOK_CONFIGURATION as NAME;
/// Field manager of both.
const FIELD_MANAGER: &str = "muster-webhook";
/// Deadline of one call.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// Seconds that an API server waits for an answer.
const TIMEOUT_SECONDS: u32 = 3;
/// The same where the answer is a warning only.
const WARNING_TIMEOUT_SECONDS: u32 = 1;

/// Applies both configurations for a webhook at `target` whose CAs are in `bundle` (PEM).
///
/// # Errors
/// Returns an error if the API server refuses, or cannot be reached.
pub async fn register(
    client: &Client,
    target: &WebhookTarget,
    bundle: &str,
) -> Result<(), CallError> {
    apply::<MutatingWebhookConfiguration>(client, &mutating(target, bundle)).await?;
    apply::<ValidatingWebhookConfiguration>(client, &validating(target, bundle)).await
}

/// Deletes both configurations; missing ones are no error.
///
/// # Errors
/// Returns an error if the API server refuses, or cannot be reached.
pub async fn unregister(client: &Client) -> Result<(), CallError> {
    delete::<MutatingWebhookConfiguration>(client).await?;
    delete::<ValidatingWebhookConfiguration>(client).await
}

async fn apply<K>(client: &Client, configuration: &Value) -> Result<(), CallError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all_with(client.clone(), &());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    with_deadline(
        api.patch(NAME, &params, &Patch::Apply(configuration)),
        CALL_LIMIT,
    )
    .await
    .map(drop)
}

async fn delete<K>(client: &Client) -> Result<(), CallError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api: Api<K> = Api::all_with(client.clone(), &());
    match with_deadline(api.delete(NAME, &DeleteParams::default()), CALL_LIMIT).await {
        Err(error) if error.fault() == CallFault::NotFound => Ok(()),
        other => other.map(drop),
    }
}

/// The gate, which gets each binding through at most one entry, the stamps of templates, and the probe.
fn mutating(target: &WebhookTarget, bundle: &str) -> Value {
    let rules = json!([{
        "apiGroups": ["work.karmada.io"],
        "apiVersions": ["*"],
        "resources": ["resourcebindings"],
        "operations": ["CREATE"],
        "scope": "Namespaced",
    }]);
    let mut managed = entry("namespace.gate.muster.io", target, GATE_NAMESPACE, bundle);
    managed.set("rules", rules.clone());
    managed.set("namespaceSelector", namespaces(true));
    // Fail while the webhook is away: in these namespaces no job may start ungated.
    managed.set("failurePolicy", json!("Fail"));
    managed.set("reinvocationPolicy", json!("Never"));

    let mut ours = entry("scheduler.gate.muster.io", target, GATE_SCHEDULER, bundle);
    ours.set("rules", rules);
    ours.set("namespaceSelector", namespaces(false));
    let expression = format!("object.spec.?schedulerName.orValue('') == '{SCHEDULER_NAME}'");
    ours.set(
        "matchConditions",
        json!([{"name": "scheduler", "expression": expression}]),
    );
    // Ignore while it is away: no other scheduler takes these bindings, and Muster places nothing that was
    // not admitted.
    ours.set("failurePolicy", json!("Ignore"));
    ours.set("reinvocationPolicy", json!("Never"));

    let mut users = entry("users.templates.muster.io", target, USERS, bundle);
    users.set("rules", template_rules(&["CREATE", "UPDATE"]).into());
    users.set("namespaceSelector", namespaces(true));
    // Ignore while it is away: a job without a recorded user counts as its namespace's.
    users.set("failurePolicy", json!("Ignore"));
    users.set("reinvocationPolicy", json!("Never"));
    let entries = [managed, ours, users, probe(target, bundle)];
    configuration("MutatingWebhookConfiguration", entries)
}

/// Answers the dry run of a Lease by which Muster and `muster check` find out whether the API server reaches the
/// webhook. The label keeps every other Lease, such as that of the leader, from depending on the webhook.
fn probe(target: &WebhookTarget, bundle: &str) -> WebhookEntry {
    let mut probe = entry(WEBHOOK_PROBE, target, PROBE, bundle);
    probe.set(
        "rules",
        json!([{
            "apiGroups": ["coordination.k8s.io"],
            "apiVersions": ["*"],
            "resources": ["leases"],
            "operations": ["CREATE"],
            "scope": "Namespaced",
        }]),
    );
    let system = json!({"matchLabels": {"kubernetes.io/metadata.name": SYSTEM_NAMESPACE}});
    probe.set("namespaceSelector", system);
    let labelled = json!({"matchLabels": {WEBHOOK_PROBE_LABEL: "true"}});
    probe.set("objectSelector", labelled);
    // Fail: the error says why the API server does not reach it.
    probe.set("failurePolicy", json!("Fail"));
    probe.set("reinvocationPolicy", json!("Never"));
    probe
}

/// The validation of templates. It is ignored while the webhook is away: it gives early answers, and the
/// controller enforces everything.
fn validating(target: &WebhookTarget, bundle: &str) -> Value {
    let [managed, others] = checking(target, bundle);
    let [objects, mislabelled, labels, policies] = warning(target, bundle);
    let entries = [managed, others, objects, mislabelled, labels, policies];
    configuration("ValidatingWebhookConfiguration", entries)
}

/// The entries that may refuse a template.
fn checking(target: &WebhookTarget, bundle: &str) -> [WebhookEntry; 2] {
    let mut managed = entry(
        "namespace.templates.muster.io",
        target,
        TEMPLATES_MANAGED,
        bundle,
    );
    managed.set("rules", with_scale(template_rules(&["CREATE", "UPDATE"])));
    managed.set("namespaceSelector", namespaces(true));
    managed.set("failurePolicy", json!("Ignore"));

    let mut others = entry("templates.muster.io", target, TEMPLATES, bundle);
    others.set("rules", with_scale(template_rules(&["UPDATE"])));
    others.set("namespaceSelector", namespaces(false));
    others.set("failurePolicy", json!("Ignore"));
    [managed, others]
}

/// The entries that only warn. An API server waits little for them, and does without them while the webhook is away.
fn warning(target: &WebhookTarget, bundle: &str) -> [WebhookEntry; 4] {
    let entry = |name: &str, path: &str| {
        let mut entry = entry(name, target, path, bundle);
        entry.set("failurePolicy", json!("Ignore"));
        entry.set("timeoutSeconds", json!(WARNING_TIMEOUT_SECONDS));
        entry
    };
    let all = |groups: &str, resources: &str, operations: &[&str], scope: &str| {
        json!([{
            "apiGroups": [groups],
            "apiVersions": ["*"],
            "resources": [resources],
            "operations": operations,
            "scope": scope,
        }])
    };
    let names_queue =
        |operator: &str| json!({"matchExpressions": [{"key": QUEUE_KEY, "operator": operator}]});
    let written = ["CREATE", "UPDATE"];

    let mut objects = entry("objects.warnings.muster.io", WARN_OBJECTS);
    objects.set("rules", all("*", "*", &["CREATE"], "Namespaced"));
    objects.set("objectSelector", names_queue("Exists"));
    objects.set("namespaceSelector", namespaces_where(&[]));

    let mut mislabelled = entry("mislabelled.warnings.muster.io", WARN_OBJECTS);
    mislabelled.set("rules", template_rules(&["CREATE"]).into());
    mislabelled.set("objectSelector", names_queue("DoesNotExist"));
    let wrong = [
        json!({"key": MANAGED_LABEL, "operator": "Exists"}),
        json!({"key": MANAGED_LABEL, "operator": "NotIn", "values": ["true", "false"]}),
    ];
    mislabelled.set("namespaceSelector", namespaces_where(&wrong));

    let mut labels = entry("namespaces.warnings.muster.io", WARN_NAMESPACES);
    labels.set("rules", all("", "namespaces", &written, "Cluster"));
    // Other changes of a namespace say nothing new.
    let expression = "object.metadata.?labels.orValue({}).exists(key, key.contains('muster')) && (oldObject == null \
                      || oldObject.metadata.?labels.orValue({}) != object.metadata.labels)";
    labels.set(
        "matchConditions",
        json!([{"name": "labels", "expression": expression}]),
    );

    let mut policies = entry("policies.warnings.muster.io", WARN_POLICIES);
    policies.set("rules", all(GROUP, "capacitypolicies", &written, "Cluster"));
    [objects, mislabelled, labels, policies]
}

/// Returns one rule for each API group of the known kinds. A group or resource that the server does not
/// serve does no harm.
fn template_rules(operations: &[&str]) -> Vec<Value> {
    rules(operations, |kind| Some(kind.plural.to_owned()))
}

/// Adds `scale` requests for templates whose number of pods nothing limits.
fn with_scale(mut all: Vec<Value>) -> Value {
    let scale = |kind: &KnownKind| {
        let api_version = kind.api_version();
        let api = format!("{api_version}/{}", kind.kind);
        let held = holds_replicas(&api_version, kind.kind) && !workload::may_be_in_parts(&api);
        (!held).then(|| format!("{}/{SCALE}", kind.plural))
    };
    all.extend(rules(&["UPDATE"], scale));
    all.into()
}

fn rules(operations: &[&str], resource: impl Fn(&KnownKind) -> Option<String>) -> Vec<Value> {
    let mut groups: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for kind in known_kinds() {
        if let Some(resource) = resource(&kind) {
            groups.entry(kind.group).or_default().push(resource);
        }
    }
    groups
        .into_iter()
        .map(|(group, resources)| {
            json!({
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": resources,
                "operations": operations,
                "scope": "Namespaced",
            })
        })
        .collect()
}

/// Selects labelled namespaces, or all others; never system namespaces.
fn namespaces(managed: bool) -> Value {
    let operator = if managed { "In" } else { "NotIn" };
    namespaces_where(&[json!({"key": MANAGED_LABEL, "operator": operator, "values": ["true"]})])
}

/// Selects namespaces by their labels; never system namespaces.
fn namespaces_where(expressions: &[Value]) -> Value {
    let no_system_namespace = json!({
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": [
            "kube-system", "kube-public", "kube-node-lease", "karmada-system",
            "karmada-cluster", SYSTEM_NAMESPACE,
        ],
    });
    let expressions = [expressions, &[no_system_namespace]].concat();
    json!({ "matchExpressions": expressions })
}

/// One webhook of a configuration.
struct WebhookEntry(serde_json::Map<String, Value>);

impl WebhookEntry {
    fn set(&mut self, field: &str, value: Value) {
        self.0.insert(field.to_owned(), value);
    }
}

fn entry(name: &str, target: &WebhookTarget, path: &str, bundle: &str) -> WebhookEntry {
    let mut entry = WebhookEntry(serde_json::Map::new());
    entry.set("name", json!(name));
    entry.set("clientConfig", client_config(target, path, bundle));
    entry.set("admissionReviewVersions", json!(["v1"]));
    entry.set("matchPolicy", json!("Equivalent"));
    entry.set("sideEffects", json!("None"));
    entry.set("timeoutSeconds", json!(TIMEOUT_SECONDS));
    entry
}

fn client_config(target: &WebhookTarget, path: &str, bundle: &str) -> Value {
    let trusted = STANDARD.encode(bundle);
    match target {
        WebhookTarget::Url(base) => json!({
            "url": format!("{}{path}", base.trim_end_matches('/')),
            "caBundle": trusted,
        }),
        WebhookTarget::Service {
            namespace,
            name,
            port,
        } => json!({
            "service": {"namespace": namespace, "name": name, "port": port, "path": path},
            "caBundle": trusted,
        }),
    }
}

fn configuration<const N: usize>(kind: &str, entries: [WebhookEntry; N]) -> Value {
    let webhooks: Vec<Value> = entries
        .into_iter()
        .map(|entry| Value::Object(entry.0))
        .collect();
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": webhooks,
    })
}

#[cfg(test)]
mod tests;
