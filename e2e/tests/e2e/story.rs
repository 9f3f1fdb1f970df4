//! Runs a story in a namespace of its own, alone or with others, and makes the checks at the end of
//! every story.

use std::panic::AssertUnwindSafe;

use anyhow::ensure;
use e2e::harness::turns::{Mode, StoryNeeds, Turn};
use futures::FutureExt as _;

use crate::case::Case;
use crate::plane::{self, Plane};
use crate::{diagnosis, run};

/// Whether Muster manages the story's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespace {
    /// Muster queues its jobs.
    Managed,
    /// Muster ignores its jobs.
    Unmanaged,
}

const BESIDE_OTHERS: StoryNeeds = StoryNeeds {
    mode: Mode::Running,
    spare: None,
    long: false,
};

/// Runs a story in a managed namespace, in parallel with others.
pub(crate) fn managed(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    on(BESIDE_OTHERS, Namespace::Managed, name, test);
}

/// Runs a story in a namespace that Muster does not manage, in parallel with others.
pub(crate) fn unmanaged(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    on(BESIDE_OTHERS, Namespace::Unmanaged, name, test);
}

/// Runs a story of more than a minute in parallel with others; it starts before shorter ones.
pub(crate) fn managed_long(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    let needs = StoryNeeds {
        long: true,
        ..BESIDE_OTHERS
    };
    on(needs, Namespace::Managed, name, test);
}

/// Runs a story in parallel with others, with a spare member of its own.
pub(crate) fn managed_with_spare(
    spare: &'static str,
    name: &str,
    test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>,
) {
    let needs = StoryNeeds {
        spare: Some(spare),
        long: true,
        ..BESIDE_OTHERS
    };
    on(needs, Namespace::Managed, name, test);
}

/// Runs a story in parallel with others, and kills Muster in its middle ([`Case::midway`]).
pub(crate) fn managed_and_killed(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    on(in_mode(Mode::Killed), Namespace::Managed, name, test);
}

/// Runs such a story with a spare member of its own.
pub(crate) fn killed_with_spare(
    spare: &'static str,
    name: &str,
    test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>,
) {
    let needs = StoryNeeds {
        spare: Some(spare),
        ..in_mode(Mode::Killed)
    };
    on(needs, Namespace::Managed, name, test);
}

/// Runs a story in parallel with others while each part of Muster is a separate process.
pub(crate) fn managed_separately(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    on(in_mode(Mode::Separate), Namespace::Managed, name, test);
}

/// Runs a story while no other is on the plane.
pub(crate) fn managed_alone(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    on(in_mode(Mode::Exclusive), Namespace::Managed, name, test);
}

fn in_mode(mode: Mode) -> StoryNeeds {
    StoryNeeds {
        mode,
        ..BESIDE_OTHERS
    }
}

/// Runs a story while no other story runs at all, because it measures times.
pub(crate) fn managed_quiet(name: &str, test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>) {
    plane::quiet(async |plane, turn| {
        let case = Case::new(plane, name, Namespace::Managed, Some(turn));
        whole(case, test).await
    });
}

fn on(
    needs: StoryNeeds,
    namespace: Namespace,
    name: &str,
    test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>,
) {
    plane::story(needs, async |plane, turn| {
        let case = Case::new(plane, name, namespace, Some(turn));
        whole(case, test).await
    });
}

/// Runs a story with a namespace of its own within the turn of another one, which has the plane to itself.
pub(crate) async fn beside(
    plane: &'static Plane,
    name: &str,
    test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    whole(Case::new(plane, name, Namespace::Managed, None), test).await
}

/// Proves a plane that was just started: one job is gated, admitted, placed and runs. With a build
/// that places nothing the run ends here, with the diagnosis of that job, and not after minutes in
/// each story.
pub(crate) async fn first_job(plane: &'static Plane) -> anyhow::Result<()> {
    let case = Case::new(plane, "first", Namespace::Managed, None);
    whole(case, async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let job = case.submit(&case.gang("job", 1, 8).volcano()).await?;
        case.running_within(&job, crate::case::FIRST).await?;
        Ok(())
    })
    .await
}

/// Runs a story to its end: cleans up its objects if it passed, and prints a diagnosis if it
/// failed.
async fn whole(
    case: Case,
    test: impl AsyncFnOnce(&Case) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let whole = async {
        case.make_namespace().await?;
        test(&case).await?;
        look_after(&case).await
    };
    match AssertUnwindSafe(whole).catch_unwind().await {
        Ok(Ok(())) => {
            case.clean_up().await;
            Ok(())
        }
        Ok(Err(error)) => {
            diagnosis::print(&case, &format!("{error:#}")).await;
            Err(error)
        }
        Err(panic) => {
            diagnosis::print(&case, &run::words(panic.as_ref())).await;
            std::panic::resume_unwind(panic);
        }
    }
}

/// Checks what must hold at the end of every story.
async fn look_after(case: &Case) -> anyhow::Result<()> {
    case.ensure_within().await?;
    case.audit_all().await?;
    ensure!(
        case.turn.as_ref().is_none_or(Turn::has_met),
        "{} is a story with a kill in its middle, and never got there",
        case.name
    );
    case.plane.ensure_healthy().await
}
