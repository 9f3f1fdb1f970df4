//! Whether a member may be decided on: what Karmada says of it, and how fresh our own view
//! is. Pure.

use crds::karmada::{Cluster, condition};
use std::time::Duration;

/// How our live view of a member stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ViewState {
    /// Why there can be no view at all.
    pub(crate) unreachable_by_design: Option<String>,
    /// Whether its nodes and pods have listed since the connection was made.
    pub(crate) listed: bool,
    /// Whether its devices, their classes and claims have: at once where it serves none.
    pub(crate) devices_listed: bool,
    /// Age of the oldest of what we were told: the watches of nodes, pods and devices, and the last
    /// probe that was answered. `None` before the first answer.
    pub(crate) age: Option<Duration>,
    /// Probes in a row that failed, and what the last of them said.
    pub(crate) failed_probes: u32,
    /// Whether the last of them was answered, if only with a no: its rights or its credentials are
    /// not what they should be.
    pub(crate) refuses: bool,
    pub(crate) last_error: String,
}

/// How fresh what is known of a member is, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewHealth {
    /// Fresh: decided on.
    Ready,
    /// Reached, but what is known is not complete or too old.
    Stale,
    /// Not reached: what is known is from before.
    Unreachable,
}

/// What follows for a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberVerdict {
    pub(crate) health: ViewHealth,
    /// Whether it was asked, and does not answer: not one that is only not connected yet, or
    /// never will be.
    pub(crate) silent: bool,
    /// Why nothing may be placed there; empty where it may.
    pub(crate) because: String,
}

/// Probes in a row that must fail before a member counts as gone: one lost answer, or an API
/// server that restarts, is not it.
const FAILED_PROBES: u32 = 2;

impl MemberVerdict {
    pub(crate) fn usable(&self) -> bool {
        self.because.is_empty()
    }

    fn no(health: ViewHealth, because: String) -> Self {
        Self {
            health,
            silent: false,
            because,
        }
    }
}

/// Assesses `cluster`, whose view may be at most `bound` old.
pub(crate) fn verdict(cluster: &Cluster, view: &ViewState, bound: Duration) -> MemberVerdict {
    let never_answered = view.age.is_none() && !view.last_error.is_empty();
    let silent = view.failed_probes >= FAILED_PROBES || never_answered;
    MemberVerdict {
        silent: silent && !view.refuses && view.unreachable_by_design.is_none(),
        ..assessed(cluster, view, bound)
    }
}

fn assessed(cluster: &Cluster, view: &ViewState, bound: Duration) -> MemberVerdict {
    use ViewHealth::{Ready, Stale, Unreachable};
    if let Some(why) = &view.unreachable_by_design {
        return MemberVerdict::no(Unreachable, why.clone());
    }
    if view.failed_probes >= FAILED_PROBES {
        let how = match view.refuses {
            true => "its API server refuses what Muster asks",
            false => "its API server does not answer",
        };
        return MemberVerdict::no(Unreachable, format!("{how}: {}", view.last_error));
    }
    let health = match view.age {
        Some(age) if view.listed && view.devices_listed && age <= bound => Ready,
        Some(_) => Stale,
        None => Unreachable,
    };
    if let Some(why) = not_ready(cluster) {
        return MemberVerdict::no(health, why);
    }
    match (health, view.age) {
        (Ready, _) => MemberVerdict::no(Ready, String::new()),
        (_, Some(_)) if !view.listed => {
            MemberVerdict::no(Stale, "its nodes and pods are not listed yet".into())
        }
        (_, Some(_)) if !view.devices_listed => {
            let why = "its devices are not listed yet; get, list and watch on resourceslices, deviceclasses and resourceclaims (resource.k8s.io) are needed there";
            MemberVerdict::no(Stale, why.into())
        }
        // No ages in words: each of them would be told as a change.
        (_, Some(_)) => {
            let why = format!(
                "its watches have been silent for more than {} s",
                bound.as_secs()
            );
            MemberVerdict::no(Stale, why)
        }
        (_, None) => MemberVerdict::no(Unreachable, not_reached(&view.last_error)),
    }
}

/// What Karmada says against it.
fn not_ready(cluster: &Cluster) -> Option<String> {
    if cluster.metadata.deletion_timestamp.is_some() {
        return Some("it is being removed from the federation".into());
    }
    match condition(&cluster.status.conditions, "Ready") {
        Some(ready) if ready.is_true() => None,
        Some(ready) => Some(format!(
            "Karmada says Ready={} ({}): {}",
            ready.status, ready.reason, ready.message
        )),
        None => Some("Karmada has not said yet whether it is Ready".into()),
    }
}

