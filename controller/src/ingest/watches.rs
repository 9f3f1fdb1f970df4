//! The watches that feed the owner task.

use crate::messages::input::Input;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::TemplateKind;
use crds::capacity_policy::CapacityPolicy;
use crds::devices::ResourceClaimTemplate;
use crds::fault_policy::FaultPolicy;
use crds::karmada::{
    ClusterOverridePolicy, OverridePolicy, PropagationPolicy, ResourceBinding, Work,
};
use crds::kubernetes::{Namespace, PriorityClass};
use crds::muster_config::MusterConfig;
use crds::names;
use crds::namespace_queue::NamespaceQueue;
use crds::node_remediation::NodeRemediation;
use crds::podgroup::PodGroup;
use crds::queue::Queue;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use runtime::watch::{Delta, WatchMetrics, WatchOptions, watch};
use runtime::with_deadline;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Name of the CRD of PodGroups.
const PODGROUPS: &str = "podgroups.scheduling.volcano.sh";
/// Deadline of reading it.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Starts every watch whose kind is known at the start.
pub(crate) fn spawn(
    client: &Client,
    inputs: &mpsc::Sender<Input>,
    metrics: &WatchMetrics,
    cancel: &CancellationToken,
) {
    let each = Each {
        client,
        inputs,
        options: WatchOptions {
            restart: Some(cancel.clone()),
            metrics: Some(metrics.clone()),
            ..WatchOptions::default()
        },
        cancel,
    };
    each.watch::<ResourceBinding>("ResourceBinding", Input::Binding);
    each.watch::<Work>("Work", |delta| Input::Work(delta.map(ReadWork::of)));
    each.watch::<Namespace>("Namespace", Input::Namespace);
    each.watch::<Queue>("Queue", Input::Queue);
    each.watch::<CapacityPolicy>("CapacityPolicy", Input::Policy);
    each.watch::<MusterConfig>("MusterConfig", Input::Config);
    each.watch::<PriorityClass>("PriorityClass", Input::PriorityClass);
    each.watch::<PodGroup>("PodGroup", Input::PodGroup);
    let kept = Each {
        options: WatchOptions {
            fields: Some(format!("metadata.name={}", names::DEFAULT_POLICY)),
            ..each.options.clone()
        },
        ..each
    };
    kept.watch::<PropagationPolicy>("PropagationPolicy", Input::Propagation);
    // Only jobs that claim devices need these; a control plane may not serve them.
    let optional = Each {
        options: WatchOptions {
            absent_is_empty: true,
            denied_is_listed: true,
            ..each.options.clone()
        },
        ..each
    };
    optional.watch::<ResourceClaimTemplate>("ResourceClaimTemplate", Input::ClaimTemplate);
    // Muster has rules of its own; an earlier installation may not serve these.
    optional.watch::<FaultPolicy>("FaultPolicy", Input::FaultPolicy);
    optional.watch::<NodeRemediation>("NodeRemediation", Input::NodeRemediation);
    optional.watch::<NamespaceQueue>("NamespaceQueue", Input::NamespaceQueue);
    // Only a job that was evicted because of an override waits for a change of it.
    optional.watch::<OverridePolicy>("OverridePolicy", Input::Override);
    optional.watch::<ClusterOverridePolicy>("ClusterOverridePolicy", Input::ClusterOverride);
}

struct Each<'a> {
    client: &'a Client,
    inputs: &'a mpsc::Sender<Input>,
    options: WatchOptions,
    cancel: &'a CancellationToken,
}

impl Each<'_> {
    fn watch<K>(&self, kind: &str, wrap: fn(Delta<K>) -> Input)
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + 'static,
    {
        watch(
            Api::<K>::all(self.client.clone()),
            self.options.clone(),
            kind,
            wrap,
            self.inputs.clone(),
            self.cancel.clone(),
        );
    }
}

/// Returns the template kinds that are watched even if no binding names them.
pub(crate) fn known_template_kinds() -> impl Iterator<Item = TemplateKind> {
    workload::known_kinds().map(|kind| TemplateKind {
        api_version: kind.api_version(),
        kind: kind.kind.to_owned(),
    })
}

/// Forwards one channel to the owner task.
pub(crate) fn forward<T: Send + 'static>(
    mut from: mpsc::Receiver<T>,
    to: mpsc::Sender<Input>,
    wrap: impl Fn(T) -> Input + Send + 'static,
) {
    runtime::task::spawn(async move {
        while let Some(item) = from.recv().await {
            if to.send(wrap(item)).await.is_err() {
                return;
            }
        }
    });
}

/// Pause between two tries.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Returns whether the control plane's PodGroups have a status subresource. Muster's CRD has one; Volcano's
/// own CRD has not, and the status is then written with the whole object. Retries until there is an answer.
pub(crate) async fn podgroups_have_status(client: &Client) -> bool {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crd = loop {
        match with_deadline(api.get(PODGROUPS), ASK_LIMIT).await {
            Ok(crd) => break crd,
            Err(error) => {
                tracing::warn!(%error, "cannot read the CRD {PODGROUPS}; `muster install` brings it")
            }
        }
        tokio::time::sleep(ASK_AGAIN).await;
    };
    let has = crd
        .spec
        .versions
        .iter()
        .filter(|version| version.served)
        .any(|version| {
            version
                .subresources
                .as_ref()
                .is_some_and(|s| s.status.is_some())
        });
    if !has {
        tracing::warn!(
            "the PodGroup CRD on the control plane is Volcano's own: it has no status subresource and no printer columns \
             for the federation; what it would prune is shown in conditions. `muster install` installs ours"
        );
    }
    has
}
