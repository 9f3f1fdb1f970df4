//! Notices: what happens to nodes and clusters, posted to a webhook of the operator, such as Slack's.
//!
//! ```text
//! events of Clusters ─► bounded queue ─► paced task ─► POST of the rendered template
//! ```
//!
//! URL and template come from a file of the operator ([`NoticeSettings`]), which is read again for each notice, and
//! never from an object of a tenant: nobody else can make Muster call an address. Redirects are not followed. The
//! URL is a secret and is never logged. Notices can get lost, and never delay a decision.

use crate::avoided_nodes::ClusterEvent;
use prometheus_client::metrics::counter::Counter;
use runtime::client::{client_of, install_crypto, with_deadline};
use serde::Deserialize;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue; further notices are left out, and counted in the next one.
const QUEUE: usize = 50;
/// Deadline of one call.
const LIMIT: Duration = Duration::from_secs(10);
/// How often a notice is tried, and the pause before the second try; it doubles.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// The words that a template may contain, in two braces.
const FIELDS: [&str; 4] = ["severity", "reason", "cluster", "message"];

/// The operator's file, in JSON.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NoticeSettings {
    /// Where notices are posted.
    url: String,
    /// The body, in JSON, with `{{severity}}`, `{{reason}}`, `{{cluster}}` and `{{message}}` inside of texts.
    #[serde(default = "slack")]
    template: Value,
    /// The most notices in a minute.
    #[serde(default = "ten")]
    per_minute: u32,
}

/// A body that Slack, Mattermost and others understand.
fn slack() -> Value {
    serde_json::json!({"text": "[{{severity}}] {{reason}} {{cluster}}: {{message}}"})
}

fn ten() -> u32 {
    10
}

impl NoticeSettings {
    fn read(path: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|error| format!("{}: {error}", path.display()))?;
        Self::parse(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        settings.address()?;
        if settings.per_minute == 0 {
            return Err("perMinute: 0 allows no notice; at least 1 is needed".to_owned());
        }
        rendered(&settings.template, &[""; 4])?;
        Ok(settings)
    }

    /// Returns the server and the path.
    fn address(&self) -> Result<(http::Uri, String), String> {
        // The URL is a secret, and is not repeated.
        let wrong = || "url: is no address; https://HOST/PATH is needed".to_owned();
        let uri: http::Uri = self.url.parse().map_err(|_| wrong())?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut parts = http::uri::Parts::default();
        parts.scheme = uri.scheme().cloned();
        parts.authority = uri.authority().cloned();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        let server = http::Uri::from_parts(parts).map_err(|_| wrong())?;
        match server.scheme_str() {
            Some("http" | "https") => Ok((server, path.to_owned())),
            _ => Err(wrong()),
        }
    }
}

/// Posts notices.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    queue: mpsc::Sender<ClusterEvent>,
    left_out: Arc<AtomicU64>,
}

impl Notices {
    /// Starts the task that posts notices as the file `path` says. `failures` counts those that were lost.
    pub(crate) fn spawn(path: PathBuf, failures: Counter, cancel: CancellationToken) -> Self {
        if let Err(error) = NoticeSettings::read(&path) {
            tracing::error!(
                error,
                "no notices can be posted; the file is read again for each"
            );
        }
        let (queue, events) = mpsc::channel(QUEUE);
        let left_out = Arc::new(AtomicU64::new(0));
        let sender = NoticeSender {
            path,
            failures,
            left_out: Arc::clone(&left_out),
        };
        runtime::task::spawn(cancel.run_until_cancelled_owned(sender.run(events)));
        Self { queue, left_out }
    }

