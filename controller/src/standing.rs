//! What a binding is to Muster: the one place that reads a binding's gate, placement, record
//! and finalizer together.
//!
//! Every pass looks at the whole binding and forgets how it came to be so; a restart at any
//! line sees the same standing again. Pure.

use crds::karmada::ResourceBinding;
use crds::names;
use crds::record::{AdmissionRecord, RecordError, RecordState};
use serde_json::Value;

/// A binding's standing, from the most binding fact down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Not ours, and nothing of ours is on it.
    Foreign,
    /// No workload, under a policy that names Muster: nobody else would place it.
    ToSpread,
    /// No longer ours, but it carries our gate, record or finalizer.
    ToLetGo,
    /// Ours, with a record that this version cannot act on: charged, and not touched.
    NotTouched(RecordError),
    /// Being deleted; kept by our finalizer until its Works are gone.
    Deleting(Option<AdmissionRecord>),
    /// Ours, open, nothing placed: the webhook was away, or the gate was opened by hand.
    Ungated {
        /// Whether it had been gated before, so that somebody opened it.
        by_hand: bool,
    },
    /// Ours, placed before Muster knew it.
    ToAdopt,
    /// Ours, and placed or opened without an admission that says so.
    OpenedByHand(Option<AdmissionRecord>),
    /// Gated and waiting; the record tells of earlier attempts.
    Waiting(Option<AdmissionRecord>),
    /// Planned by the controller; a scheduler process has yet to answer.
    Planned(AdmissionRecord),
    /// The scheduler process refused the plan.
    Refused(AdmissionRecord),
    /// Admitted and placed as its record says.
    Admitted(AdmissionRecord),
    /// Admitted, but its clusters are no longer those of its record.
    Displaced(AdmissionRecord),
    /// Taken back; charged until its Works are gone.
    Ending(AdmissionRecord),
}

/// What the namespace of a binding says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NamespaceRule {
    /// Labelled `muster.io/managed=true` and not a system namespace.
    pub(crate) managed: bool,
    /// Whether what ran there before has been adopted: nothing more is.
    pub(crate) adopted: bool,
}

/// Whether `binding` is a workload that Muster decides about.
///
/// In a managed namespace what is marked or placed stays Muster's without a policy: Karmada takes
/// the claim off a binding whose policy goes, for a moment or for good, and leaves it placed. So does
/// what Karmada takes along with another binding, which needs neither claim nor placement. In
/// other namespaces Muster decides only about what a policy that names it claims: that is how such
/// a namespace is left.
pub(crate) fn is_managed(binding: &ResourceBinding, namespace: NamespaceRule) -> bool {
    let in_namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    let ours = match namespace.managed {
        true => {
            is_claimed(binding)
                || is_marked(binding)
                || is_placed(binding)
                || required_by(binding).is_some()
        }
        false => is_claimed(binding) && has_our_scheduler(binding),
    };
    !names::is_system_namespace(in_namespace) && is_workload(binding) && ours
}

/// Whether it carries a mark of ours.
fn is_marked(binding: &ResourceBinding) -> bool {
    has_finalizer(binding) || has_record(binding)
}

fn is_placed(binding: &ResourceBinding) -> bool {
    !binding.spec.clusters.is_empty()
}

