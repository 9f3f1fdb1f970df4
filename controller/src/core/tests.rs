//! The owner task without a server: inputs go in, writes go out to a fake API server.
//!
//! The tests simulate watches with [`Stage::echo`], to examine the state between a write and its echo.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod avoids;
mod cannot_start;
mod deletion;
mod ending_pods;
mod endings;
mod excess;
mod faults;
mod faulty_places;
mod flow;
mod foreign;
mod growth;
mod infrastructure;
mod kept;
mod leaving;
mod member_rules;
mod metrics;
mod namespace_queues;
mod not_running;
mod not_touched;
mod objects;
mod out_of_service;
mod parts;
mod permits;
mod places;
mod pre_pulls;
mod preserved;
mod reasons;
mod refused;
mod remains;
mod rendezvous;
mod restart;
mod retries;
mod scaled;
mod steered;
mod traces;

use super::*;
use crate::effects::bindings::BindingWrites;
use crate::effects::events::{EventRecorder, Reports};
use crate::effects::nodes::NodeTaints;
use crate::effects::object_writer::ObjectWriter;
use crate::effects::rights::RightsReviewer;
use crate::effects::works_reader::WorksReader;
use crate::ingest::watches;
use crate::messages::enforcement::Enforcement;
use crate::metrics::ControllerMetrics;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::Template;
use crate::reconcile::reconciler::ReconcileOptions;
use binding_writer::overrides::Overrides;
use binding_writer::{CommitOptions, Committer};
use crds::names;
use crds::record::{AdmissionRecord, RecordState};
use engine::facts::{ClusterFact, NodeFact};
use engine::{
    ClusterName, Engine, EngineConfig, Event, JobKey, JobState, NodeName, PoolClass, QueueName,
    Resources,
};
use kube::api::DynamicObject;
use members::{MemberEvent, Members};
use objects::*;
use runtime::health::Health;
use runtime::metrics::Registry;
use runtime::status_writer::StatusWriter;
use runtime::testing::{FakeApi, Recorded};
use runtime::watch::{Delta, ObjectKey, WatchMetrics};
use scheduler::{Scheduler, SchedulerOptions};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::DropGuard;

/// Rounds after which a stage that still changes counts as an endless loop.
const ROUNDS: usize = 200;

/// A controller between a fake control plane and a member `m1` with one node of 8 CPUs.
struct Stage {
    api: FakeApi,
    core: Core,
    inputs: mpsc::Receiver<Input>,
    registry: Registry,
    /// How far the clock is ahead of real time.
    ahead_ms: i64,
    _cancel: DropGuard,
}

/// A stage with the scheduler in the process, queue `q` of 4 CPUs, and namespace `team` managed.
async fn stage() -> Stage {
    stage_of(true).await
}

async fn stage_of(with_scheduler: bool) -> Stage {
    let mut stage = Stage::bare(&FakeApi::new(), with_scheduler).await;
    stage.list_all();
    stage.settle().await;
    stage
}

