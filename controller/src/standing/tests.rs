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
        evicted_at: None,
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