fn not_reached(error: &str) -> String {
    match error.is_empty() {
        true => "it is not connected yet".into(),
        false => format!("it cannot be reached: {error}"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn cluster(ready: &str) -> Cluster {
        serde_json::from_value(json!({
            "metadata": {"name": "m1"},
            "spec": {"syncMode": "Push"},
            "status": {"conditions": [
                {"type": "Ready", "status": ready, "reason": "ClusterNotReachable", "message": "no"}
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_ready_member_with_a_fresh_view_is_decided_on() {
        let fresh = ViewState {
            listed: true,
            devices_listed: true,
            age: Some(Duration::from_secs(3)),
            ..ViewState::default()
        };
        let failed = |failed_probes| ViewState {
            failed_probes,
            last_error: "refused".into(),
            ..fresh.clone()
        };
        let by_design = ViewState {
            unreachable_by_design: Some("a Pull cluster".into()),
            ..fresh.clone()
        };
        let aged = |seconds| ViewState {
            age: Some(Duration::from_secs(seconds)),
            ..fresh.clone()
        };
        let rows = [
            ("True", fresh.clone(), "Ready"),
            ("True", failed(1), "Ready"),
            ("True", aged(60), "Ready"),
            (
                "True",
                aged(61),
                "Stale: its watches have been silent for more than 60 s",
            ),
            (
                "True",
                ViewState {
                    listed: false,
                    ..fresh.clone()
                },
                "Stale: its nodes and pods are not listed yet",
            ),
            (
                "True",
                ViewState {
                    devices_listed: false,
                    ..fresh.clone()
                },
                "Stale: its devices are not listed yet; get, list and watch on resourceslices, deviceclasses and resourceclaims (resource.k8s.io) are needed there",
            ),
            (
                "True",
                failed(2),
                "Unreachable: its API server does not answer: refused",
            ),
            (
                "True",
                ViewState {
                    refuses: true,
                    ..failed(2)
                },
                "Unreachable: its API server refuses what Muster asks: refused",
            ),
            (
                "True",
                ViewState::default(),
                "Unreachable: it is not connected yet",
            ),
            ("True", by_design, "Unreachable: a Pull cluster"),
            (
                "False",
                fresh,
                "Ready: Karmada says Ready=False (ClusterNotReachable): no",
            ),
        ];
        for (ready, view, want) in rows {
            let verdict = verdict(&cluster(ready), &view, Duration::from_secs(60));
            let said = match verdict.usable() {
                true => format!("{:?}", verdict.health),
                false => format!("{:?}: {}", verdict.health, verdict.because),
            };
            assert_eq!(said, want, "{view:?}");
        }
    }

    #[test]
    fn a_member_that_leaves_or_is_new_is_not_decided_on() {
        let fresh = ViewState {
            listed: true,
            devices_listed: true,
            age: Some(Duration::ZERO),
            ..ViewState::default()
        };
        let mut leaving = cluster("True");
        leaving.metadata.deletion_timestamp = Some(
            k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
        );
        let bound = Duration::from_secs(60);
        assert!(verdict(&leaving, &fresh, bound).because.contains("removed"));
        let unknown = Cluster::default();
        assert!(
            verdict(&unknown, &fresh, bound)
                .because
                .contains("not said yet")
        );
    }

    #[test]
    fn only_a_member_that_does_not_answer_is_silent() {
        let bound = Duration::from_secs(60);
        let silent = |view: &ViewState| verdict(&cluster("True"), view, bound).silent;
        let fresh = ViewState {
            listed: true,
            devices_listed: true,
            age: Some(Duration::from_secs(3)),
            ..ViewState::default()
        };
        assert!(!silent(&fresh));
        assert!(silent(&ViewState {
            failed_probes: 2,
            ..fresh.clone()
        }));
        // Alive: nobody may say that what runs there does not.
        assert!(!silent(&ViewState {
            failed_probes: 2,
            refuses: true,
            ..fresh.clone()
        }));
        // Begun again with other credentials, or never to be reached.
        assert!(!silent(&ViewState::default()));
        assert!(!silent(&ViewState {
            unreachable_by_design: Some("pull mode".into()),
            last_error: "none".into(),
            ..ViewState::default()
        }));
        assert!(silent(&ViewState {
            last_error: "refused".into(),
            ..ViewState::default()
        }));
    }
}
