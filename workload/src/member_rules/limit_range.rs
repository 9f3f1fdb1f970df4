//! A LimitRange: defaults for containers, and bounds on containers and pods (plugin/pkg/admission/limitranger).

use crate::error::SpecError;
use crate::field::Field;
use crate::pod_shape::PodShape;
use facts::{ResourceName, Resources};
use serde_json::Value;

/// The limits of a LimitRange that concern pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitRangeRules {
    items: Vec<LimitItem>,
}

/// One entry of `spec.limits`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LimitItem {
    /// True if it is of type Pod, false if it is of type Container.
    of_pods: bool,
    default: Resources,
    default_request: Resources,
    min: Resources,
    max: Resources,
    /// By resource, in thousandths.
    ratio: Vec<(ResourceName, i64)>,
}

impl LimitRangeRules {
    /// Reads the `spec` of a LimitRange as the API server stores it, with its own defaults (`default` from `max`,
    /// `defaultRequest` from `default` or `min`).
    ///
    /// # Errors
    /// Returns an error for a field with an invalid value.
    pub fn read(spec: &Value) -> Result<Self, SpecError> {
        let mut items = Vec::new();
        for limit in Field::root(spec).get("limits")?.items()? {
            let of_pods = match limit.get("type")?.text()? {
                Some("Container") => false,
                Some("Pod") => true,
                _ => continue,
            };
            let list = |name: &str| limit.get(name)?.resources();
            let mut ratio = Vec::new();
            for (name, value) in limit.get("maxLimitRequestRatio")?.entries()? {
                // Thousandths, as CPU is counted.
                let thousandths = ResourceName::new(ResourceName::CPU);
                let value = value.amount(&thousandths)?;
                ratio.push((ResourceName::new(name), value.0));
            }
            items.push(LimitItem {
                of_pods,
                default: list("default")?,
                default_request: list("defaultRequest")?,
                min: list("min")?,
                max: list("max")?,
                ratio,
            });
        }
        Ok(Self { items })
    }

    /// Gives the containers of a pod the requests and limits that they lack. Of several entries of one LimitRange the
    /// last that names a resource counts.
    pub(super) fn default(&self, pod: &mut PodShape) {
        let mut limits = Resources::new();
        let mut requests = Resources::new();
        for item in self.items.iter().filter(|item| !item.of_pods) {
            for (name, amount) in item.default.iter() {
                limits.set(name.clone(), amount);
            }
            for (name, amount) in item.default_request.iter() {
                requests.set(name.clone(), amount);
            }
        }
        for container in &mut pod.containers {
            for (own, defaults) in [
                (&mut container.limits, &limits),
                (&mut container.requests, &requests),
            ] {
                for (name, amount) in defaults.iter() {
                    if own.get(name).is_none() {
                        own.set(name.clone(), amount);
                    }
                }
            }
        }
    }

    /// Returns why a pod is refused, if it is.
    pub(super) fn refusal(&self, pod: &PodShape) -> Result<Option<String>, SpecError> {
        for item in &self.items {
            if item.of_pods {
                // Overhead is no part of these sums.
                let requests = pod.over_containers(|container| &container.requests)?;
                let limits = pod.over_containers(|container| &container.limits)?;
                if let Some(why) = item.refusal("pod", &requests, &limits) {
                    return Ok(Some(why));
                }
                continue;
            }
            let mut containers = pod.containers.iter();
            let refusal = containers.find_map(|container| {
                item.refusal("container", &container.requests, &container.limits)
            });
            if refusal.is_some() {
                return Ok(refusal);
            }
        }
        Ok(None)
    }
}

impl LimitItem {
    fn refusal(&self, of: &str, requests: &Resources, limits: &Resources) -> Option<String> {
        let bounds = [
            ("at least", &self.min, requests, "requests", false),
            ("at most", &self.max, limits, "has the limit", true),
        ];
        for (word, bound, known, verb, is_max) in bounds {
            for (name, bound) in bound.iter() {
                let has = known.get(name);
                let fits =
                    has.is_some_and(|has| (has >= bound && !is_max) || (has <= bound && is_max));
                // A request above the most, or a limit below the least, is refused too; the API server has refused
                // templates whose requests exceed their limits before.
                if !fits {
                    let text = has.map_or_else(
                        || "no amount".to_owned(),
                        |has| format!("{name} {}", name.format(has)),
                    );
                    let bound = name.format(bound);
                    return Some(format!(
                        "{word} {name} {bound} for each {of}, which {verb} {text}"
                    ));
                }
            }
        }
        for (name, ratio) in &self.ratio {
            let (request, limit) = (requests.amount_of(name), limits.amount_of(name));
            let is_met = request.0 > 0
                && limit.0 > 0
                && i128::from(limit.0) * 1000 <= i128::from(*ratio) * i128::from(request.0);
            if !is_met {
                return Some(format!(
                    "maxLimitRequestRatio of {name} for each {of}, which requests {} with the limit {}",
                    name.format(request),
                    name.format(limit)
                ));
            }
        }
        None
    }
}