impl Stage {
    /// A stage in which nothing has listed yet.
    async fn bare(api: &FakeApi, with_scheduler: bool) -> Self {
        let (sender, inputs) = mpsc::channel(4_096);
        let cancel = CancellationToken::new();
        let registry = Registry::new();
        let client = api.client();
        let scheduler = match with_scheduler {
            true => Some(Self::scheduler(api, &cancel).await),
            false => None,
        };
        let (sink, outcomes) = mpsc::channel(64);
        watches::forward(outcomes, sender.clone(), Input::written);
        let committer = Committer::spawn(
            client.clone(),
            CommitOptions::default(),
            None,
            sink,
            &registry,
            cancel.clone(),
        );
        let overrides = Overrides::new(client.clone(), &runtime::Term::always());
        let publisher = Publisher::new(
            [(); 2].map(|()| StatusWriter::spawn(client.clone(), 4, cancel.clone())),
            ObjectWriter::spawn(client.clone(), overrides.clone(), cancel.clone()),
            true,
        );
        let options = ReconcileOptions {
            places_itself: with_scheduler,
            ..ReconcileOptions::default()
        };
        let events = EventRecorder::spawn(client.clone(), cancel.clone());
        let metrics = ControllerMetrics::new(&registry);
        let core = Core {
            role: Leading::CatchesUp(binding_writer::term::Lead::new(0)),
            clock: Clock::new(),
            heart: Heart::default(),
            reconciler: Reconciler::new(
                options,
                Engine::new(EngineConfig::default()),
                Enforcement::NotRequired,
                metrics.clone(),
            ),
            policies_seen: BTreeMap::new(),
            readiness: Readiness::new(),
            template_watches: TemplateWatches::new(
                client.clone(),
                sender.clone(),
                WatchMetrics::default(),
                cancel.clone(),
            ),
            effects: Effects {
                scheduler,
                members: Members::default(),
                objects: publisher.objects.clone(),
                overrides,
                works_reader: WorksReader::spawn(client.clone()),
                reports: Reports::new(events, None),
                rights: RightsReviewer::spawn(client.clone(), sender.clone(), cancel.clone()),
                checks: Arc::new(Semaphore::new(2)),
                taints: NodeTaints::new(runtime::Leadership::always(), Default::default()),
                inputs: sender,
                bindings: BindingWrites::new(committer),
                client,
            },
            publisher,
            invariants: Timer::new(Duration::from_secs(300)),
            ready_flag: Health::new().ready_check("controller"),
            wake_at: None,
        };
        Self {
            api: api.clone(),
            core,
            inputs,
            registry,
            ahead_ms: 0,
            _cancel: cancel.drop_guard(),
        }
    }

    async fn scheduler(api: &FakeApi, cancel: &CancellationToken) -> Scheduler {
        let (facts, events) = mpsc::channel(8);
        for fact in member_facts() {
            facts.send(MemberEvent::Fact(fact)).await.unwrap();
        }
        facts.send(MemberEvent::Ready).await.unwrap();
        let scheduler = Scheduler::spawn(
            api.client(),
            Members::default(),
            events,
            SchedulerOptions::default(),
            cancel.clone(),
        );
        while !scheduler.is_ready() {
            tokio::task::yield_now().await;
        }
        scheduler
    }

    /// Lists every kind, with the queue, the managed namespace and the member.
    fn list_all(&mut self) {
        self.namespace(true);
        self.queue("4");
        let facts = member_facts().into_iter();
        facts.for_each(|fact| self.member_shows(fact));
        for listed in [
            Input::Binding(Delta::Listed),
            Input::Work(Delta::Listed),
            Input::Namespace(Delta::Listed),
            Input::Queue(Delta::Listed),
            Input::Policy(Delta::Listed),
            Input::Config(Delta::Listed),
            Input::FaultPolicy(Delta::Listed),
            Input::PriorityClass(Delta::Listed),
            Input::ClaimTemplate(Delta::Listed),
            Input::Override(Delta::Listed),
            Input::ClusterOverride(Delta::Listed),
            Input::PodGroup(Delta::Listed),
            Input::Member(MemberEvent::Ready),
        ] {
            self.take(listed);
        }
    }

    fn take(&mut self, input: Input) {
        let now = self.now();
        self.core.absorb(input, now);
    }

    /// A member shows a fact.
    fn member_shows(&mut self, fact: Event) {
        self.take(Input::Member(MemberEvent::Fact(fact)));
    }

    fn namespace(&mut self, managed: bool) {
        let labels = managed.then(|| json!({ names::MANAGED_LABEL: "true" }));
        let namespace = json!({"metadata": {"name": "team", "labels": labels}});
        self.take(Input::Namespace(Delta::Upserted(read(namespace))));
    }

    /// Like `namespace`, with the mark that all earlier workloads there are adopted.
    fn marked_namespace(&mut self, managed: bool) {
        let labels = managed.then(|| json!({ names::MANAGED_LABEL: "true" }));
        let annotations = json!({ names::ADOPTED_AT_ANNOTATION: "2026-01-01T00:00:00Z" });
        let metadata = json!({"name": "team", "labels": labels, "annotations": annotations});
        let namespace = read(json!({ "metadata": metadata }));
        self.take(Input::Namespace(Delta::Upserted(namespace)));
    }

