#![allow(clippy::unwrap_used)]

use super::*;
use crate::metrics::Registry;
use crate::testing::{FakeApi, Fault};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio::time::Instant;

const ALL: &str = "/api/v1/configmaps";

fn path(name: &str) -> String {
    format!("/api/v1/namespaces/ns/configmaps/{name}")
}

struct Watched {
    api: FakeApi,
    deltas: mpsc::Receiver<Delta<ConfigMap>>,
    metrics: WatchMetrics,
    _cancel: tokio_util::sync::DropGuard,
}

fn start(api: &FakeApi, options: WatchOptions) -> Watched {
    let (sink, deltas) = mpsc::channel(2);
    let cancel = CancellationToken::new();
    let metrics = WatchMetrics::new(&Registry::new());
    let options = WatchOptions {
        metrics: Some(metrics.clone()),
        ..options
    };
    let configmaps: Api<ConfigMap> = Api::all(api.client());
    watch(
        configmaps,
        options,
        "ConfigMap",
        |delta| delta,
        sink,
        cancel.clone(),
    );
    Watched {
        api: api.clone(),
        deltas,
        metrics,
        _cancel: cancel.drop_guard(),
    }
}

impl Watched {
    /// The deltas that come within `limit`, as text.
    async fn within(&mut self, limit: Duration) -> Vec<String> {
        let mut words = Vec::new();
        let end = Instant::now() + limit;
        while let Ok(Some(delta)) = tokio::time::timeout_at(end, self.deltas.recv()).await {
            words.push(match delta {
                Delta::Upserted(map) => {
                    let value = map.data.unwrap_or_default().remove("v").unwrap_or_default();
                    format!("{}={value}", map.metadata.name.unwrap_or_default())
                }
                Delta::Gone(key) => format!("{key} gone"),
                Delta::Listed => "listed".to_owned(),
            });
        }
        words
    }

    async fn soon(&mut self) -> Vec<String> {
        self.within(Duration::from_millis(50)).await
    }
}

fn map(value: &str) -> serde_json::Value {
    json!({"data": {"v": value}})
}

fn put(api: &FakeApi, name: &str, value: &str) {
    api.put(&path(name), map(value));
}

