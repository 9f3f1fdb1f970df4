#![allow(clippy::unwrap_used)]

use super::*;
use crate::kinds::volcano::unsplittable::unsplittable;
use crate::parts::parts;
use crate::parts::tests::{field, shares};
use crate::rendezvous::Reach;
use crate::testing::yaml;
use facts::Attempt;

/// A job of a master and four workers with these policies: of the job, of the master, of the workers.
fn job(policies: [&str; 3]) -> Value {
    let [whole, master, workers] = policies;
    let pods = "template: {spec: {containers: [{name: c}]}}";
    yaml(&format!(
        "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {{maxRetry: 5, policies: [{whole}], tasks: [
            {{name: master, replicas: 1, policies: [{master}], {pods}}},
            {{name: worker, replicas: 4, policies: [{workers}], {pods}}}]}}}}"
    ))
}

/// Returns the policies in the first of the parts over `clusters` clusters, and its `maxRetry`.
fn part(template: &Value, clusters: usize) -> ([Value; 3], Value) {
    let two = [
        ("a", &[("master", 1), ("worker", 2)][..]),
        ("b", &[("master", 0), ("worker", 2)][..]),
    ];
    let one = [("a", &[("master", 1), ("worker", 4)][..])];
    let shares = shares(if clusters == 2 { &two } else { &one });
    let parts = parts(template, Attempt(1), &shares, &Reach::default(), false).unwrap();
    let first = &parts[0];
    let rewritten = first
        .fields
        .iter()
        .find(|(path, _)| path == "/spec/policies");
    let whole = rewritten.map_or(&template["spec"]["policies"], |(_, value)| value);
    let tasks = field(first, "/spec/tasks");
    let policies = [whole, &tasks[0]["policies"], &tasks[1]["policies"]];
    let most = field(first, "/spec/maxRetry").clone();
    (policies.map(Value::clone), most)
}

fn lists(policies: [&str; 3]) -> [Value; 3] {
    policies.map(|list| yaml(&format!("[{list}]")))
}

#[test]
fn a_part_of_several_stops_where_its_policies_would_restart_the_job() {
    let cases = [
        (
            ["{event: PodEvicted, action: RestartJob}", "", ""],
            ["{event: PodEvicted, action: TerminateJob}", "", ""],
            Some("Terminated"),
        ),
        (
            [
                "",
                "{exitCode: 3, action: RestartJob}",
                "{events: [PodFailed, PodPending], action: RestartJob, timeout: 10m}, {event: TaskFailed, action: RestartTask}",
            ],
            [
                "",
                "{exitCode: 3, action: TerminateJob}",
                "{events: [PodFailed, PodPending], action: TerminateJob, timeout: 10m}, {event: TaskFailed, action: RestartTask}",
            ],
            Some("Terminated"),
        ),
        // What a user terminates has failed for good.
        (
            [
                "{event: PodFailed, action: RestartJob}",
                "{exitCode: 3, action: TerminateJob}",
                "",
            ],
            [
                "{event: PodFailed, action: AbortJob}",
                "{exitCode: 3, action: TerminateJob}",
                "",
            ],
            Some("Aborted"),
        ),
        (
            [
                "{event: PodFailed, action: RestartJob}",
                "{event: TaskCompleted, action: CompleteJob}",
                "{exitCode: 3, action: AbortJob}",
            ],
            [
                "{event: PodFailed, action: TerminateJob}",
                "{event: TaskCompleted, action: CompleteJob}",
                "{exitCode: 3, action: AbortJob}",
            ],
            Some("Terminated"),
        ),
        // These stay with the pods of one cluster, or stop the job anyway.
        (
            [
                "{event: PodFailed, action: RestartPod}",
                "{event: PodEvicted, action: AbortJob}",
                "{event: PodFailed, action: TerminateJob}",
            ],
            [
                "{event: PodFailed, action: RestartPod}",
                "{event: PodEvicted, action: AbortJob}",
                "{event: PodFailed, action: TerminateJob}",
            ],
            None,
        ),
    ];
    for (policies, want, phase) in cases {
        let template = job(policies);
        assert_eq!(unsplittable(&template), None, "{policies:?}");
        assert_eq!(part(&template, 2), (lists(want), json!(5)), "{policies:?}");
        // A job that is whole in one cluster restarts there.
        assert_eq!(part(&template, 1), (lists(policies), json!(5)));
        let gang = gang_policies(&template);
        assert_eq!(gang.restart_phase.as_deref(), phase, "{policies:?}");
        assert_eq!(gang.max_retry, 5);
    }
}

#[test]
fn a_part_shows_a_restart_by_an_action_that_the_job_does_not_use() {
    let all = job([
        "{event: PodFailed, action: RestartJob}",
        "{exitCode: 3, action: TerminateJob}",
        "{exitCode: 4, action: AbortJob}",
    ]);
    assert!(unsplittable(&all).unwrap().contains("can show only two"));
    let ends = job([
        "{event: PodFailed, action: RestartTask}",
        "{exitCode: 3, action: TerminateJob}",
        "{exitCode: 4, action: AbortJob}",
    ]);
    assert_eq!(unsplittable(&ends), None);
}

