#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::args::{JobOrder, ListArgs, OutputArgs};
use runtime::testing::FakeApi;
use serde_json::{Value, json};

/// Returns the job of a PodGroup with this owner, in the namespace vision.
pub(crate) fn job(
    name: &str,
    api_version: &str,
    kind: &str,
    spec: &str,
    status: &str,
) -> ListedJob {
    let suffix = kind.to_lowercase();
    let text = format!(
        "
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata:
  name: {name}-{suffix}
  namespace: vision
  uid: {name}-{suffix}-group
  creationTimestamp: 2026-11-25T09:00:00Z
  ownerReferences: [{{apiVersion: {api_version}, kind: {kind}, name: {name}, uid: {name}-{suffix}}}]
spec: {spec}
status: {status}
"
    );
    ListedJob::of(serde_saphyr::from_str(&text).unwrap()).unwrap()
}

/// Returns jobs in each state, in no order.
pub(crate) fn jobs() -> Vec<ListedJob> {
    let spec = "{queue: vision, minMember: 4, priorityClassName: high}";
    let batch = |name: &str, status: &str| job(name, "batch/v1", "Job", spec, status);
    vec![
        batch(
            "ended",
            "{phase: Completed, running: 0, federation: {reason: Failed, message: 'failed: OOM', priority: 10,
              placementSummary: 'gpu-a:4', placement: [{cluster: gpu-a, pods: 4}],
              user: bob, devices: 4, timeline: {running: '2026-11-25T09:20:00Z', finished: '2026-11-25T09:30:00Z'}}}",
        ),
        batch(
            "next",
            "{phase: Pending, running: 0, federation: {reason: WaitingForQuota, priority: 10, position: 1, attempt: 0,
              message: 'needs nvidia.com/gpu 16; short by 8',
              user: bob, devices: 16, expectedDurationSeconds: 90,
              start: {earliest: '2026-11-25T11:00:00Z', latest: null, basis: ends},
              timeline: {queued: '2026-11-25T09:00:00Z', eligible: '2026-11-25T09:05:00Z'}}}",
        ),
        batch(
            "last",
            "{phase: Pending, running: 0, federation: {reason: BehindHead, priority: 10, position: 100}}",
        ),
        batch(
            "tenth",
            "{phase: Pending, running: 0, federation: {reason: BehindHead, priority: 10, position: 10}}",
        ),
        job(
            "runs",
            "batch.volcano.sh/v1alpha1",
            "Job",
            "{queue: vision, minMember: 4}",
            "{phase: Running, running: 5, federation: {reason: Running, priority: 10, attempt: 1,
              user: ann, devices: 48, expectedDurationSeconds: 7200, timeline: {running: '2026-11-25T09:10:00Z'},
              placementSummary: 'gpu-a:4,gpu-b:2', placement: [{cluster: gpu-a, pods: 4}, {cluster: gpu-b, pods: 2}]}}",
        ),
        job("pod", "v1", "Pod", "{queue: a-queue, minMember: 1}", "null"),
    ]
}

#[test]
fn the_status_is_the_published_one_or_follows_from_the_phase() {
    let of = |status: &str| job("a", "batch/v1", "Job", "{}", status).status();
    let published = "{phase: Inqueue, federation: {status: Failed, reason: Placed}}";
    assert_eq!(of(published), StatusWord::Failed);
    // Of an earlier version, and of one that has a word more.
    for published in ["reason: Placed", "status: Dreaming, reason: Placed"] {
        let status = format!("{{phase: Inqueue, federation: {{{published}}}}}");
        assert_eq!(of(&status), StatusWord::Starting);
    }
}

#[test]
fn conditions_say_what_volcanos_own_crd_prunes() {
    let status = "{phase: Pending, conditions: [
        {type: Finished, status: 'False', reason: NotEvaluated, message: one},
        {type: Ready, status: 'False', reason: NotEvaluated, message: two},
        {type: Admitted, status: 'False', reason: WaitingForQuota, message: short by 8}]}";
    let waits = job("a", "batch/v1", "Job", "{}", status);
    assert_eq!(waits.reason(), "WaitingForQuota");
    assert_eq!(waits.message(), "short by 8");
    let status = "{phase: Completed, conditions: [
        {type: Finished, status: 'True', reason: Succeeded},
        {type: Admitted, status: 'False', reason: Succeeded}]}";
    let ended = job("a", "batch/v1", "Job", "{}", status);
    assert_eq!(ended.status(), StatusWord::Succeeded);
}

