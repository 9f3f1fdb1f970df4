//! A ResourceQuota: what the pods of a namespace may request together (plugin/pkg/admission/resourcequota,
//! pkg/quota/v1/evaluator/core/pods.go).

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::counted_as;
use crate::member_rules::MemberRules;
use crate::pod_shape::PodShape;
use facts::{Amount, ResourceName, Resources, Role};
use serde_json::Value;

/// The bounds of a ResourceQuota that concern pods and jobs, and what is used of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QuotaRules {
    bounds: Vec<QuotaBound>,
    scopes: Vec<QuotaScope>,
}

/// One entry of `hard`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QuotaBound {
    /// As it is written: `requests.nvidia.com/gpu`.
    key: String,
    counts: QuotaCounts,
    hard: Amount,
    used: Amount,
}

/// What a bound counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QuotaCounts {
    Pods,
    Requests(ResourceName),
    Limits(ResourceName),
    /// Objects of the job's own kind, as in `count/jobs.batch`.
    Objects(String),
}

/// Which pods a quota counts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum QuotaScope {
    /// Those with (true) or without a deadline.
    Terminating(bool),
    /// Those that request and limit nothing (true), or anything.
    BestEffort(bool),
    /// Those with a PriorityClass (`Exists`), or one that is in (true) or not in the list.
    PriorityClass(Option<(bool, Vec<String>)>),
    /// Which pods these are is not known: none counts.
    Unknown,
}

/// A pod of a role as a member stores it, with its request.
type StoredPod<'a> = (&'a Role, PodShape, Resources);

impl QuotaRules {
    /// Reads `spec` and `status` of a ResourceQuota.
    ///
    /// # Errors
    /// Returns an error for a field with an invalid value.
    pub fn read(spec: &Value, status: &Value) -> Result<Self, SpecError> {
        let (spec, status) = (Field::root(spec), Field::root(status));
        let used = status.get("used")?;
        let mut bounds = Vec::new();
        for (key, value) in spec.get("hard")?.entries()? {
            let Some(counts) = QuotaCounts::read(key) else {
                continue;
            };
            let unit = counts.unit();
            let used = used.entry(key)?;
            bounds.push(QuotaBound {
                key: key.to_owned(),
                hard: value.amount(&unit)?,
                used: if used.is_set() {
                    used.amount(&unit)?
                } else {
                    Amount::ZERO
                },
                counts,
            });
        }
        let mut scopes = Vec::new();
        for scope in spec.get("scopes")?.items()? {
            scopes.push(QuotaScope::read(scope.text()?.unwrap_or_default(), None));
        }
        for term in spec.get("scopeSelector.matchExpressions")?.items()? {
            let values: Result<Vec<String>, SpecError> = term
                .get("values")?
                .items()?
                .iter()
                .map(|value| Ok(value.text()?.unwrap_or_default().to_owned()))
                .collect();
            let list = match term.get("operator")?.text()? {
                Some("In") => Some((true, values?)),
                Some("NotIn") => Some((false, values?)),
                _ => None,
            };
            let name = term.get("scopeName")?.text()?.unwrap_or_default();
            scopes.push(QuotaScope::read(name, list));
        }
        Ok(Self { bounds, scopes })
    }

    /// Returns why it refuses pods of a job, if it does: all that the job needs to start, or each single pod if they
    /// may go to several clusters.
    pub(super) fn refusal(&self, pods: &[StoredPod<'_>], rules: MemberRules<'_>) -> Option<String> {
        let counted = |pod: &&StoredPod<'_>| self.scopes.iter().all(|scope| scope.counts(&pod.1));
        let pods: Vec<&StoredPod<'_>> = pods.iter().filter(counted).collect();
        if pods.is_empty() {
            return None;
        }
        if let Some(why) = self.unstated(&pods) {
            return Some(why);
        }
        if rules.whole {
            let all = pods.iter().map(|pod| (*pod, pod.0.min));
            return self.exceeded(&all.collect::<Vec<_>>(), rules);
        }
        let each = pods.iter().map(|pod| self.exceeded(&[(*pod, 1)], rules));
        // One that fits may go there without the others.
        each.collect::<Option<Vec<String>>>()?.pop()
    }

    /// Returns the resource that every container has to state and one does not.
    fn unstated(&self, pods: &[&StoredPod<'_>]) -> Option<String> {
        let must =
            |name: &ResourceName| matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY);
        self.bounds.iter().find_map(|bound| {
            let lacks = |pod: &&&StoredPod<'_>| {
                pod.1
                    .containers
                    .iter()
                    .any(|container| match &bound.counts {
                        QuotaCounts::Requests(name) => {
                            must(name) && container.requests.get(name).is_none()
                        }
                        QuotaCounts::Limits(name) => {
                            must(name) && container.limits.get(name).is_none()
                        }
                        QuotaCounts::Pods | QuotaCounts::Objects(_) => false,
                    })
            };
            let pod = pods.iter().find(lacks)?;
            (!pod.1.has_pod_level()).then(|| {
                let role = &pod.0.name;
                format!("each container of {role} must specify {}", bound.key)
            })
        })
    }

