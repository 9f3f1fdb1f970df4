//! The queue controller: watches in, one engine, writes out.
//!
//! ```text
//! watches (bindings, works, templates, queues, ...) ─┐
//! members' nodes and pods (scheduler::members) ──────┴─► core: world ─► engine ─► decisions
//!                                                                                    │
//!   PodGroups, Queue and CapacityPolicy status, policies ◄── publish ◄───────────────┤
//!   bindings ◄── scheduler::commit ◄── plans checked by scheduler::carry_out ◄───────┘
//! ```
//!
//! It must never take a decision before every watched kind has listed once, never write a
//! binding but through the committer, and never keep anything that a restart could not find
//! again on the API server.

mod adopt;
mod advice;
mod core;
mod ensure;
mod expiry;
mod fact;
mod growth;
mod input;
mod invariants;
mod leaving;
mod meeting;
mod metrics;
mod not_touched;
mod notes;
mod out_of_service;
mod outcomes;
mod outlook;
mod parts;
mod placed;
mod places;
mod podgroups;
mod policies;
mod publish;
mod queue_status;
mod readiness;
mod reconcile;
mod release;
mod shrink;
mod sources;
mod standing;
mod tell;
mod template;
mod template_watches;
mod track;
mod watches;
mod world;

use crate::core::Core;
use crate::ensure::Ensurer;
use crate::metrics::Metrics;
use crate::notes::Notes;
use crate::publish::Publisher;
use crate::readiness::Readiness;
use crate::template_watches::TemplateWatches;
use engine::{Engine, EngineConfig};
use runtime::health::{Health, ReadyFlag};
use runtime::lease::Leadership;
use runtime::metrics::Registry;
use runtime::status_writer::{StatusWriter, StatusWriterOptions};
use runtime::watch::WatchMetrics;
use scheduler::commit::{self, CommitOptions};
use scheduler::{MemberEvent, Members, MembersOptions, Scheduler, SchedulerOptions};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Inputs that may wait for the owner task; watches wait beyond that.
const INPUTS: usize = 4_096;

/// Reads of Works under way at once: deleting a namespace asks for thousands.
const CHECKS: usize = 16;

/// A replica that does not lead by then stands by.
const STAND_BY_AFTER: Duration = Duration::from_secs(5);

/// Who carries plans out.
#[derive(Clone)]
pub enum Mode {
    /// The scheduler in this process: release and placement are one patch.
    All(Scheduler),
    /// A scheduler process of its own: the record in state Planned is the hand-over.
    Apart,
}

impl Mode {
    fn scheduler(&self) -> Option<&Scheduler> {
        match self {
            Self::All(scheduler) => Some(scheduler),
            Self::Apart => None,
        }
    }
}

/// What the controller shares with its process.
#[derive(Clone)]
pub struct Context {
    /// Client of the Karmada control plane.
    pub client: kube::Client,
    /// Readiness of the process.
    pub health: Health,
    /// Its metrics.
    pub registry: Registry,
    /// Metrics of its watches, which all of them share.
    pub watches: WatchMetrics,
    /// Who leads.
    pub leadership: Leadership,
}

/// How the controller works.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Of the engine.
    pub engine: EngineConfig,
    /// Of the members' views.
    pub members: MembersOptions,
    /// Of the binding writes.
    pub commit: CommitOptions,
}

/// Runs the controller while this replica leads, until `cancel`. `with_scheduler` says whether
/// it carries its plans out itself.
///
/// Everything is built anew from the API server each time it begins to lead, so that nothing
/// assumed by an earlier term can survive it.
pub async fn run(
    context: Context,
    options: Options,
    with_scheduler: bool,
    cancel: CancellationToken,
) {
    let metrics = Metrics::new(&context.registry);
    let ready = readiness_check(&context);
    while !cancel.is_cancelled() {
        let mut leadership = context.leadership.clone();
        let leading = cancel.run_until_cancelled(leadership.leading()).await;
        if leading.is_none() {
            return;
        }
        let term = cancel.child_token();
        let lead = lead(
            &context,
            &options,
            with_scheduler,
            metrics.clone(),
            ready.clone(),
            term.clone(),
        );
        tokio::select! {
            () = lead => {}
            () = leadership.changed() => {
                tracing::warn!("this replica leads no longer; all that it assumed is dropped");
            }
        }
        ready.set(false);
        term.cancel();
    }
}