/// `NAMESPACE/NAME` of a placed binding that this one is a dependency of: Karmada renders it to the same
/// clusters, whatever its own gate and placement say. No kind that Karmada knows depends on workloads;
/// an interpreter that an operator wrote may say so.
pub(crate) fn required_by(binding: &ResourceBinding) -> Option<String> {
    let required = binding.spec.required_by.as_deref().unwrap_or_default();
    let placed = |snapshot: &&Value| {
        let clusters = snapshot["clusters"].as_array();
        clusters.is_some_and(|clusters| !clusters.is_empty())
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let first = required.iter().find(placed)?;
    Some(format!(
        "{}/{}",
        text(&first["namespace"]),
        text(&first["name"])
    ))
}

/// Whether it starts no pods, and is left to us by its policy.
fn is_plain_and_ours(binding: &ResourceBinding) -> bool {
    let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
    !names::is_system_namespace(namespace) && is_claimed(binding) && has_our_scheduler(binding)
}

/// Whether a policy has claimed it. Bindings that follow another one are claimed by none, and
/// so are those whose policy is gone.
pub(crate) fn is_claimed(binding: &ResourceBinding) -> bool {
    binding.metadata.labels.as_ref().is_some_and(|labels| {
        labels.contains_key(names::POLICY_PERMANENT_ID)
            || labels.contains_key(names::CLUSTER_POLICY_PERMANENT_ID)
    })
}

/// Whether its policy names Muster as the scheduler.
pub(crate) fn has_our_scheduler(binding: &ResourceBinding) -> bool {
    binding.spec.scheduler_name.as_deref() == Some(names::SCHEDULER_NAME)
}

/// Whether it starts pods, as far as its kind and Karmada's interpreter tell.
pub(crate) fn is_workload(binding: &ResourceBinding) -> bool {
    let resource = &binding.spec.resource;
    let interpreted = binding.spec.replicas.unwrap_or(0) > 0
        || binding.spec.replica_requirements.is_some()
        || binding
            .spec
            .components
            .as_ref()
            .is_some_and(|c| !c.is_empty());
    interpreted || workload::may_start_pods(&resource.api_version, &resource.kind)
}

/// The standing of `binding`. A record of another template counts as none: what it would admit
/// is not what is there.
///
/// A record that a later version wrote says what this one cannot know, so the job is not touched,
/// wherever it stands. One that no version wrote says nothing: where the job is placed it may run
/// all the same and is not touched either; where it is not, it has no record.
pub(crate) fn standing(binding: &ResourceBinding, namespace: NamespaceRule) -> Standing {
    let record = own_record(binding);
    let finalizer = has_finalizer(binding);
    if binding.metadata.deletion_timestamp.is_some() {
        // Without the finalizer it is charged for as long as Karmada keeps it.
        let charged = is_managed(binding, namespace) && record.is_some();
        return match finalizer || charged && has_karmada_finalizer(binding) {
            true => Standing::Deleting(record),
            false => Standing::Foreign,
        };
    }
    if !is_managed(binding, namespace) {
        return match is_marked(binding) {
            true => Standing::ToLetGo,
            false if is_plain_and_ours(binding) => Standing::ToSpread,
            false => Standing::Foreign,
        };
    }
    let gated = is_gated(binding);
    let placed = is_placed(binding);
    if let Some(error) = unreadable(binding)
        && (placed || !error.is_garbage())
    {
        return Standing::NotTouched(error);
    }
    match record {
        None if placed && !gated && !finalizer && !namespace.adopted => Standing::ToAdopt,
        None if placed => Standing::OpenedByHand(None),
        None if !gated => Standing::Ungated { by_hand: finalizer },
        None => Standing::Waiting(None),
        Some(record) => with_record(record, binding, gated, placed),
    }
}

fn with_record(
    record: AdmissionRecord,
    binding: &ResourceBinding,
    gated: bool,
    placed: bool,
) -> Standing {
    let closed = gated && !placed;
    match record.state {
        RecordState::Admitted if record.adopted && placed => Standing::Admitted(record),
        RecordState::Admitted if gated => Standing::OpenedByHand(Some(record)),
        RecordState::Admitted if same_clusters(&record, binding) => Standing::Admitted(record),
        RecordState::Admitted => Standing::Displaced(record),
        RecordState::Planned if closed => Standing::Planned(record),
        RecordState::Refused if closed => Standing::Refused(record),
        RecordState::Ending if closed => Standing::Ending(record),
        RecordState::Requeued if closed => Standing::Waiting(Some(record)),
        RecordState::Requeued if !placed => Standing::Ungated { by_hand: true },
        RecordState::Planned
        | RecordState::Refused
        | RecordState::Ending
        | RecordState::Requeued => Standing::OpenedByHand(Some(record)),
    }
}

/// The record, if it is readable and of the template that is bound now.
pub(crate) fn own_record(binding: &ResourceBinding) -> Option<AdmissionRecord> {
    AdmissionRecord::read(binding.metadata.annotations.as_ref())
        .ok()
        .flatten()
        .filter(|record| record.template_uid == *binding.spec.resource.uid)
}

/// Why this version cannot act on the record that is there, if so.
pub(crate) fn unreadable(binding: &ResourceBinding) -> Option<RecordError> {
    AdmissionRecord::read(binding.metadata.annotations.as_ref()).err()
}

/// Why the record that is there cannot be used, if so.
pub(crate) fn record_problem(binding: &ResourceBinding) -> Option<String> {
    match AdmissionRecord::read(binding.metadata.annotations.as_ref()) {
        Err(error) => Some(error.to_string()),
        Ok(Some(record)) if record.template_uid != *binding.spec.resource.uid => Some(format!(
            "annotation {} is of template UID {}, the binding is of {}",
            names::ADMISSION_ANNOTATION,
            record.template_uid,
            binding.spec.resource.uid
        )),
        Ok(_) => None,
    }
}

fn has_record(binding: &ResourceBinding) -> bool {
    binding
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(names::ADMISSION_ANNOTATION))
}

