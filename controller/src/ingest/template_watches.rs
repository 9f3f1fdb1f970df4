//! Watches of template kinds: the kinds that Muster knows, and any other kind that a binding names.

use crate::messages::input::Input;
use crate::mirror::template::{Template, TemplateKind};
use kube::api::DynamicObject;
use runtime::watch::{Delta, WatchMetrics, WatchOptions, watch_dynamic};
use std::collections::BTreeSet;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Starts one watch for each kind.
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

    /// Starts the watch of `kind` if there is none, and returns true if it did.
    pub(crate) fn ensure(&mut self, kind: &TemplateKind) -> bool {
        if !self.running.insert(kind.clone()) {
            return false;
        }
        let resource = kind.api_resource();
        let of = kind.clone();
        let wrap = move |delta| Input::Template(of.clone(), read(&of, delta));
        // A kind that the control plane does not serve has no templates, and a kind that Muster may not read
        // must not delay other jobs.
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
