#![allow(clippy::unwrap_used)]

use super::*;
use crate::testing::{FakeApi, Fault, Recorded};

const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster";

struct Candidacy {
    leadership: Leadership,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

fn candidate(api: &FakeApi, identity: &str) -> Candidacy {
    let cancel = CancellationToken::new();
    let options = LeaseOptions::new(identity);
    let (leadership, task) = spawn(api.client(), options, &Registry::new(), cancel.clone());
    Candidacy {
        leadership,
        cancel,
        task,
    }
}

fn renewal_of(identity: &'static str) -> impl Fn(&Recorded) -> bool {
    move |request| request.verb == "PATCH" && request.body["spec"]["holderIdentity"] == identity
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_hands_over_at_shutdown() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let b = candidate(&api, "b");
    seconds(60).await;
    assert_eq!(
        (a.leadership.epoch(), b.leadership.epoch()),
        (Some(0), None)
    );

    a.cancel.cancel();
    a.task.await.unwrap();
    assert!(!a.leadership.is_leading());
    assert_eq!(api.get(PATH).unwrap()["spec"]["holderIdentity"], "");
    seconds(3).await;
    assert_eq!(b.leadership.epoch(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_before_another_begins() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let b = candidate(&api, "b");
    seconds(5).await;
    api.fault(usize::MAX, Fault::Hang, renewal_of("a"));

    let (mut stopped, mut began) = (None, None);
    let start = Instant::now();
    for _ in 0..400 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let (first, second) = (a.leadership.is_leading(), b.leadership.is_leading());
        assert!(!(first && second), "two lead after {:?}", start.elapsed());
        if !first && stopped.is_none() {
            stopped = Some(start.elapsed());
        }
        if second && began.is_none() {
            began = Some(start.elapsed());
        }
    }
    let (stopped, began) = (stopped.unwrap(), began.unwrap());
    assert!(stopped <= Duration::from_secs(10), "{stopped:?}");
    assert!(
        began >= stopped + Duration::from_secs(4),
        "{stopped:?} {began:?}"
    );
    assert!(began <= Duration::from_secs(20), "{began:?}");
    assert_eq!(b.leadership.epoch(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_or_a_conflict_does_not_end_a_claim() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let mut changes = a.leadership.clone();
    changes.changed().await;
    api.fault(1, Fault::LoseAnswer, renewal_of("a"));
    api.fault(1, Fault::Status(500, "etcd has no leader"), renewal_of("a"));
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(a.leadership.epoch(), Some(0));
    }
    let unchanged = tokio::time::timeout(Duration::from_millis(1), changes.changed());
    assert!(unchanged.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_deleted_does_not_start_its_epochs_over() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    api.remove(PATH);
    seconds(60).await;
    assert_eq!(a.leadership.epoch(), Some(1));
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_only_after_the_writes_have_ended() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let permit = a.leadership.permit().unwrap();
    assert_eq!(permit.limit(), Duration::from_secs(5));
    a.cancel.cancel();
    seconds(2).await;
    assert!(a.leadership.permit().is_none());
    assert_eq!(api.get(PATH).unwrap()["spec"]["holderIdentity"], "a");
    drop(permit);
    seconds(1).await;
    assert_eq!(api.get(PATH).unwrap()["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn leading_always_never_changes() {
    let mut leadership = Leadership::always();
    assert!(leadership.is_leading() && leadership.permit().is_some());
    leadership.leading().await;
    let changed = tokio::time::timeout(Duration::from_secs(1), leadership.changed());
    assert!(changed.await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_sees_each_change_once_and_none_too_late() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(5).await;
    // It led before anyone waited for it.
    let mut leadership = a.leadership.clone();
    leadership.leading().await;
    let ended = leadership.changed();
    assert!(
        tokio::time::timeout(Duration::from_secs(60), ended)
            .await
            .is_err()
    );
    a.cancel.cancel();
    a.task.await.unwrap();
    leadership.changed().await;
    assert!(!leadership.is_leading());
    let again = leadership.leading();
    assert!(
        tokio::time::timeout(Duration::from_secs(60), again)
            .await
            .is_err()
    );
}

#[tokio::test(start_paused = true)]
async fn two_processes_of_one_host_never_lead_both() {
    let api = FakeApi::new();
    let (first, second) = (identity("host"), identity("host"));
    assert_ne!(first, second);
    assert!(first.starts_with("host_") && identity(&"x".repeat(200)).len() == 100);
    let a = candidate(&api, &first);
    seconds(1).await;
    let b = candidate(&api, &second);
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(a.leadership.is_leading() && !b.leadership.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_stuck_loses_the_lease_to_another() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let b = candidate(&api, "b");
    let heart = a.leadership.heart();
    for _ in 0..60 {
        heart.beat();
        seconds(1).await;
    }
    assert!(a.leadership.is_leading());
    seconds(13).await;
    assert!(!a.leadership.is_leading(), "it beats no more");
    seconds(20).await;
    assert!(b.leadership.is_leading());
    // As a standby it does not take the Lease while it is stuck.
    b.cancel.cancel();
    b.task.await.unwrap();
    seconds(60).await;
    assert!(!a.leadership.is_leading());
    heart.beat();
    seconds(3).await;
    assert!(a.leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_within_a_second() {
    let api = FakeApi::new();
    let a = candidate(&api, "a");
    seconds(1).await;
    let b = candidate(&api, "b");
    seconds(7).await;
    a.cancel.cancel();
    a.task.await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(b.leadership.is_leading());
}