#[test]
fn jobs_are_listed_by_queue_and_placed_ones_first() {
    let mut jobs = jobs();
    order::sort(&mut jobs);
    let now = "2026-11-25T10:00:00Z".parse().unwrap();
    let shown = |namespace, wide| {
        let table = JobTable {
            namespace,
            kind: wide,
            wide,
        };
        let rows = jobs.iter().map(|job| table.row(job, now));
        output::table(Some(table.header()), rows)
    };
    insta::assert_snapshot!(shown(false, false), @r"
    NAME    QUEUE     USER     STATUS    REASON            POS      GPUS     PODS   CLUSTERS          RUNTIME    AGE
    pod     a-queue   <none>   Queued    <none>            <none>   <none>   0/1    <none>            <none>     60m
    runs    vision    ann      Running   Running           <none>   48       5/6    gpu-a:4,gpu-b:2   50m/120m   60m
    next    vision    bob      Queued    WaitingForQuota   1        16       0/4    <none>            0s/90s     60m
    tenth   vision    <none>   Queued    BehindHead        10+      <none>   0/4    <none>            <none>     60m
    last    vision    <none>   Queued    BehindHead        100+     <none>   0/4    <none>            <none>     60m
    ended   vision    bob      Failed    Failed            <none>   4        0/4    gpu-a:4           10m        60m
    ");
    insta::assert_snapshot!(shown(true, true), @r"
    NAMESPACE   NAME    KIND                   QUEUE     USER     STATUS    REASON            POS      GPUS     PODS   CLUSTERS          RUNTIME    PRIORITY   CLASS    ATTEMPT   START                    ELIGIBLE   ADMITTED   RUNNING   AGE   MESSAGE
    vision      pod     pod                    a-queue   <none>   Queued    <none>            <none>   <none>   0/1    <none>            <none>     <none>     <none>   <none>    <none>                   <none>     <none>     <none>    60m   <none>
    vision      runs    job.batch.volcano.sh   vision    ann      Running   Running           <none>   48       5/6    gpu-a:4,gpu-b:2   50m/120m   10         <none>   1         <none>                   <none>     <none>     <none>    60m   <none>
    vision      next    job.batch              vision    bob      Queued    WaitingForQuota   1        16       0/4    <none>            0s/90s     10         high     0         2026-11-25T11:00:00Z..   5m         <none>     <none>    60m   needs nvidia.com/gpu 16; short by 8
    vision      tenth   job.batch              vision    <none>   Queued    BehindHead        10+      <none>   0/4    <none>            <none>     10         high     <none>    <none>                   <none>     <none>     <none>    60m   <none>
    vision      last    job.batch              vision    <none>   Queued    BehindHead        100+     <none>   0/4    <none>            <none>     10         high     <none>    <none>                   <none>     <none>     <none>    60m   <none>
    vision      ended   job.batch              vision    bob      Failed    Failed            <none>   4        0/4    gpu-a:4           10m        10         high     <none>    <none>                   <none>     <none>     <none>    60m   failed: OOM
    ");
}

/// Returns a control plane with the jobs.
pub(crate) fn plane() -> FakeApi {
    let api = FakeApi::new();
    for job in jobs() {
        let name = job.object.name_any();
        let path = "/apis/scheduling.volcano.sh/v1beta1/namespaces/vision/podgroups";
        api.put(&format!("{path}/{name}"), json!(job.object));
        let owner = job.template().unwrap();
        let root = match owner.api_version.as_str() {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        let plural = format!("{}s", owner.kind.to_lowercase());
        let template = json!({
            "apiVersion": owner.api_version, "kind": owner.kind, "metadata": {"uid": owner.uid},
        });
        let path = format!("{root}/namespaces/vision/{plural}/{}", owner.name);
        api.put(&path, template);
        api.document(&root, kinds_of(&owner.api_version, &owner.kind, &plural));
    }
    api
}

/// Returns the answer of the discovery of a group with one kind.
fn kinds_of(group_version: &str, kind: &str, plural: &str) -> Value {
    json!({
        "kind": "APIResourceList", "groupVersion": group_version,
        "resources": [{
            "name": plural, "singularName": "", "namespaced": true, "kind": kind,
            "verbs": ["get", "list", "patch", "delete"],
        }],
    })
}

/// Returns a client of `api` whose namespace is vision.
pub(crate) fn client(api: &FakeApi) -> Client {
    api.client_in("vision")
}

fn command(filter: JobFilter, format: Format) -> JobsCommand {
    JobsCommand {
        filter,
        list: ListArgs {
            output: OutputArgs { format },
            ..ListArgs::default()
        },
        ..JobsCommand::default()
    }
}

#[tokio::test]
async fn jobs_are_filtered_and_named_as_other_commands_take_them() {
    let api = plane();
    let client = client(&api);
    let filter = || JobFilter {
        queue: Some("vision".to_owned()),
        status: vec![StatusWord::Queued, StatusWord::Running],
        ..JobFilter::default()
    };
    let text = run(&command(filter(), Format::Name), &client)
        .await
        .unwrap();
    let wanted = "job.batch.volcano.sh/runs\njob.batch/next\njob.batch/tenth\njob.batch/last\n";
    assert_eq!(text, wanted);
    let text = run(&command(filter(), Format::Json), &client)
        .await
        .unwrap();
    let objects: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(objects["items"][0]["metadata"]["name"], "runs-job");
    let nothing = JobFilter {
        queue: Some("none".to_owned()),
        ..JobFilter::default()
    };
    let text = run(&command(nothing, Format::Table), &client)
        .await
        .unwrap();
    assert_eq!(text, "No jobs found\n");
}

#[tokio::test]
async fn labels_are_those_of_what_the_user_submitted() {
    let api = plane();
    let filter = JobFilter {
        selector: Some("team=a".to_owned()),
        queue: Some("vision".to_owned()),
        ..JobFilter::default()
    };
    // The fake server selects everything that it has.
    api.remove("/apis/batch/v1/namespaces/vision/jobs/next");
    let text = run(&command(filter, Format::Name), &client(&api)).await;
    let wanted = "job.batch.volcano.sh/runs\njob.batch/tenth\njob.batch/last\njob.batch/ended\n";
    assert_eq!(text.unwrap(), wanted);
    let asked = api.requests();
    let asked = asked
        .iter()
        .filter(|request| request.query.contains_key("labelSelector"));
    let asked: Vec<_> = asked
        .map(|request| {
            (
                request.path.as_str(),
                request.query["labelSelector"].as_str(),
            )
        })
        .collect();
    let wanted = [
        (
            "/apis/batch.volcano.sh/v1alpha1/namespaces/vision/jobs",
            "team%3Da",
        ),
        ("/apis/batch/v1/namespaces/vision/jobs", "team%3Da"),
    ];
    assert_eq!(asked, wanted, "one request for each kind");
}

#[tokio::test]
async fn a_server_without_muster_says_so() {
    let api = FakeApi::new();
    let missing = runtime::testing::Fault::Status(404, "page not found");
    api.fault(1, missing, |_| true);
    let error = run(&command(JobFilter::default(), Format::Table), &client(&api)).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("Muster is not installed"), "{error}");
}

#[test]
fn jobs_are_sorted_by_what_the_user_asks_for() {
    let now = "2026-11-25T10:00:00Z".parse().unwrap();
    for (order, first) in [
        (JobOrder::Queue, "pod runs next"),
        (JobOrder::Name, "ended last next"),
        (JobOrder::User, "runs next ended"),
        (JobOrder::Gpus, "runs next ended"),
        (JobOrder::Runtime, "runs ended pod"),
        (JobOrder::Age, "pod runs next"),
    ] {
        let mut jobs = jobs();
        order::sort(&mut jobs);
        order::sort_by(&mut jobs, order, now);
        let names: Vec<String> = jobs[..3].iter().map(ListedJob::name).collect();
        assert_eq!(names.join(" "), first, "{order:?}");
    }
}

#[test]
fn tables_leave_out_what_ended_long_ago_and_programs_get_all() {
    let now = "2026-11-25T11:00:00Z".parse().unwrap();
    let filter = JobFilter::default;
    let since = |text: &str| Some(text.parse().unwrap());
    let ended = JobFilter {
        status: vec![StatusWord::Failed],
        ..filter()
    };
    let (table, json) = (Format::Table, Format::Json);
    // The one that has ended did so 90 minutes ago.
    for (filter, format, since, all, left, noted) in [
        (filter(), table, None, false, 5, 1),
        (filter(), table, None, true, 6, 0),
        (filter(), table, since("2h"), false, 6, 0),
        (filter(), table, since("80m"), false, 5, 0),
        (filter(), json, None, false, 6, 0),
        (filter(), json, since("80m"), false, 5, 0),
        (ended, table, None, false, 6, 0),
    ] {
        let command = JobsCommand {
            since,
            all,
            ..command(filter, format)
        };
        let mut jobs = jobs();
        let hidden = ended::hide(&mut jobs, &command, now);
        assert_eq!((jobs.len(), hidden), (left, noted), "{command:?}");
    }
}

#[tokio::test]
async fn my_jobs_are_those_of_the_user_as_which_i_count() {
    let api = plane();
    let client = client(&api);
    let filter = || JobFilter {
        mine: true,
        ..JobFilter::default()
    };
    for (name, wanted) in [
        ("ann", Ok("job.batch.volcano.sh/runs\n")),
        ("zoe", Ok("")),
        (
            "system:serviceaccount:bob:any",
            Ok("job.batch/next\njob.batch/ended\n"),
        ),
        ("system:admin", Err("count as those of their namespace")),
    ] {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
            "status": {"userInfo": {"username": name}},
        });
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        api.answers(path, move |_| review.clone());
        let listed = run(&command(filter(), Format::Name), &client).await;
        match (listed, wanted) {
            (Ok(listed), Ok(wanted)) => assert_eq!(listed, wanted, "{name}"),
            (Err(error), Err(wanted)) => assert!(error.to_string().contains(wanted), "{error}"),
            (listed, _) => panic!("{name}: {listed:?}"),
        }
    }
}
