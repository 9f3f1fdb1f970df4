//! That Muster runs as the Deployment of the Helm chart says. What the chart renders is in `chart_values.rs`.
//!
//! The story follows docs/how-to/install.md: it runs its commands. `member3` is the host cluster.
//! There the Deployment's pods pass the admission of a restricted namespace, and are only simulated;
//! so the story also starts Muster as a kubelet would, from the Deployment that the API server has.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use e2e::harness::kinds::{DEPLOYMENT, MUTATING_WEBHOOKS, NAMESPACE, POD, SECRET};
use e2e::harness::muster::{self, ProcessRole, http_get};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::free_port;
use testbed::tools::{self, Tool, Tools, Toolset};
use tokio::process::{Child, Command};

use crate::case::{Case, SOON};
use crate::documents::Guide;
use crate::job::Job;
use crate::story::managed_alone;

/// The member that is the host cluster.
const HOST: &str = "member3";
/// The namespace of the release.
const RELEASE: &str = "muster";
/// The timeout until the process of the Deployment is ready.
const READY: Duration = Duration::from_secs(60);

#[test]
fn muster_runs_as_the_chart_says_where_the_guide_installed_it() {
    managed_alone("chart", async |case| {
        let guide = prepare(case)?;
        let installed = async {
            guide.run("The control plane").await?;
            guide.run("The account").await?;
            guide.run("Without helm").await?;
            guide
                .shell("kubectl delete -f deploy/manifests/muster.yaml")
                .await?;
            guide.run("The chart").await?;
            pods_are_restricted(case).await
        };
        let outcome = match installed.await {
            Ok(()) => runs_as_rendered(case, &guide).await,
            Err(error) => Err(error),
        };
        guide
            .shell("helm uninstall muster --namespace muster")
            .await
            .ok();
        case.plane
            .member(HOST)
            .await?
            .delete(NAMESPACE, None, RELEASE)
            .await?;
        outcome
    });
}

/// Runs a job under a process that is started as the Deployment says, in place of the plane's own.
async fn runs_as_rendered(case: &Case, guide: &Guide) -> anyhow::Result<()> {
    let (muster, testbed) = (&case.plane.muster, &case.plane.testbed);
    let host = case.plane.member(HOST).await?;
    let deployment = host.get(DEPLOYMENT, Some(RELEASE), "muster").await?;
    let pod = deployment.context("no Deployment")?["spec"]["template"]["spec"].take();
    muster.stop(testbed, ProcessRole::All).await?;
    let outcome = async {
        let mut process = start(&pod, &host, guide.folder()).await?;
        let outcome = async {
            for probe in ["livenessProbe", "readinessProbe"] {
                probed(&pod["containers"][0], probe).await?;
            }
            // The webhook gates its binding, so it is reached at the port that the Deployment names.
            let job = a_gang_runs(case).await?;
            case.delete(&job).await?;
            case.gone(&job).await?;
            token_is_renewed(&host).await?;
            // With the renewed token.
            checks_as_a_pod(&host, guide).await?;
            webhook_is_lost(case, &pod["containers"][0]).await
        };
        let outcome = outcome.await;
        stop(&mut process).await?;
        outcome
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        let log = std::fs::read_to_string(guide.folder().join("muster.log"));
        println!("{}", log.unwrap_or_default());
    }
    muster.start(testbed, ProcessRole::All).await?;
    outcome
}

/// Runs a gang on a node of its own until it has succeeded.
pub(crate) async fn a_gang_runs(case: &Case) -> anyhow::Result<Job> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    let job = case.submit(&case.gang("train", 2, 2).batch()).await?;
    case.running(&job).await?;
    case.end(&job).await?;
    case.finished(&job, "Succeeded").await?;
    Ok(job)
}

/// Waits until the token of the account, which the guide made for ten minutes here, is one for a year.
async fn token_is_renewed(host: &Objects) -> anyhow::Result<()> {
    eventually(READY, "the token is renewed", async || {
        let secret = host.get(SECRET, Some(RELEASE), "muster-karmada").await;
        let secret = secret
            .map_err(|error| error.to_string())?
            .ok_or("no Secret")?;
        match days(&secret) {
            Ok(300..) => Ok(()),
            other => Err(format!("it lasts for {other:?} days")),
        }
    })
    .await
}

/// Returns the days for which the token of a Secret was issued.
fn days(secret: &Value) -> anyhow::Result<i64> {
    let token = STANDARD.decode(text_of(&secret["data"]["token"])?)?;
    let token = String::from_utf8(token)?;
    let claims = token.split('.').nth(1).context("no JSON web token")?;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    let at = |claim: &str| claims[claim].as_i64().context("no time");
    Ok((at("exp")? - at("iat")?) / (24 * 3600))
}

