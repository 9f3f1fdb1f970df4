//! Whether the API server reaches the webhook, as the leader's own dry run finds, and the metric that says so.
//!
//! Requests that never arrive are counted nowhere else: the webhook does not see them, and Karmada reports them as
//! bindings that it could not create.

use checks::WebhookReach;
use crds::names::WEBHOOK_PROBE;
use kube::Client;
use prometheus_client::metrics::gauge::Gauge;
use runtime::{Leadership, Registry};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Time between two probes.
const PROBE: Duration = Duration::from_secs(30);
/// The same while there is no answer: a webhook that starts registers itself within seconds.
const AGAIN: Duration = Duration::from_secs(5);

/// Exports whether the API server reaches the webhook, until `cancel`. A replica that does not lead has no answer.
pub(crate) fn follow(
    client: Client,
    mut leadership: Leadership,
    registry: &Registry,
    cancel: CancellationToken,
) {
    let gauge: Gauge<f64, AtomicU64> = registry.register(
        "webhook_reachable",
        "1 if the webhook answered the leader's last dry run through the API server, 0 if not; NaN where none leads",
        Gauge::default(),
    );
    gauge.set(f64::NAN);
    let mut last = None;
    let probe = async move {
        loop {
            match leadership.is_leading() {
                true => {
                    if let Some(reach) = answer(&client).await {
                        gauge.set(f64::from(u8::from(reach == WebhookReach::Answered)));
                        if last.as_ref() != Some(&reach) {
                            log(&reach);
                            last = Some(reach);
                        }
                    }
                }
                false => {
                    last = None;
                    gauge.set(f64::NAN);
                }
            }
            let pause = match last {
                None | Some(WebhookReach::Answered) => PROBE,
                Some(WebhookReach::Unanswered(_) | WebhookReach::NotCalled) => AGAIN,
            };
            leadership.changed_within(pause).await;
        }
    };
    runtime::task::spawn(cancel.run_until_cancelled_owned(probe));
}

/// Returns what the probe found; `None` if the API server did not say.
async fn answer(client: &Client) -> Option<WebhookReach> {
    match checks::probe_webhook(client).await {
        Ok(reach) => Some(reach),
        Err(error) => {
            tracing::warn!(%error, "cannot test whether the API server reaches the webhook; trying again");
            None
        }
    }
}

fn log(reach: &WebhookReach) {
    match reach {
        WebhookReach::Answered => tracing::info!("the API server reaches the webhook"),
        WebhookReach::Unanswered(message) => tracing::error!(
            message,
            "the API server does not reach the webhook: managed namespaces accept no job"
        ),
        WebhookReach::NotCalled => tracing::error!(
            entry = WEBHOOK_PROBE,
            "the API server does not call the webhook: its registration lacks an entry"
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crds::names::WEBHOOK_ANSWER_ANNOTATION;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::{Value, json};

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases";

    fn value(registry: &Registry) -> String {
        let text = registry.encode().unwrap();
        let name = "muster_webhook_reachable ";
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().to_owned()
    }

    /// Lets the follower's probes come to an end.
    async fn later(time: Duration) {
        tokio::time::sleep(time + Duration::from_secs(1)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_leader_says_whether_the_webhook_answers_and_others_say_nothing() {
        let api = FakeApi::new();
        let answered = |lease: &Value| {
            let mut lease = lease.clone();
            lease["metadata"]["annotations"] = json!({WEBHOOK_ANSWER_ANNOTATION: "0.1.0"});
            lease
        };
        api.answers(LEASES, answered);
        let (registry, cancel) = (Registry::new(), CancellationToken::new());
        let _guard = cancel.clone().drop_guard();
        let over = CancellationToken::new();
        let term = Leadership::always().term(over.clone());
        follow(api.client(), term.clone(), &registry, cancel);
        later(PROBE).await;
        assert_eq!(value(&registry), "NaN");
        assert_eq!(api.requests().len(), 0);

        term.begin(0);
        later(Duration::ZERO).await;
        assert_eq!(value(&registry), "1.0");

        let is_probe = |request: &runtime::testing::Recorded| request.path == LEASES;
        let failed = "failed calling webhook \"probe.muster.io\": connection refused";
        api.fault(1, Fault::Status(500, failed), is_probe);
        later(PROBE).await;
        assert_eq!(value(&registry), "0.0");

        // No answer of the API server is no answer of the webhook either way.
        api.fault(1, Fault::Status(500, "etcd leader changed"), is_probe);
        later(AGAIN).await;
        assert_eq!(value(&registry), "0.0");
        later(AGAIN).await;
        assert_eq!(value(&registry), "1.0");

        // An API server that answers without the webhook does not call it.
        api.answers(LEASES, Value::clone);
        later(PROBE).await;
        assert_eq!(value(&registry), "0.0");

        over.cancel();
        later(PROBE).await;
        assert_eq!(value(&registry), "NaN");
    }
}
