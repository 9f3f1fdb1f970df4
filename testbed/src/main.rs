//! The `testbed` command: a control plane that stays up after the command returns.
//!
//! `up` starts this program again as `serve`, a process in its own session that owns the
//! components, and waits until its state file says that they are ready. `down` ends it. All other
//! commands only read its state folder.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Parser, Subcommand};
use comfy_table::Table;
use testbed::tools::{self, Tool, Tools, Toolset};
use testbed::{
    MemberSpec, Phase, RealNodes, RunState, Testbed, TestbedSpec, TestbedState, default_dir,
};

/// A real Karmada control plane with member clusters, as plain processes on 127.0.0.1.
#[derive(Debug, Parser)]
#[command(version)]
struct TestbedArgs {
    /// Folder with the testbed's state [default: ${XDG_STATE_HOME:-~/.local/state}/muster/testbed]
    #[arg(long, global = true, value_name = "DIR", env = "MUSTER_TESTBED")]
    state: Option<PathBuf>,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Build the components from their Go modules into the per-user cache
    Tools,
    /// Start a testbed and return when it is ready
    Up(Box<UpArgs>),
    /// Stop the testbed and all its processes
    Down,
    /// Show the testbed's processes
    Status,
    /// Show the end of a process's log
    Logs {
        /// Name as in `status`
        name: String,
        /// Go on as the log grows
        #[arg(short, long)]
        follow: bool,
    },
    /// Print the path of a kubeconfig
    Kubeconfig {
        /// `karmada` or a member
        #[arg(default_value = "karmada")]
        cluster: String,
    },
    /// Run kubectl against a cluster: `testbed kubectl member1 -- get pods -A`
    Kubectl {
        /// `karmada` or a member
        #[arg(default_value = "karmada")]
        cluster: String,
        /// kubectl's arguments
        #[arg(last = true)]
        args: Vec<String>,
    },
    /// Own a testbed in the foreground (what `up` runs in the background)
    #[command(hide = true)]
    Serve {
        /// The spec, YAML or JSON
        #[arg(long)]
        spec: PathBuf,
    },
}

