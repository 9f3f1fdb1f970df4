//! Pods that really run: a member with real nodes, whose kubelets run programs in containers, beside a simulated one.
//!
//! The stories of simulated nodes play what kubelets say. Here a kubelet says it, and the programs of pods have output
//! and exit codes, which users reach through Karmada's cluster proxy.
//!
//! All stories are side by side on a plane of their own. They need root; elsewhere they are left out, which the
//! report counts.

mod devices;
mod faults;
mod logs;

use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{BATCH_JOB, POD, QUEUE};
use e2e::harness::muster::ProcessRole;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::tools::{self, BUSYBOX_IMAGE, Tool};
use testbed::{KarmadaSpec, MemberSpec, NodeGroup, RealNodes, TestbedSpec};
use tokio::process::Command;

use crate::case::{Case, SOON};
use crate::cli::MusterCli;
use crate::job::Job;
use crate::plane::{Plane, state_dir, without_plane};
use crate::run::LeftOut;
use crate::story::beside;

/// The member with real nodes.
const REAL: &str = "real";
/// The member with simulated ones.
const SIMULATED: &str = "simulated";

/// The devices of a real node, each given to one container at a time.
const GPUS: u32 = 6;

/// Stays until the process ends, because stories borrow it for so long.
static PLANE: OnceLock<Plane> = OnceLock::new();

/// The process that serves images.
const REGISTRY: &str = "registry";

fn spec() -> TestbedSpec {
    TestbedSpec {
        karmada: KarmadaSpec {
            audit_log: true,
            ..KarmadaSpec::default()
        },
        members: vec![
            MemberSpec {
                name: REAL.into(),
                volcano: true,
                real_nodes: Some(RealNodes {
                    count: 2,
                    gpus: GPUS,
                    ..RealNodes::default()
                }),
                ..MemberSpec::default()
            },
            MemberSpec {
                name: SIMULATED.into(),
                nodes: vec![NodeGroup::default()],
                ..MemberSpec::default()
            },
        ],
        ..TestbedSpec::default()
    }
}

/// The start deadline, in seconds, of jobs that start, however much the machine has to do.
const AMPLE: u32 = 150;
/// That of jobs that cannot start; a kubelet has told why by then.
const SHORT: u32 = 60;

impl Case {
    /// Creates the queue of a story about pods that need only CPUs. Its jobs go to the real nodes first, and have so
    /// many seconds to start.
    async fn real_queue(&self, start_deadline: u32) -> anyhow::Result<()> {
        self.holds_nothing("its pods need no devices");
        let queue = json!({
            "metadata": {"name": self.name},
            "spec": {"capability": {"cpu": "4"}},
        });
        self.cluster_object(QUEUE, &queue).await?;
        let policy = json!({"spec": {"placement": {
            "preferredClusters": [REAL], "startDeadlineSeconds": start_deadline,
        }}});
        self.capacity_policy(policy).await
    }

    /// Returns a batch Job whose pods run this script.
    fn script(&self, name: &str, pods: u32, script: &str) -> Value {
        // The other node is without its kubelet for a while.
        let second = self.plane.testbed.real_node(REAL, 2).unwrap_or_default();
        json!({
            "apiVersion": BATCH_JOB.api_version(),
            "kind": BATCH_JOB.name,
            "metadata": {
                "name": name, "namespace": self.name, "labels": {"muster.io/queue": self.name},
            },
            "spec": {
                "completions": pods,
                "parallelism": pods,
                "completionMode": "Indexed",
                "backoffLimit": 0,
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 1,
                    "affinity": not_on(&second),
                    "containers": [{
                        "name": "main",
                        "image": BUSYBOX_IMAGE,
                        "command": ["sh", "-c", script],
                        "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}},
                    }],
                }},
            },
        })
    }

    /// Runs kubectl against the real member through Karmada's cluster proxy, and returns its output.
    async fn through_proxy(&self, line: &[&str]) -> anyhow::Result<String> {
        let karmada = self.plane.testbed.karmada();
        let proxy = "apis/cluster.karmada.io/v1alpha1/clusters";
        let output = Command::new(self.plane.tools.program(Tool::Kubectl)?)
            .arg("--kubeconfig")
            .arg(&karmada.kubeconfig)
            .arg(format!("--server={}/{proxy}/{REAL}/proxy", karmada.server))
            .arg(format!("--namespace={}", self.name))
            .args(line)
            .kill_on_drop(true)
            .output()
            .await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(
            output.status.success(),
            "kubectl {line:?}: {}",
            text(&output.stderr)
        );
        Ok(text(&output.stdout))
    }

    /// Waits until this many pods of a job run in the real member, and returns their names.
    async fn real_pods(&self, job: &Job, count: usize) -> anyhow::Result<Vec<String>> {
        let member = self.plane.member(REAL).await?;
        let what = format!("{count} pods of {} run", job.name);
        let mut names = eventually(SOON, &what, async || {
            let pods = member.list(POD, Some(&self.name)).await;
            let pods = pods.map_err(|error| error.to_string())?;
            let own: Vec<&Value> = pods.iter().filter(|pod| job.owns(pod)).collect();
            let runs = |pod: &&&Value| pod["status"]["phase"] == "Running";
            let names = own.iter().filter(runs).map(|pod| &pod["metadata"]["name"]);
            let names: Vec<String> = names.filter_map(Value::as_str).map(str::to_owned).collect();
            match names.len() == count {
                true => Ok(names),
                false => Err(own.iter().map(|pod| pod["status"].to_string()).collect()),
            }
        })
        .await?;
        names.sort();
        Ok(names)
    }

    /// Waits until `explain` prints these words about a job.
    async fn explains(&self, job: &Job, words: &str) -> anyhow::Result<String> {
        let cli = MusterCli::of_admin(self);
        let what = format!("{} explained with {words:?}", job.name);
        eventually(SOON, &what, async || {
            let explained = cli.done(&format!("explain {}", job.name)).await;
            let explained = explained.map_err(|error| format!("{error:#}"))?;
            match explained.contains(words) {
                true => Ok(explained),
                false => Err(explained),
            }
        })
        .await
    }
}

