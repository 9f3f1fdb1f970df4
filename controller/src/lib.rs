//! The queue controller: watches in, one engine, writes out.
//!
//! ```text
//! watches, members ─► ingest ─► mirror ─► facts ─► engine ─► decisions ─┐
//!                                 │                                     ▼
//!                                 └──────────── work queue ─────► reconcile ─► actions
//!                                                                                │
//!   bindings, overrides, members ◄── committer, scheduler, object writer ◄── effects
//!   PodGroups, Queue and CapacityPolicy status ◄──────────────────────────── status
//! ```
//!
//! `reconcile` reads the mirror and the engine and returns its effects as values. Only `effects` has a
//! client, the committer and the channels; the writers of statuses are the publisher's.
//!
//! The controller must never decide before every watched kind has listed once and this replica has begun
//! its term ([`binding_writer::term`]). It writes bindings only through the committer, and keeps nothing
//! that a restart could not read from the API server.

pub mod admission_policies;
mod alerts;
mod avoided_nodes;
mod cluster_breakers;
mod core;
mod effects;
mod ending_nodes;
mod facts;
mod ingest;
mod invariants;
pub mod live;
mod messages;
mod metrics;
mod mirror;
mod notices;
mod pre_pulls;
mod reconcile;
mod status;

use crate::core::{Core, Leading};
use crate::effects::Effects;
use crate::effects::bindings::BindingWrites;
use crate::effects::events::{EventRecorder, Reports};
use crate::effects::nodes::NodeTaints;
use crate::effects::object_writer::ObjectWriter;
use crate::effects::rights::RightsReviewer;
use crate::effects::works_reader::WorksReader;
use crate::ingest::readiness::Readiness;
use crate::ingest::template_watches::TemplateWatches;
use crate::ingest::unselected_kinds;
use crate::ingest::watches;
use crate::messages::enforcement::Enforcement;
use crate::messages::input::Input;
use crate::metrics::ControllerMetrics;
use crate::notices::Notices;
use crate::reconcile::Reconciler;
use crate::reconcile::reconciler::ReconcileOptions;
use crate::status::Publisher;
use binding_writer::overrides::Overrides;
use binding_writer::{CommitOptions, Committer, term};
use engine::{Engine, EngineConfig};
use members::{MemberEvent, Members, MembersOptions};
use runtime::clock::Clock;
use runtime::health::{Health, ReadyFlag};
use runtime::lease::ledger::{Ledger, LedgerOptions};
use runtime::lease::{Leadership, Term};
use runtime::metrics::Registry;
use runtime::status_writer::{StatusWriter, StatusWriterOptions};
use runtime::traces::TraceSink;
use runtime::watch::WatchMetrics;
use scheduler::{Scheduler, SchedulerOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// Capacity of the channel of inputs; watches block beyond it.
const INPUTS: usize = 4_096;

/// Questions to members and removals of leftover Works that run at once.
const CHECKS: usize = 16;

/// A replica that does not lead by then is a standby.
const STAND_BY_AFTER: Duration = Duration::from_secs(5);

pub use alerts::AlertIntake;

/// What the controller shares with its process.
#[derive(Clone)]
pub struct ControllerContext {
    /// Client of the Karmada control plane.
    pub client: kube::Client,
    /// Readiness of the process.
    pub health: Health,
    /// Metrics of the process.
    pub registry: Registry,
    /// Metrics of watches, which all watches share.
    pub watches: WatchMetrics,
    /// State of leadership.
    pub leadership: Leadership,
}

/// How many seconds a job keeps running by default when an override makes its Works request more than was admitted.
pub const OVERRIDE_GRACE_SECONDS: u32 = 60;

/// How many seconds an evicted job is charged at most by default until its pods have ended.
pub const PODS_END_WITHIN_SECONDS: u32 = 3_600;

/// How many seconds pass by default between two checks of the engine's numbers.
pub const INVARIANT_CHECK_SECONDS: u32 = 300;

/// Options of the controller.
#[derive(Debug, Clone)]
pub struct ControllerOptions {
    /// Options of the engine.
    pub engine: EngineConfig,
    /// Options of the views of the members.
    pub members: MembersOptions,
    /// Options of the binding writes.
    pub commit: CommitOptions,
    /// Where binding writes are opened first; none if no other replica competes.
    pub ledger: Option<LedgerOptions>,
    /// How long a job keeps running when an override makes its Works request more than was admitted.
    pub override_grace: Duration,
    /// How long an evicted job is charged at most until its pods have ended, however long their grace periods are.
    pub pods_end_within: Duration,
    /// How long it is at least from one check of the engine's numbers to the next.
    pub invariant_checks_every: Duration,
    /// The operator's file that says where notices are posted; `None` if they are not.
    pub notices: Option<PathBuf>,
    /// Where alerts about nodes are posted.
    pub alerts: AlertIntake,
    /// Where the traces of jobs are sent.
    pub traces: TraceSink,
    /// Export the metrics of queues by Volcano's names too.
    pub volcano_metrics: bool,
    /// Decide even if the admission policies are not in force.
    pub without_admission_policies: bool,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            engine: EngineConfig::default(),
            members: MembersOptions::default(),
            commit: CommitOptions::default(),
            ledger: None,
            override_grace: Duration::from_secs(OVERRIDE_GRACE_SECONDS.into()),
            pods_end_within: Duration::from_secs(PODS_END_WITHIN_SECONDS.into()),
            invariant_checks_every: Duration::from_secs(INVARIANT_CHECK_SECONDS.into()),
            notices: None,
            alerts: AlertIntake::default(),
            traces: TraceSink::default(),
            volcano_metrics: false,
            without_admission_policies: false,
        }
    }
}

