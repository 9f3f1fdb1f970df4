//! Finds the kinds that start pods, that no policy of Muster selects, and that the control plane serves: their
//! objects are watched, so that their users can be warned.

use crate::messages::input::Input;
use crate::mirror::template::TemplateKind;
use kube::Client;
use runtime::client::CallError;
use runtime::with_deadline;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Pause before the first search, and between two: a kind may be installed at any time.
const EVERY: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(60)];
/// Deadline of one request.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Starts the task that searches until `cancel`, and reports the kinds each time.
pub(crate) fn spawn(client: Client, inputs: mpsc::Sender<Input>, cancel: CancellationToken) {
    runtime::task::spawn(async move {
        cancel.run_until_cancelled(search(client, inputs)).await;
    });
}

async fn search(client: Client, inputs: mpsc::Sender<Input>) {
    let [mut pause, every] = EVERY;
    loop {
        tokio::time::sleep(pause).await;
        pause = every;
        match served(&client).await {
            Ok(kinds) => {
                if inputs.send(Input::UnselectedKinds(kinds)).await.is_err() {
                    return;
                }
            }
            Err(error) => tracing::debug!(%error, "cannot read which kinds are served"),
        }
    }
}

/// Returns the kinds that the control plane serves, in the version that it prefers.
async fn served(client: &Client) -> Result<BTreeSet<TemplateKind>, CallError> {
    let mut wanted: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (group, kind) in workload::unselected_kinds() {
        wanted.entry(group).or_default().insert(kind);
    }
    let mut kinds = BTreeSet::new();
    let mut note = |api_version: &str, kind: &str| {
        kinds.insert(TemplateKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
        });
    };
    // Every API server serves the core group.
    for kind in wanted.remove("").unwrap_or_default() {
        note("v1", kind);
    }
    let groups = with_deadline(client.list_api_groups(), ASK_LIMIT).await?;
    for group in groups.groups {
        let Some(wanted) = wanted.get(group.name.as_str()) else {
            continue;
        };
        let preferred = group.preferred_version.as_ref();
        let Some(version) = preferred.or(group.versions.first()) else {
            continue;
        };
        let version = &version.group_version;
        let resources = client.list_api_group_resources(version);
        let resources = with_deadline(resources, ASK_LIMIT).await?.resources;
        for kind in wanted {
            let is_it = |name: &str| name == *kind;
            if resources.iter().any(|resource| {
                resource.namespaced && is_it(&resource.kind) && !resource.name.contains('/')
            }) {
                note(version, kind);
            }
        }
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use runtime::testing::FakeApi;
    use serde_json::json;

    #[tokio::test]
    async fn only_served_kinds_are_found_in_the_preferred_version() {
        let api = FakeApi::new();
        let version = |version: &str| json!({"groupVersion": version, "version": "v"});
        let group = |name: &str, preferred: &str, other: &str| {
            json!({
                "name": name, "versions": [version(other), version(preferred)],
                "preferredVersion": version(preferred),
            })
        };
        let groups = [
            group("batch", "batch/v1", "batch/v1beta1"),
            group("ray.io", "ray.io/v1", "ray.io/v1alpha1"),
            group("example.io", "example.io/v1", "example.io/v2"),
        ];
        api.document("/apis", json!({"kind": "APIGroupList", "groups": groups}));
        let resource = |kind: &str, name: &str| json!({"kind": kind, "name": name, "singularName": "", "namespaced": true, "verbs": []});
        let list = |version: &str, resources: serde_json::Value| json!({"kind": "APIResourceList", "groupVersion": version, "resources": resources});
        let batch = json!([resource("CronJob", "cronjobs"), resource("Job", "jobs")]);
        api.document("/apis/batch/v1", list("batch/v1", batch));
        let ray = json!([resource("RayCronJob", "raycronjobs/status")]);
        api.document("/apis/ray.io/v1", list("ray.io/v1", ray));
        let found = served(&api.client()).await.unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["batch/v1/CronJob", "v1/ReplicationController"]);
    }
}