/// Runs what `helm test` runs, and `muster check` as `kubectl exec` runs it: with the environment only.
async fn checks_as_a_pod(host: &Objects, guide: &Guide) -> anyhow::Result<()> {
    let hooks = guide
        .shell("helm get hooks muster --namespace muster")
        .await?;
    let hooks = hooks.trim().trim_start_matches("---");
    let mut pod: Value = serde_saphyr::from_str(hooks)?;
    let spec = pod["spec"].take();
    exits_with_zero(&spec, host, guide.folder()).await?;

    let deployment = host.get(DEPLOYMENT, Some(RELEASE), "muster").await?;
    let mut pod = deployment.context("no Deployment")?["spec"]["template"]["spec"].take();
    pod["containers"][0]["args"] = json!(["check"]);
    exits_with_zero(&pod, host, guide.folder()).await?;

    // Muster's accounts may do what its flags ask for, in both clusters, and no more.
    for (kubeconfig, right, may) in [
        ("$KUBECONFIG", "patch secret/muster-karmada", "yes"),
        ("$KUBECONFIG", "get secret/another", "no"),
        ("$KUBECONFIG", "list secrets", "no"),
    ] {
        let account = "system:serviceaccount:muster:muster";
        let asked = format!(
            "kubectl --kubeconfig {kubeconfig} auth can-i {right} -n muster --as {account} || true"
        );
        let said = guide.shell(&asked).await?;
        ensure!(said.trim() == may, "{right}: {said}");
    }
    let issue = |account: &str| {
        let karmada = "kubectl --kubeconfig $KARMADA auth can-i";
        let muster = "system:serviceaccount:muster-system:muster";
        format!(
            "{karmada} create serviceaccounts/{account} --subresource token -n muster-system --as {muster} || true"
        )
    };
    let own = guide.shell(&issue("muster")).await?;
    let other = guide.shell(&issue("muster-probe")).await?;
    ensure!((own.trim(), other.trim()) == ("yes", "no"), "{own} {other}");
    Ok(())
}