/// Runs the controller until `cancel`. `with_scheduler` says whether it carries out its plans itself. It
/// follows all watches at all times, and decides while this replica leads.
///
/// After each term everything is built again from the API server, so that no assumption outlives a term.
pub async fn run(
    context: ControllerContext,
    options: ControllerOptions,
    with_scheduler: bool,
    cancel: CancellationToken,
) {
    let mut metrics = ControllerMetrics::new(&context.registry);
    if options.volcano_metrics {
        metrics.queues.add_volcano_names(&context.registry);
    }
    let ready = readiness_check(&context);
    while !cancel.is_cancelled() {
        let over = cancel.child_token();
        let term = Term {
            leadership: context.leadership.term(over.clone()),
            ledger: options
                .ledger
                .clone()
                .map(|ledger| Ledger::new(context.client.clone(), ledger, &context.registry)),
        };
        let (inputs, receiver) = mpsc::channel(INPUTS);
        let leadership = term.leadership.clone();
        options
            .alerts
            .open(inputs.clone(), leadership, ready.clone());
        let life = Life {
            context: &context,
            options: &options,
            term: &term,
            client: term.client(&context.client),
            over: over.clone(),
            inputs: inputs.clone(),
        };
        let live = live(
            life,
            with_scheduler,
            metrics.clone(),
            ready.clone(),
            receiver,
        );
        let hold = term::hold(
            &context.client,
            &context.leadership,
            &term,
            &inputs,
            Input::Lead,
        );
        tokio::select! {
            () = live => {}
            () = hold => {}
            () = cancel.cancelled() => {}
        }
        context.leadership.heart().rest();
        metrics.queues.clear();
        ready.set(false);
        over.cancel();
    }
}

/// Returns the readiness flag. A leader is ready once every kind has listed; a standby, which serves the
/// webhook, is ready once it had time to become the leader.
fn readiness_check(context: &ControllerContext) -> ReadyFlag {
    let ready = context.health.ready_check("controller");
    let (flag, leadership, start) = (ready.clone(), context.leadership.clone(), Instant::now());
    context.health.ready_when("controller", move || {
        let stands_by = !leadership.is_leading() && start.elapsed() >= STAND_BY_AFTER;
        match stands_by || flag.is_ready() {
            true => Ok(()),
            false => Err("not everything has listed yet".to_owned()),
        }
    });
    ready
}

/// State of one life, from the first list to the end of the term.
struct Life<'a> {
    context: &'a ControllerContext,
    options: &'a ControllerOptions,
    term: &'a Term,
    /// Client that writes only during the term.
    client: kube::Client,
    over: CancellationToken,
    inputs: mpsc::Sender<Input>,
}

/// Follows all watches, and decides from the beginning of the term to its end.
async fn live(
    life: Life<'_>,
    with_scheduler: bool,
    metrics: ControllerMetrics,
    ready_flag: ReadyFlag,
    receiver: mpsc::Receiver<Input>,
) {
    let status_subresource = watches::podgroups_have_status(&life.client).await;
    let (scheduler, members) = life.follow_members(with_scheduler);
    let watch_metrics = &life.context.watches;
    watches::spawn(&life.client, &life.inputs, watch_metrics, &life.over);
    let mut template_watches = TemplateWatches::new(
        life.client.clone(),
        life.inputs.clone(),
        watch_metrics.clone(),
        life.over.clone(),
    );
    let mut readiness = Readiness::new();
    for kind in watches::known_template_kinds() {
        template_watches.ensure(&kind);
        readiness.expect_template(kind);
    }
    unselected_kinds::spawn(life.client.clone(), life.inputs.clone(), life.over.clone());
    let enforcement = life.enforcement(&metrics);
    let overrides = match &scheduler {
        Some(scheduler) => scheduler.overrides(),
        None => Overrides::new(life.client.clone(), life.term),
    };
    let places_itself = scheduler.is_some();
    let publisher = life.publisher(&overrides, status_subresource);
    let events = EventRecorder::spawn(life.client.clone(), life.over.clone());
    let failures = metrics.node_taint_failures.clone();
    let effects = Effects {
        client: life.client.clone(),
        scheduler,
        members,
        objects: publisher.objects.clone(),
        overrides,
        works_reader: WorksReader::spawn(life.client.clone()),
        reports: Reports::new(events, life.notices(&metrics)),
        rights: RightsReviewer::spawn(life.client.clone(), life.inputs.clone(), life.over.clone()),
        inputs: life.inputs.clone(),
        checks: Arc::new(Semaphore::new(CHECKS)),
        taints: NodeTaints::new(life.term.leadership.clone(), failures),
        bindings: BindingWrites::new(life.committer()),
    };
    let core = Core {
        role: Leading::Follows,
        clock: Clock::new(),
        heart: life.term.leadership.heart(),
        reconciler: life.reconciler(places_itself, enforcement, metrics),
        effects,
        publisher,
        policies_seen: BTreeMap::new(),
        readiness,
        template_watches,
        invariants: invariants::Timer::new(life.options.invariant_checks_every),
        ready_flag,
        wake_at: None,
    };
    core.serve(receiver, life.over).await;
}

