//! The example manifests of Volcano, training-operator, mpi-operator, KubeRay, JobSet and LeaderWorkerSet, unchanged,
//! submitted as a tenant would: each job runs, waits with the true reason, or its user learns why it does not.
//!
//! The files are those in the Go modules from which the operators are built, so that their versions are pinned and no
//! copy is kept here. `upstream_examples.list` has the outcome of each job. A job without a line, and a line without
//! a job, fail the story: a newer version of a module shows what is new in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use e2e::harness::jobs;
use e2e::harness::kinds::{EVENT, NAMESPACE, POD_GROUP, QUEUE};
use e2e::harness::tenant::Tenant;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use testbed::NodeGroup;
use testbed::tools::{Tool, Toolset};
use tokio::process::Command;

use crate::case::{Case, SOON};
use crate::job::condition;
use crate::story::managed_alone;

/// The modules of the operators, each with the folder of its examples.
const MODULES: [(Toolset, &str); 7] = [
    (Toolset::Volcano, "example"),
    (Toolset::TrainingOperator, "examples"),
    (Toolset::MpiOperator, "examples"),
    (Toolset::KubeRay, "config/samples"),
    (Toolset::JobSet, "config/samples"),
    (Toolset::LeaderWorkerSet, "config/samples"),
    (Toolset::LeaderWorkerSet, "docs/examples"),
];
/// The last version of JobSet whose module has its examples, and the sum by which Go knows it.
const JOB_SET_EXAMPLES: (&str, &str) = (
    "sigs.k8s.io/jobset@v0.5.2",
    "h1:276q5Pi/ErLYj+GQ0ydEXR6tx3LwBhEzHLQv+k8bYF4=",
);

/// The outcome of each job.
const LIST: &str = include_str!("upstream_examples.list");

/// Kinds that ask for no pods: what becomes of them is not that of a job.
const NOT_JOBS: [&str; 22] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "Configuration",
    "Gateway",
    "GatewayClass",
    "HTTPRoute",
    "HorizontalPodAutoscaler",
    "IPAddressPool",
    "Ingress",
    "JobTemplate",
    "L2Advertisement",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodGroup",
    "PriorityClass",
    "Queue",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
];

/// The namespace that some examples name themselves.
const KUBEFLOW: &str = "kubeflow";
/// The files that are tried at a time.
const SIDE_BY_SIDE: usize = 6;
/// How long a job that the list says starts must not run.
const REMAINS: Duration = Duration::from_secs(5);
/// How often kubectl is run on a file: it reads all schemas of the server, which a busy machine may not finish in time.
const TRIES: usize = 5;

/// A file with its jobs: kind and name of each, and the outcome in the list.
struct Example {
    set: &'static str,
    module: PathBuf,
    path: String,
    jobs: BTreeMap<String, Option<&'static str>>,
    names_namespace: bool,
}

/// What the user of a file sees: the namespace, and what kubectl said.
struct Seen<'a> {
    case: &'a Case,
    namespace: &'a str,
    refusals: String,
}

#[test]
fn upstream_examples_run_or_say_why_not() {
    managed_alone("upstream", async |case| {
        let examples = examples(case).await?;
        case.cluster_object(QUEUE, &jobs::queue(&case.name, 1_000))
            .await?;
        for member in ["member1", "member2"] {
            case.nodes_like(member, &large(member)).await?;
        }
        let kubeflow = namespace(case, KUBEFLOW).await?;
        let kubeflow = &kubeflow;
        let differ = stream::iter(examples.iter().enumerate())
            .map(|(index, example)| tried(case, index, example, kubeflow))
            .buffer_unordered(SIDE_BY_SIDE)
            .try_collect::<Vec<Vec<String>>>()
            .await?;
        let deleted = case.karmada().delete(NAMESPACE, None, KUBEFLOW).await;
        deleted?;
        let mut differ: Vec<String> = differ.into_iter().flatten().collect();
        differ.sort();
        ensure!(
            differ.is_empty(),
            "{} outcomes differ from the list:\n{}",
            differ.len(),
            differ.join("\n")
        );
        Ok(())
    });
}

fn large(member: &str) -> NodeGroup {
    NodeGroup {
        count: 4,
        prefix: Some(format!("upstream-{member}")),
        cpu: "4k".into(),
        memory: "64Ti".into(),
        pods: 2_000,
        gpus: 64,
        ..NodeGroup::default()
    }
}

