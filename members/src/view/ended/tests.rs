use super::*;
use crate::view::tests::{gone, pod_in, sent};
use runtime::watch::Delta;

/// The last number of ended pods that was sent, and how many pods are known one by one.
fn counted(view: &mut MemberView) -> (Option<u32>, usize) {
    let (events, _) = view.take();
    let mut counts = events.iter().rev().filter_map(|event| match event {
        Event::PodsEnded { pods, .. } => Some(*pods),
        _ => None,
    });
    (counts.next(), view.counts().1)
}

/// A view of a Job of which this many pods have ended one after the other, and one more runs.
fn with_ended(pods: usize) -> MemberView {
    let mut view = MemberView::new(facts::ClusterName::new("m1"));
    view.pod(pod_in("Running", "runs", "runs", Some("train")));
    for index in 0..pods {
        let name = format!("p{index}");
        view.pod(pod_in("Running", &name, &name, Some("train")));
        view.pod(pod_in("Succeeded", &name, &name, Some("train")));
    }
    view
}

#[test]
fn of_very_many_ended_pods_only_the_number_is_kept() {
    let mut view = with_ended(90);
    assert_eq!(counted(&mut view), (None, 91));
    let mut view = with_ended(250);
    let (number, known) = counted(&mut view);
    assert!(known <= KEPT + 1, "{known}");
    assert_eq!(number.map(|number| number as usize + known), Some(251));
    // One that is new to this process is neither kept nor sent.
    view.pod(pod_in("Succeeded", "new", "new", Some("train")));
    view.pod(pod_in("Succeeded", "other", "other", Some("train")));
    let (more, now_known) = counted(&mut view);
    assert_eq!(more.map(|more| more as usize + now_known), Some(253));
    view.pod(gone(Some("team"), "other"));
    assert_eq!(counted(&mut view).0, more.map(|more| more - 1));
}

#[test]
fn each_pod_that_ends_is_sent_before_it_is_counted() {
    let mut view = with_ended(150);
    sent(&mut view);
    view.pod(pod_in("Running", "last", "last", Some("train")));
    view.pod(pod_in("Failed", "last", "last", Some("train")));
    let sent = sent(&mut view);
    let want = "+last of team/train-job, +last of team/train-job, PodsEnded";
    assert!(sent.starts_with(want), "{sent}");
    assert!(sent.ends_with("-last"), "{sent}");
}

#[test]
fn a_pod_that_starts_again_under_its_name_is_not_counted_any_more() {
    let mut view = with_ended(150);
    let (before, _) = counted(&mut view);
    view.pod(pod_in("Succeeded", "p149", "p149", Some("train")));
    assert_eq!(counted(&mut view).0, None);
    view.pod(pod_in("Running", "p149", "again", Some("train")));
    assert_eq!(counted(&mut view).0, before.map(|before| before - 1));
}

#[test]
fn pods_that_are_gone_at_the_next_connection_are_not_counted_any_more() {
    let mut view = with_ended(150);
    let (before, _) = counted(&mut view);
    view.begin();
    for index in 0..149 {
        let name = format!("p{index}");
        view.pod(pod_in("Succeeded", &name, &name, Some("train")));
    }
    view.pod(pod_in("Running", "runs", "runs", Some("train")));
    view.pod(Delta::Listed);
    assert_eq!(counted(&mut view).0, before.map(|before| before - 1));
    view.begin();
    view.pod(Delta::Listed);
    assert_eq!(counted(&mut view), (Some(0), 0));
    assert!(view.ended.is_empty() && view.owners.is_empty());
}

#[test]
fn the_climb_says_whose_they_are() {
    let mut view = with_ended(150);
    view.take();
    view.owner_known("train-uid", Some(JobKey::new("team", "other")));
    let (events, _) = view.take();
    let of_other = events.iter().any(|event| {
        matches!(event, Event::PodsEnded { job: Some(job), .. } if job.to_string() == "team/other")
    });
    assert!(of_other, "{events:?}");
}

#[test]
fn pods_that_their_node_ended_are_not_counted() {
    let mut view = with_ended(150);
    let before = counted(&mut view);
    let evicted = |name: &str| {
        let mut pod = pod_in("Failed", name, name, Some("train"));
        if let Delta::Upserted(pod) = &mut pod {
            pod.fact.phase = PodPhase::Disrupted;
        }
        pod
    };
    view.pod(evicted("evicted"));
    assert_eq!(counted(&mut view), (None, before.1));
}
