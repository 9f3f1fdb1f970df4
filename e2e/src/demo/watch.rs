//! The watches that update the world: bindings of the control plane, pods of the members.

use std::sync::Arc;

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use parking_lot::Mutex;
use serde_json::Value;
use testbed::Testbed;
use tokio::task::JoinSet;

use super::world::World;
use crate::harness::kinds::{BINDING, ObjectKind, POD};

/// Watches until the set is dropped.
///
/// # Errors
/// Returns an error if a cluster's kubeconfig is invalid.
pub(super) async fn spawn(
    testbed: &Testbed,
    world: &Arc<Mutex<World>>,
) -> anyhow::Result<JoinSet<()>> {
    let mut tasks = JoinSet::new();
    let shared = world.clone();
    let client = testbed.karmada().client().await?;
    tasks.spawn(follow(client, BINDING, move |change| {
        if let DemoChange::Seen(binding) = change {
            shared.lock().binding(&binding, Timestamp::now());
        }
    }));
    for member in testbed.members() {
        let shared = world.clone();
        let client = member.client().await?;
        tasks.spawn(follow(client, POD, move |change| {
            let mut world = shared.lock();
            match change {
                DemoChange::Restart => world.forget_pods(&member.name),
                DemoChange::Seen(pod) => world.pod(&member.name, &pod, Timestamp::now()),
                DemoChange::Gone(pod) => world.pod_gone(&member.name, &pod),
            }
        }));
    }
    Ok(tasks)
}

enum DemoChange {
    /// A relist begins, which repeats all objects.
    Restart,
    Seen(Value),
    Gone(Value),
}

/// Watches a kind for ever, and restarts the watch when it breaks.
async fn follow(client: Client, kind: ObjectKind, mut tell: impl FnMut(DemoChange)) {
    let api = Api::<DynamicObject>::all_with(client, &kind.resource());
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => DemoChange::Restart,
            Ok(Event::Apply(object) | Event::InitApply(object)) => DemoChange::Seen(json(&object)),
            Ok(Event::Delete(object)) => DemoChange::Gone(json(&object)),
            Ok(Event::InitDone) | Err(_) => continue,
        };
        tell(change);
    }
}

fn json(object: &DynamicObject) -> Value {
    // The object was parsed from JSON, so only an object with non-text keys could fail.
    serde_json::to_value(object).unwrap_or_default()
}
