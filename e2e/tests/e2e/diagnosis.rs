//! The output of a failed test: the failure and the unfinished jobs, the details of those jobs,
//! then the queue, the names of other objects, and the end of Muster's log.
//!
//! Readers look at the ends of a long output, so the first lines have what matters, and are short.

use e2e::harness::kinds::{
    BINDING, CAPACITY_POLICY, EVENT, ObjectKind, POD, POD_GROUP, QUEUE, WORK,
};
use e2e::harness::muster::ProcessRole;
use serde_json::Value;

use crate::case::{Case, brief};
use crate::job::{clusters, condition, is_gated, record};

/// The number of jobs shown in full; of the others only the names are shown.
const MOST: usize = 6;
/// The number of the last events shown of one job.
const EVENTS: usize = 12;
const LOG_LINES: usize = 40;

/// Prints the diagnosis to the test's output.
pub(crate) async fn print(case: &Case, failure: &str) {
    let groups = list(case, POD_GROUP).await;
    let (done, left): (Vec<Value>, Vec<Value>) = groups.into_iter().partition(is_done);
    println!("--- {} failed: {failure}", case.name);
    println!("not done ({}): {}", left.len(), names(&left));
    println!("done ({}): {}", done.len(), names(&done));
    print_queues(case).await;
    let bindings = list(case, BINDING).await;
    let works = case.karmada().list(WORK, None).await.unwrap_or_default();
    let events = list(case, EVENT).await;
    for group in left.iter().take(MOST) {
        print_job(case, group, &bindings, &works, &events).await;
    }
    for binding in without_group(&bindings, &left, &done).take(MOST) {
        print_binding(binding);
    }
    print_log(case, &left);
}

/// Returns true if a job has ended or runs as expected.
fn is_done(group: &Value) -> bool {
    let is = |type_| condition(group, type_)["status"] == "True";
    is("Finished") || (is("Admitted") && is("Ready"))
}

fn without_group<'a>(
    bindings: &'a [Value],
    left: &'a [Value],
    done: &'a [Value],
) -> impl Iterator<Item = &'a Value> {
    bindings.iter().filter(move |binding| {
        let mut groups = left.iter().chain(done);
        !groups.any(|group| name(group) == name(binding))
    })
}

async fn print_queues(case: &Case) {
    for kind in [QUEUE, CAPACITY_POLICY] {
        for queue in list_all(case, kind).await {
            if name(&queue).starts_with(&case.name) {
                println!(
                    "{} {}: {} {}",
                    kind.name,
                    name(&queue),
                    queue["spec"],
                    queue["status"]
                );
            }
        }
    }
}

/// Prints one job from its queue to its pods.
async fn print_job(
    case: &Case,
    group: &Value,
    bindings: &[Value],
    works: &[Value],
    events: &[Value],
) {
    let status = &group["status"];
    println!("--- job {}: {}", name(group), status["federation"]);
    println!("conditions {}", status["conditions"]);
    let Some(binding) = bindings.iter().find(|binding| name(binding) == name(group)) else {
        println!("it has no binding");
        return;
    };
    print_binding(binding);
    let id = "resourcebinding.karmada.io/permanent-id";
    let own = &binding["metadata"]["labels"][id];
    for work in works
        .iter()
        .filter(|work| work["metadata"]["labels"][id] == *own)
    {
        println!(
            "work {}/{}: {}",
            work["metadata"]["namespace"],
            name(work),
            brief(&work["status"]["conditions"])
        );
    }
    let resource = &binding["spec"]["resource"];
    for cluster in clusters(binding) {
        print_in_member(case, &cluster, resource).await;
    }
    let own: Vec<&Value> = events
        .iter()
        .filter(|event| {
            let object = &event["involvedObject"]["name"];
            *object == resource["name"] || *object == binding["metadata"]["name"]
        })
        .collect();
    for event in &own[own.len().saturating_sub(EVENTS)..] {
        println!("event {}: {}", event["reason"], event["message"]);
    }
}

