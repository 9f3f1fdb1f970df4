#![allow(clippy::unwrap_used)]

use super::*;
use crate::mirror::template::TemplateKind;
use engine::facts::Held;
use serde_json::{Value, json};
use std::sync::LazyLock;

fn template(change: Value) -> Template {
    let mut object = json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "u"},
        "spec": {"parallelism": 2, "template": {"spec": {"containers": [
            {"name": "c", "resources": {"requests": {"cpu": "1"}}},
        ]}}},
    });
    merge(&mut object, change);
    let kind = TemplateKind {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
    };
    Template::read(&kind, serde_json::from_value(object).unwrap())
}

fn binding(change: Value) -> ResourceBinding {
    let mut object = json!({
        "metadata": {
            "namespace": "team", "name": "a-job", "creationTimestamp": "1970-01-01T00:00:07Z",
            "labels": {names::POLICY_PERMANENT_ID: "policy"},
        },
        "spec": {
            "schedulerName": "muster",
            "resource": {
                "apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "a", "uid": "u",
            },
        },
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

/// The job, if all namespaces may use every queue except `closed`.
fn job_of(
    template: &Template,
    binding: &ResourceBinding,
    default_queue: Option<&str>,
) -> ResolvedJob {
    let namespace = NamespaceFact {
        managed: true,
        default_queue: default_queue.map(str::to_owned),
        ..NamespaceFact::default()
    };
    resolved(template, binding, &namespace)
}

/// The job in a namespace.
fn resolved(
    template: &Template,
    binding: &ResourceBinding,
    namespace: &NamespaceFact,
) -> ResolvedJob {
    job(
        &JobKey::new("team", "a-job"),
        binding,
        template,
        namespace,
        QueueRules {
            permitted: &|queue| match queue.as_str() {
                "closed" => Permission::Refused("namespace team is not selected".to_owned()),
                "unknown" => Permission::Unknown,
                _ => Permission::Granted,
            },
            class_refused: &|_, classes| {
                let class = classes.get("forbidden").cloned()?;
                Some(RefusedClass {
                    class,
                    listed: "low, usual".to_owned(),
                    unset: false,
                })
            },
            split: &|queue| match queue.as_str() {
                "wide" => Split::Allowed,
                _ => Split::Never,
            },
            filters: &|queue| match queue.as_str() {
                "at-data" => Filters::named(["DataRegion"]).unwrap(),
                _ => Filters::default(),
            },
            rendezvous_problem: &|queue, _| {
                (queue.as_str() != "meets").then(|| "no address".to_owned())
            },
        },
        &|name| (name == "two-gpus").then_some(&*TWO_GPUS),
    )
}

/// The claims of the only ResourceClaimTemplate.
static TWO_GPUS: LazyLock<ClaimedDevices> = LazyLock::new(|| {
    let requests = json!([{"name": "r", "exactly": {"deviceClassName": "gpu.x", "count": 2}}]);
    workload::claimed_devices(&json!({"spec": {"spec": {"devices": {"requests": requests}}}}))
});

#[test]
fn devices_that_pods_claim_are_part_of_what_they_request() {
    let claiming = |name: &str| {
        let claims = json!([{"name": "gpus", "resourceClaimTemplateName": name}]);
        json!({"spec": {"template": {"spec": {"resourceClaims": claims}}}})
    };
    let there = job_of(
        &template_of(claiming("two-gpus")),
        &binding(json!({})),
        None,
    );
    assert_eq!(there.fact.hold, None);
    assert_eq!(
        there.fact.demand.roles[0].request.to_string(),
        "cpu 1, deviceclass.resource.kubernetes.io/gpu.x 2, pods 1"
    );
    let missing = hold(claiming("four-gpus"), json!({}));
    assert!(
        missing.starts_with("SizeUnknown: ResourceClaimTemplate four-gpus: it was not found"),
        "{missing}"
    );
    // Karmada's own count does not include claims, and is not used.
    let counted = json!({"spec": {"replicas": 2, "replicaRequirements": {}}});
    assert_eq!(hold(claiming("four-gpus"), counted), missing);
}

fn hold(template: Value, binding_change: Value) -> String {
    let job = job_of(&template_of(template), &binding(binding_change), None);
    let hold = job.fact.hold;
    hold.map_or("none".to_owned(), |hold| {
        format!("{}: {}", hold.reason, hold.message)
    })
}

fn template_of(change: Value) -> Template {
    template(change)
}

fn in_queue(queue: &str) -> Value {
    json!({"metadata": {"labels": {"muster.io/queue": queue}}})
}

#[test]
fn no_queue_takes_a_job_of_a_namespace_that_is_not_managed() {
    // Neither an open queue nor a right that its template records helps.
    let annotations = json!({names::PERMITTED_QUEUE_ANNOTATION: "default"});
    let template = template(json!({"metadata": {"annotations": annotations}}));
    let held = |managed: bool| {
        let namespace = NamespaceFact {
            managed,
            ..NamespaceFact::default()
        };
        resolved(&template, &binding(json!({})), &namespace)
            .fact
            .hold
    };
    assert_eq!(held(true), None);
    let hold = held(false).unwrap();
    assert_eq!(hold.reason, Reason::QueueNotPermitted);
    insta::assert_snapshot!(hold.message, @"queues take jobs of managed namespaces only, and team is none; ask an operator to label it muster.io/managed=true, or use a policy with another schedulerName");
}

#[test]
fn every_hold_keeps_a_job_from_being_considered() {
    let none = || json!({});
    assert_eq!(hold(none(), none()), "none");
    insta::assert_snapshot!(
        hold(none(), json!({"spec": {"schedulerName": "default-scheduler"}})),
        @r#"WrongScheduler: its propagation policy names schedulerName "default-scheduler" in a namespace that Muster manages; set schedulerName: muster in a new policy (the field is immutable), or delete the policy so that policy muster takes it"#
    );
    insta::assert_snapshot!(
        hold(json!({"spec": {"suspend": true}}), none()),
        @"Suspended: suspended by its owner; resume it to have it queued"
    );
    insta::assert_snapshot!(
        hold(in_queue("closed"), none()),
        @"QueueNotPermitted: namespace team is not selected, and neither the service accounts of team nor, when it was submitted, its user had the verb use on the Queue; use another queue, or ask its owner"
    );
    insta::assert_snapshot!(
        hold(in_queue("unknown"), none()),
        @"NotEvaluated: whether namespace team may use queue unknown is being checked"
    );
    let permitted = |queue: &str| {
        json!({"metadata": {
            "labels": {"muster.io/queue": "closed"},
            "annotations": {names::PERMITTED_QUEUE_ANNOTATION: queue},
        }})
    };
    assert_eq!(hold(permitted("closed"), none()), "none");
    assert!(hold(permitted("other"), none()).starts_with("QueueNotPermitted"));
    let class = json!({"spec": {"template": {"spec": {"priorityClassName": "forbidden"}}}});
    insta::assert_snapshot!(
        hold(class, none()),
        @"PriorityClassNotPermitted: spec.priorityClasses of capacitypolicy default does not list PriorityClass forbidden; submit it with one that it lists (low, usual), or to another queue"
    );
    let released = json!({"templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "closed",
        "clusters": [], "time": "2026-11-21T04:00:00Z"});
    let annotations = json!({names::ADMISSION_ANNOTATION: released.to_string()});
    let runs = json!({"metadata": {"annotations": annotations}});
    assert_eq!(hold(in_queue("closed"), runs), "none", "what runs goes on");
    let broken = json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: "{"}}});
    assert!(hold(none(), broken).starts_with("InvalidTemplate: annotation muster.io/admission"));
    let negative = json!({"spec": {"parallelism": -1}});
    let said = hold(negative, none());
    assert!(
        said.starts_with("InvalidTemplate: ") && said.contains("parallelism"),
        "{said}"
    );
}

