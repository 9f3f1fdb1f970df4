//! DeviceTaintRules of a member, which few members serve, and in one of several versions.
//!
//! Discovery says which. To ask for the objects would not do: where Muster has no right to list them, an API server
//! refuses also what it does not serve.

use super::{CoordinatorMessage, Session};
use crate::Origin;
use crate::devices::{DeviceDelta, rule_delta};
use crds::devices::DeviceTaintRule;
use kube::api::ApiResource;
use kube::{Api, Client};
use runtime::client::{CallError, with_deadline};
use runtime::watch::{Delta, WatchOptions, watch};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Deadline of one question.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// Time between two questions for the version in which they are served: it changes with upgrades only.
const ASK_PERIOD: Duration = Duration::from_secs(120);

impl Session {
    /// Reports the rules; returns when the member serves them in another version than at the beginning.
    pub(super) async fn follow_taint_rules(
        &self,
        client: &Client,
        origin: &Origin,
        cancel: &CancellationToken,
    ) {
        let first = loop {
            match served(client).await {
                Ok(served) => break served,
                Err(error) => {
                    let error = error.message();
                    tracing::debug!(cluster = %self.cluster, error, "its APIs cannot be discovered");
                    sleep(self.options.probe_period).await;
                }
            }
        };
        match &first {
            Some(api) => self.watch_taint_rules(client, api, origin, cancel),
            None => {
                let none = DeviceDelta::Rule(Delta::Listed);
                self.report(CoordinatorMessage::Device(origin.clone(), none))
                    .await;
            }
        }
        loop {
            sleep(ASK_PERIOD).await;
            if served(client).await.is_ok_and(|now| now != first) {
                return;
            }
        }
    }

    /// A member in which Muster may not list them is usable nevertheless; the watch says that it may not, and tries
    /// again.
    fn watch_taint_rules(
        &self,
        client: &Client,
        api: &ApiResource,
        origin: &Origin,
        cancel: &CancellationToken,
    ) {
        let options = WatchOptions {
            absent_is_empty: true,
            denied_is_listed: true,
            ..self.watch_options()
        };
        let from = origin.clone();
        watch(
            Api::<DeviceTaintRule>::all_with(client.clone(), api),
            options,
            format!("devicetaintrules@{}", self.cluster),
            move |delta| {
                let delta = DeviceDelta::Rule(rule_delta(delta));
                CoordinatorMessage::Device(from.clone(), delta)
            },
            self.sink.clone(),
            cancel.clone(),
        );
    }
}

/// Returns the API of the rules in the preferred version of those that the member serves.
async fn served(client: &Client) -> Result<Option<ApiResource>, CallError> {
    for version in DeviceTaintRule::VERSIONS {
        let api = DeviceTaintRule::api_resource(version);
        let resources = client.list_api_group_resources(&api.api_version);
        match with_deadline(resources, ASK_LIMIT).await {
            Ok(list) if list.resources.iter().any(|it| it.name == api.plural) => {
                return Ok(Some(api));
            }
            Ok(_) => {}
            // It does not serve the version. An account that may not even discover APIs sees no rules.
            Err(error) if matches!(error.code(), Some(401 | 403 | 404)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