fn print_binding(binding: &Value) {
    println!(
        "binding {} version {}: deleted {} finalizers {} gated {} clusters {} record {} status {}",
        name(binding),
        binding["metadata"]["resourceVersion"],
        binding["metadata"]["deletionTimestamp"],
        binding["metadata"]["finalizers"],
        is_gated(binding),
        binding["spec"]["clusters"],
        record(binding),
        brief(&binding["status"]["aggregatedStatus"])
    );
}

/// Prints the objects of a job in a member: the job itself and its pods.
async fn print_in_member(case: &Case, cluster: &str, resource: &Value) {
    let text = |field: &str| resource[field].as_str().unwrap_or_default();
    let Ok(member) = case.plane.member(cluster).await else {
        return println!("{cluster} is not known");
    };
    let namespace = Some(text("namespace"));
    if let Some(kind) = ObjectKind::of_template(text("apiVersion"), text("kind")) {
        match member.get(kind, namespace, text("name")).await {
            Ok(Some(object)) => println!("in {cluster}: {}", brief(&object["status"])),
            other => println!("in {cluster}: {other:?}"),
        }
    }
    match member.list(POD, namespace).await {
        Ok(pods) => {
            let own = format!("{}-", text("name"));
            for pod in pods.iter().filter(|pod| name(pod).starts_with(&own)) {
                println!(
                    "pod {} of {cluster}: {} on {} since {}{}",
                    name(pod),
                    pod["status"]["phase"],
                    pod["spec"]["nodeName"],
                    pod["metadata"]["creationTimestamp"],
                    unscheduled(pod)
                );
            }
        }
        Err(error) => println!("pods of {cluster}: {error}"),
    }
}

/// Returns the scheduler's message about a pod without a node.
fn unscheduled(pod: &Value) -> String {
    let scheduled = condition(pod, "PodScheduled");
    match scheduled["status"].as_str() {
        Some("False") => format!(": {}", scheduled["message"]),
        _ => String::new(),
    }
}

/// Prints the log lines about unfinished jobs, and the last lines.
fn print_log(case: &Case, left: &[Value]) {
    let left: Vec<&str> = left.iter().map(name).collect();
    for part in [
        ProcessRole::All,
        ProcessRole::AllUnregistered,
        ProcessRole::Second,
        ProcessRole::Controller,
        ProcessRole::Scheduler,
    ] {
        let log = case.plane.log_end(part, 50_000);
        let of_test: Vec<&str> = log
            .lines()
            .filter(|line| line.contains(&case.name))
            .collect();
        if of_test.is_empty() {
            continue;
        }
        let of_left = of_test
            .iter()
            .copied()
            .filter(|line| left.iter().any(|name| line.contains(name)));
        println!("--- {}: lines about what is not done:", part.process());
        println!("{}", last(of_left.collect(), LOG_LINES));
        println!("--- {}: the last lines of the test:", part.process());
        println!("{}", last(of_test, LOG_LINES / 2));
    }
    println!("--- not done ({}): {}", left.len(), left.join(" "));
}

fn last(lines: Vec<&str>, count: usize) -> String {
    lines[lines.len().saturating_sub(count)..].join("\n")
}

async fn list(case: &Case, kind: ObjectKind) -> Vec<Value> {
    listed(kind, case.karmada().list(kind, Some(&case.name)).await)
}

async fn list_all(case: &Case, kind: ObjectKind) -> Vec<Value> {
    listed(kind, case.karmada().list(kind, None).await)
}

fn listed(kind: ObjectKind, objects: e2e::harness::objects::KubeResult<Vec<Value>>) -> Vec<Value> {
    objects.unwrap_or_else(|error| {
        println!("{}: {error}", kind.plural);
        Vec::new()
    })
}

fn names(objects: &[Value]) -> String {
    objects.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}