/// Returns the affinity of pods that may run on all nodes but this one.
fn not_on(node: &str) -> Value {
    let other = json!({"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [node]});
    let terms = json!([{"matchExpressions": [other]}]);
    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
}

/// Two pods say where they run, and end when a command in them says so.
async fn output_and_exec(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let script = "echo rank $JOB_COMPLETION_INDEX on $HOSTNAME; until [ -f /tmp/end ]; do sleep 0.1; done; echo ends";
    let job = case.submit(&case.script("prints", 2, script)).await?;
    case.running(&job).await?;
    let pods = case.real_pods(&job, 2).await?;
    for (pod, rank) in pods.iter().zip(0..) {
        let printed = case.through_proxy(&["logs", pod]).await?;
        ensure!(
            printed.starts_with(&format!("rank {rank} on prints-{rank}")),
            "{printed}"
        );
        let inside = ["exec", pod, "--", "sh", "-c", "hostname; touch /tmp/end"];
        let host = case.through_proxy(&inside).await?;
        ensure!(host == format!("prints-{rank}\n"), "{host}");
    }
    case.finished(&job, "Succeeded").await?;
    let printed = case.through_proxy(&["logs", &pods[1]]).await?;
    ensure!(printed.ends_with("\nends\n"), "{printed}");
    Ok(())
}

/// A program fails with an exit code of its own.
async fn exit_code(case: &Case) -> anyhow::Result<()> {
    case.real_queue(AMPLE).await?;
    let job = case
        .submit(&case.script("fails", 1, "echo no data >&2; exit 42"))
        .await?;
    case.finished(&job, "Failed").await?;
    let words = "on real: Error, exit code 42";
    case.explains(&job, words).await?;
    let group = case.pod_group(&job).await.map_err(anyhow::Error::msg)?;
    let message = group.context("its PodGroup")?["status"]["federation"]["message"].clone();
    ensure!(
        message
            .as_str()
            .is_some_and(|message| message.contains(words)),
        "{message}"
    );
    eventually(
        SOON,
        "its Job on the control plane has failed",
        async || {
            let status = case.template(&job).await?.unwrap_or_default()["status"].clone();
            let mut conditions = status["conditions"].as_array().into_iter().flatten();
            match conditions.any(|of| of["type"] == "Failed" && of["status"] == "True") {
                true => Ok(()),
                false => Err(status.to_string()),
            }
        },
    )
    .await
}

async fn side_by_side(plane: &'static Plane) -> anyhow::Result<()> {
    let crane = plane.tools.program(Tool::Crane)?;
    plane.testbed.start_process(REGISTRY, &crane, 1, |ports| {
        let address = format!("127.0.0.1:{}", ports[0]);
        ["registry", "serve", "--address", &address]
            .map(str::to_owned)
            .into()
    })?;
    plane.muster.start(&plane.testbed, ProcessRole::All).await?;
    let ended = tokio::join!(
        beside(plane, "realoutput", output_and_exec),
        beside(plane, "realcode", exit_code),
        beside(plane, "realimage", faults::no_such_image),
        beside(plane, "realregistry", faults::registry_unreachable),
        beside(plane, "realconfig", faults::no_such_config),
        beside(plane, "realnode", faults::kubelet_stopped),
        beside(plane, "realdevices", devices::given_refused_and_lost),
        beside(plane, "realmemory", faults::out_of_memory),
        beside(plane, "reallogs", logs::by_rank_and_merged),
        beside(plane, "realrights", logs::with_the_rights_of_the_user),
        beside(plane, "realrestarts", logs::followed_over_restarts),
        beside(plane, "realevicted", logs::followed_over_an_eviction),
    );
    for end in [
        ended.0, ended.1, ended.2, ended.3, ended.4, ended.5, ended.6, ended.7, ended.8, ended.9,
        ended.10, ended.11,
    ] {
        end?;
    }
    Ok(())
}

#[test]
fn programs_run_on_real_nodes_and_what_kubelets_say_of_pods_reaches_users() {
    without_plane(async || {
        if let Err(left_out) = tools::ensure_real(&|line| eprintln!("{line}")) {
            return Err(LeftOut(left_out.to_string()).into());
        }
        let plane = Plane::up(spec(), &state_dir("e2e-real")).await?;
        let plane = PLANE.get_or_init(|| plane);
        let outcome = side_by_side(plane).await;
        if outcome.is_err() {
            println!("{}", plane.log_end(ProcessRole::All, 60));
        }
        plane.testbed.down()?;
        outcome?;
        let left = left_behind(plane)?;
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(())
    });
}

/// Returns the processes that are left among the mounts of the plane's machines.
fn left_behind(plane: &Plane) -> anyhow::Result<Vec<String>> {
    let machines = plane.testbed.dir().join("machines").display().to_string();
    let mut left = Vec::new();
    for process in std::fs::read_dir("/proc")? {
        let folder = process?.path();
        // Most entries are no processes, and some processes have ended by now.
        let mounts = std::fs::read_to_string(folder.join("mountinfo")).unwrap_or_default();
        if mounts.contains(&machines) {
            let command = std::fs::read_to_string(folder.join("cmdline")).unwrap_or_default();
            left.push(format!("{}: {command}", folder.display()));
        }
    }
    Ok(left)
}