impl Life<'_> {
    fn reconciler(
        &self,
        places_itself: bool,
        enforcement: Enforcement,
        metrics: ControllerMetrics,
    ) -> Reconciler {
        let grace = self.options.override_grace.as_millis();
        let options = ReconcileOptions {
            override_grace_ms: i64::try_from(grace).unwrap_or(i64::MAX),
            pods_end_ms: i64::try_from(self.options.pods_end_within.as_millis())
                .unwrap_or(i64::MAX),
            places_itself,
        };
        let engine = Engine::new(self.options.engine.clone());
        Reconciler::new(options, engine, enforcement, metrics)
    }

    /// Starts to post notices, if the operator wants them.
    fn notices(&self, metrics: &ControllerMetrics) -> Option<Notices> {
        let path = self.options.notices.clone()?;
        let failures = metrics.notice_failures.clone();
        Some(Notices::spawn(path, failures, self.over.clone()))
    }

    /// Returns whether decisions need the admission policies, and starts the keeper that reports changes.
    fn enforcement(&self, metrics: &ControllerMetrics) -> Enforcement {
        let enforcement = Enforcement::at_start(!self.options.without_admission_policies);
        if enforcement == Enforcement::Unknown {
            admission_policies::spawn(
                self.context.client.clone(),
                self.term,
                self.inputs.clone(),
                metrics.admission_policies.clone(),
                self.over.clone(),
            );
        }
        enforcement
    }

    /// Follows the members, and starts the scheduler if it is part of this process.
    fn follow_members(&self, with_scheduler: bool) -> (Option<Scheduler>, Members) {
        let (sink, events) = mpsc::channel::<MemberEvent>(INPUTS);
        watches::forward(events, self.inputs.clone(), Input::Member);
        let members = MembersOptions {
            registry: self.context.registry.clone(),
            watch_metrics: self.context.watches.clone(),
            ..self.options.members.clone()
        };
        let follow = |sinks| Members::spawn(self.client.clone(), members, sinks, self.over.clone());
        if !with_scheduler {
            let members = follow(vec![sink]);
            return (None, members);
        }
        let (live, live_events) = mpsc::channel::<MemberEvent>(INPUTS);
        let members = follow(vec![sink, live]);
        let options = SchedulerOptions {
            term: Some(self.term.clone()),
            registry: self.context.registry.clone(),
        };
        let scheduler = Scheduler::spawn(
            self.client.clone(),
            members.clone(),
            live_events,
            options,
            self.over.clone(),
        );
        (Some(scheduler), members)
    }

    fn committer(&self) -> Committer {
        let (sink, outcomes) = mpsc::channel(INPUTS);
        watches::forward(outcomes, self.inputs.clone(), Input::written);
        Committer::spawn(
            self.client.clone(),
            self.options.commit.clone(),
            Some(self.term.clone()),
            sink,
            &self.context.registry,
            self.over.clone(),
        )
    }

    fn publisher(&self, overrides: &Overrides, status_subresource: bool) -> Publisher {
        // Statuses are for people: they leave the API server's capacity to the writes that place jobs.
        let options = StatusWriterOptions {
            in_flight: 2,
            settle: Duration::from_millis(700),
            leadership: Some(self.term.leadership.clone()),
            registry: Some(self.context.registry.clone()),
            ..StatusWriterOptions::default()
        };
        let templates = StatusWriterOptions {
            in_flight: 1,
            // A job that is admitted by then never shows that it was queued.
            settle: Duration::from_secs(2),
            interval: Duration::from_secs(5),
            registry: None,
            ..options.clone()
        };
        let writers = [options, templates].map(|options| {
            StatusWriter::spawn_with(self.client.clone(), options, self.over.clone())
        });
        let mut publisher = Publisher::new(
            writers,
            ObjectWriter::spawn(self.client.clone(), overrides.clone(), self.over.clone()),
            status_subresource,
        );
        publisher.send_traces_to(self.options.traces.clone());
        publisher
    }
}
