#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{FakeApi, Fault, Recorded};
use futures::future::join_all;
use std::future::Future;

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-ledger";

fn ledger(api: &FakeApi, identity: &str) -> Ledger {
    let options = LedgerOptions::beside("muster", identity);
    Ledger::new(api.client(), options, &Registry::new())
}

async fn taken(api: &FakeApi, identity: &str) -> (Ledger, FoundLedger) {
    let ledger = ledger(api, identity);
    let found = ledger.take(&Leadership::always()).await.unwrap();
    (ledger, found)
}

fn subject(name: &str) -> LedgerSubject {
    LedgerSubject {
        namespace: "team".to_owned(),
        name: name.to_owned(),
    }
}

fn open(ledger: &Ledger, name: &str) -> impl Future<Output = Result<(), TermOver>> + use<> {
    let (ledger, name) = (ledger.clone(), name.to_owned());
    async move { ledger.open(&format!("{name}-uid"), subject(&name)).await }
}

fn shown(api: &FakeApi) -> serde_json::Value {
    let ledger = api.get(PATH).unwrap();
    let text = ledger["metadata"]["annotations"][names::LEDGER_OPEN].clone();
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

fn writes(request: &Recorded) -> bool {
    request.verb == "PATCH" && request.path == PATH
}

#[tokio::test(start_paused = true)]
async fn requests_during_a_write_go_with_the_next_write() {
    let api = FakeApi::new();
    let (ledger, found) = taken(&api, "a").await;
    assert_eq!((found.epoch, found.newest), (0, None));
    api.fault(usize::MAX, Fault::Delay(Duration::from_millis(5)), writes);
    let first = tokio::spawn(open(&ledger, "first"));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let all: Vec<String> = (0..100).map(|n| format!("b{n}")).collect();
    let began = Instant::now();
    let opened = join_all(all.iter().map(|name| open(&ledger, name))).await;
    assert!(opened.iter().all(Result::is_ok) && first.await.unwrap().is_ok());
    assert_eq!(api.requests_of("PATCH").len(), 2);
    assert!(began.elapsed() <= Duration::from_millis(20));
    assert_eq!(shown(&api).as_object().unwrap().len(), 101);
    assert_eq!(shown(&api)["b7-uid"], "team/b7");
}

#[tokio::test(start_paused = true)]
async fn closed_entries_are_dropped_with_the_next_write_or_soon() {
    let api = FakeApi::new();
    let (ledger, _) = taken(&api, "a").await;
    open(&ledger, "a").await.unwrap();
    ledger.close("a-uid", Some(712));
    open(&ledger, "b").await.unwrap();
    assert_eq!(shown(&api), json!({"b-uid": "team/b"}));
    ledger.close("b-uid", Some(700));
    tokio::time::sleep(TIDY_AFTER * 2).await;
    assert_eq!(shown(&api), json!({}));
    let written = api.requests_of("PATCH").len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(api.requests_of("PATCH").len(), written, "it rests");
    let (_, found) = taken(&api, "b").await;
    assert_eq!(found.newest, Some(712));
}

#[tokio::test(start_paused = true)]
async fn the_next_leader_finds_open_writes_and_the_last_can_open_none() {
    let api = FakeApi::new();
    let (old, _) = taken(&api, "a").await;
    open(&old, "x").await.unwrap();
    let (new, found) = taken(&api, "b").await;
    assert_eq!(found.epoch, 1);
    assert_eq!(found.open["x-uid"], subject("x"));
    assert_eq!(open(&old, "y").await, Err(TermOver));
    old.lost().await;
    open(&new, "z").await.unwrap();
    // Until it is fenced, what was found stays for the next leader.
    assert_eq!(shown(&api), json!({"x-uid": "team/x", "z-uid": "team/z"}));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_does_not_lose_the_ledger() {
    let api = FakeApi::new();
    let (ledger, _) = taken(&api, "a").await;
    for fault in [
        Fault::LoseAnswer,
        Fault::DoneButStatus(504, "timeout"),
        Fault::Status(500, "etcd has no leader"),
        Fault::Status(429, "busy"),
        Fault::Hang,
    ] {
        api.fault(1, fault, writes);
        open(&ledger, "x").await.unwrap();
        assert_eq!(shown(&api), json!({"x-uid": "team/x"}));
    }
    assert!(!ledger.lost.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn of_two_concurrent_leaders_one_takes_the_ledger() {
    let api = FakeApi::new();
    let ((a, first), (b, second)) = tokio::join!(taken(&api, "a"), taken(&api, "b"));
    assert_ne!(first.epoch, second.epoch);
    let (earlier, later) = match first.epoch < second.epoch {
        true => (a, b),
        false => (b, a),
    };
    assert_eq!(open(&later, "x").await, Ok(()));
    assert_eq!(open(&earlier, "y").await, Err(TermOver));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stopped_leading_neither_takes_nor_writes_the_ledger() {
    let api = FakeApi::new();
    let over = CancellationToken::new();
    let term = Leadership::always().term(over.clone());
    assert_eq!(ledger(&api, "a").take(&term).await, Err(TermOver));
    assert!(api.get(PATH).is_none());
    term.begin(0);
    let ledger = ledger(&api, "a");
    ledger.take(&term).await.unwrap();
    open(&ledger, "x").await.unwrap();
    over.cancel();
    assert_eq!(open(&ledger, "y").await, Err(TermOver));
    assert_eq!(shown(&api), json!({"x-uid": "team/x"}));
}

#[tokio::test(start_paused = true)]
async fn a_ledger_written_by_others_is_reported() {
    let api = FakeApi::new();
    let (_ledger, _) = taken(&api, "a").await;
    let broken = json!({"metadata": {"annotations": {
        names::LEDGER_OPEN: "{", names::LEDGER_NEWEST: "9",
    }}});
    api.merge(PATH, &broken);
    let (_, found) = taken(&api, "b").await;
    assert_eq!((found.newest, found.open.len()), (None, 0), "listed afresh");
}