/// Returns every example of the modules, each job with its line of the list.
async fn examples(case: &Case) -> anyhow::Result<Vec<Example>> {
    let mut listed: BTreeMap<String, &'static str> = BTreeMap::new();
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    for line in lines.filter(|line| !line.is_empty()) {
        let (end, _) = line
            .match_indices(' ')
            .nth(2)
            .with_context(|| format!("not a line: {line}"))?;
        let (key, outcome) = line.split_at(end);
        let twice = listed.insert(key.to_owned(), outcome.trim()).is_some();
        ensure!(!twice, "twice: {line}");
    }
    let mut examples = Vec::new();
    let mut modules = vec![("jobset", job_set_examples().await?, "examples")];
    for (set, folder) in MODULES {
        let module = case.plane.tools.module_dir(set)?.to_owned();
        modules.push((set.name(), module, folder));
    }
    for (set, module, folder) in modules {
        let mut files = Vec::new();
        manifests_in(&module.join(folder), &mut files)?;
        files.sort();
        for file in files {
            let path = file.strip_prefix(&module)?.to_string_lossy().into_owned();
            let (jobs, names_namespace) = jobs_of(&file)?;
            let outcome = |job: String| {
                let line = listed.remove(&format!("{set} {path} {job}"));
                (job, line)
            };
            let jobs: BTreeMap<_, _> = jobs.into_iter().map(outcome).collect();
            if !jobs.is_empty() {
                examples.push(Example {
                    set,
                    module: module.clone(),
                    path,
                    jobs,
                    names_namespace,
                });
            }
        }
    }
    let gone: Vec<_> = listed.into_keys().collect();
    ensure!(gone.is_empty(), "there are no such examples: {gone:?}");
    Ok(examples)
}

/// Returns the folder of JobSet's module with examples, which Go downloads if it is not there.
async fn job_set_examples() -> anyhow::Result<PathBuf> {
    let (version, sum) = JOB_SET_EXAMPLES;
    let mut command = Command::new("go");
    command
        .args(["mod", "download", "-json", version])
        .current_dir("/")
        .kill_on_drop(true);
    let output = command.output().await.context("run go")?;
    let found: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    ensure!(found["Sum"] == sum, "{version} is not as it was: {found}");
    Ok(PathBuf::from(found["Dir"].as_str().unwrap_or_default()))
}

fn manifests_in(folder: &Path, found: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            manifests_in(&path, found)?;
        } else if path.extension().is_some_and(|end| end == "yaml") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns `Kind/name` of each job in a file, and whether they name the namespace kubeflow.
fn jobs_of(file: &Path) -> anyhow::Result<(Vec<String>, bool)> {
    let text = std::fs::read_to_string(file)?;
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&text).with_context(|| file.display().to_string())?;
    let (mut jobs, mut names_namespace) = (Vec::new(), false);
    for document in documents {
        let kind = document["kind"].as_str().unwrap_or_default();
        let metadata = &document["metadata"];
        let name = ["name", "generateName"].map(|key| metadata[key].as_str());
        if !kind.is_empty() && !NOT_JOBS.contains(&kind) {
            let name = name.into_iter().flatten().next().unwrap_or_default();
            jobs.push(format!("{kind}/{name}"));
        }
        names_namespace |= metadata["namespace"] == KUBEFLOW;
    }
    Ok((jobs, names_namespace))
}

/// Creates a managed namespace whose jobs go to the queue of this story, and its tenant.
async fn namespace(case: &Case, name: &str) -> anyhow::Result<Tenant> {
    let object = json!({"metadata": {
        "name": name,
        "labels": {"muster.io/managed": "true"},
        "annotations": {"muster.io/default-queue": case.name},
    }});
    case.karmada().create(NAMESPACE, &object).await?;
    case.plane.tenant(name).await
}

/// Submits a file and returns what differs from the list.
async fn tried(
    case: &Case,
    index: usize,
    example: &Example,
    kubeflow: &Tenant,
) -> anyhow::Result<Vec<String>> {
    let own = format!("{}-{index}", case.name);
    let tenant = match example.names_namespace {
        true => kubeflow.clone(),
        false => namespace(case, &own).await?,
    };
    let file = example.module.join(&example.path);
    let seen = Seen {
        case,
        namespace: &tenant.namespace,
        refusals: create(case, &tenant, &file).await?,
    };
    let mut differ = Vec::new();
    for (job, expected) in &example.jobs {
        let found = seen.settled(job, *expected).await?;
        if let Err(found) = found {
            differ.push(format!("{} {} {job} {found}", example.set, example.path));
        }
    }
    if !example.names_namespace {
        case.karmada().delete(NAMESPACE, None, &own).await?;
    }
    Ok(differ)
}

