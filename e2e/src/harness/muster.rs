//! Muster's server processes in a testbed, installed and run as on a real control plane, each with
//! only the rights of its own service account.

mod commands;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testbed::{ProcessStatus, Testbed, TestbedCluster};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use commands::run_once;

use super::kinds::{LEASE, MUTATING_WEBHOOKS, ObjectKind, VALIDATING_WEBHOOKS};
use super::objects::Objects;
use super::wait::eventually;

/// The timeout until a process is ready, and again until it leads: the Lease of a killed process
/// lasts 15 s.
const READY: Duration = Duration::from_secs(60);
/// The timeout of a drain.
const DRAIN: Duration = Duration::from_secs(20);
const SYSTEM_NAMESPACE: &str = "muster-system";

/// The part of Muster that a process runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRole {
    /// Everything, with the webhook registered.
    All,
    /// Everything, without a registered webhook.
    AllUnregistered,
    /// Another replica of `AllUnregistered`.
    Second,
    /// Everything, without the ledger, to measure the ledger's cost.
    WithoutLedger,
    /// Everything, of an earlier commit ([`Muster::earlier`]).
    Earlier,
    /// The webhook alone, registered.
    Webhook,
    /// The controller alone.
    Controller,
    /// The scheduler alone.
    Scheduler,
}

impl ProcessRole {
    /// Returns the process's name in the testbed.
    pub fn process(self) -> &'static str {
        match self {
            Self::All => "muster",
            Self::AllUnregistered => "muster-unregistered",
            Self::Second => "muster-second",
            Self::WithoutLedger => "muster-without-ledger",
            Self::Earlier => "muster-earlier",
            Self::Webhook => "muster-webhook",
            Self::Controller => "muster-controller",
            Self::Scheduler => "muster-scheduler",
        }
    }

    fn account(self) -> &'static str {
        match self {
            Self::AllUnregistered | Self::Earlier | Self::Second | Self::WithoutLedger => {
                Self::All.process()
            }
            other => other.process(),
        }
    }

    /// Returns the Lease for which its replicas compete, if it has one.
    fn lease(self) -> Option<&'static str> {
        match self {
            Self::All
            | Self::AllUnregistered
            | Self::Earlier
            | Self::Second
            | Self::WithoutLedger
            | Self::Controller => Some("muster"),
            Self::Scheduler => Some("muster-scheduler"),
            Self::Webhook => None,
        }
    }

    fn args(self) -> (&'static str, bool) {
        match self {
            Self::All | Self::Earlier => ("all", true),
            Self::AllUnregistered | Self::Second | Self::WithoutLedger => ("all", false),
            Self::Webhook => ("webhook", true),
            Self::Controller => ("controller", false),
            Self::Scheduler => ("scheduler", false),
        }
    }
}

/// Muster, installed on a testbed's control plane.
#[derive(Debug)]
pub struct Muster {
    program: PathBuf,
    /// More flags of every process.
    flags: Vec<String>,
}

/// Returns the binary `muster` of the same build as the running program: `MUSTER_BIN`, or the one that
/// cargo built beside it.
///
/// # Errors
/// Returns an error if there is none.
pub fn program() -> anyhow::Result<PathBuf> {
    match std::env::var_os("MUSTER_BIN") {
        Some(path) => Ok(path.into()),
        None => built("muster"),
    }
}

/// Returns the binary `name` that cargo built beside the running program.
///
/// # Errors
/// Returns an error if there is none.
pub fn built(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot tell where this program is")?;
    // The program is target/debug/deps/e2e-… or target/debug/demo.
    let candidates = own.ancestors().skip(1).take(2);
    let mut found = candidates
        .map(|dir| dir.join(name))
        .filter(|path| path.is_file());
    found.next().with_context(|| {
        format!(
            "no binary `{name}` beside {}: run `cargo build --workspace --bins` first",
            own.display()
        )
    })
}

impl Muster {
    /// Runs `muster install` against the testbed's control plane.
    ///
    /// # Errors
    /// Returns its output if it fails.
    pub async fn install(
        testbed: &Testbed,
        program: PathBuf,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        run_install(&program, &testbed.karmada(), &[]).await?;
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Ok(Self { program, flags })
    }

    /// Returns the same installation with the program of an earlier commit, which is started as
    /// [`ProcessRole::Earlier`], and the flags that it knows.
    pub fn earlier(&self, program: PathBuf, flags: &[&str]) -> Self {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Self { program, flags }
    }

    /// Runs `muster install` again, with these flags.
    ///
    /// # Errors
    /// Returns its output if it fails.
    pub async fn install_again(&self, testbed: &Testbed, flags: &[&str]) -> anyhow::Result<()> {
        run_install(&self.program, &testbed.karmada(), flags).await
    }