    fn queue(&mut self, cpus: &str) {
        let queue = json!({
            "metadata": {
                "name": "q", "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"capability": {"cpu": cpus}},
        });
        self.take(Input::Queue(Delta::Upserted(read(queue))));
    }

    /// Creates the template of job `name`, with `change` merged into it.
    fn template(&mut self, name: &str, cpus: u32, change: Value) {
        let mut template = json!({
            "metadata": {
                "name": name, "namespace": "team", "uid": format!("{name}-uid"),
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"muster.io/queue": "q"},
            },
            "spec": {
                "parallelism": cpus, "completions": cpus,
                "template": {"spec": {"containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "1"}}},
                ]}},
            },
        });
        merge(&mut template, change);
        let object: DynamicObject = read(template);
        let template = Template::read(&job_kind(), object);
        self.take(Input::Template(job_kind(), Delta::Upserted(template)));
    }

    /// Creates the binding of job `name` as the webhook leaves it, with `change` merged into it.
    fn binding(&mut self, name: &str, cpus: u32, change: Value) {
        let mut binding = json!({
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {
                "name": name, "namespace": "team",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "labels": {
                    names::POLICY_PERMANENT_ID: "policy",
                    names::BINDING_PERMANENT_ID: format!("{name}-id"),
                },
                "finalizers": [names::ACCOUNTING_FINALIZER],
                "ownerReferences": [owner_of(name)],
            },
            "spec": {
                "resource": {
                    "apiVersion": "batch/v1", "kind": "Job", "namespace": "team",
                    "name": name, "uid": format!("{name}-uid"),
                },
                "replicas": cpus,
                "schedulerName": "muster",
                "suspension": {"scheduling": true},
            },
        });
        merge(&mut binding, change);
        if let Some(labels) = binding["metadata"]["labels"].as_object_mut() {
            labels.retain(|_, value| !value.is_null());
        }
        self.api.put(&path(name), binding);
        self.echo(name);
    }

    /// Creates a gated job of `cpus` pods with one CPU each.
    fn job(&mut self, name: &str, cpus: u32) {
        self.template(name, cpus, json!({}));
        self.binding(name, cpus, json!({}));
    }

    /// The watch shows the current binding.
    fn echo(&mut self, name: &str) {
        let delta = match self.api.get(&path(name)) {
            Some(binding) => Delta::Upserted(read(binding)),
            None => Delta::Gone(object_key("team", name)),
        };
        self.take(Input::Binding(delta));
    }

    /// Another user changes the binding, and the watch shows it.
    fn change(&mut self, name: &str, change: Value) {
        self.api.merge(&path(name), &change);
        self.echo(name);
    }

    /// Creates or removes a Work of the job, on the server and in the watch.
    fn work(&mut self, name: &str, there: bool) {
        self.work_on_server(name, there);
        let delta = match self.api.get(&work_path(name)) {
            Some(work) => Delta::Upserted(ReadWork::of(read(work))),
            None => Delta::Gone(object_key("karmada-es-m1", name)),
        };
        self.take(Input::Work(delta));
    }

    /// Creates a Work of `job` in `m1`, for the binding with a permanent id. It requests `pods` pods of `cpu`
    /// CPUs each.
    fn rendered(&mut self, job: &str, id: &str, pods: u32, cpu: u32) {
        let work = json!({
            "metadata": work_metadata(job, id),
            "spec": {"workload": {"manifests": [{
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"labels": {"muster.io/queue": "q"}},
                "spec": {"parallelism": pods, "completions": pods, "template": {"spec": {"containers": [
                    {"name": "main", "resources": {"requests": {"cpu": cpu.to_string()}}},
                ]}}},
            }]}},
        });
        self.api.put(&work_path(job), work);
        let work = self.api.get(&work_path(job)).unwrap();
        self.take(Input::Work(Delta::Upserted(ReadWork::of(read(work)))));
    }

    fn work_on_server(&self, name: &str, there: bool) {
        match there {
            true => {
                let metadata = work_metadata(name, &format!("{name}-id"));
                self.api
                    .put(&work_path(name), json!({ "metadata": metadata }));
            }
            false => self.api.remove(&work_path(name)),
        }
    }

    /// Runs until nothing changes, without any echo.
    async fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let now = self.now();
            self.core.pass(now);
            let wait = tokio::time::timeout(Duration::from_millis(100), self.inputs.recv());
            let Ok(Some(input)) = wait.await else {
                if self.core.reconciler.out.work_queue.is_empty() {
                    return;
                }
                continue;
            };
            self.take(input);
            while let Ok(input) = self.inputs.try_recv() {
                self.take(input);
            }
        }
        panic!("it never comes to rest: {:#?}", last(&self.api.requests()));
    }

    /// Takes inputs while not every kind has listed.
    async fn settle_unready(&mut self) {
        loop {
            let now = self.now();
            self.core.pass(now);
            let wait = tokio::time::timeout(Duration::from_millis(100), self.inputs.recv());
            match wait.await {
                Ok(Some(input)) => self.take(input),
                _ => return,
            }
        }
    }

    /// Runs until nothing changes; the watch shows every write to `names`.
    async fn rest(&mut self, names: &[&str]) {
        for _ in 0..20 {
            let before = self.versions(names);
            for name in names {
                self.echo(name);
            }
            self.settle().await;
            if self.versions(names) == before {
                return;
            }
        }
        panic!("it never comes to rest: {:#?}", last(&self.api.requests()));
    }

    async fn rest_later(&mut self, names: &[&str], ms: i64) {
        self.ahead_ms += ms;
        self.rest(names).await;
    }

    fn versions(&self, names: &[&str]) -> Vec<Value> {
        let version = |name: &&str| {
            let binding = self.api.get(&path(name)).unwrap_or_default();
            binding["metadata"]["resourceVersion"].clone()
        };
        names.iter().map(version).collect()
    }

    fn now(&self) -> Time {
        self.core.now().after(self.ahead_ms)
    }

    fn get(&self, name: &str) -> Value {
        self.api.get(&path(name)).expect("the binding is there")
    }

    fn record(&self, name: &str) -> Option<AdmissionRecord> {
        let binding = self.get(name);
        let text = binding["metadata"]["annotations"][names::ADMISSION_ANNOTATION].as_str()?;
        Some(serde_json::from_str(text).unwrap())
    }

    /// Formats the state of the binding: `Admitted 1 open [m1]`.
    fn shown(&self, name: &str) -> String {
        let binding = self.get(name);
        let gate = match binding["spec"]["suspension"]["scheduling"] == true {
            true => "gated",
            false => "open",
        };
        let clusters = binding["spec"]["clusters"].as_array().cloned();
        let clusters: Vec<String> = clusters
            .unwrap_or_default()
            .iter()
            .map(|cluster| cluster["name"].as_str().unwrap_or_default().to_owned())
            .collect();
        match self.record(name) {
            Some(record) => format!(
                "{:?} {} {gate} {clusters:?}",
                record.state, record.attempt.0
            ),
            None => format!("no record, {gate} {clusters:?}"),
        }
    }

    /// CPUs that are charged to the queue.
    fn charged(&self) -> String {
        let usage = self
            .core
            .reconciler
            .engine
            .queue_usage(&QueueName::new("q"))
            .unwrap();
        let charged = usage.allocated.to_list().remove("cpu");
        charged.unwrap_or_else(|| "0".to_owned())
    }

    fn state(&self, name: &str) -> Option<JobState> {
        let key = JobKey::new("team", name);
        self.core.reconciler.engine.job(&key).map(|job| job.state)
    }

    /// The patches of the binding itself, in order.
    fn patches(&self, name: &str) -> Vec<Value> {
        let patches = self.api.requests_of("PATCH").into_iter();
        patches
            .filter(|request| request.path == path(name))
            .map(|request| request.body)
            .collect()
    }
}
