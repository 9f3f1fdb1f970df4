//! What a member has to run: the size of a manifest as it is applied there, after all overrides.
//!
//! The same rules as for a template apply ([`mod@crate::spec`]), so that the charge of a job can be
//! compared with what it has to run. Stand-ins in parts of a gang, which are gated for ever, are left out.
//! A manifest of an unknown kind cannot be read: Karmada's interpreter reads the size in the binding from
//! the template, before any override.

use crate::claims::{self, ClaimedDevices};
use crate::spec::read_spec;
use crate::{kinds, pod_specs};
use facts::{Amount, Resources, RolePods};
use serde_json::Value;

/// The requests of all pods of one manifest. Devices that they claim have the names of their
/// ResourceClaimTemplates until [`Rendered::with_claims`] replaces these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// All pods that the member may start.
    total: Resources,
    /// The pods among them that only a rolling update starts.
    surge: Resources,
    /// Pods by role.
    pods: Vec<RolePods>,
}

/// Returns what `manifest` makes its member run; `None` if that cannot be read: its kind is unknown, or a
/// field is invalid, which no member accepts either.
#[must_use]
pub fn rendered(mut manifest: Value) -> Option<Rendered> {
    let spec = read_spec(&manifest).ok()?;
    let kind = kinds::of_template(&manifest)?;
    let stand_ins: Vec<String> = pod_specs::of(&mut manifest)
        .into_iter()
        .filter(|(_, spec)| never_starts(spec))
        .map(|(role, _)| role)
        .collect();
    let is_absent = |role: &str| stand_ins.iter().any(|stand_in| stand_in == role);
    let roles = spec.roles.iter().filter(|role| {
        let never_started = kind.role_started_by(&role.name).is_some_and(is_absent);
        !is_absent(&role.name) && !never_started
    });
    let first = spec.roles.first();
    let surge = first.map_or(Some(Resources::new()), |first| {
        first.request.checked_mul(spec.surge)
    });
    let total = roles.clone().try_fold(Resources::new(), |sum, role| {
        sum.checked_add(&role.request.checked_mul(role.count)?)
    });
    let pods = roles.map(|role| RolePods {
        role: role.name.clone(),
        count: role.count,
    });
    Some(Rendered {
        total: total?,
        surge: surge?,
        pods: pods.collect(),
    })
}

/// Returns true if pods of `spec` are gated because they are stand-ins for a pod in another cluster.
fn never_starts(spec: &Value) -> bool {
    let gates = spec.get("schedulingGates").and_then(Value::as_array);
    let names = gates
        .into_iter()
        .flatten()
        .filter_map(|g| g["name"].as_str());
    let mut names = names.into_iter();
    names.any(kinds::is_stand_in)
}

impl Rendered {
    /// Returns the same with the devices that the ResourceClaimTemplates of its pods claim, as `of` finds
    /// them; templates that are not found are left out.
    #[must_use]
    pub fn with_claims<'a>(&self, of: &dyn Fn(&str) -> Option<&'a ClaimedDevices>) -> Self {
        let whole =
            |request| claims::resolved(request, of).unwrap_or_else(|_| claims::left_out(request));
        Self {
            total: whole(&self.total),
            surge: whole(&self.surge),
            pods: self.pods.clone(),
        }
    }

    /// Returns the requests of all pods that the member may start.
    #[must_use]
    pub fn total(&self) -> &Resources {
        &self.total
    }

    /// Returns the pods that the member may start, by role.
    #[must_use]
    pub fn pods(&self) -> &[RolePods] {
        &self.pods
    }

    /// Returns what it requests beyond `charged`; `surge` is the part of the whole job that only a rolling
    /// update starts.
    ///
    /// A surge in percent is rounded up in each cluster, so that all clusters together may start more than was
    /// charged. If a resource exceeds the charge by no more than that, and does not exceed it without a
    /// rolling update, there is no excess of it.
    #[must_use]
    pub fn beyond(&self, charged: &Resources, surge: &Resources) -> Resources {
        let beyond = self.total.iter().filter_map(|(name, asked)| {
            let has = charged.amount_of(name);
            let more = asked.0.saturating_sub(has.0);
            let settled = asked.0.saturating_sub(self.surge.amount_of(name).0);
            let rounds = settled <= has.0 && more <= surge.amount_of(name).0;
            (more > 0 && !rounds).then(|| (name.clone(), Amount(more)))
        });
        beyond.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::testing::yaml;

    const SERVE: &str = "
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: REPLICAS
  strategy: {rollingUpdate: {maxSurge: SURGE}}
  template: {spec: {containers: [{name: c, resources: {limits: {nvidia.com/gpu: GPUS}}}]}}
";

    fn serve(replicas: u32, surge: &str, gpus: u32) -> Rendered {
        let text = SERVE
            .replace("REPLICAS", &replicas.to_string())
            .replace("SURGE", surge)
            .replace("GPUS", &gpus.to_string());
        rendered(yaml(&text)).unwrap()
    }

    fn gpus(gpus: u32, pods: u32) -> Resources {
        let (gpus, pods) = (gpus.to_string(), pods.to_string());
        Resources::parse([("nvidia.com/gpu", &*gpus), ("pods", &*pods)]).unwrap()
    }

    #[test]
    fn an_override_exceeds_the_charge_and_a_rounded_surge_does_not() {
        // 10 replicas with 3 surge pods, of which a cluster gets 5 and the charge of 6.
        let surge = gpus(3, 3);
        for (replicas, max_surge, gpus_each, beyond) in [
            (5, "25%", 1, ""),
            (5, "3", 1, ""),
            // Its replicas, its requests, and its surge were raised.
            (7, "0", 1, "nvidia.com/gpu 1, pods 1"),
            (6, "50%", 1, ""),
            (8, "25%", 1, "nvidia.com/gpu 4, pods 4"),
            (5, "25%", 2, "nvidia.com/gpu 8"),
            (5, "100%", 1, "nvidia.com/gpu 4, pods 4"),
        ] {
            let found = serve(replicas, max_surge, gpus_each).beyond(&gpus(6, 6), &surge);
            assert_eq!(
                found.to_string(),
                beyond,
                "{replicas} {max_surge} {gpus_each}"
            );
        }
        assert_eq!(
            serve(2, "0", 8)
                .beyond(&gpus(8, 2), &Resources::new())
                .to_string(),
            "nvidia.com/gpu 8"
        );
    }

    #[test]
    fn an_unreadable_manifest_has_no_size() {
        assert_eq!(
            rendered(yaml("{apiVersion: a.example/v1, kind: Thing}")),
            None
        );
        assert_eq!(rendered(Value::Null), None);
        let text = "{apiVersion: batch/v1, kind: Job, spec: {parallelism: many}}";
        assert_eq!(rendered(yaml(text)), None);
    }
}