#[tokio::test(start_paused = true)]
async fn a_watch_lists_in_pages_and_then_reports_changes() {
    let api = FakeApi::new();
    for name in ["a", "b", "c"] {
        put(&api, name, "1");
    }
    let options = WatchOptions {
        page_size: 2,
        ..WatchOptions::default()
    };
    let mut watched = start(&api, options);
    assert_eq!(watched.soon().await, ["a=1", "b=1", "c=1", "listed"]);
    assert_eq!(api.requests_of("GET").len(), 2);

    api.merge(&path("b"), &map("2"));
    api.remove(&path("a"));
    put(&api, "d", "1");
    assert_eq!(watched.soon().await, ["b=2", "ns/a gone", "d=1"]);

    // A watch that ends by its timeout is resumed, not listed again.
    assert!(watched.within(Duration::from_secs(300)).await.is_empty());
    put(&api, "e", "1");
    assert_eq!(watched.soon().await, ["e=1"]);
    let lists = api.requests_of("GET").into_iter();
    let of_objects = lists.filter(|list| list.query["limit"] != "1");
    assert_eq!(of_objects.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_resumed_where_it_was() {
    let api = FakeApi::new();
    put(&api, "a", "1");
    let mut watched = start(&api, WatchOptions::default());
    watched.soon().await;
    api.cut_watches();
    api.remove(&path("a"));
    put(&api, "b", "1");
    assert_eq!(
        watched.within(Duration::from_secs(1)).await,
        ["ns/a gone", "b=1"]
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_and_replaced_objects_are_found_by_listing_again() {
    let api = FakeApi::new();
    for name in ["a", "b", "c"] {
        put(&api, name, "1");
    }
    let mut watched = start(&api, WatchOptions::default());
    watched.soon().await;
    api.cut_watches();
    api.remove(&path("a"));
    api.remove(&path("b"));
    put(&api, "b", "2");
    // The earlier versions are gone: the next watch gets 410 as its HTTP status.
    api.compact();
    assert_eq!(
        watched.within(Duration::from_secs(5)).await,
        ["ns/b gone", "b=2", "c=1", "ns/a gone", "listed"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_never_starts_leads_to_a_list() {
    let api = FakeApi::new();
    put(&api, "a", "1");
    api.fault(
        3,
        Fault::Status(504, "too large resource version"),
        |request| request.verb == "WATCH",
    );
    let mut watched = start(&api, WatchOptions::default());
    let told = watched.within(Duration::from_secs(20)).await;
    assert_eq!(told, ["a=1", "listed", "a=1", "listed"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_stops_nothing() {
    let api = FakeApi::new();
    put(&api, "a", "1");
    api.put(&path("bad"), json!({"data": 5}));
    put(&api, "c", "1");
    let mut watched = start(&api, WatchOptions::default());
    assert_eq!(watched.soon().await, ["a=1", "c=1", "listed"]);
    api.put(&path("worse"), json!({"data": [1]}));
    put(&api, "d", "1");
    assert_eq!(watched.soon().await, ["d=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_waited_for_or_counts_as_empty() {
    let absent = |api: &FakeApi| {
        api.fault(3, Fault::Status(404, "no such kind"), |r| r.verb == "GET");
    };
    let api = FakeApi::new();
    absent(&api);
    put(&api, "a", "1");
    let mut waits = start(&api, WatchOptions::default());
    assert!(waits.soon().await.is_empty());
    assert_eq!(
        waits.within(Duration::from_secs(60)).await,
        ["a=1", "listed"]
    );

    let api = FakeApi::new();
    absent(&api);
    put(&api, "a", "1");
    let options = WatchOptions {
        absent_is_empty: true,
        ..WatchOptions::default()
    };
    let mut empty = start(&api, options);
    assert_eq!(empty.soon().await, ["listed"]);
    let later = empty.within(Duration::from_secs(60)).await;
    assert_eq!(later, ["listed", "listed", "a=1", "listed"]);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_not_be_listed_differs_from_one_without_objects() {
    let api = FakeApi::new();
    api.fault(1, Fault::Status(403, "forbidden"), |r| r.verb == "GET");
    let denied = Arc::new(AtomicBool::new(false));
    let options = WatchOptions {
        denied_is_listed: true,
        denied: Some(denied.clone()),
        ..WatchOptions::default()
    };
    let mut watched = start(&api, options);
    assert_eq!(watched.soon().await, ["listed"]);
    assert!(denied.load(Ordering::Relaxed));
    let later = watched.within(Duration::from_secs(60)).await;
    assert_eq!(later, ["listed"]);
    assert!(!denied.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_watch_reports_the_age_of_its_data() {
    let api = FakeApi::new();
    let mut watched = start(&api, WatchOptions::default());
    watched.soon().await;
    assert!(watched.metrics.age("ConfigMap").unwrap() < Duration::from_secs(1));
    // A connection that is silent for longer than the server's timeout counts as dead.
    watched.api.fault(usize::MAX, Fault::Hang, |_| true);
    watched.within(Duration::from_secs(100)).await;
    assert!(watched.metrics.age("ConfigMap").unwrap() > Duration::from_secs(20));
    assert!(
        watched
            .api
            .requests()
            .iter()
            .any(|request| request.path == ALL)
    );
}

/// A page's token may be too old when it is used: then the list starts over, and objects deleted meanwhile
/// are still found.
#[tokio::test(start_paused = true)]
async fn a_list_whose_pages_expire_starts_over() {
    let api = FakeApi::new();
    for name in ["a", "b", "c"] {
        put(&api, name, "1");
    }
    let gone = api.clone();
    api.fault(
        1,
        Fault::Status(410, "the continue parameter is too old"),
        move |request| {
            let is_second = request.query.contains_key("continue");
            if is_second {
                gone_later(&gone);
            }
            is_second
        },
    );
    let options = WatchOptions {
        page_size: 2,
        ..WatchOptions::default()
    };
    let mut watched = start(&api, options);
    assert_eq!(watched.soon().await, ["a=1", "b=1"]);
    assert_eq!(
        watched.within(Duration::from_secs(5)).await,
        ["b=1", "c=1", "ns/a gone", "listed"]
    );
}

/// Deletes `a` as soon as the server is idle.
fn gone_later(api: &FakeApi) {
    let api = api.clone();
    tokio::spawn(async move { api.remove(&path("a")) });
}

#[tokio::test(start_paused = true)]
async fn a_server_that_went_back_is_listed_again() {
    let api = FakeApi::new();
    put(&api, "a", "1");
    put(&api, "b", "1");
    let snapshot = api.snapshot();
    let mut watched = start(&api, WatchOptions::default());
    assert_eq!(watched.soon().await, ["a=1", "b=1", "listed"]);
    api.merge(&path("a"), &map("2"));
    put(&api, "c", "1");
    api.remove(&path("b"));
    assert_eq!(watched.soon().await, ["a=2", "c=1", "ns/b gone"]);
    api.restore(&snapshot);
    put(&api, "d", "1");
    assert_eq!(
        watched.within(Duration::from_secs(5)).await,
        ["a=1", "b=1", "d=1", "ns/c gone", "listed"]
    );
    // It continues from there.
    api.merge(&path("a"), &map("3"));
    assert_eq!(watched.soon().await, ["a=3"]);
}

#[tokio::test(start_paused = true)]
async fn components_on_a_server_that_went_back_end() {
    let api = FakeApi::new();
    let snapshot = api.snapshot();
    put(&api, "a", "1");
    let restart = CancellationToken::new();
    let options = WatchOptions {
        restart: Some(restart.clone()),
        ..WatchOptions::default()
    };
    let mut watched = start(&api, options);
    watched.soon().await;
    api.cut_watches();
    watched.within(Duration::from_secs(300)).await;
    assert!(!restart.is_cancelled());
    api.restore(&snapshot);
    watched.within(Duration::from_secs(5)).await;
    assert!(restart.is_cancelled());
}

/// The server says that the requested version is in the future.
#[tokio::test(start_paused = true)]
async fn a_too_large_version_leads_to_a_list() {
    let api = FakeApi::new();
    put(&api, "a", "1");
    let mut watched = start(&api, WatchOptions::default());
    watched.soon().await;
    let too_large = "Timeout: Too large resource version: 102, current: 7";
    api.fault(1, Fault::Status(504, too_large), |request| {
        request.verb == "WATCH"
    });
    api.cut_watches();
    assert_eq!(
        watched.within(Duration::from_secs(5)).await,
        ["a=1", "listed"]
    );
}