fn labelled(key: &str, value: &str) -> Value {
    json!({"metadata": {"labels": {key: value}}})
}

/// The record of a job that queue `default` has admitted.
fn runs() -> Value {
    let record = json!({"templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "default",
        "clusters": [], "time": "2026-11-21T04:00:00Z"});
    json!({"metadata": {"annotations": {names::ADMISSION_ANNOTATION: record.to_string()}}})
}

#[test]
fn a_label_holds_a_job_that_waits() {
    let on = || labelled("muster.io/hold", "true");
    let there = || json!({"spec": {"resource": {"namespace": "team"}}});
    insta::assert_snapshot!(
        hold(on(), there()),
        @"OnHold: on hold by its label muster.io/hold; to release it: kubectl label -n team job.batch a muster.io/hold-"
    );
    assert_eq!(hold(labelled("muster.io/hold", "false"), there()), "none");
    insta::assert_snapshot!(
        hold(labelled("muster.io/hold", "later"), there()),
        @r#"InvalidTemplate: metadata.labels[muster.io/hold] is "later"; needed: true or false"#
    );
    assert_eq!(hold(on(), runs()), "none", "what runs goes on");
}

#[test]
fn a_label_names_the_class_that_counts() {
    let class = |label: &str, binding_change: Value| {
        let mut change = json!({"spec": {"template": {"spec": {"priorityClassName": "own"}}}});
        merge(&mut change, labelled("muster.io/priority-class", label));
        let job = job_of(&template(change), &binding(binding_change), None);
        (job.fact.priority_class.unwrap(), job.fact.hold)
    };
    assert_eq!(class("urgent", json!({})), ("urgent".to_owned(), None));
    let (_, refused) = class("forbidden", json!({}));
    insta::assert_snapshot!(
        refused.unwrap().message,
        @"spec.priorityClasses of capacitypolicy default does not list PriorityClass forbidden; name one that it lists (low, usual) in the label muster.io/priority-class, or remove the label"
    );
    // The label of an admitted job protects it as far as its queue allows the class.
    assert_eq!(class("urgent", runs()), ("urgent".to_owned(), None));
    assert_eq!(class("forbidden", runs()), ("own".to_owned(), None));
}

