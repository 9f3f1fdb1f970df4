#![allow(clippy::unwrap_used)]
use super::*;
use crate::mirror::binding::record_problem;
use crds::karmada::{Suspension, TargetCluster};
use engine::{Attempt, QueueName, Uid};
use serde_json::Value;

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
        whole: false,
        avoided_nodes: Vec::new(),
        resizable: false,
        address: None,
        hosts: Default::default(),
        leading: None,
        retries: 0,
        max_retry: None,
        restart_phase: None,
        failed_action: None,
        completing_tasks: Vec::new(),
        time: jiff::Timestamp::UNIX_EPOCH,
        expected_duration_ms: None,
        reason: None,
        message: String::new(),
        for_job: None,
        evicted_at: None,
        not_before: None,
        template_generation: None,
        refused_placement: None,
        infrastructure_failures: 0,
        own_failures: 0,
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
        binding.metadata.labels = Some([(names::POLICY_PERMANENT_ID.into(), "p".into())].into());
    }
    if case.finalizer {
        binding.metadata.finalizers = Some(vec![names::ACCOUNTING_FINALIZER.into()]);
    }
    if let Some(state) = case.record {
        let text = record(state).to_annotation().unwrap();
        binding.metadata.annotations = Some([(names::ADMISSION_ANNOTATION.into(), text)].into());
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
fn every_combination_has_one_phase() {
    use RecordState::{Admitted, Ending, Planned, Refused, Requeued};
    let of = |state| Some(record(state));
    let at = |case: Case| binding_phase(&binding(&case), MANAGED);
    assert_eq!(at(GATED), BindingPhase::Waiting(None));
    assert_eq!(
        at(Case {
            gated: false,
            finalizer: false,
            ..GATED
        }),
        BindingPhase::Ungated { by_hand: false }
    );
    assert_eq!(
        at(Case {
            gated: false,
            ..GATED
        }),
        BindingPhase::Ungated { by_hand: true }
    );
    assert_eq!(
        at(Case {
            gated: false,
            placed: &["m1"],
            finalizer: false,
            ..GATED
        }),
        BindingPhase::ToAdopt
    );
    assert_eq!(
        at(Case {
            gated: false,
            placed: &["m1"],
            ..GATED
        }),
        BindingPhase::OpenedByHand(None)
    );
    assert_eq!(
        at(Case {
            placed: &["m1"],
            finalizer: false,
            ..GATED
        }),
        BindingPhase::OpenedByHand(None)
    );
    let open = |state| Case {
        gated: false,
        placed: &["m1"],
        record: Some(state),
        ..GATED
    };
    assert_eq!(at(open(Admitted)), BindingPhase::Admitted(record(Admitted)));
    assert_eq!(
        at(Case {
            placed: &["m2"],
            ..open(Admitted)
        }),
        BindingPhase::Displaced(record(Admitted))
    );
    assert_eq!(
        at(Case {
            gated: true,
            ..open(Admitted)
        }),
        BindingPhase::OpenedByHand(of(Admitted))
    );
    assert_eq!(at(open(Ending)), BindingPhase::OpenedByHand(of(Ending)));
    let closed = |state| Case {
        record: Some(state),
        ..GATED
    };
    assert_eq!(
        at(closed(Admitted)),
        BindingPhase::OpenedByHand(of(Admitted))
    );
    assert_eq!(at(closed(Planned)), BindingPhase::Planned(record(Planned)));
    assert_eq!(at(closed(Refused)), BindingPhase::Refused(record(Refused)));
    assert_eq!(at(closed(Ending)), BindingPhase::Ending(record(Ending)));
    assert_eq!(at(closed(Requeued)), BindingPhase::Waiting(of(Requeued)));
    assert_eq!(
        at(Case {
            deleting: true,
            ..closed(Ending)
        }),
        BindingPhase::Deleting(of(Ending))
    );
    assert_eq!(
        at(Case {
            deleting: true,
            finalizer: false,
            ..GATED
        }),
        BindingPhase::Foreign
    );
}

#[test]
fn a_binding_outside_management_is_foreign_or_unmanaged() {
    let unmanaged = NamespaceRule::default();
    assert_eq!(
        binding_phase(&binding(&GATED), unmanaged),
        BindingPhase::ToUnmanage
    );
    assert_eq!(
        binding_phase(
            &binding(&Case {
                finalizer: false,
                ..GATED
            }),
            unmanaged
        ),
        BindingPhase::Foreign
    );
    let mut own_policy = binding(&GATED);
    own_policy.spec.scheduler_name = Some(names::SCHEDULER_NAME.into());
    assert_eq!(
        binding_phase(&own_policy, unmanaged),
        BindingPhase::Waiting(None)
    );
    // Even without a policy that names it.
    let mut orphan = own_policy;
    orphan.metadata.labels = None;
    assert_eq!(binding_phase(&orphan, unmanaged), BindingPhase::ToUnmanage);
}

#[test]
fn losing_its_policy_in_a_managed_namespace_keeps_a_bindings_phase() {
    use RecordState::{Admitted, Ending};
    let at = |case: Case| binding_phase(&binding(&case), MANAGED);
    let lost = Case {
        claimed: false,
        ..GATED
    };
    assert_eq!(at(lost), BindingPhase::Waiting(None));
    let runs = |finalizer, deleting| Case {
        claimed: false,
        gated: false,
        placed: &["m1"],
        record: Some(Admitted),
        finalizer,
        deleting,
    };
    for finalizer in [true, false] {
        let admitted = BindingPhase::Admitted(record(Admitted));
        assert_eq!(at(runs(finalizer, false)), admitted);
    }
    let deleting = BindingPhase::Deleting(Some(record(Admitted)));
    assert_eq!(at(runs(true, true)), deleting);
    // Without Muster's finalizer it is charged while Karmada keeps it.
    let mut stripped = binding(&runs(false, true));
    assert_eq!(binding_phase(&stripped, MANAGED), BindingPhase::Foreign);
    stripped.metadata.finalizers = Some(vec!["karmada.io/binding-controller".into()]);
    assert_eq!(binding_phase(&stripped, MANAGED), deleting);
    let ending = Case {
        claimed: false,
        record: Some(Ending),
        ..GATED
    };
    assert_eq!(at(ending), BindingPhase::Ending(record(Ending)));
    // A binding without an owner, placed nowhere.
    let foreign = Case {
        claimed: false,
        gated: false,
        finalizer: false,
        ..GATED
    };
    assert_eq!(at(foreign), BindingPhase::Foreign);
}

#[test]
fn a_dependent_workload_is_managed_if_its_namespace_is() {
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
    let ungated = BindingPhase::Ungated { by_hand: false };
    assert_eq!(binding_phase(&follower, MANAGED), ungated);
    assert_eq!(
        binding_phase(&follower, NamespaceRule::default()),
        BindingPhase::Foreign
    );
    // The binding that it follows is placed nowhere.
    follower.spec.required_by = required(Value::Null);
    assert_eq!(binding_phase(&follower, MANAGED), BindingPhase::Foreign);
    // A ConfigMap may follow.
    follower.spec.required_by = required(serde_json::json!([{"name": "m1"}]));
    follower.spec.resource.api_version = "v1".into();
    follower.spec.resource.kind = "ConfigMap".into();
    assert_eq!(binding_phase(&follower, MANAGED), BindingPhase::Foreign);
}

#[test]
fn a_placement_after_the_adoption_mark_was_opened_by_hand() {
    let placed = Case {
        gated: false,
        finalizer: false,
        placed: &["m1"],
        ..GATED
    };
    assert_eq!(
        binding_phase(&binding(&placed), MANAGED),
        BindingPhase::ToAdopt
    );
    let adopted = NamespaceRule {
        adopted: true,
        ..MANAGED
    };
    let by_hand = BindingPhase::OpenedByHand(None);
    assert_eq!(binding_phase(&binding(&placed), adopted), by_hand);
    let unclaimed = Case {
        claimed: false,
        ..placed
    };
    assert_eq!(binding_phase(&binding(&unclaimed), adopted), by_hand);
}

#[test]
fn a_binding_without_pods_is_spread_if_no_other_scheduler_does() {
    let mut config = binding(&Case {
        gated: false,
        finalizer: false,
        ..GATED
    });
    config.spec.resource.api_version = "v1".into();
    config.spec.resource.kind = "ConfigMap".into();
    assert_eq!(binding_phase(&config, MANAGED), BindingPhase::Foreign);
    config.spec.scheduler_name = Some(names::SCHEDULER_NAME.into());
    assert_eq!(
        binding_phase(&config, NamespaceRule::default()),
        BindingPhase::ToSpread
    );
    // A dependency follows its workload.
    config.metadata.labels = None;
    assert_eq!(binding_phase(&config, MANAGED), BindingPhase::Foreign);
}

#[test]
fn an_unreadable_record_never_counts_as_opened_by_hand() {
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
        binding_phase(&binding, MANAGED)
    };
    for (gated, placed) in [(true, true), (true, false), (false, true), (false, false)] {
        for record in [&later, &unknown] {
            let phase = at(record, gated, placed);
            assert!(matches!(phase, BindingPhase::NotTouched(_)), "{phase:?}");
        }
        let phase = at(&garbage, gated, placed);
        match (placed, gated) {
            (true, _) => assert!(matches!(phase, BindingPhase::NotTouched(_))),
            (false, true) => assert_eq!(phase, BindingPhase::Waiting(None)),
            (false, false) => assert_eq!(phase, BindingPhase::Ungated { by_hand: true }),
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
    assert_eq!(binding_phase(&copied, MANAGED), BindingPhase::Waiting(None));
    assert!(record_problem(&copied).unwrap().contains("template UID u"));
}