    /// Returns the first bound that so many more pods exceed.
    fn exceeded(&self, pods: &[(&StoredPod<'_>, u32)], rules: MemberRules<'_>) -> Option<String> {
        self.bounds.iter().find_map(|bound| {
            let needed = match &bound.counts {
                QuotaCounts::Objects(of) => {
                    let (api_version, kind) = rules.kind;
                    i128::from(counted_as(api_version, kind).as_ref() == Some(of))
                }
                counts => {
                    let pods = pods.iter();
                    pods.map(|(pod, count)| counts.in_pod(pod) * i128::from(*count))
                        .sum::<i128>()
                }
            };
            let free = i128::from(bound.hard.0) - i128::from(bound.used.0);
            (needed > free.max(0)).then(|| {
                let unit = bound.counts.unit();
                let needed = Amount(i64::try_from(needed).unwrap_or(i64::MAX));
                format!(
                    "{}: hard {}, used {}, needed {}",
                    bound.key,
                    unit.format(bound.hard),
                    unit.format(bound.used),
                    unit.format(needed)
                )
            })
        })
    }
}

impl QuotaCounts {
    /// Reads a key of `hard`; `None` if it counts neither pods nor jobs.
    fn read(key: &str) -> Option<Self> {
        let compute = |name: &str| {
            let known = matches!(
                name,
                ResourceName::CPU | ResourceName::MEMORY | "ephemeral-storage"
            );
            known || name.starts_with("hugepages-")
        };
        if matches!(key, "pods" | "count/pods") {
            return Some(Self::Pods);
        }
        if let Some(kind) = key.strip_prefix("count/") {
            return Some(Self::Objects(kind.to_owned()));
        }
        if let Some(name) = key.strip_prefix("requests.") {
            let is_of_pods = compute(name) || name.contains('/');
            return is_of_pods.then(|| Self::Requests(ResourceName::new(name)));
        }
        if let Some(name) = key.strip_prefix("limits.") {
            return compute(name).then(|| Self::Limits(ResourceName::new(name)));
        }
        compute(key).then(|| Self::Requests(ResourceName::new(key)))
    }

    /// The resource in whose units it counts.
    fn unit(&self) -> ResourceName {
        match self {
            Self::Requests(name) | Self::Limits(name) => name.clone(),
            Self::Pods | Self::Objects(_) => ResourceName::new(ResourceName::PODS),
        }
    }

    /// Returns what one pod adds.
    fn in_pod(&self, (_, shape, request): &StoredPod<'_>) -> i128 {
        let amount = match self {
            Self::Pods => return 1,
            Self::Objects(_) => return 0,
            Self::Requests(name) => request.amount_of(name),
            // A sum that overflows was refused when the pod was read.
            Self::Limits(name) => shape.limits().unwrap_or_default().amount_of(name),
        };
        i128::from(amount.0)
    }
}

impl QuotaScope {
    fn read(name: &str, list: Option<(bool, Vec<String>)>) -> Self {
        match name {
            "Terminating" => Self::Terminating(true),
            "NotTerminating" => Self::Terminating(false),
            "BestEffort" => Self::BestEffort(true),
            "NotBestEffort" => Self::BestEffort(false),
            "PriorityClass" => Self::PriorityClass(list),
            _ => Self::Unknown,
        }
    }

    fn counts(&self, pod: &PodShape) -> bool {
        match self {
            Self::Terminating(is) => pod.has_deadline == *is,
            Self::BestEffort(is) => pod.is_best_effort() == *is,
            Self::PriorityClass(None) => pod.priority_class.is_some(),
            Self::PriorityClass(Some((is_in, list))) => {
                let own = pod.priority_class.as_ref();
                own.is_some_and(|own| list.contains(own)) == *is_in
            }
            Self::Unknown => false,
        }
    }
}