#[derive(Debug, Args)]
struct UpArgs {
    /// A spec in YAML instead of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["members", "nodes", "gpus", "products", "volcano"])]
    spec: Option<PathBuf>,
    /// Member clusters, named member1, member2, …
    #[arg(long, default_value_t = 3)]
    members: usize,
    /// Nodes of each member
    #[arg(long, default_value_t = 4)]
    nodes: u32,
    /// GPUs of each node
    #[arg(long, default_value_t = 8)]
    gpus: u32,
    /// GPU products, given to the members in turn
    #[arg(long, value_delimiter = ',')]
    products: Vec<String>,
    /// Members that run Volcano: all, none, or names
    #[arg(long, value_delimiter = ',', default_value = "all")]
    volcano: Vec<String>,
    /// Nodes of one more member, `real`, that run the programs of their pods (as root)
    #[arg(long, default_value_t = 0, conflicts_with = "spec")]
    real_nodes: u8,
    /// Keep an audit log of writes to bindings, works, queues and their policies
    #[arg(long)]
    audit: bool,
    /// CRDs (files or folders) applied to the control plane before its controllers start
    #[arg(long, value_name = "PATH", num_args = 1..)]
    crds: Vec<PathBuf>,
    /// CRDs (files or folders) applied to every member before it is joined
    #[arg(long, value_name = "PATH", num_args = 1..)]
    member_crds: Vec<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(TestbedArgs::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: TestbedArgs) -> Result<ExitCode> {
    let dir = std::path::absolute(cli.state.unwrap_or_else(default_dir))?;
    match cli.command {
        Verb::Tools => build_tools(),
        Verb::Up(args) => up(&dir, *args).await,
        Verb::Down => down(&dir),
        Verb::Status => return status(&dir),
        Verb::Logs { name, follow } => logs(&dir, &name, follow),
        Verb::Kubeconfig { cluster } => {
            println!(
                "{}",
                TestbedState::load(&dir)?
                    .cluster(&cluster)?
                    .kubeconfig
                    .display()
            );
            Ok(())
        }
        Verb::Kubectl { cluster, args } => kubectl(&dir, &cluster, &args),
        Verb::Serve { spec } => serve(&dir, &spec).await,
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Builds all tools. Those of real nodes are left out where this machine cannot have any.
fn build_tools() -> Result<()> {
    tools::ensure(&Toolset::ALL, &say).context("build tools")?;
    if let Err(left_out) = tools::ensure_real(&say) {
        say(&left_out.to_string());
    }
    Ok(())
}

/// Returns the tools of a testbed.
fn tools_of(spec: &TestbedSpec) -> Result<Tools> {
    let tools = tools::ensure(&Testbed::TOOLSETS, &say)?;
    match spec
        .members
        .iter()
        .any(|member| member.real_nodes.is_some())
    {
        true => Ok(tools.and(tools::ensure_real(&say)?)),
        false => Ok(tools),
    }
}

async fn up(dir: &Path, args: UpArgs) -> Result<()> {
    let spec = args.into_spec()?;
    // Building may take minutes and prints its progress, so it runs in the foreground.
    tools_of(&spec)?;
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let spec_file = dir.join("spec.json");
    std::fs::write(&spec_file, serde_json::to_vec_pretty(&spec)?)
        .with_context(|| format!("write {}", spec_file.display()))?;
    let log = dir.join("testbed.log");
    let mut daemon = spawn_daemon(dir, &spec_file, &log)?;
    tokio::select! {
        outcome = wait_ready(dir, &log, &mut daemon) => outcome?,
        _ = tokio::signal::ctrl_c() => {
            // All components end with the daemon.
            daemon.kill()?;
            daemon.wait()?;
            bail!("interrupted; nothing is left running");
        }
    }
    let state = TestbedState::load(dir)?;
    say(&format!(
        "export KUBECONFIG={}",
        state.cluster("karmada")?.kubeconfig.display()
    ));
    Ok(())
}

impl UpArgs {
    fn into_spec(self) -> Result<TestbedSpec> {
        let mut spec = match &self.spec {
            Some(file) => TestbedSpec::from_file(file)?,
            None => self.fleet()?,
        };
        spec.karmada.audit_log |= self.audit;
        for (paths, more) in [
            (&mut spec.control_plane_crds, self.crds),
            (&mut spec.member_crds, self.member_crds),
        ] {
            let more = more.iter().map(std::path::absolute);
            paths.extend(more.collect::<std::io::Result<Vec<_>>>()?);
        }
        spec.validate()?;
        Ok(spec)
    }

    fn fleet(&self) -> Result<TestbedSpec> {
        let products: Vec<&str> = self.products.iter().map(String::as_str).collect();
        let mut spec = TestbedSpec::fleet(self.members, self.nodes, self.gpus, &products);
        let names: Vec<&str> = self.volcano.iter().map(String::as_str).collect();
        if !matches!(names[..], ["all"] | ["none"]) {
            let known = |name: &&&str| spec.members.iter().any(|member| member.name == **name);
            if let Some(unknown) = names.iter().find(|name| !known(name)) {
                bail!(
                    "--volcano {unknown:?} is none of the {} members",
                    self.members
                );
            }
        }
        for member in &mut spec.members {
            member.volcano = names == ["all"] || names.contains(&member.name.as_str());
        }
        if self.real_nodes > 0 {
            spec.members.push(MemberSpec {
                name: "real".into(),
                volcano: names == ["all"],
                real_nodes: Some(RealNodes {
                    count: self.real_nodes,
                    gpus: self.gpus,
                    ..RealNodes::default()
                }),
                ..MemberSpec::default()
            });
        }
        Ok(spec)
    }
}

fn spawn_daemon(dir: &Path, spec_file: &Path, log: &Path) -> Result<Child> {
    if let Ok(state) = TestbedState::load(dir)
        && state.owner_is_alive()
    {
        bail!(
            "a testbed is up in {} already; `testbed down` stops it",
            dir.display()
        );
    }
    let log = std::fs::File::create(log).with_context(|| format!("create {}", log.display()))?;
    let daemon = Command::new(std::env::current_exe()?)
        .arg("--state")
        .arg(dir)
        .arg("serve")
        .arg("--spec")
        .arg(spec_file)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn();
    daemon.context("start the testbed's process")
}

/// Prints the daemon's progress until its state file says that it is ready or failed.
async fn wait_ready(dir: &Path, log: &Path, daemon: &mut Child) -> Result<()> {
    let mut lines = BufReader::new(std::fs::File::open(log)?);
    loop {
        let exited = daemon.try_wait()?;
        let mut line = String::new();
        while lines.read_line(&mut line)? > 0 {
            eprint!("{line}");
            line.clear();
        }
        if let Some(status) = exited {
            bail!(
                "the testbed's process ended ({status}); its log is {}",
                log.display()
            );
        }
        // The state file of an earlier testbed has another owner.
        let own = |state: &TestbedState| state.owner.is_some_and(|owner| owner.pid == daemon.id());
        let state = TestbedState::load(dir).ok().filter(own);
        if state.is_some_and(|state| state.phase == Phase::Ready) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Owns a testbed until a signal ends it.
async fn serve(dir: &Path, spec_file: &Path) -> Result<()> {
    // A new session is safe from the terminal's Ctrl-C and hang-up. It fails if this process
    // already leads a session, which is harmless.
    let _ = nix::unistd::setsid();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let spec = TestbedSpec::from_file(spec_file)?;
    let tools = tools_of(&spec)?;
    let stop = async {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = tokio::signal::ctrl_c() => (),
        }
    };
    tokio::pin!(stop);
    let testbed = tokio::select! {
        testbed = Testbed::up(spec, dir, &tools, &say) => testbed?,
        () = &mut stop => bail!("stopped by a signal before it was ready"),
    };
    stop.await;
    testbed.down()?;
    Ok(())
}

fn down(dir: &Path) -> Result<()> {
    let state = TestbedState::load(dir)?;
    let was_up = state.owner_is_alive();
    let survivors = state.take_down(dir)?;
    if !survivors.is_empty() {
        say(&format!(
            "killed what its owner had left: {}",
            survivors.join(", ")
        ));
    }
    say(if was_up {
        "testbed is down"
    } else {
        "testbed was down already"
    });
    Ok(())
}

/// Prints the processes; fails if the testbed is not up, for scripts.
fn status(dir: &Path) -> Result<ExitCode> {
    let state = TestbedState::load(dir)?;
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["NAME", "PID", "STATE", "RSS", "PORT"]);
    let mut total = 0;
    let rows = state
        .processes
        .iter()
        .map(|process| (process.name.as_str(), process.id, process.port));
    let owner = state.owner.map(|id| ("(owner)", id, None));
    for (name, id, port) in rows.chain(owner) {
        let rss = id.resident_bytes();
        total += if id.is_alive() { rss } else { 0 };
        let (run_state, rss) = match id.run_state() {
            RunState::Running => ("running", mebibytes(rss)),
            RunState::Paused => ("paused", mebibytes(rss)),
            RunState::Gone => ("gone", String::new()),
        };
        let port = port.map(|port| port.to_string()).unwrap_or_default();
        table.add_row([
            name.to_owned(),
            id.pid.to_string(),
            run_state.into(),
            rss,
            port,
        ]);
    }
    println!("{table}");
    let up = state.owner_is_alive();
    println!(
        "\n{} · {} in all · {}",
        describe(&state, up),
        mebibytes(total),
        dir.display()
    );
    Ok(if up {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn describe(state: &TestbedState, up: bool) -> String {
    match (&state.phase, state.ready_after_ms) {
        (Phase::Ready, Some(ms)) if up => {
            format!(
                "ready after {}.{} s, up since {}",
                ms / 1000,
                ms % 1000 / 100,
                state.started_at
            )
        }
        (Phase::Starting, _) if up => format!("starting since {}", state.started_at),
        (Phase::Failed { error }, _) => format!("failed: {error}"),
        _ => "down".to_owned(),
    }
}

fn logs(dir: &Path, name: &str, follow: bool) -> Result<()> {
    let state = TestbedState::load(dir)?;
    let found = state.processes.iter().find(|process| process.name == name);
    let process = found.ok_or_else(|| {
        let known: Vec<_> = state
            .processes
            .iter()
            .map(|process| process.name.as_str())
            .collect();
        anyhow!("no process {name:?}; there are: {}", known.join(", "))
    })?;
    let mut tail = Command::new("tail");
    tail.args(["-n", "200"])
        .args(follow.then_some("-F"))
        .arg(&process.log);
    Err(tail.exec()).context("run tail")
}

fn kubectl(dir: &Path, cluster: &str, args: &[String]) -> Result<()> {
    let state = TestbedState::load(dir)?;
    let kubeconfig = &state.cluster(cluster)?.kubeconfig;
    let program = tools::ensure(&[Toolset::Kubernetes], &say)?.program(Tool::Kubectl)?;
    let mut kubectl = Command::new(program);
    kubectl.arg("--kubeconfig").arg(kubeconfig).args(args);
    Err(kubectl.exec()).context("run kubectl")
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn say(line: &str) {
    eprintln!("{line}");
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    fn spec_of(args: &[&str]) -> Result<TestbedSpec> {
        let args = ["testbed", "up"].iter().chain(args);
        match TestbedArgs::try_parse_from(args)?.command {
            Verb::Up(args) => args.into_spec(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_describe_the_fleet() {
        let args = [
            "--members",
            "2",
            "--products",
            "A,B",
            "--volcano",
            "member2",
            "--crds",
            "/x",
            "/y",
        ];
        let spec = spec_of(&args).unwrap();
        let volcano: Vec<_> = spec.members.iter().map(|member| member.volcano).collect();
        assert_eq!(volcano, [false, true]);
        assert_eq!(spec.members[1].nodes[0].product.as_deref(), Some("B"));
        assert_eq!(spec.control_plane_crds, [Path::new("/x"), Path::new("/y")]);
        assert!(
            spec_of(&[])
                .unwrap()
                .members
                .iter()
                .all(|member| member.volcano)
        );
        assert!(!spec_of(&["--volcano", "none"]).unwrap().members[0].volcano);
    }

    #[test]
    fn options_that_mean_nothing_are_refused() {
        let error = spec_of(&["--volcano", "member7"]).unwrap_err().to_string();
        assert_eq!(error, "--volcano \"member7\" is none of the 3 members");
        assert!(spec_of(&["--spec", "x.yaml", "--gpus", "4"]).is_err());
    }
}
