//! `queue stop` and `queue resume`: `spec.stopPolicy` of the CapacityPolicy.

use crate::acts::{FIELD_MANAGER, merge};
use crate::args::{DryRun, WriteArgs};
use crate::connect::{self, Existence, api_error, existence};
use crate::output;
use anyhow::{Result, bail};
use crds::capacity_policy::{CapacityPolicy, JobCounts};
use crds::queue::Queue;
use kube::Client;
use kube::Resource;
use kube::api::{Api, DynamicObject, PostParams};
use serde_json::{Value, json};

/// Whether a queue admits jobs: the values of `spec.stopPolicy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    No,
    Hold,
    Drain,
}

impl Stop {
    fn value(self) -> &'static str {
        match self {
            Self::No => "None",
            Self::Hold => "Hold",
            Self::Drain => "HoldAndDrain",
        }
    }

    fn is_set(self, policy: &Value) -> bool {
        let value = policy["spec"]["stopPolicy"].as_str();
        value.unwrap_or(Self::No.value()) == self.value()
    }

    /// Says what was done, and what that means for the jobs, if they are counted.
    fn done(self, counts: Option<&JobCounts>) -> String {
        let done = match self {
            Self::No => "resumed",
            _ => "stopped",
        };
        let Some(counts) = counts else {
            return done.to_owned();
        };
        let placed = counts.admitted + counts.running + counts.ending;
        let waiting = counts.pending;
        match self {
            Self::No => format!("{done} ({waiting} pending, {placed} admitted)"),
            Self::Hold => format!("{done} ({waiting} pending wait, {placed} admitted go on)"),
            Self::Drain => {
                format!("{done} ({waiting} pending wait, {placed} admitted are evicted)")
            }
        }
    }
}

/// Sets the stop policy of a queue, and returns the output.
pub(super) async fn set(
    stop: Stop,
    name: &str,
    args: &WriteArgs,
    client: &Client,
) -> Result<String> {
    let api = connect::objects::<CapacityPolicy>(client);
    let found = api.get_opt(name).await.map_err(api_error)?;
    let Some(mut policy) = found else {
        ensure_queue(name, client).await?;
        return match stop {
            Stop::No => Ok(format!(
                "queue {name} unchanged (it has no CapacityPolicy, and so is not stopped)\n"
            )),
            _ => {
                let made = create(stop, name, args.dry_run, &api).await?;
                reply(&stop.done(None), &made, args)
            }
        };
    };
    policy.metadata.managed_fields = None;
    let before = serde_json::to_value(&policy)?;
    if stop.is_set(&before) {
        let why = match stop {
            Stop::No => "unchanged (it is not stopped)",
            _ => "unchanged (it is stopped like this already)",
        };
        return reply(why, &policy, args);
    }
    let counts = serde_json::from_value(before["status"]["counts"].clone()).ok();
    let patch = json!({"spec": {"stopPolicy": stop.value()}});
    let policy = merge(&api, policy, patch, args.dry_run).await?;
    ensure_stored(stop, &policy)?;
    reply(&stop.done(counts.as_ref()), &policy, args)
}

async fn create(
    stop: Stop,
    name: &str,
    dry_run: DryRun,
    api: &Api<DynamicObject>,
) -> Result<DynamicObject> {
    let policy: DynamicObject = serde_json::from_value(json!({
        "apiVersion": CapacityPolicy::api_version(&()),
        "kind": CapacityPolicy::kind(&()),
        "metadata": {"name": name},
        "spec": {"stopPolicy": stop.value()},
    }))?;
    if dry_run == DryRun::Client {
        return Ok(policy);
    }
    let params = PostParams {
        dry_run: dry_run == DryRun::Server,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    };
    let mut made = api.create(&params, &policy).await.map_err(api_error)?;
    made.metadata.managed_fields = None;
    ensure_stored(stop, &made)?;
    Ok(made)
}

