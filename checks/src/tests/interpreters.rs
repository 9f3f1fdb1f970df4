//! What the interpreters of Muster make of what members report, run as Karmada runs them: in Lua 5.1.

use self::Stage::{Failed, Runs, Succeeded};
use crate::control_plane::INTERPRETERS;
use mlua::{Lua, LuaSerdeExt as _};
use serde_json::{Value, json};

const START: &str = "2026-11-28T17:00:00Z";
const END: &str = "2026-11-28T17:30:00Z";
const LATER: &str = "2026-11-28T17:40:00Z";

/// Kinds that Muster splits and where no pod leads: all parts together end the whole.
const ALIKE: [&str; 5] = ["Job", "JobSet", "PyTorchJob", "JAXJob", "VolcanoJob"];
/// Kinds where the first part of these tests leads: its end is that of the whole.
const LED: [&str; 8] = [
    "JobSet",
    "MPIJob",
    "PaddleJob",
    "PyTorchJob",
    "RayJob",
    "TFJob",
    "VolcanoJob",
    "XGBoostJob",
];

/// What differs in Karmada's Lua (gopher-lua 1.1): a `match` without a result returns no value, and not nil. And
/// Karmada's library, of which these tests need nothing.
const AS_KARMADA: &str = r#"
    local match = string.match
    string.match = function(...)
      local found = match(...)
      if found ~= nil then return found end
    end
    package.preload["kube"] = function() return {} end
"#;

/// An interpreter of a kind.
struct Interpreter(Value);

impl Interpreter {
    /// Returns that of a kind; Volcano's is `VolcanoJob`, as Kubernetes has a Job too.
    fn of(kind: &str) -> Self {
        let all = INTERPRETERS.iter();
        let mut all = all.map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
        let is_of = |interpreter: &Value| {
            let target = &interpreter["spec"]["target"];
            match (target["apiVersion"].as_str(), target["kind"].as_str()) {
                (Some("batch.volcano.sh/v1alpha1"), Some("Job")) => kind == "VolcanoJob",
                (_, of) => of == Some(kind),
            }
        };
        Self(all.find(is_of).unwrap())
    }

    fn call(&self, operation: &str, function: &str, given: &[&Value]) -> Value {
        let lua = Lua::new();
        let script = self.0["spec"]["customizations"][operation]["luaScript"].as_str();
        let script = script.unwrap();
        lua.load(AS_KARMADA).exec().unwrap();
        lua.load(script).exec().unwrap();
        let options = mlua::SerializeOptions::new()
            .serialize_none_to_null(false)
            .serialize_unit_to_null(false)
            .set_array_metatable(false);
        let given = given.iter();
        let given: mlua::Variadic<mlua::Value> = given
            .map(|value| lua.to_value_with(value, options).unwrap())
            .collect();
        let function: mlua::Function = lua.globals().get(function).unwrap();
        lua.from_value(function.call(given).unwrap()).unwrap()
    }

    /// Returns what a member reports of an object.
    fn reflected(&self, object: &Value) -> Value {
        self.call("statusReflection", "ReflectStatus", &[object])
    }

    /// Returns the status of a template after its clusters have reported this.
    fn aggregated(&self, template: &Value, items: &[Value]) -> Value {
        let all = json!(items);
        self.call("statusAggregation", "AggregateStatus", &[template, &all])["status"].take()
    }
}

/// How far a part has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Runs,
    Succeeded,
    Failed,
}

/// A job of a kind over two clusters.
#[derive(Debug, Clone, Copy)]
struct Gang {
    kind: &'static str,
    /// True if a pod of the first part leads.
    led: bool,
}

impl Gang {
    fn all() -> impl Iterator<Item = Self> {
        let of = |led| move |kind| Self { kind, led };
        let alike = ALIKE.into_iter().map(of(false));
        alike.chain(LED.into_iter().map(of(true)))
    }

    /// Returns the object that a user submitted.
    fn template(self) -> Value {
        json!({"metadata": {"name": "train"}, "spec": self.spec(), "status": {}})
    }