    /// Queues the notice of an event.
    pub(crate) fn notify(&self, event: ClusterEvent) {
        if self.queue.try_send(event).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct NoticeSender {
    path: PathBuf,
    failures: Counter,
    left_out: Arc<AtomicU64>,
}

impl NoticeSender {
    async fn run(self, mut events: mpsc::Receiver<ClusterEvent>) {
        while let Some(mut event) = events.recv().await {
            let more = self.left_out.swap(0, Ordering::Relaxed);
            if more > 0 {
                event.message += &format!(" ({more} notices before this one were left out)");
            }
            let mut per_minute = ten();
            let posted = match NoticeSettings::read(&self.path) {
                Ok(settings) => {
                    per_minute = settings.per_minute;
                    post_patiently(&settings, &event).await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = posted {
                self.failures.inc();
                tracing::warn!(reason = %event.reason, error, "a notice was not posted");
            }
            tokio::time::sleep(Duration::from_secs(60) / per_minute).await;
        }
    }
}

/// Posts a notice, and tries again if the receiver is away for a moment.
async fn post_patiently(settings: &NoticeSettings, event: &ClusterEvent) -> Result<(), String> {
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        match post(settings, event).await {
            Ok(()) => return Ok(()),
            Err(error) => tracing::debug!(error, "a notice was not posted; trying again"),
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    post(settings, event).await
}

async fn post(settings: &NoticeSettings, event: &ClusterEvent) -> Result<(), String> {
    install_crypto();
    let (server, path) = settings.address()?;
    let severity = match event.is_warning {
        true => "warning",
        false => "info",
    };
    let cluster = event.cluster.to_string();
    let values = [severity, event.reason.as_str(), &cluster, &event.message];
    let body = rendered(&settings.template, &values)?.to_string();
    let client = client_of(kube::Config::new(server), "muster-notices");
    let client = client.map_err(|error| format!("{error:#}"))?;
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.into_bytes())
        .map_err(|error| error.to_string())?;
    let answer = with_deadline(client.request_text(request), LIMIT).await;
    answer.map(drop).map_err(|error| error.message())
}

/// Returns `template` with the values of [`FIELDS`] in its texts. A value is text: it cannot add to the JSON.
fn rendered(template: &Value, values: &[&str; 4]) -> Result<Value, String> {
    Ok(match template {
        Value::String(text) => Value::String(filled(text, values)?),
        Value::Array(all) => {
            let all = all.iter().map(|value| rendered(value, values));
            Value::Array(all.collect::<Result<_, _>>()?)
        }
        Value::Object(all) => {
            let all = all
                .iter()
                .map(|(key, value)| Ok((key.clone(), rendered(value, values)?)));
            Value::Object(all.collect::<Result<_, String>>()?)
        }
        other => other.clone(),
    })
}

/// Fills in the fields of one text, once: a value that looks like a field stays as it is.
fn filled(text: &str, values: &[&str; 4]) -> Result<String, String> {
    let mut done = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after
            .split_once("}}")
            .ok_or_else(|| format!("template: {text:?} has {{{{ without }}}}"))?;
        let known = FIELDS.iter().position(|field| *field == name.trim());
        let index = known.ok_or_else(|| {
            let fields = FIELDS.join(", ");
            format!("template: {name:?} is no field; one of {fields} is needed")
        })?;
        done += before;
        done += values[index];
        rest = behind;
    }
    Ok(done + rest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use engine::{ClusterName, Reason};
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn event(message: &str) -> ClusterEvent {
        ClusterEvent {
            cluster: ClusterName::new("gpu-a"),
            reason: Reason::NodeAvoided,
            is_warning: true,
            message: message.to_owned(),
        }
    }

    /// Answers one request with `status`, and returns what came.
    async fn receive(listener: &TcpListener, status: &str) -> (String, Value) {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut read = Vec::new();
        loop {
            let mut part = [0; 4096];
            let count = socket.read(&mut part).await.unwrap();
            read.extend_from_slice(&part[..count]);
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            if let Ok(body) = serde_json::from_str(body) {
                let answer = format!(
                    "HTTP/1.1 {status}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
                );
                socket.write_all(answer.as_bytes()).await.unwrap();
                return (head.to_owned(), body);
            }
        }
    }

    async fn listening(directory: &Path, more: Value) -> (TcpListener, PathBuf) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut settings =
            json!({"url": format!("http://127.0.0.1:{port}/services/T0/secret?x=1")});
        add(&mut settings, more);
        let path = directory.join("notices.json");
        std::fs::write(&path, settings.to_string()).unwrap();
        (listener, path)
    }

    fn add(settings: &mut Value, more: Value) {
        if let (Value::Object(settings), Value::Object(more)) = (settings, more) {
            settings.extend(more);
        }
    }

    #[tokio::test]
    async fn a_notice_is_posted_to_a_real_receiver_and_tried_again() {
        let directory = directory("posted");
        let (listener, path) = listening(&directory, json!({})).await;
        let (failures, cancel) = (Counter::default(), CancellationToken::new());
        let notices = Notices::spawn(path, failures.clone(), cancel.clone());
        let message = "node n1: \"Xid\", {{cluster}}";
        notices.notify(event(message));
        receive(&listener, "503 Service Unavailable").await;
        let (head, body) = receive(&listener, "200 OK").await;
        assert!(
            head.starts_with("POST /services/T0/secret?x=1 HTTP/1.1"),
            "{head}"
        );
        assert!(
            head.to_lowercase()
                .contains("content-type: application/json")
        );
        let text = format!("[warning] NodeAvoided gpu-a: {message}");
        assert_eq!(body, json!({ "text": text }));
        assert_eq!(failures.get(), 0);
        cancel.cancel();
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn notices_come_at_a_limited_rate_and_those_that_are_left_out_are_counted() {
        let directory = directory("rate");
        let more =
            json!({"perMinute": 600, "template": {"blocks": [{"msg": "{{message}}"}], "n": 1}});
        let (listener, path) = listening(&directory, more).await;
        let cancel = CancellationToken::new();
        let notices = Notices::spawn(path, Counter::default(), cancel.clone());
        let sent = QUEUE + 10;
        for number in 0..sent {
            notices.notify(event(&number.to_string()));
        }
        let started = std::time::Instant::now();
        let (_, first) = receive(&listener, "200 OK").await;
        assert_eq!(first["n"], 1);
        let text = first["blocks"][0]["msg"].as_str().unwrap();
        assert!(
            text.contains("notices before this one were left out"),
            "{text}"
        );
        for _ in 0..5 {
            receive(&listener, "200 OK").await;
        }
        assert!(started.elapsed() >= Duration::from_millis(450));
        cancel.cancel();
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn wrong_settings_are_named_without_the_url() {
        for (settings, said) in [
            (json!({"url": "hooks.example/secret"}), "url: is no address"),
            (
                json!({"url": "ftp://hooks.example/secret"}),
                "url: is no address",
            ),
            (
                json!({"url": "https://a/secret", "perMinute": 0}),
                "perMinute: 0",
            ),
            (
                json!({"url": "https://a/secret", "template": "{{job}}"}),
                "template: \"job\" is no field",
            ),
            (
                json!({"url": "https://a/secret", "template": {"a": "{{x"}}),
                "template: \"{{x\" has {{",
            ),
            (
                json!({"url": "https://a/secret", "color": "red"}),
                "unknown field `color`",
            ),
            (json!({}), "missing field `url`"),
        ] {
            let wrong = NoticeSettings::parse(&settings.to_string()).unwrap_err();
            assert!(wrong.contains(said) && !wrong.contains("secret"), "{wrong}");
        }
        NoticeSettings::parse(r#"{"url": "https://a/secret"}"#).unwrap();
    }

    /// An empty directory of this test.
    fn directory(name: &str) -> PathBuf {
        let name = format!("muster-notices-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}