#[test]
fn a_task_of_several_clusters_completes_the_gang_and_no_part() {
    let task_completed = "{event: TaskCompleted, action: CompleteJob}";
    let both = "{events: [TaskCompleted, PodFailed], action: CompleteJob}";
    for (policies, completing, want) in [
        (
            ["{event: PodFailed, action: CompleteJob}", "", ""],
            &[][..],
            None,
        ),
        // The master is one pod, and alone completes the job: it leads.
        (["", task_completed, ""], &[], None),
        (
            [task_completed, "", ""],
            &["master", "worker"],
            Some(["", "", ""]),
        ),
        (["", "", task_completed], &["worker"], Some(["", "", ""])),
        (
            ["", task_completed, both],
            &["master", "worker"],
            Some(["", "", "{events: [PodFailed], action: CompleteJob}"]),
        ),
        (
            [
                "{event: PodEvicted, action: RestartJob}",
                "",
                task_completed,
            ],
            &["worker"],
            Some(["{event: PodEvicted, action: TerminateJob}", "", ""]),
        ),
    ] {
        let template = job(policies);
        assert_eq!(unsplittable(&template), None, "{policies:?}");
        let gang = gang_policies(&template).completing;
        let tasks: Vec<&str> = gang.keys().map(String::as_str).collect();
        assert_eq!(tasks, completing, "{policies:?}");
        let Some(want) = want else { continue };
        let (found, _) = part(&template, 2);
        let lists = lists(want);
        for (found, want) in found.iter().zip(&lists) {
            let found = found.as_array().cloned().unwrap_or_default();
            assert_eq!(&Value::Array(found), want, "{policies:?}");
        }
    }
}

#[test]
fn a_completed_task_that_only_one_cluster_could_see_keeps_a_job_in_one_cluster() {
    let hides = "{event: TaskCompleted, action: CompleteJob}";
    for (policies, why) in [
        (
            ["{event: '*', action: CompleteJob}", "", ""],
            "spec.policies: CompleteJob by *",
        ),
        (
            ["", "{event: '*', action: CompleteJob}", ""],
            "spec.tasks[0].policies: CompleteJob by *",
        ),
        (
            [
                "",
                "",
                "{event: TaskCompleted, action: CompleteJob, timeout: 1m}",
            ],
            "spec.tasks[1].policies: CompleteJob by TaskCompleted has a timeout",
        ),
        (
            ["{event: '*', action: AbortJob}", "", hides],
            "spec.tasks[1].policies: CompleteJob by TaskCompleted comes before another policy",
        ),
    ] {
        let told = unsplittable(&job(policies)).unwrap_or_default();
        assert!(told.starts_with(why), "{policies:?}: {told}");
    }
}

/// A part that has completed does not show how many of its pods have succeeded, if that need not be all of them.
#[test]
fn a_task_completes_a_gang_over_several_clusters_only_if_all_pods_are_its_minimum() {
    let why = |policies: [&str; 3], of_job: Value, of_workers: Value| {
        let mut template = job(policies);
        template["spec"]["minAvailable"] = of_job;
        template["spec"]["tasks"][1]["minAvailable"] = of_workers;
        unsplittable(&template)
    };
    let task_completed = "{event: TaskCompleted, action: CompleteJob}";
    let by_workers = ["", "", task_completed];
    let unset = Value::Null;
    assert_eq!(why(by_workers, unset.clone(), unset.clone()), None);
    assert_eq!(why(by_workers, json!(5), json!(3)), None);
    for (of_job, of_workers) in [(json!(4), unset.clone()), (unset.clone(), json!(3))] {
        let told = why(by_workers, of_job, of_workers).unwrap_or_default();
        let want =
            "spec.minAvailable: 4 of 5 pods, but CompleteJob by TaskCompleted of task worker";
        assert!(told.starts_with(want), "{told}");
    }
    // The master leads, and is counted nowhere.
    assert_eq!(why(["", task_completed, ""], json!(4), unset.clone()), None);
    assert_eq!(why(["", "", ""], json!(4), unset), None);
}

#[test]
fn a_part_of_a_gang_that_a_task_completes_has_its_minimum() {
    let task_completed = "{event: TaskCompleted, action: CompleteJob}";
    let least = |policies| {
        let template = job(policies);
        let two = [
            ("a", &[("master", 1), ("worker", 2)][..]),
            ("b", &[("master", 0), ("worker", 2)][..]),
        ];
        let parts = parts(
            &template,
            Attempt(1),
            &shares(&two),
            &Reach::default(),
            false,
        )
        .unwrap();
        let least = |part: &crate::RenderedPart| {
            let mut fields = part.fields.iter();
            let least = fields.find(|(path, _)| path == "/spec/minAvailable");
            least.and_then(|(_, least)| least.as_u64())
        };
        parts.iter().map(least).collect::<Vec<_>>()
    };
    assert_eq!(least(["", "", task_completed]), [Some(3), Some(2)]);
    assert_eq!(least(["", task_completed, ""]), [None, None]);
}