/// Creates the objects of a file as a tenant, and returns what kubectl said that it did not take.
async fn create(case: &Case, tenant: &Tenant, file: &Path) -> anyhow::Result<String> {
    let mut told = String::new();
    for _ in 0..TRIES {
        let mut command = Command::new(case.plane.tools.program(Tool::Kubectl)?);
        command
            .arg("--kubeconfig")
            .arg(case.plane.testbed.karmada().kubeconfig)
            .args(tenant.kubectl_flags())
            .args(["create", "-f"])
            .arg(file)
            .kill_on_drop(true);
        let output = command.output().await.context("run kubectl")?;
        told = String::from_utf8_lossy(&output.stderr).into_owned();
        if !told.contains("Please retry") {
            break;
        }
    }
    let nothing = |line: &&str| !line.starts_with("Warning:") && !line.contains("AlreadyExists");
    Ok(told.lines().filter(nothing).collect::<Vec<_>>().join(" "))
}

impl Seen<'_> {
    /// Waits until the outcome of a job is the expected one; else returns the outcome.
    async fn settled(
        &self,
        job: &str,
        expected: Option<&str>,
    ) -> anyhow::Result<Result<(), String>> {
        let time = match expected {
            Some(_) => SOON / 2,
            None => SOON / 6,
        };
        let start = Instant::now();
        loop {
            let found = self.outcome(job).await?;
            let wanted = expected.unwrap_or("no line yet");
            let mut words = wanted.split_whitespace();
            let begins = words.next().is_some_and(|word| found.starts_with(word));
            if begins && words.all(|word| found.contains(word)) {
                return self.remains(job, &found).await;
            }
            let certain = expected.is_none() && found.starts_with("runs");
            if certain || start.elapsed() > time {
                return Ok(Err(found));
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Looks again at a job that starts, since a job that runs was seen to start, too. Returns the outcome if it
    /// differs.
    async fn remains(&self, job: &str, found: &str) -> anyhow::Result<Result<(), String>> {
        if !found.starts_with("starts") {
            return Ok(Ok(()));
        }
        tokio::time::sleep(REMAINS).await;
        let later = self.outcome(job).await?;
        let starts = later.starts_with("starts");
        Ok(starts.then_some(()).ok_or(later))
    }

    /// Returns what has become of a job, by what its user sees.
    async fn outcome(&self, job: &str) -> anyhow::Result<String> {
        let (kind, name) = job.split_once('/').context("no kind")?;
        let karmada = self.case.karmada();
        let groups = karmada.list(POD_GROUP, Some(self.namespace)).await?;
        let end = format!("-{kind}").to_lowercase();
        let group = groups.iter().find(|group| {
            let found = group["metadata"]["name"].as_str().unwrap_or_default();
            let stem = found.strip_suffix(&end);
            stem.is_some_and(|stem| match name.strip_suffix('-') {
                Some(prefix) => stem.starts_with(prefix),
                None => stem == name.to_lowercase(),
            })
        });
        let told = self.told(kind, name).await?;
        let Some(group) = group else {
            return Ok(match (told.as_str(), self.refusals.trim()) {
                ("", "") => "silent".to_owned(),
                ("", refusals) => format!("refused {refusals}"),
                (told, _) => format!("told {told}"),
            });
        };
        let shown = &group["status"]["federation"];
        let text = |key: &str| shown[key].as_str().unwrap_or_default();
        let what = if condition(group, "Ready")["status"] == "True"
            || condition(group, "Finished")["status"] == "True"
        {
            "runs"
        } else if condition(group, "Admitted")["status"] == "True" {
            "starts"
        } else {
            "waits"
        };
        Ok(format!(
            "{what} {} {} {told}",
            text("reason"),
            text("message")
        ))
    }

    /// Returns the warnings that the events of an object give to its user.
    async fn told(&self, kind: &str, name: &str) -> anyhow::Result<String> {
        let events = self
            .case
            .karmada()
            .list(EVENT, Some(self.namespace))
            .await?;
        let own = events.iter().filter(|event| {
            let object = &event["involvedObject"];
            let named = object["name"].as_str().unwrap_or_default();
            object["kind"] == kind && named.starts_with(name) && event["type"] == "Warning"
        });
        let texts = own.map(|event| {
            let text = |key: &str| event[key].as_str().unwrap_or_default();
            format!("[{}: {}]", text("reason"), text("message"))
        });
        Ok(texts.collect::<Vec<_>>().join(" "))
    }
}