    /// Runs `muster install --member` against a member, which allows access through the proxy.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or the output if it fails.
    pub async fn install_in_member(&self, testbed: &Testbed, member: &str) -> anyhow::Result<()> {
        run_install(&self.program, &testbed.cluster(member)?, &["--member"]).await
    }

    /// Starts or restarts a process, and waits until it is ready and leads.
    ///
    /// # Errors
    /// Returns an error if it does not become ready or does not lead. Its log is
    /// `log/<process>.log` in the testbed's folder.
    pub async fn start(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        self.launch(testbed, part).await?;
        self.wait_ready(testbed, part).await?;
        self.wait_leading(testbed, part).await
    }

    /// Ends a process with SIGKILL and removes its Lease, so that the next process leads at once
    /// instead of after 15 s.
    ///
    /// # Errors
    /// Returns an error if it was never started, or the API server refuses.
    pub async fn kill(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        self.crash(testbed, part)?;
        let Some(lease) = part.lease() else {
            return Ok(());
        };
        let karmada = Objects::new(testbed.karmada().client().await?);
        let free = json!({"spec": {"holderIdentity": null}});
        let freed = karmada.merge(LEASE, Some(SYSTEM_NAMESPACE), lease, &free);
        freed
            .await
            .with_context(|| format!("take Lease {lease} from the killed process"))?;
        Ok(())
    }

    /// Ends a process with SIGKILL. Its Lease stays, as after a real crash.
    ///
    /// # Errors
    /// Returns an error if it was never started.
    pub fn crash(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        Ok(testbed.kill(part.process())?)
    }

    /// Starts or restarts a process without waiting until it is ready.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub async fn launch(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        let name = part.process();
        // A process of that name may run another program: there is more than one earlier version.
        let mut processes = testbed.status().into_iter();
        let runs_it = |process: &ProcessStatus| process.program == self.program;
        if processes.any(|process| process.name == name && runs_it(&process)) {
            return Ok(testbed.restart(name).await?);
        }
        let kubeconfig = account_kubeconfig(testbed, part.account()).await?;
        let (command, register) = part.args();
        testbed.start_process(name, &self.program, 2, |ports| {
            let mut args = vec![
                format!("--kubeconfig={}", kubeconfig.display()),
                command.to_owned(),
                format!("--metrics-bind=127.0.0.1:{}", ports[0]),
                format!("--webhook-bind=127.0.0.1:{}", ports[1]),
            ];
            if register {
                args.push("--register".to_owned());
                args.push(format!("--webhook-url=https://127.0.0.1:{}", ports[1]));
            }
            if part == ProcessRole::WithoutLedger {
                args.push("--without-ledger".to_owned());
            }
            args.extend(self.flags.iter().cloned());
            args
        })?;
        Ok(())
    }

    /// Waits until `/readyz` succeeds.
    ///
    /// # Errors
    /// Returns an error if it does not succeed in time, or the process ended.
    pub async fn wait_ready(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        let port = metrics_port(testbed, part)?;
        let what = format!("{} ready", part.process());
        eventually(READY, &what, async || {
            let answer = http_get(port, "/readyz").await?;
            match answer.starts_with("HTTP/1.1 200") || answer.starts_with("HTTP/1.0 200") {
                true => Ok(()),
                false => Err(answer),
            }
        })
        .await
    }

    /// Waits until the process leads. A process is ready before it has the Lease, and decides and
    /// writes only with it. For a process without a Lease this returns at once.
    ///
    /// # Errors
    /// Returns an error if it does not lead in time, or the process ended.
    pub async fn wait_leading(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        if part.lease().is_none() {
            return Ok(());
        }
        let port = metrics_port(testbed, part)?;
        let what = format!("{} leads", part.process());
        eventually(READY, &what, async || {
            let metrics = http_get(port, "/metrics").await?;
            match metric(&metrics, "muster_leading") {
                Some(1.0) => Ok(()),
                other => Err(format!("muster_leading is {other:?}")),
            }
        })
        .await
    }

    /// Returns the process's metrics, as Prometheus would read them.
    ///
    /// # Errors
    /// Returns an error if it does not answer.
    pub async fn metrics(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<String> {
        let port = metrics_port(testbed, part)?;
        http_get(port, "/metrics").await.map_err(anyhow::Error::msg)
    }

    /// Posts `body` to a path of a process, on the port of its metrics.
    ///
    /// # Errors
    /// Returns an error if it does not answer.
    pub async fn post(
        &self,
        testbed: &Testbed,
        part: ProcessRole,
        path: &str,
        body: &str,
    ) -> anyhow::Result<String> {
        let port = metrics_port(testbed, part)?;
        let length = body.len();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        answer(port, &request).await.map_err(anyhow::Error::msg)
    }

    /// Sends a process SIGTERM, as Kubernetes would, and waits until it is gone.
    ///
    /// # Errors
    /// Returns an error if it does not drain in time.
    pub async fn stop(&self, testbed: &Testbed, part: ProcessRole) -> anyhow::Result<()> {
        let name = part.process();
        let status = testbed.status();
        let Some(process) = status.iter().find(|process| process.name == name) else {
            return Ok(());
        };
        process.id.signal(Signal::SIGTERM);
        let what = format!("{name} gone after SIGTERM");
        eventually(DRAIN, &what, async || {
            let status = testbed.status();
            let left = status.iter().find(|process| process.name == name);
            match left.is_some_and(|process| process.id.is_alive()) {
                true => Err("still there".to_owned()),
                false => Ok(()),
            }
        })
        .await?;
        // This reaps the process, and marks it so that it is not restarted.
        Ok(testbed.kill(name)?)
    }

    /// Removes Muster's webhooks from the API server.
    ///
    /// # Errors
    /// Returns an error if the API server refuses.
    pub async fn unregister(&self, karmada: &Objects) -> anyhow::Result<()> {
        for kind in [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS] {
            for name in registrations(karmada, kind).await? {
                karmada.delete(kind, None, &name).await?;
            }
        }
        Ok(())
    }
}