/// A leader is ready once everything has listed; a replica that stands by, serving the webhook,
/// is ready once it had the time to become the leader.
fn readiness_check(context: &Context) -> ReadyFlag {
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

/// One term of leading.
async fn lead(
    context: &Context,
    options: &Options,
    with_scheduler: bool,
    metrics: Metrics,
    ready_flag: ReadyFlag,
    cancel: CancellationToken,
) {
    let client = context.client.clone();
    let status_subresource = watches::podgroups_have_status(&client).await;
    let (inputs, receiver) = mpsc::channel(INPUTS);
    let (mode, members) = mode(context, options, with_scheduler, &inputs, &cancel);
    watches::spawn(&client, &inputs, &context.watches, &cancel);
    let mut template_watches = TemplateWatches::new(
        client.clone(),
        inputs.clone(),
        context.watches.clone(),
        cancel.clone(),
    );
    let mut readiness = Readiness::new();
    for kind in watches::known_template_kinds() {
        template_watches.ensure(&kind);
        readiness.expect_template(kind);
    }
    let core = Core {
        engine: Engine::new(options.engine.clone()),
        world: world::World::default(),
        tracks: std::collections::HashMap::new(),
        told: std::collections::HashMap::new(),
        dirty: std::collections::BTreeSet::new(),
        later: std::collections::BTreeSet::new(),
        spread_bindings: std::collections::BTreeSet::new(),
        meeting: std::collections::BTreeSet::new(),
        untouched: std::collections::BTreeSet::new(),
        intents: Vec::new(),
        committer: committer(context, options, &inputs, &cancel),
        mode,
        members,
        pods: shrink::LivePods::default(),
        notes: Notes::spawn(client.clone(), cancel.clone()),
        publisher: publisher(context, status_subresource, &cancel),
        client,
        inputs,
        checks: std::sync::Arc::new(tokio::sync::Semaphore::new(CHECKS)),
        readiness,
        template_watches,
        metrics,
        invariants: invariants::Timer::default(),
        ready_flag,
        wake_at: None,
        places: places::Places::default(),
    };
    core.run(receiver, cancel).await;
}

/// Follows the members, and starts the scheduler where it is part of this process.
fn mode(
    context: &Context,
    options: &Options,
    with_scheduler: bool,
    inputs: &mpsc::Sender<input::Input>,
    cancel: &CancellationToken,
) -> (Mode, Members) {
    let (sink, events) = mpsc::channel::<MemberEvent>(INPUTS);
    watches::forward(events, inputs.clone(), input::Input::Member);
    let members = MembersOptions {
        registry: context.registry.clone(),
        watch_metrics: context.watches.clone(),
        ..options.members.clone()
    };
    let follow = |sinks| Members::spawn(context.client.clone(), members, sinks, cancel.clone());
    if !with_scheduler {
        let members = follow(vec![sink]);
        return (Mode::Apart, members);
    }
    let (live, live_events) = mpsc::channel::<MemberEvent>(INPUTS);
    let members = follow(vec![sink, live]);
    let options = SchedulerOptions {
        leadership: Some(context.leadership.clone()),
        registry: context.registry.clone(),
    };
    let scheduler = Scheduler::spawn(
        context.client.clone(),
        members.clone(),
        live_events,
        options,
        cancel.clone(),
    );
    (Mode::All(scheduler), members)
}

fn committer(
    context: &Context,
    options: &Options,
    inputs: &mpsc::Sender<input::Input>,
    cancel: &CancellationToken,
) -> commit::Committer {
    let (sink, outcomes) = mpsc::channel(INPUTS);
    watches::forward(outcomes, inputs.clone(), input::Input::Outcome);
    commit::spawn(
        context.client.clone(),
        options.commit.clone(),
        Some(context.leadership.clone()),
        sink,
        &context.registry,
        cancel.clone(),
    )
}

fn publisher(context: &Context, status_subresource: bool, cancel: &CancellationToken) -> Publisher {
    // Statuses are for people: they leave the API server to the writes that place jobs.
    let options = StatusWriterOptions {
        in_flight: 2,
        settle: Duration::from_millis(700),
        leadership: Some(context.leadership.clone()),
        registry: Some(context.registry.clone()),
        ..StatusWriterOptions::default()
    };
    let status = StatusWriter::spawn_with(context.client.clone(), options, cancel.clone());
    Publisher::new(
        status,
        Ensurer::spawn(context.client.clone(), cancel.clone()),
        status_subresource,
    )
}