#[test]
fn a_label_names_the_class_of_a_kind_sized_by_its_binding() {
    let kind = TemplateKind {
        api_version: "example.com/v1".into(),
        kind: "Sim".into(),
    };
    let object = json!({
        "metadata": {
            "namespace": "team", "name": "a", "uid": "u",
            "labels": {"muster.io/priority-class": "urgent", "muster.io/hold": "true"},
        },
        "spec": {},
    });
    let template = Template::read(&kind, serde_json::from_value(object).unwrap());
    let sized = json!({"spec": {
        "resource": {"apiVersion": "example.com/v1", "kind": "Sim"}, "replicas": 3,
        "replicaRequirements": {"resourceRequest": {"cpu": "2"}},
    }});
    let fact = job_of(&template, &binding(sized), None).fact;
    assert_eq!(fact.priority_class.as_deref(), Some("urgent"));
    assert!(fact.hold.unwrap().message.contains(" sim.example.com a "));
}

#[test]
fn the_first_reason_is_the_one_to_act_on() {
    // A problem of the template itself comes first.
    let said = hold(
        json!({"spec": {"parallelism": -1, "suspend": true}}),
        json!({"spec": {"schedulerName": "default-scheduler"}}),
    );
    assert!(said.starts_with("InvalidTemplate"), "{said}");
    let said = hold(
        json!({"spec": {"suspend": true}}),
        json!({"spec": {"schedulerName": "default-scheduler"}}),
    );
    assert!(said.starts_with("WrongScheduler"), "{said}");
}

#[test]
fn the_template_queue_precedes_the_namespace_queue_and_the_default() {
    let queue = |change, default| {
        job_of(&template(change), &binding(json!({})), default)
            .fact
            .queue
            .to_string()
    };
    assert_eq!(queue(in_queue("own"), Some("teams")), "own");
    assert_eq!(queue(json!({}), Some("teams")), "teams");
    assert_eq!(queue(json!({}), None), "default");
}

#[test]
fn age_counts_from_the_template_else_from_the_binding() {
    let queued = |change| {
        job_of(&template(change), &binding(json!({})), None)
            .fact
            .queued_at
    };
    let created = json!({"metadata": {"creationTimestamp": "1970-01-01T00:00:03Z"}});
    assert_eq!(queued(created), Time(3_000));
    assert_eq!(queued(json!({})), Time(7_000));
}

#[test]
fn an_unknown_kind_is_sized_by_its_binding() {
    let kind = TemplateKind {
        api_version: "example.com/v1".into(),
        kind: "Sim".into(),
    };
    let object = json!({"metadata": {"namespace": "team", "name": "a", "uid": "u"}, "spec": {}});
    let template = Template::read(&kind, serde_json::from_value(object).unwrap());
    let resource = json!({"apiVersion": "example.com/v1", "kind": "Sim"});
    let sized = json!({"spec": {
        "resource": resource, "replicas": 3,
        "replicaRequirements": {"resourceRequest": {"cpu": "2"}},
    }});
    let job = job_of(&template, &binding(sized), None);
    assert_eq!(job.fact.hold, None);
    assert_eq!(job.fact.demand.total().unwrap().to_list()["cpu"], "6");
    let unsized_binding = json!({"spec": {"resource": resource}});
    let job = job_of(&template, &binding(unsized_binding), None);
    assert_eq!(job.fact.hold.unwrap().reason, Reason::SizeUnknown);
}