    fn spec(self) -> Value {
        let job = |name: &str, pods: u32| {
            let spec = json!({"parallelism": pods, "completions": pods});
            json!({"name": name, "replicas": 1, "template": {"spec": spec}})
        };
        let completes = json!([{"event": "TaskCompleted", "action": "CompleteJob"}]);
        match (self.kind, self.led) {
            ("JobSet", false) => json!({"replicatedJobs": [job("worker", 6)]}),
            ("JobSet", true) => json!({
                "replicatedJobs": [job("lead", 1), job("worker", 5)],
                "successPolicy": {"targetReplicatedJobs": ["lead"]},
            }),
            ("VolcanoJob", false) => {
                json!({"minAvailable": 6, "tasks": [{"name": "worker", "replicas": 6}]})
            }
            ("VolcanoJob", true) => json!({"minAvailable": 6, "tasks": [
                {"name": "lead", "replicas": 1, "policies": completes}, {"name": "worker", "replicas": 5},
            ]}),
            ("PyTorchJob", _) => json!({"pytorchReplicaSpecs": self.groups()}),
            ("TFJob", _) => json!({"tfReplicaSpecs": self.groups()}),
            ("MPIJob", _) => json!({"mpiReplicaSpecs": self.groups()}),
            ("JAXJob", _) => json!({"jaxReplicaSpecs": self.groups()}),
            ("PaddleJob", _) => json!({"paddleReplicaSpecs": self.groups()}),
            ("XGBoostJob", _) => json!({"xgbReplicaSpecs": self.groups()}),
            _ => json!({"parallelism": 6}),
        }
    }

    fn groups(self) -> Value {
        match (self.led, self.leader()) {
            (true, leader) => json!({leader: {"replicas": 1}, "Worker": {"replicas": 5}}),
            (false, _) => json!({"Worker": {"replicas": 6}}),
        }
    }

    fn leader(self) -> &'static str {
        match self.kind {
            "MPIJob" => "Launcher",
            "TFJob" => "Chief",
            _ => "Master",
        }
    }

    /// Returns what Karmada knows of the part at `index` that came there at this time.
    fn part(self, index: usize, stage: Stage, at: &str) -> Value {
        let mark = format!("attempt 1, part {} of 2: worker=3", index + 1);
        let mut metadata = json!({"annotations": {"muster.io/part": mark}});
        let started = if at == LATER { LATER } else { START };
        metadata["creationTimestamp"] = started.into();
        let leads = self.led && index == 0;
        let spec = self.spec_of_part(leads);
        let status = match self.kind {
            "VolcanoJob" => volcano(stage, at, leads),
            "RayJob" => ray(stage, started, at),
            _ => self.conditions(stage, leads, started, at),
        };
        let object = json!({"metadata": metadata, "spec": spec, "status": status});
        let status = Interpreter::of(self.kind).reflected(&object);
        json!({"clusterName": format!("member{}", index + 1), "status": status})
    }

    /// Returns the spec of a part: it has the leading pod, or it has none.
    fn spec_of_part(self, leads: bool) -> Value {
        let mut spec = self.spec();
        match self.kind {
            "VolcanoJob" => {
                if self.led && !leads {
                    spec["tasks"] = json!([{"name": "worker", "replicas": 3}]);
                }
                spec["minAvailable"] = 3.into();
                for task in spec["tasks"].as_array_mut().unwrap() {
                    task["replicas"] = task["replicas"].as_u64().unwrap().min(3).into();
                }
            }
            "RayJob" if !leads => {
                let gates = json!([{"name": "muster.io/head-is-elsewhere"}]);
                let head = json!({"template": {"spec": {"schedulingGates": gates}}});
                spec = json!({"rayClusterSpec": {"headGroupSpec": head}});
            }
            _ => {}
        }
        spec
    }

    fn conditions(self, stage: Stage, leads: bool, started: &str, at: &str) -> Value {
        let well = match self.kind {
            "Job" => "Complete",
            "JobSet" => "Completed",
            _ => "Succeeded",
        };
        let (type_, count) = match stage {
            Runs => ("Running", "active"),
            Succeeded => (well, "succeeded"),
            Failed => ("Failed", "failed"),
        };
        let condition = json!({"type": type_, "status": "True", "lastTransitionTime": at});
        let mut status = json!({"startTime": started, "conditions": [condition]});
        if stage == Succeeded {
            status["completionTime"] = at.into();
        }
        let mut jobs = vec![json!({"name": "worker", count: 1})];
        let mut groups = json!({"Worker": {count: 3}});
        if leads {
            jobs.push(json!({"name": "lead", count: 1}));
            groups[self.leader()] = json!({count: 1});
        }
        match self.kind {
            "Job" => status[count] = 3.into(),
            "JobSet" => status["replicatedJobsStatus"] = jobs.into(),
            _ => status["replicaStatuses"] = groups,
        }
        status
    }

    /// Returns the template after its clusters have reported these parts.
    fn after(self, template: &Value, parts: &[Value]) -> Value {
        let mut template = template.clone();
        template["status"] = Interpreter::of(self.kind).aggregated(&template, parts);
        template
    }
}