async fn run_install(
    program: &Path,
    cluster: &TestbedCluster,
    flags: &[&str],
) -> anyhow::Result<()> {
    run_once(program, cluster, "install", flags).await.map(drop)
}

/// Returns the names of Muster's webhook registrations of a kind.
///
/// # Errors
/// Returns an error if the API server does not answer.
pub async fn registrations(karmada: &Objects, kind: ObjectKind) -> anyhow::Result<Vec<String>> {
    let all = karmada.list(kind, None).await?;
    let names = all
        .iter()
        .filter_map(|object| object["metadata"]["name"].as_str());
    Ok(names
        .filter(|name| name.starts_with("muster"))
        .map(str::to_owned)
        .collect())
}

fn metrics_port(testbed: &Testbed, part: ProcessRole) -> anyhow::Result<u16> {
    let status = testbed.status();
    let process = status.iter().find(|process| process.name == part.process());
    process
        .and_then(|process| process.port)
        .with_context(|| format!("{} was never started", part.process()))
}

/// Writes a kubeconfig of the control plane with a token of one of Muster's service accounts.
async fn account_kubeconfig(testbed: &Testbed, account: &str) -> anyhow::Result<PathBuf> {
    let karmada = testbed.karmada();
    let client = karmada.client().await?;
    let uri = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/serviceaccounts/{account}/token");
    let body = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 24 * 3600},
    });
    let request = http::Request::post(uri)
        .header("content-type", "application/json")
        .body(body.to_string().into_bytes())?;
    let answer: Value = client
        .request(request)
        .await
        .with_context(|| format!("no token for service account {account}"))?;
    let token = answer["status"]["token"]
        .as_str()
        .context("the answer to a TokenRequest has no token")?;

    let text = std::fs::read_to_string(&karmada.kubeconfig)?;
    let mut config: Value = serde_json::from_str(&text).context("the testbed's kubeconfig")?;
    config["users"] = json!([{"name": "admin", "user": {"token": token}}]);
    let path = karmada
        .kubeconfig
        .with_file_name(format!("{account}.kubeconfig"));
    write_private(&path, &config.to_string())?;
    Ok(path)
}

fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}

/// Returns the sum of a metric over its labels in the text of `/metrics`; `None` if it is missing.
pub fn metric(metrics: &str, name: &str) -> Option<f64> {
    let samples = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        rest.starts_with(['{', ' '])
            .then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
    });
    samples.reduce(|sum, sample| sum + sample)
}

/// Sends a GET on loopback, and returns the whole response with its headers.
///
/// # Errors
/// Returns the failure if there is no answer within 5 s.
pub async fn http_get(port: u16, path: &str) -> Result<String, String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    answer(port, &request).await
}

/// Sends a request and returns the whole answer.
async fn answer(port: u16, request: &str) -> Result<String, String> {
    let first = request.lines().next().unwrap_or_default();
    let request = async {
        let mut stream =
            tokio::net::TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok::<_, std::io::Error>(answer)
    };
    match tokio::time::timeout(Duration::from_secs(5), request).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer to {first} within 5 s")),
    }
}

#[cfg(test)]
mod tests {
    use super::metric;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_kept_apart_from_those_with_longer_names() {
        let metrics = "# HELP muster_leading 1 while\nmuster_leading 1\nmuster_leading_since 7\n\
                       muster_cut_total{q=\"a\"} 2\nmuster_cut_total{q=\"b\"} 3\n";
        assert_eq!(metric(metrics, "muster_leading"), Some(1.0));
        assert_eq!(metric(metrics, "muster_cut_total"), Some(5.0));
        assert_eq!(metric(metrics, "muster_cut"), None);
    }
}