/// Fails if there is no such Queue. A user who may not read Queues is believed.
async fn ensure_queue(name: &str, client: &Client) -> Result<()> {
    match existence::<Queue>(name, client).await? {
        Existence::Exists | Existence::Unreadable => Ok(()),
        Existence::Missing => bail!("queue {name:?} does not exist"),
    }
}

/// Fails if the server dropped the field, which a control plane with an older Muster does without a word.
fn ensure_stored(stop: Stop, policy: &DynamicObject) -> Result<()> {
    match policy.data["spec"]["stopPolicy"] == *stop.value() {
        true => Ok(()),
        false => bail!(
            "the queue is not stopped: the CapacityPolicies of this control plane have no stopPolicy; install a \
             newer Muster"
        ),
    }
}

fn reply(done: &str, policy: &DynamicObject, args: &WriteArgs) -> Result<String> {
    let name = output::name_line::<CapacityPolicy>(policy);
    output::changed(&name, done, policy, args)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use runtime::testing::FakeApi;

    const POLICY: &str = "/apis/muster.io/v1alpha2/capacitypolicies/vision";
    const QUEUE: &str = "/apis/scheduling.volcano.sh/v1beta1/queues/vision";

    async fn run(stop: Stop, api: &FakeApi) -> String {
        let done = set(stop, "vision", &WriteArgs::default(), &api.client()).await;
        done.unwrap_or_else(|error| format!("error: {error:#}\n"))
    }

    #[tokio::test]
    async fn a_queue_is_stopped_and_resumed() {
        let api = FakeApi::new();
        let counts = json!({"pending": 2, "admitted": 1, "running": 3, "ending": 0, "finished": 5});
        let policy = json!({"spec": {"ordering": "Backfill"}, "status": {"counts": counts}});
        api.put(POLICY, policy);
        let mut text = String::new();
        for stop in [Stop::No, Stop::Hold, Stop::Hold, Stop::Drain, Stop::No] {
            text += &run(stop, &api).await;
            let spec = api.get(POLICY).unwrap()["spec"].clone();
            assert!(stop.is_set(&json!({"spec": spec})), "{stop:?} {spec}");
            assert_eq!(spec["ordering"], "Backfill");
        }
        insta::assert_snapshot!(text, @r"
        capacitypolicy.muster.io/vision unchanged (it is not stopped)
        capacitypolicy.muster.io/vision stopped (2 pending wait, 4 admitted go on)
        capacitypolicy.muster.io/vision unchanged (it is stopped like this already)
        capacitypolicy.muster.io/vision stopped (2 pending wait, 4 admitted are evicted)
        capacitypolicy.muster.io/vision resumed (2 pending, 4 admitted)
        ");
        assert_eq!(api.requests_of("PATCH").len(), 3);
    }

    #[tokio::test]
    async fn a_queue_without_a_policy_gets_one() {
        let api = FakeApi::new();
        let mut text = run(Stop::Hold, &api).await;
        api.put(QUEUE, json!({}));
        text += &run(Stop::No, &api).await;
        assert_eq!(api.get(POLICY), None);
        text += &run(Stop::Drain, &api).await;
        insta::assert_snapshot!(text, @r#"
        error: queue "vision" does not exist
        queue vision unchanged (it has no CapacityPolicy, and so is not stopped)
        capacitypolicy.muster.io/vision stopped
        "#);
        let spec = api.get(POLICY).unwrap()["spec"].clone();
        assert_eq!(spec, json!({"stopPolicy": "HoldAndDrain"}));
    }

    #[tokio::test]
    async fn a_server_that_drops_the_field_is_noticed() {
        let policy = serde_json::from_value(json!({
            "apiVersion": "muster.io/v1alpha2", "kind": "CapacityPolicy", "metadata": {"name": "a"}, "spec": {},
        }));
        let error = ensure_stored(Stop::Hold, &policy.unwrap()).unwrap_err();
        assert!(error.to_string().contains("newer Muster"), "{error}");
    }
}