fn volcano(stage: Stage, at: &str, leads: bool) -> Value {
    let phase = match stage {
        Runs => "Running",
        Succeeded => "Completed",
        Failed => "Failed",
    };
    let mut status = json!({"state": {"phase": phase, "lastTransitionTime": at}});
    // It drops the counts of what has completed.
    if stage == Runs {
        let lead = if leads {
            json!({"phase": {"Running": 1}})
        } else {
            Value::Null
        };
        let worker = json!({"phase": {"Running": 3}});
        status["taskStatusCount"] = json!({"lead": lead, "worker": worker});
        status["running"] = 3.into();
    }
    status
}

fn ray(stage: Stage, started: &str, at: &str) -> Value {
    let phase = match stage {
        Runs => "Running",
        Succeeded => "Complete",
        Failed => "Failed",
    };
    json!({"jobDeploymentStatus": phase, "startTime": started, "endTime": at})
}

/// Returns how a template shows that its job ended.
fn end(template: &Value) -> Option<Stage> {
    let status = &template["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let held = conditions.filter(|condition| condition["status"] == "True");
    let held = held.filter_map(|condition| condition["type"].as_str());
    let phases = [&status["state"]["phase"], &status["jobDeploymentStatus"]];
    let mut shown = held.chain(phases.into_iter().filter_map(Value::as_str));
    shown.find_map(|shown| match shown {
        "Succeeded" | "Complete" | "Completed" => Some(Succeeded),
        "Failed" => Some(Failed),
        _ => None,
    })
}

#[test]
fn a_part_that_has_succeeded_does_not_end_the_whole_whatever_is_removed() {
    for gang in ALIKE.map(|kind| Gang { kind, led: false }) {
        let running = gang.after(
            &gang.template(),
            &[0, 1].map(|at| gang.part(at, Runs, START)),
        );
        assert_eq!(end(&running), None, "{gang:?}");
        let parts = [gang.part(0, Succeeded, END), gang.part(1, Runs, START)];
        let half = gang.after(&running, &parts);
        assert_eq!(end(&half), None, "{gang:?}: {half}");
        // It was evicted, and the other part is gone first.
        let evicted = gang.after(&half, &parts[..1]);
        assert_eq!(end(&evicted), None, "{gang:?}: {evicted}");
        let both = [0, 1].map(|at| gang.part(at, Succeeded, END));
        assert_eq!(end(&gang.after(&half, &both)), Some(Succeeded), "{gang:?}");
    }
}

#[test]
fn how_a_job_ended_stays_whichever_part_is_removed_first() {
    for gang in Gang::all() {
        let ends = [
            ([Failed, Runs], Failed),
            ([Runs, Failed], Failed),
            (
                [Succeeded, Failed],
                if gang.led { Succeeded } else { Failed },
            ),
            ([Succeeded, Runs], Succeeded),
        ];
        // The last does not end it where no part leads.
        for (stages, want) in &ends[..if gang.led { 4 } else { 3 }] {
            let parts: Vec<Value> = (0..2).map(|at| gang.part(at, stages[at], END)).collect();
            let over = gang.after(&gang.template(), &parts);
            assert_eq!(end(&over), Some(*want), "{gang:?} {stages:?}: {over}");
            for left in &parts {
                let less = gang.after(&over, std::slice::from_ref(left));
                assert_eq!(end(&less), Some(*want), "{gang:?} {stages:?}: {less}");
                let none = gang.after(&less, &[]);
                assert_eq!(end(&none), Some(*want), "{gang:?} {stages:?}: {none}");
            }
        }
    }
}

#[test]
fn a_new_attempt_is_not_over_once_its_parts_report() {
    for gang in Gang::all() {
        // Muster itself writes that one has failed for good, or waits.
        if matches!(gang.kind, "Job" | "VolcanoJob") {
            continue;
        }
        let parts = [gang.part(0, Failed, END), gang.part(1, Runs, START)];
        let failed = gang.after(&gang.template(), &parts);
        let again = [0, 1].map(|at| gang.part(at, Runs, LATER));
        for known in [&again[..1], &again[..]] {
            let runs = gang.after(&failed, known);
            assert_eq!(end(&runs), None, "{gang:?}: {runs}");
        }
    }
}

#[test]
fn a_job_in_one_cluster_is_reported_as_it_is() {
    for gang in Gang::all() {
        let object = json!({"metadata": {"name": "train"}, "spec": gang.spec(), "status": {}});
        let reported = Interpreter::of(gang.kind).reflected(&object);
        assert_eq!(reported.get("parts"), None, "{gang:?}");
    }
}

/// All pods of the task that completes the job succeeded, in both clusters. The part without the other task had
/// completed, and is removed first.
#[test]
fn a_volcano_job_that_a_task_completed_says_so_while_its_parts_are_removed() {
    let gang = Gang {
        kind: "VolcanoJob",
        led: false,
    };
    let mut template = gang.template();
    template["spec"] = json!({"minAvailable": 7, "tasks": [
        {"name": "master", "replicas": 1},
        {"name": "worker", "replicas": 6, "policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]},
    ]});
    let mut first = gang.part(0, Runs, START);
    first["status"]["taskStatusCount"] =
        json!({"master": {"phase": {"Running": 1}}, "worker": {"phase": {"Succeeded": 3}}});
    let parts = [first, gang.part(1, Succeeded, END)];
    let over = gang.after(&template, &parts);
    assert_eq!(end(&over), Some(Succeeded), "{over}");
    let less = gang.after(&over, &parts[..1]);
    assert_eq!(end(&less), Some(Succeeded), "{less}");
    let counts = json!({"worker": {"phase": {"Succeeded": 6}}});
    assert_eq!(less["status"]["taskStatusCount"], counts, "{less}");
}

/// A tool that waits for the end must not take the restart for it.
#[test]
fn a_volcano_job_that_restarts_is_not_over_while_its_parts_are_removed() {
    let gang = Gang {
        kind: "VolcanoJob",
        led: false,
    };
    let mut template = gang.template();
    template["spec"]["policies"] = json!([{"event": "PodFailed", "action": "RestartJob"}]);
    let phase = |template: &Value| template["status"]["state"]["phase"].clone();
    let mut restarts = gang.part(1, Runs, END);
    restarts["status"]["state"]["phase"] = "Terminated".into();
    let parts = [gang.part(0, Runs, START), restarts];
    let both = gang.after(&template, &parts);
    assert_eq!(phase(&both), "Restarting", "{both}");
    for left in &parts {
        let less = gang.after(&both, std::slice::from_ref(left));
        assert_eq!(phase(&less), "Restarting", "{less}");
        assert_eq!(phase(&gang.after(&less, &[])), "Restarting");
    }
    assert_eq!(phase(&gang.after(&template, &parts[..1])), "Pending");
}
