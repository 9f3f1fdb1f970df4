//! Alerts about nodes, as Alertmanager posts them to a webhook (its payload of version 4).
//!
//! Two labels of an alert name the node and its cluster. Which labels those are differs between installations.

use crate::loose::lenient;
use facts::{ClusterName, NodeName};
use jiff::Timestamp;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Most alerts of one request that are read.
pub const MOST_ALERTS: usize = 2_000;
/// Most characters of an alert's text that are kept.
const MOST_TEXT: usize = 256;
/// The only version of the payload that there is.
const VERSION: &str = "4";

/// The labels that name the node of an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertLabels {
    /// The label with the member cluster.
    pub cluster: String,
    /// The label with the node.
    pub node: String,
}

/// An alert about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAlert {
    /// The member cluster.
    pub cluster: ClusterName,
    /// The node.
    pub node: NodeName,
    /// The name of the alert.
    pub name: String,
    /// Tells it from others of the same name: about another device of the node, for instance.
    pub fingerprint: String,
    /// Its annotation `summary`, or else `description`.
    pub message: String,
    /// Since when it fires.
    pub since: Timestamp,
    /// False once it is resolved.
    pub firing: bool,
}

/// What Alertmanager posts.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AlertPayload {
    #[serde(deserialize_with = "lenient")]
    version: String,
    alerts: Vec<PostedAlert>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PostedAlert {
    status: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "lenient")]
    starts_at: Option<Timestamp>,
    fingerprint: String,
}

/// What was read of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadAlerts {
    /// The alerts that name a node.
    pub alerts: Vec<NodeAlert>,
    /// The number of alerts that name none, or no alert.
    pub others: usize,
}

/// Reads a request. `cluster` is the cluster of alerts without the label for it, if the request names one. An alert
/// that names no node is left out.
///
/// # Errors
/// Returns what is wrong with a request that cannot be read as a whole.
pub fn read(
    body: &[u8],
    labels: &AlertLabels,
    cluster: Option<&str>,
) -> Result<ReadAlerts, String> {
    let payload: AlertPayload = serde_json::from_slice(body).map_err(|error| {
        format!("the body is not what Alertmanager posts to a webhook: {error}")
    })?;
    if payload.version != VERSION {
        return Err(format!(
            "version: {:?} of the payload is not known; {VERSION:?} is needed",
            payload.version
        ));
    }
    let all = payload.alerts.len();
    if all > MOST_ALERTS {
        return Err(format!(
            "alerts: {all} are too many for one request; at most {MOST_ALERTS} are read (max_alerts of the receiver)"
        ));
    }
    let alerts = payload.alerts.into_iter();
    let alerts: Vec<NodeAlert> = alerts
        .filter_map(|alert| of_node(alert, labels, cluster))
        .collect();
    Ok(ReadAlerts {
        others: all - alerts.len(),
        alerts,
    })
}

fn of_node(alert: PostedAlert, labels: &AlertLabels, cluster: Option<&str>) -> Option<NodeAlert> {
    let label = |name: &str| alert.labels.get(name).filter(|value| !value.is_empty());
    let cluster = label(&labels.cluster).map(String::as_str).or(cluster)?;
    let name = label("alertname")?.clone();
    let annotations = ["summary", "description"].into_iter();
    let mut texts = annotations.filter_map(|name| alert.annotations.get(name));
    let message = texts.next().map_or(String::new(), |text| {
        text.trim().chars().take(MOST_TEXT).collect()
    });
    Some(NodeAlert {
        cluster: ClusterName::new(cluster),
        node: NodeName::new(label(&labels.node)?),
        fingerprint: format!("{name}/{}", alert.fingerprint),
        name,
        message,
        since: alert.starts_at?,
        firing: alert.status != "resolved",
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn labels() -> AlertLabels {
        AlertLabels {
            cluster: "cluster".to_owned(),
            node: "node".to_owned(),
        }
    }

    fn alert(status: &str, labels: Value) -> Value {
        json!({
            "status": status, "labels": labels, "annotations": {"summary": "Xid 79 on GPU 3"},
            "startsAt": "2026-11-25T10:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://p/graph",
            "fingerprint": "f00",
        })
    }

    fn payload(alerts: &[Value]) -> Vec<u8> {
        let payload = json!({
            "version": "4", "groupKey": "{}:{}", "truncatedAlerts": 0, "status": "firing", "receiver": "muster",
            "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://a", "alerts": alerts,
        });
        payload.to_string().into_bytes()
    }

    #[test]
    fn an_alert_names_its_node_by_two_labels() {
        let xid = json!({"alertname": "GpuXid79", "cluster": "gpu-a", "node": "n1", "gpu": "3"});
        let no_cluster = json!({"alertname": "GpuXid79", "node": "n2"});
        let no_node = json!({"alertname": "Watchdog", "cluster": "gpu-a"});
        let body = payload(&[
            alert("firing", xid),
            alert("resolved", no_cluster),
            alert("firing", no_node),
        ]);
        let read_with = |cluster| {
            let read = read(&body, &labels(), cluster).unwrap();
            let short = read.alerts.iter().map(|alert| {
                format!(
                    "{} {}/{} {}",
                    alert.name, alert.cluster, alert.node, alert.firing
                )
            });
            (short.collect::<Vec<_>>(), read.others)
        };
        let first = "GpuXid79 gpu-a/n1 true".to_owned();
        assert_eq!(read_with(None), (vec![first.clone()], 2));
        let second = "GpuXid79 gpu-b/n2 false".to_owned();
        assert_eq!(read_with(Some("gpu-b")), (vec![first, second], 1));
        let alerts = read(&body, &labels(), None).unwrap().alerts;
        assert_eq!(alerts[0].message, "Xid 79 on GPU 3");
        assert_eq!(alerts[0].fingerprint, "GpuXid79/f00");
        assert_eq!(alerts[0].since.to_string(), "2026-11-25T10:00:00Z");
    }

    #[test]
    fn what_is_wrong_with_a_request_is_named() {
        let wrong = |body: &[u8]| read(body, &labels(), None).unwrap_err();
        assert!(wrong(b"[").starts_with("the body is not what Alertmanager posts"));
        assert_eq!(
            wrong(br#"{"version": "3", "alerts": []}"#),
            "version: \"3\" of the payload is not known; \"4\" is needed"
        );
        let many = vec![json!({}); MOST_ALERTS + 1];
        assert!(wrong(&payload(&many)).starts_with("alerts: 2001 are too many"));
        assert_eq!(
            read(&payload(&[]), &labels(), None),
            Ok(ReadAlerts::default())
        );
    }
}
