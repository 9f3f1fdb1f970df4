//! Kinds that start pods and that the default policy of a managed namespace does not select: what a user can
//! do to have an object of such a kind queued.

use super::{OTHER_KINDS, all, default_kinds, of};

/// Returns group and name of each kind that starts pods and that no policy of Muster selects.
pub fn unselected_kinds() -> impl Iterator<Item = (&'static str, &'static str)> {
    let known = all().filter(|kind| !kind.in_default_policy());
    let known = known.map(|kind| (kind.api().group, kind.api().kind));
    let others = OTHER_KINDS.iter();
    known.chain(others.flat_map(|(group, names)| names.iter().map(|name| (*group, *name))))
}

/// Returns what a user can do with an object of a kind that no policy selects; `None` if the default policy
/// selects the kind, or it is not known to start pods.
#[must_use]
pub fn unselected_advice(api_version: &str, kind: &str) -> Option<String> {
    let group = super::group(api_version);
    let is_it = |(of_group, name): (&str, &str)| of_group == group && name == kind;
    unselected_kinds()
        .any(is_it)
        .then(|| advice(api_version, kind))
}

fn advice(api_version: &str, kind: &str) -> String {
    let policy = format!(
        "create a PropagationPolicy in this namespace that selects {api_version} {kind} and has spec.schedulerName: muster"
    );
    if of(api_version, kind).is_some() {
        return format!("to have it queued, {policy}");
    }
    match kind {
        "CronJob" => "Muster queues Jobs, and no controller makes them from a CronJob here; create each Job in this \
                      namespace, as with kubectl create job NAME --from=cronjob/CRONJOB"
            .to_owned(),
        "JobFlow" | "HyperJob" | "ScheduledSparkApplication" | "RayCronJob" | "CronWorkflow"
        | "AdvancedCronJob" => {
            format!("Muster queues jobs, not what makes them; create the jobs of the {kind} in this namespace")
        }
        _ => {
            let mut kinds: Vec<&str> = default_kinds().map(|kind| kind.kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            format!(
                "Muster cannot read its size from its template; use one of {}, or {policy}, with a \
                 ResourceInterpreterCustomization that returns its replicas",
                kinds.join(", ")
            )
        }
    }
}
