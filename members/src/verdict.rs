//! Decides whether a member is usable: what Karmada reports of it, and how fresh its view is. Pure.

use crds::karmada::{Cluster, condition};
use std::time::Duration;

/// State of the live view of a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ViewState {
    /// Why there can be no view at all.
    pub(crate) unreachable_by_design: Option<String>,
    /// True if its nodes and pods have listed over the present connection.
    pub(crate) listed: bool,
    /// True if its devices, classes and claims have listed; at once if it serves none.
    pub(crate) devices_listed: bool,
    /// True if its LimitRanges, ResourceQuotas and RuntimeClasses have listed; at once if they may not be.
    pub(crate) rules_listed: bool,
    /// Age of the oldest source: the watches of nodes, pods and devices, and the last answered probe. `None`
    /// before the first answer.
    pub(crate) age: Option<Duration>,
    /// Number of probes that failed in a row, and the error of the last one.
    pub(crate) failed_probes: u32,
    /// True if the member answered the last probe with a refusal: its rights or credentials are wrong.
    pub(crate) refuses: bool,
    pub(crate) last_error: String,
}

impl ViewState {
    fn all_listed(&self) -> bool {
        self.listed && self.devices_listed && self.rules_listed
    }
}

/// Freshness of a member's view, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewHealth {
    /// Fresh: decisions use it.
    Ready,
    /// Reachable, but the view is incomplete or too old.
    Stale,
    /// Unreachable: the view is from before.
    Unreachable,
}

/// The verdict on a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemberVerdict {
    pub(crate) health: ViewHealth,
    /// True if the member was asked and does not answer; false if it is only not connected yet, or never can
    /// be.
    pub(crate) silent: bool,
    /// Why no job may be placed there; empty if jobs may be.
    pub(crate) because: String,
}

/// Number of failed probes in a row after which a member counts as gone; one lost answer, or a restart of
/// the API server, is not enough.
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
        Some(age) if view.all_listed() && age <= bound => Ready,
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
        (_, Some(_)) if !view.rules_listed => {
            let why = "its LimitRanges, ResourceQuotas and RuntimeClasses are not listed yet";
            MemberVerdict::no(Stale, why.into())
        }
        // The text has no ages: each would be sent as a change.
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

/// Returns why Karmada reports it as not usable, if so.
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
    fn only_a_ready_member_with_a_fresh_view_is_usable() {
        let fresh = ViewState {
            listed: true,
            devices_listed: true,
            rules_listed: true,
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
    fn a_leaving_or_new_member_is_not_usable() {
        let fresh = ViewState {
            listed: true,
            devices_listed: true,
            rules_listed: true,
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
            rules_listed: true,
            age: Some(Duration::from_secs(3)),
            ..ViewState::default()
        };
        assert!(!silent(&fresh));
        assert!(silent(&ViewState {
            failed_probes: 2,
            ..fresh.clone()
        }));
        // It is alive: an operator's annotation must not count.
        assert!(!silent(&ViewState {
            failed_probes: 2,
            refuses: true,
            ..fresh.clone()
        }));
        // Started again with other credentials, or never reachable.
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