pub(crate) fn has_finalizer(binding: &ResourceBinding) -> bool {
    binding
        .metadata
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| finalizers.iter().any(|f| f == names::ACCOUNTING_FINALIZER))
}

/// Karmada keeps a binding by a finalizer of its own until it has removed the Works.
pub(crate) fn has_karmada_finalizer(binding: &ResourceBinding) -> bool {
    let finalizers = binding.metadata.finalizers.as_deref().unwrap_or_default();
    finalizers
        .iter()
        .any(|finalizer| finalizer == "karmada.io/binding-controller")
}

fn is_gated(binding: &ResourceBinding) -> bool {
    binding
        .spec
        .suspension
        .as_ref()
        .and_then(|s| s.scheduling)
        .unwrap_or(false)
}

fn same_clusters(record: &AdmissionRecord, binding: &ResourceBinding) -> bool {
    let mut recorded: Vec<&str> = record
        .clusters
        .iter()
        .map(|share| share.name.as_str())
        .collect();
    let mut placed: Vec<&str> = binding
        .spec
        .clusters
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    recorded.sort_unstable();
    placed.sort_unstable();
    recorded == placed
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crds::karmada::{Suspension, TargetCluster};
    use engine::{Attempt, QueueName, Uid};

    const MANAGED: NamespaceRule = NamespaceRule {
        managed: true,
        adopted: false,
    };

    struct Case {
        gated: bool,
        placed: &'static [&'static str],
        record: Option<RecordState>,
        finalizer: bool,
        deleting: bool,
        claimed: bool,
    }

    const GATED: Case = Case {
        gated: true,
        placed: &[],
        record: None,
        finalizer: true,
        deleting: false,
        claimed: true,
    };

    fn record(state: RecordState) -> AdmissionRecord {
        let share = serde_json::json!({"name": "m1", "pods": [], "charge": {}});
        AdmissionRecord {
            version: crds::record::VERSION,
            template_uid: Uid::new("u"),
            attempt: Attempt(1),
            state,
            queue: QueueName::new("q"),
            queues_above: Vec::new(),
            requests: Default::default(),
            leaving: Vec::new(),
            clusters: vec![serde_json::from_value(share).unwrap()],
            parts: None,
            resizable: false,
            address: None,
            hosts: Default::default(),
            leading: None,
            time: jiff::Timestamp::UNIX_EPOCH,
            expected_duration_ms: None,
            reason: None,
            message: String::new(),
            for_job: None,
            taken_back_at: None,
            not_before: None,
            adopted: false,
            exceeds_since: None,
            overrides: Vec::new(),
            unknown: Default::default(),
        }
    }

    fn binding(case: &Case) -> ResourceBinding {
        let mut binding = ResourceBinding::default();
        binding.metadata.namespace = Some("team".into());
        binding.spec.resource.api_version = "batch/v1".into();
        binding.spec.resource.kind = "Job".into();
        binding.spec.resource.uid = "u".into();
        if case.claimed {
            binding.metadata.labels =
                Some([(names::POLICY_PERMANENT_ID.into(), "p".into())].into());
        }
        if case.finalizer {
            binding.metadata.finalizers = Some(vec![names::ACCOUNTING_FINALIZER.into()]);
        }
        if let Some(state) = case.record {
            let text = record(state).to_annotation().unwrap();
            binding.metadata.annotations =
                Some([(names::ADMISSION_ANNOTATION.into(), text)].into());
        }
        if case.deleting {
            binding.metadata.deletion_timestamp = Some(
                k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH),
            );
        }
        binding.spec.suspension = Some(Suspension {
            scheduling: Some(case.gated),
            ..Suspension::default()
        });
        binding.spec.clusters = case
            .placed
            .iter()
            .map(|name| TargetCluster {
                name: (*name).into(),
                replicas: None,
            })
            .collect();
        binding
    }

    #[test]
    fn every_combination_has_one_standing() {
        use RecordState::{Admitted, Ending, Planned, Refused, Requeued};
        let of = |state| Some(record(state));
        let at = |case: Case| standing(&binding(&case), MANAGED);
        assert_eq!(at(GATED), Standing::Waiting(None));
        assert_eq!(
            at(Case {
                gated: false,
                finalizer: false,
                ..GATED
            }),
            Standing::Ungated { by_hand: false }
        );
        assert_eq!(
            at(Case {
                gated: false,
                ..GATED
            }),
            Standing::Ungated { by_hand: true }
        );
        assert_eq!(
            at(Case {
                gated: false,
                placed: &["m1"],
                finalizer: false,
                ..GATED
            }),
            Standing::ToAdopt
        );
        assert_eq!(
            at(Case {
                gated: false,
                placed: &["m1"],
                ..GATED
            }),
            Standing::OpenedByHand(None)
        );
        assert_eq!(
            at(Case {
                placed: &["m1"],
                finalizer: false,
                ..GATED
            }),
            Standing::OpenedByHand(None)
        );
        let open = |state| Case {
            gated: false,
            placed: &["m1"],
            record: Some(state),
            ..GATED
        };
        assert_eq!(at(open(Admitted)), Standing::Admitted(record(Admitted)));
        assert_eq!(
            at(Case {
                placed: &["m2"],
                ..open(Admitted)
            }),
            Standing::Displaced(record(Admitted))
        );
        assert_eq!(
            at(Case {
                gated: true,
                ..open(Admitted)
            }),
            Standing::OpenedByHand(of(Admitted))
        );
        assert_eq!(at(open(Ending)), Standing::OpenedByHand(of(Ending)));
        let closed = |state| Case {
            record: Some(state),
            ..GATED
        };
        assert_eq!(at(closed(Admitted)), Standing::OpenedByHand(of(Admitted)));
        assert_eq!(at(closed(Planned)), Standing::Planned(record(Planned)));
        assert_eq!(at(closed(Refused)), Standing::Refused(record(Refused)));
        assert_eq!(at(closed(Ending)), Standing::Ending(record(Ending)));
        assert_eq!(at(closed(Requeued)), Standing::Waiting(of(Requeued)));
        assert_eq!(
            at(Case {
                deleting: true,
                ..closed(Ending)
            }),
            Standing::Deleting(of(Ending))
        );
        assert_eq!(
            at(Case {
                deleting: true,
                finalizer: false,
                ..GATED
            }),
            Standing::Foreign
        );
    }

    #[test]
    fn what_is_not_managed_is_foreign_or_let_go() {
        let unmanaged = NamespaceRule::default();
        assert_eq!(standing(&binding(&GATED), unmanaged), Standing::ToLetGo);
        assert_eq!(
            standing(
                &binding(&Case {
                    finalizer: false,
                    ..GATED
                }),
                unmanaged
            ),
            Standing::Foreign
        );
        let mut own_policy = binding(&GATED);
        own_policy.spec.scheduler_name = Some(names::SCHEDULER_NAME.into());
        assert_eq!(standing(&own_policy, unmanaged), Standing::Waiting(None));
        // Without a policy, too, that names it.
        let mut orphan = own_policy;
        orphan.metadata.labels = None;
        assert_eq!(standing(&orphan, unmanaged), Standing::ToLetGo);
    }

    #[test]
    fn what_loses_its_policy_in_a_managed_namespace_stays_what_it_is() {
        use RecordState::{Admitted, Ending};
        let at = |case: Case| standing(&binding(&case), MANAGED);
        let lost = Case {
            claimed: false,
            ..GATED
        };
        assert_eq!(at(lost), Standing::Waiting(None));
        let runs = |finalizer, deleting| Case {
            claimed: false,
            gated: false,
            placed: &["m1"],
            record: Some(Admitted),
            finalizer,
            deleting,
        };
        for finalizer in [true, false] {
            let admitted = Standing::Admitted(record(Admitted));
            assert_eq!(at(runs(finalizer, false)), admitted);
        }
        let deleting = Standing::Deleting(Some(record(Admitted)));
        assert_eq!(at(runs(true, true)), deleting);
        // Without our finalizer it is charged while Karmada keeps it.
        let mut stripped = binding(&runs(false, true));
        assert_eq!(standing(&stripped, MANAGED), Standing::Foreign);
        stripped.metadata.finalizers = Some(vec!["karmada.io/binding-controller".into()]);
        assert_eq!(standing(&stripped, MANAGED), deleting);
        let ending = Case {
            claimed: false,
            record: Some(Ending),
            ..GATED
        };
        assert_eq!(at(ending), Standing::Ending(record(Ending)));
        // One of nobody's, that runs nowhere.
        let foreign = Case {
            claimed: false,
            gated: false,
            finalizer: false,
            ..GATED
        };
        assert_eq!(at(foreign), Standing::Foreign);
    }

    #[test]
    fn a_workload_that_another_binding_takes_along_is_managed_where_its_namespace_is() {
        let mut follower = binding(&Case {
            gated: false,
            finalizer: false,
            claimed: false,
            ..GATED
        });
        let required = |clusters: Value| {
            Some(vec![
                serde_json::json!({"namespace": "team", "name": "app-thing", "clusters": clusters}),
            ])
        };
        follower.spec.required_by = required(serde_json::json!([{"name": "m1"}]));
        assert_eq!(required_by(&follower).as_deref(), Some("team/app-thing"));
        let ungated = Standing::Ungated { by_hand: false };
        assert_eq!(standing(&follower, MANAGED), ungated);
        assert_eq!(
            standing(&follower, NamespaceRule::default()),
            Standing::Foreign
        );
        // What it follows runs nowhere.
        follower.spec.required_by = required(Value::Null);
        assert_eq!(standing(&follower, MANAGED), Standing::Foreign);
        // A ConfigMap may follow.
        follower.spec.required_by = required(serde_json::json!([{"name": "m1"}]));
        follower.spec.resource.api_version = "v1".into();
        follower.spec.resource.kind = "ConfigMap".into();
        assert_eq!(standing(&follower, MANAGED), Standing::Foreign);
    }

    #[test]
    fn what_is_placed_after_all_was_adopted_was_opened_by_hand() {
        let placed = Case {
            gated: false,
            finalizer: false,
            placed: &["m1"],
            ..GATED
        };
        assert_eq!(standing(&binding(&placed), MANAGED), Standing::ToAdopt);
        let adopted = NamespaceRule {
            adopted: true,
            ..MANAGED
        };
        let by_hand = Standing::OpenedByHand(None);
        assert_eq!(standing(&binding(&placed), adopted), by_hand);
        let unclaimed = Case {
            claimed: false,
            ..placed
        };
        assert_eq!(standing(&binding(&unclaimed), adopted), by_hand);
    }

    #[test]
    fn what_starts_no_pods_is_spread_if_nobody_else_would() {
        let mut config = binding(&Case {
            gated: false,
            finalizer: false,
            ..GATED
        });
        config.spec.resource.api_version = "v1".into();
        config.spec.resource.kind = "ConfigMap".into();
        assert_eq!(standing(&config, MANAGED), Standing::Foreign);
        config.spec.scheduler_name = Some(names::SCHEDULER_NAME.into());
        assert_eq!(
            standing(&config, NamespaceRule::default()),
            Standing::ToSpread
        );
        // A dependency follows its workload.
        config.metadata.labels = None;
        assert_eq!(standing(&config, MANAGED), Standing::Foreign);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_never_opened_by_hand() {
        let text = |state: RecordState| record(state).to_annotation().unwrap();
        let later = text(RecordState::Admitted).replace(r#""version":1"#, r#""version":2"#);
        let unknown = text(RecordState::Admitted).replace(r#""Admitted""#, r#""Parked""#);
        let garbage = "{}".to_owned();
        let at = |record: &str, gated: bool, placed: bool| {
            let mut binding = binding(&Case {
                gated,
                placed: if placed { &["m1"] } else { &[] },
                ..GATED
            });
            binding.metadata.annotations =
                Some([(names::ADMISSION_ANNOTATION.into(), record.into())].into());
            standing(&binding, MANAGED)
        };
        for (gated, placed) in [(true, true), (true, false), (false, true), (false, false)] {
            for record in [&later, &unknown] {
                let standing = at(record, gated, placed);
                assert!(matches!(standing, Standing::NotTouched(_)), "{standing:?}");
            }
            let standing = at(&garbage, gated, placed);
            match (placed, gated) {
                (true, _) => assert!(matches!(standing, Standing::NotTouched(_))),
                (false, true) => assert_eq!(standing, Standing::Waiting(None)),
                (false, false) => assert_eq!(standing, Standing::Ungated { by_hand: true }),
            }
        }
    }

    #[test]
    fn a_record_of_another_template_admits_nothing() {
        let mut copied = binding(&Case {
            record: Some(RecordState::Admitted),
            ..GATED
        });
        copied.spec.resource.uid = "other".into();
        assert_eq!(standing(&copied, MANAGED), Standing::Waiting(None));
        assert!(record_problem(&copied).unwrap().contains("template UID u"));
    }
}