#[test]
fn a_job_without_a_split_annotation_follows_its_queue() {
    let split = |queue: &str, asks: Value| {
        let mut object = json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {"name": "a", "labels": {"muster.io/queue": queue}, "annotations": asks},
            "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
        });
        object["metadata"]["uid"] = json!("u");
        let kind = TemplateKind {
            api_version: "batch/v1".into(),
            kind: "Job".into(),
        };
        let template = Template::read(&kind, serde_json::from_value(object).unwrap());
        let demand = job_of(&template, &binding(json!({})), None).fact.demand;
        // The override of each part sets its size.
        let held = match demand.split {
            Split::Never => Held::ByReplicas,
            _ => Held::Not,
        };
        assert_eq!(demand.held, held);
        demand.split
    };
    assert_eq!(split("wide", json!({})), Split::Allowed);
    assert_eq!(split("narrow", json!({})), Split::Never);
    assert_eq!(
        split("wide", json!({"muster.io/split": "Never"})),
        Split::Never
    );
    assert_eq!(
        split("narrow", json!({"muster.io/split": "Preferred"})),
        Split::Preferred
    );
    assert_eq!(
        split("wide", json!({"muster.io/elastic": "true"})),
        Split::Never
    );
}

#[test]
fn a_placed_gang_stays_resizable_or_not() {
    let kind = TemplateKind {
        api_version: "batch.volcano.sh/v1alpha1".into(),
        kind: "Job".into(),
    };
    let held = |elastic: &str, record: Option<Value>| {
        let template = json!({
            "metadata": {
                "namespace": "team", "name": "a", "uid": "u",
                "annotations": {"muster.io/elastic": elastic},
            },
            "spec": {"minAvailable": 1, "tasks": [
                {"replicas": 3, "template": {"spec": {"containers": [{"name": "c"}]}}},
            ]},
        });
        let template = Template::read(&kind, serde_json::from_value(template).unwrap());
        let text = record.map(|more| {
            let mut record = json!({
                "templateUID": "u", "attempt": 1, "state": "Admitted", "queue": "q",
                "time": "1970-01-01T00:00:00Z",
            });
            merge(&mut record, more);
            json!({"metadata": {"annotations": {"muster.io/admission": record.to_string()}}})
        });
        let demand = job_of(&template, &binding(text.unwrap_or(json!({}))), None);
        let demand = demand.fact.demand;
        (demand.held, demand.elastic)
    };
    let resizable = || Some(json!({"parts": "Dispatched", "resizable": true}));
    assert_eq!(held("true", None), (Held::ByOverride, true));
    assert_eq!(held("true", resizable()), (Held::ByOverride, true));
    // A job that was placed as a whole has no override to change.
    assert_eq!(held("true", Some(json!({}))), (Held::Not, false));
    assert_eq!(held("false", resizable()), (Held::ByOverride, false));
    // The next attempt follows its template.
    let back = Some(json!({"state": "Requeued"}));
    assert_eq!(held("true", back), (Held::ByOverride, true));
    assert_eq!(held("false", None), (Held::Not, false));
}

#[test]
fn the_filters_of_a_queue_apply_to_its_jobs() {
    let filters = |queue: &str| {
        let change = json!({"metadata": {"labels": {"muster.io/queue": queue}}});
        let job = job_of(&template(change), &binding(json!({})), None);
        job.fact.demand.placement.filters
    };
    assert_eq!(filters("at-data"), Filters::named(["DataRegion"]).unwrap());
    assert_eq!(filters("elsewhere"), Filters::default());
}

#[test]
fn a_job_whose_pods_cannot_find_each_other_is_not_split_and_says_why() {
    let job = |queue: &str, split: Value| {
        let container = json!({"name": "pytorch", "command": ["train"]});
        let group = json!({"template": {"spec": {"containers": [container]}}});
        let object = json!({
            "apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "metadata": {
                "name": "a", "uid": "u", "labels": {"muster.io/queue": queue},
                "annotations": split,
            },
            "spec": {"pytorchReplicaSpecs": {"Master": group, "Worker": group}},
        });
        let kind = TemplateKind {
            api_version: "kubeflow.org/v1".into(),
            kind: "PyTorchJob".into(),
        };
        let template = Template::read(&kind, serde_json::from_value(object).unwrap());
        let job = job_of(&template, &binding(json!({})), None);
        (job.fact.demand.split, job.unsplit)
    };
    let asks = || json!({"muster.io/split": "Allowed"});
    assert_eq!(job("meets", asks()), (Split::Allowed, None));
    let why = Some("no address".to_owned());
    assert_eq!(job("narrow", asks()), (Split::Never, why.clone()));
    assert_eq!(job("wide", json!({})), (Split::Never, why));
    // A job that does not ask gets no reason.
    assert_eq!(job("narrow", json!({})), (Split::Never, None));
}