/// The leader finds out that the API server no longer reaches the webhook.
async fn webhook_is_lost(case: &Case, container: &Value) -> anyhow::Result<()> {
    let port = container_port(container, &json!("metrics"))?;
    let reachable = async |value: &str| {
        let what = format!("muster_webhook_reachable is {value}");
        eventually(SOON, &what, async || {
            let metrics = http_get(port, "/metrics").await?;
            let line = metrics
                .lines()
                .find(|line| line.starts_with("muster_webhook_reachable "));
            match line {
                Some(line) if line.ends_with(value) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    };
    reachable(" 1.0").await?;
    let karmada = &case.plane.karmada;
    let registration = karmada.get(MUTATING_WEBHOOKS, None, "muster").await?;
    let mut registration = registration.context("no registration")?;
    for entry in registration["webhooks"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        let nowhere = format!("https://127.0.0.1:{}/", free_port()?);
        entry["clientConfig"]["url"] = json!(nowhere);
    }
    let webhooks = json!({"webhooks": registration["webhooks"]});
    karmada
        .merge(MUTATING_WEBHOOKS, None, "muster", &webhooks)
        .await?;
    // Muster registers itself again when it starts.
    reachable(" 0.0").await
}

/// Runs a container that ends.
async fn exits_with_zero(pod: &Value, host: &Objects, dir: &Path) -> anyhow::Result<()> {
    let mut process = start(pod, host, &dir.join("check")).await?;
    let ended = tokio::time::timeout(READY, process.wait()).await;
    let status = ended.context("muster check does not end")??;
    let said = std::fs::read_to_string(dir.join("check/muster.log"))?;
    ensure!(status.success(), "{status}\n{said}");
    Ok(())
}

/// Starts the first container of a pod as a kubelet would: with its arguments and environment only,
/// and with its Secrets as files. `dir` takes the place of the pod's root.
async fn start(pod: &Value, host: &Objects, dir: &Path) -> anyhow::Result<Child> {
    let container = &pod["containers"][0];
    let mut mounts = BTreeMap::new();
    for mount in list(&container["volumeMounts"]) {
        let named = |volume: &&Value| volume["name"] == mount["name"];
        let volumes = list(&pod["volumes"]);
        let volume = volumes.iter().find(named).context("no such volume")?;
        let name = text_of(&volume["secret"]["secretName"])?;
        let secret = host.get(SECRET, Some(RELEASE), name).await?;
        let at = text_of(&mount["mountPath"])?;
        let files = dir.join(at.trim_start_matches('/'));
        write_secret(
            &secret.with_context(|| format!("no Secret {name}"))?,
            &files,
        )?;
        mounts.insert(at.to_owned(), files.display().to_string());
    }
    let mapped = |argument: &str| {
        let mounts = mounts.iter();
        mounts.fold(argument.to_owned(), |argument, (at, files)| {
            argument.replace(at, files)
        })
    };
    let mut command = Command::new(muster::program()?);
    command.env_clear().current_dir("/").kill_on_drop(true);
    for argument in list(&container["args"]) {
        command.arg(mapped(text_of(argument)?));
    }
    for variable in list(&container["env"]) {
        let value = mapped(text_of(&variable["value"])?);
        command.env(text_of(&variable["name"])?, value);
    }
    let log = std::fs::File::create(dir.join("muster.log"))?;
    command.stdout(log.try_clone()?).stderr(log);
    command.spawn().context("start muster")
}

fn write_secret(secret: &Value, dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir)?;
    let data = secret["data"].as_object().context("the Secret is empty")?;
    for (key, value) in data {
        std::fs::write(dir.join(key), STANDARD.decode(text_of(value)?)?)?;
    }
    Ok(())
}

async fn stop(process: &mut Child) -> anyhow::Result<()> {
    let id = process.id().context("muster ended by itself")?;
    let id = nix::unistd::Pid::from_raw(id.try_into()?);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM)?;
    let ended = tokio::time::timeout(Duration::from_secs(30), process.wait()).await;
    let status = ended.context("muster does not end on SIGTERM")??;
    ensure!(status.success(), "muster ended with {status}");
    Ok(())
}

/// Waits until a probe of the container succeeds.
async fn probed(container: &Value, probe: &str) -> anyhow::Result<()> {
    let get = &container[probe]["httpGet"];
    let port = container_port(container, &get["port"])?;
    let path = text_of(&get["path"])?;
    eventually(READY, probe, async || {
        let answer = http_get(port, path).await?;
        match answer.starts_with("HTTP/1.1 200") {
            true => Ok(()),
            false => Err(answer),
        }
    })
    .await
}

/// Returns the number of a container's port.
fn container_port(container: &Value, name: &Value) -> anyhow::Result<u16> {
    let ports = list(&container["ports"]);
    let port = ports.iter().find(|port| port["name"] == *name);
    let port = port.with_context(|| format!("no port {name}"))?;
    Ok(u16::try_from(
        port["containerPort"].as_u64().context("no number")?,
    )?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> anyhow::Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}

/// Returns the guide docs/how-to/install.md on this plane.
fn prepare(case: &Case) -> anyhow::Result<Guide> {
    let testbed = &case.plane.testbed;
    let sets = [Toolset::Packaging, Toolset::Kubernetes];
    let tools: Tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
    let (webhook, metrics) = (free_port()?, free_port()?);
    let host = testbed.cluster(HOST)?.kubeconfig.display().to_string();
    // On one host, the Deployment's ports must be free, and nothing but loopback is used.
    let values = json!({
        "bindAddress": "127.0.0.1",
        "webhook": {"url": format!("https://127.0.0.1:{webhook}"), "port": webhook},
        "metrics": {"port": metrics},
        "tuning": {"backoffSeconds": 1, "overrideGraceSeconds": 10},
        // The process is started outside of a pod.
        "extraArgs": [format!("--host-kubeconfig={host}")],
    });
    let karmada = testbed.karmada();
    let env = [
        ("KARMADA", karmada.kubeconfig.display().to_string()),
        ("KUBECONFIG", host),
        ("SERVER", karmada.server),
        ("REGISTRY", "registry.example".into()),
    ];
    let programs = [
        ("helm", tools.program(Tool::Helm)?),
        ("kubectl", tools.program(Tool::Kubectl)?),
        ("muster", muster::program()?),
    ];
    // The values of this host come after those of the guide.
    let own = "--values muster-values.yaml";
    let guide = Guide::of("docs/how-to/install.md", &programs, env)?
        .with_words_replaced(own, &format!("{own} --values of-this-host.yaml"))
        // Muster is to replace a token that was made for a short time.
        .with_words_replaced("--duration=8760h", "--duration=10m");
    std::fs::write(guide.folder().join("of-this-host.yaml"), values.to_string())?;
    Ok(guide)
}

/// Fails unless the pods of the Deployment passed the admission of a restricted namespace.
async fn pods_are_restricted(case: &Case) -> anyhow::Result<()> {
    let host = case.plane.member(HOST).await?;
    let namespace = host
        .get(NAMESPACE, None, RELEASE)
        .await?
        .context("no namespace")?;
    let label = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    ensure!(
        label == "restricted",
        "the namespace is not restricted: {namespace}"
    );
    eventually(SOON, "two pods of the Deployment run", async || {
        let pods = host
            .list(POD, Some(RELEASE))
            .await
            .map_err(|error| error.to_string())?;
        let run = pods
            .iter()
            .filter(|pod| pod["status"]["phase"] == "Running");
        match run.count() {
            2 => Ok(()),
            other => Err(format!("{other} run")),
        }
    })
    .await
}
