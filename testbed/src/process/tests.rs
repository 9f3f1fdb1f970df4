#![allow(clippy::unwrap_used)]
use super::*;

fn supervisor() -> (tempfile::TempDir, Supervisor) {
    let dir = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(dir.path().to_owned(), Ports::new()).unwrap();
    (dir, supervisor)
}

fn shell(name: &str, script: &str) -> Launch {
    Launch {
        name: name.into(),
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        ports: vec![],
    }
}

fn state(supervisor: &Supervisor, name: &str) -> RunState {
    let all = supervisor.status();
    all.iter()
        .find(|process| process.name == name)
        .unwrap()
        .state
}

fn eventually(what: &str, probe: impl Fn() -> bool) {
    for _ in 0..500 {
        if probe() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    unreachable!("{what} did not happen within 5 s");
}

#[test]
fn a_process_replaces_another_one_of_its_name() {
    let (_dir, supervisor) = supervisor();
    supervisor.spawn(shell("one", "exec sleep 1000")).unwrap();
    let first = supervisor.status().remove(0);
    let another = Launch {
        program: "/bin/sleep".into(),
        args: vec!["1000".into()],
        ..shell("one", "")
    };
    supervisor.spawn(another).unwrap();
    let now = supervisor.status();
    assert_eq!((now.len(), now[0].state), (1, RunState::Running));
    assert_eq!(now[0].program, Path::new("/bin/sleep"));
    assert!(!first.id.is_alive());
}

#[test]
fn processes_are_paused_resumed_killed_and_restarted() {
    let (_dir, supervisor) = supervisor();
    supervisor
        .spawn(shell("sleeper", "echo up; exec sleep 1000"))
        .unwrap();
    eventually("first run", || {
        supervisor.log_tail("sleeper").ends_with("up")
    });
    supervisor.pause("sleeper").unwrap();
    eventually("pause", || {
        state(&supervisor, "sleeper") == RunState::Paused
    });
    supervisor.resume("sleeper").unwrap();
    eventually("resume", || {
        state(&supervisor, "sleeper") == RunState::Running
    });
    supervisor.kill("sleeper").unwrap();
    supervisor.revive(&["sleeper".to_owned()]).unwrap();
    assert_eq!(state(&supervisor, "sleeper"), RunState::Gone);
    supervisor.restart("sleeper").unwrap();
    assert_eq!(state(&supervisor, "sleeper"), RunState::Running);
    eventually("second run", || {
        supervisor.log_tail("sleeper").ends_with("up\nup")
    });
    let error = supervisor.kill("slepper").unwrap_err().to_string();
    assert_eq!(
        error,
        "no process \"slepper\" in the testbed; there are: sleeper"
    );
    let id = supervisor.status()[0].id;
    supervisor.remove("sleeper");
    assert!(supervisor.status().is_empty() && !id.is_alive());
}

#[test]
fn a_process_that_ends_is_reported_with_the_end_of_its_log() {
    let (_dir, supervisor) = supervisor();
    supervisor
        .spawn(shell("broken", "seq 1 100; exit 3"))
        .unwrap();
    eventually("exit", || supervisor.ensure_running("broken").is_err());
    let error = supervisor.ensure_running("broken").unwrap_err().to_string();
    assert!(
        error.starts_with("broken ended (exit status: 3)"),
        "{error}"
    );
    assert!(
        error.contains("\n81\n82\n") && error.ends_with("100"),
        "{error}"
    );
    assert!(!error.contains("\n80\n"), "{error}");
    let first_run = supervisor.status()[0].id;
    supervisor.revive(&["broken".to_owned()]).unwrap();
    assert_ne!(supervisor.status()[0].id, first_run);
}

#[test]
fn dropping_the_supervisor_ends_even_what_its_processes_started() {
    let (dir, supervisor) = supervisor();
    let pid_file = dir.path().join("grandchild");
    let script = format!("sleep 1000 & echo $! > {}; wait", pid_file.display());
    supervisor.spawn(shell("parent", &script)).unwrap();
    let grandchild = || -> Option<ProcessId> {
        ProcessId::of(fs::read_to_string(&pid_file).ok()?.trim().parse().ok()?)
    };
    eventually("grandchild", || grandchild().is_some());
    let id = grandchild().unwrap();
    drop(supervisor);
    assert!(id.wait_gone(GONE_DEADLINE));
}

/// The owner that the next test kills, which runs as a second test process.
#[test]
#[ignore = "run by kill_9_of_the_owner_leaves_nothing"]
fn owner_that_waits_to_be_killed() {
    let Some(dir) = std::env::var_os("TESTBED_OWNER_DIR") else {
        return;
    };
    let supervisor = Supervisor::new(dir.clone().into(), Ports::new()).unwrap();
    for name in ["one", "two", "paused"] {
        supervisor.spawn(shell(name, "exec sleep 1000")).unwrap();
    }
    supervisor.pause("paused").unwrap();
    let mut ids: Vec<ProcessId> = supervisor.status().iter().map(|p| p.id).collect();
    ids.extend(supervisor.group());
    let file = Path::new(&dir).join("ids");
    fs::write(
        file.with_extension("tmp"),
        serde_json::to_string(&ids).unwrap(),
    )
    .unwrap();
    fs::rename(file.with_extension("tmp"), file).unwrap();
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn kill_9_of_the_owner_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut owner = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact"])
        .arg("process::tests::owner_that_waits_to_be_killed")
        .env("TESTBED_OWNER_DIR", dir.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let file = dir.path().join("ids");
    eventually("start of the owner", || file.exists());
    let ids: Vec<ProcessId> = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    assert_eq!(ids.len(), 4);
    assert!(ids.iter().all(|id| id.is_alive()));

    owner.kill().unwrap();
    owner.wait().unwrap();
    for id in ids {
        assert!(id.wait_gone(GONE_DEADLINE), "{id:?} outlived its owner");
    }
}