#[test]
fn a_part_asks_by_the_phase_in_which_it_stops() {
    let status = |phases: &[&str]| {
        let conditions: Vec<Value> = phases
            .iter()
            .map(|phase| json!({"status": phase}))
            .collect();
        json!({"state": {"phase": phases.last()}, "conditions": conditions})
    };
    let asks = |restart_phase: Option<&str>, phases: &[&str]| {
        let policies = GangPolicies {
            restart_phase: restart_phase.map(str::to_owned),
            failed_action: None,
            max_retry: 3,
            completing: Default::default(),
        };
        request(&status(phases), &policies)
    };
    let lost = GangPolicies {
        failed_action: Some(GangAction::Restart),
        ..gang_policies(&Value::Null)
    };
    let failed = status(&["Running", "Failed"]);
    assert_eq!(request(&failed, &lost), Some(GangAction::Restart));
    use GangAction::{Abort, Complete, Restart, Terminate};
    for (phases, plain, terminated, aborted) in [
        (&["Pending", "Running"][..], None, None, None),
        (&["Running", "Restarting"], None, None, None),
        (&["Running", "Failed"], None, None, None),
        (&["Running", "Completed"], None, None, None),
        (
            &["Running", "Completing"],
            Some(Complete),
            Some(Complete),
            Some(Complete),
        ),
        (
            &["Completing", "Completed"],
            Some(Complete),
            Some(Complete),
            Some(Complete),
        ),
        (
            &["Running", "Terminating"],
            Some(Terminate),
            Some(Restart),
            Some(Terminate),
        ),
        (
            &["Terminating", "Terminated"],
            Some(Terminate),
            Some(Restart),
            Some(Terminate),
        ),
        (
            &["Running", "Aborting"],
            Some(Abort),
            Some(Abort),
            Some(Restart),
        ),
        (
            &["Aborting", "Aborted"],
            Some(Abort),
            Some(Abort),
            Some(Restart),
        ),
    ] {
        assert_eq!(asks(None, phases), plain, "{phases:?}");
        assert_eq!(asks(Some("Terminated"), phases), terminated, "{phases:?}");
        assert_eq!(asks(Some("Aborted"), phases), aborted, "{phases:?}");
    }
    assert_eq!(request(&Value::Null, &gang_policies(&Value::Null)), None);
}

#[test]
fn a_failed_part_asks_for_what_follows_every_failure() {
    let restart = "{event: PodFailed, action: RestartJob}";
    let code = "{exitCode: 3, action: RestartJob}";
    for (policies, want) in [
        ([restart, "", ""], Some(GangAction::Restart)),
        (
            ["", restart, "{event: '*', action: RestartJob}"],
            Some(GangAction::Restart),
        ),
        ([restart, code, ""], Some(GangAction::Restart)),
        (
            [
                "{events: [PodEvicted, PodFailed], action: AbortJob}",
                "",
                "",
            ],
            Some(GangAction::Abort),
        ),
        (
            ["{event: PodFailed, action: CompleteJob}", "", ""],
            Some(GangAction::Complete),
        ),
        (["", restart, ""], None),
        ([code, "", ""], None),
        ([restart, "{exitCode: 3, action: AbortJob}", ""], None),
        (
            [restart, "", "{event: PodFailed, action: RestartTask}"],
            None,
        ),
        (
            [
                "{event: PodFailed, action: RestartJob, timeout: 1m}",
                "",
                "",
            ],
            None,
        ),
        (["{event: PodEvicted, action: RestartJob}", "", ""], None),
        (["{event: PodFailed, action: TerminateJob}", "", ""], None),
    ] {
        assert_eq!(
            gang_policies(&job(policies)).failed_action,
            want,
            "{policies:?}"
        );
    }
}

#[test]
fn earlier_retries_count() {
    for (stated, used, want) in [
        ("maxRetry: 5, ", 0, "5"),
        ("maxRetry: 5, ", 2, "3"),
        ("maxRetry: 5, ", 9, "1"),
        ("maxRetry: 0, ", 1, "2"),
        ("", 1, "2"),
        ("", 0, "null"),
    ] {
        let mut template = yaml(&format!(
            "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {{{stated}tasks: []}}}}"
        ));
        crate::limit_retries(&mut template, used);
        assert_eq!(
            template["spec"]["maxRetry"].to_string(),
            want,
            "{stated}{used}"
        );
    }
    let policies = gang_policies(&json!({"spec": {"tasks": []}}));
    assert_eq!(policies.max_retry, 3);
    // As Volcano does: the third restart fails the job.
    let may: Vec<bool> = (0..4)
        .map(|retries| policies.may_restart(retries))
        .collect();
    assert_eq!(may, [true, true, false, false]);
}
