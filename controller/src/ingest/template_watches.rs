//! Watches of template kinds: those that Muster knows, and any other that a binding names.

use crate::ingest::input::Input;
use crate::mirror::template::{Template, TemplateKind};
use kube::api::{ApiResource, DynamicObject};
use runtime::watch::{Delta, WatchMetrics, WatchOptions, watch_dynamic};
use std::collections::BTreeSet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Starts watches, one a kind.
pub(crate) struct TemplateWatches {
    client: kube::Client,
    inputs: mpsc::Sender<Input>,
    metrics: WatchMetrics,
    cancel: CancellationToken,
    running: BTreeSet<TemplateKind>,
}

impl TemplateWatches {
    pub(crate) fn new(
        client: kube::Client,
        inputs: mpsc::Sender<Input>,
        metrics: WatchMetrics,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            client,
            inputs,
            metrics,
            cancel,
            running: BTreeSet::new(),
        }
    }

    /// Watches `kind`, unless it is watched; whether the watch is new.
    pub(crate) fn ensure(&mut self, kind: &TemplateKind) -> bool {
        if !self.running.insert(kind.clone()) {
            return false;
        }
        let resource = api_resource(kind);
        let of = kind.clone();
        let wrap = move |delta| Input::Template(of.clone(), read(&of, delta));
        // A kind that the control plane does not serve has no templates; one that we may not
        // read must not keep the others waiting.
        let options = WatchOptions {
            absent_is_empty: true,
            denied_is_listed: true,
            restart: Some(self.cancel.clone()),
            metrics: Some(self.metrics.clone()),
            ..WatchOptions::default()
        };
        watch_dynamic(
            self.client.clone(),
            &resource,
            None,
            options,
            wrap,
            self.inputs.clone(),
            self.cancel.clone(),
        );
        true
    }
}

fn read(kind: &TemplateKind, delta: Delta<DynamicObject>) -> Delta<Template> {
    delta.map(|object| Template::read(kind, object))
}

/// The resource of a kind.
pub(crate) fn api_resource(kind: &TemplateKind) -> ApiResource {
    crds::kubernetes::api_resource(&kind.api_version, &kind.kind)
}
