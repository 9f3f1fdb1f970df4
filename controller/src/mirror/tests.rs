#![allow(clippy::unwrap_used)]

use super::*;
use crds::devices::ResourceClaimTemplate;
use crds::names;
use serde_json::{Value, json};

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn binding(name: &str, id: &str, kind: &str) -> ResourceBinding {
    read(json!({
        "metadata": {"namespace": "team", "name": name, "labels": {names::BINDING_PERMANENT_ID: id}},
        "spec": {"resource": {
            "apiVersion": "batch/v1", "kind": kind, "namespace": "team", "name": name, "uid": "u1",
        }},
    }))
}

fn work(name: &str, id: Option<&str>, applied: &str) -> Delta<ReadWork> {
    let job = id.and_then(|id| id.strip_prefix("id-")).unwrap_or("a");
    work_of(&format!("team/{job}"), name, id, applied)
}

/// A Work of the binding `job`, as `NAMESPACE/NAME`, with the permanent id `id`.
fn work_of(job: &str, name: &str, id: Option<&str>, applied: &str) -> Delta<ReadWork> {
    let labels = id.map(|id| json!({ names::BINDING_PERMANENT_ID: id }));
    let (namespace, of) = job.split_once('/').unwrap();
    let annotations = json!({
        names::BINDING_NAMESPACE_ANNOTATION: namespace, names::BINDING_NAME_ANNOTATION: of,
    });
    let metadata = json!({
        "namespace": "karmada-es-m1", "name": name, "labels": labels, "annotations": annotations,
    });
    Delta::Upserted(ReadWork::of(read(json!({
        "metadata": metadata,
        "status": {"conditions": [{"type": "Applied", "status": applied, "message": "why"}]},
    }))))
}

fn key(name: &str) -> Option<JobKey> {
    Some(JobKey::new("team", name))
}

fn gone(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        namespace: Some(namespace.into()),
        name: name.into(),
    }
}

fn works(mirror: &Mirror, name: &str) -> usize {
    let binding = &mirror.bindings[&JobKey::new("team", name)];
    mirror.works.of(binding).count()
}

#[test]
fn works_are_filed_by_the_permanent_id_of_their_binding() {
    let mut mirror = Mirror::default();
    assert_eq!(
        mirror.work(work("w", Some("id-a"), "True")),
        None,
        "no binding yet"
    );
    mirror.binding(Delta::Upserted(binding("a", "id-a", "Job")));
    assert_eq!(works(&mirror, "a"), 1);
    assert_eq!(
        mirror.work(work("w", Some("id-a"), "True")),
        None,
        "nothing new"
    );
    assert_eq!(mirror.work(work("w", Some("id-a"), "False")), key("a"));
    let seen = mirror.bindings[&key("a").unwrap()].clone();
    let seen: Vec<&SeenWork> = mirror.works.of(&seen).collect();
    assert_eq!(seen[0].cluster, "m1");
    assert_eq!(seen[0].refused.as_deref(), Some("why"));
    let delta = Delta::Gone(gone("karmada-es-m1", "w"));
    assert_eq!(mirror.work(delta.clone()), key("a"));
    assert_eq!(works(&mirror, "a"), 0);
    assert_eq!(mirror.work(delta), None);
    assert!(mirror.works.is_empty());
}

#[test]
fn a_binding_with_the_id_of_another_one_has_none_of_its_works() {
    let mut mirror = Mirror::default();
    mirror.binding(Delta::Upserted(binding("a", "id-a", "Job")));
    mirror.work(work("w", Some("id-a"), "True"));
    let mut other = binding("a", "id-a", "Job");
    other.metadata.namespace = Some("elsewhere".into());
    mirror.binding(Delta::Upserted(other.clone()));
    assert_eq!(mirror.works.of(&other).count(), 0);
    assert_eq!(works(&mirror, "a"), 1);
    assert_eq!(mirror.work(work("w", Some("id-a"), "False")), key("a"));
    let template = template_key(&other);
    assert_eq!(mirror.job_of_template(&template), key("a").as_ref());
    // It goes, and takes nothing of the first one along.
    mirror.binding(Delta::Gone(gone("elsewhere", "a")));
    assert_eq!(mirror.work(work("w", Some("id-a"), "True")), key("a"));
    assert_eq!(mirror.works_without_binding().count(), 0);
    assert_eq!(mirror.job_of_template(&template), key("a").as_ref());
}

#[test]
fn a_work_with_a_new_binding_id_leaves_the_earlier_binding() {
    let mut mirror = Mirror::default();
    mirror.binding(Delta::Upserted(binding("a", "id-a", "Job")));
    mirror.binding(Delta::Upserted(binding("b", "id-b", "Job")));
    mirror.work(work("w", Some("id-a"), "True"));
    assert_eq!(mirror.work(work("w", Some("id-b"), "True")), key("b"));
    assert_eq!((works(&mirror, "a"), works(&mirror, "b")), (0, 1));
    assert_eq!(mirror.work(work("w", None, "True")), key("b"));
    assert_eq!((works(&mirror, "a"), works(&mirror, "b")), (0, 0));
    assert!(mirror.works.is_empty());
}

#[test]
fn a_new_binding_of_the_same_name_has_none_of_the_earlier_works() {
    let mut mirror = Mirror::default();
    mirror.binding(Delta::Upserted(binding("a", "id-1", "Job")));
    mirror.work(work_of("team/a", "w", Some("id-1"), "True"));
    assert_eq!(works(&mirror, "a"), 1);
    assert_eq!(mirror.binding(Delta::Gone(gone("team", "a"))), key("a"));
    mirror.binding(Delta::Upserted(binding("a", "id-2", "Job")));
    assert_eq!(works(&mirror, "a"), 0);
    let late = Delta::Gone(gone("karmada-es-m1", "w"));
    assert_eq!(mirror.work(late), None, "it concerns nobody");
}

#[test]
fn a_template_belongs_to_a_binding_only_with_the_bound_uid() {
    let mut mirror = Mirror::default();
    let bound = binding("a", "id-a", "Job");
    mirror.binding(Delta::Upserted(bound.clone()));
    let kind = template_key(&bound).kind;
    let template = |uid: &str| {
        let object = read(json!({"metadata": {"namespace": "team", "name": "a", "uid": uid}}));
        Template::read(&kind, object)
    };
    let seen = mirror
        .template(&kind, Delta::Upserted(template("u1")))
        .unwrap();
    assert_eq!(mirror.job_of_template(&seen), key("a").as_ref());
    assert!(mirror.template_of(&bound).is_some());
    mirror.template(&kind, Delta::Upserted(template("u2")));
    assert!(mirror.template_of(&bound).is_none());
    mirror.template(&kind, Delta::Gone(gone("team", "a")));
    assert!(mirror.templates.is_empty());
    mirror.binding(Delta::Gone(gone("team", "a")));
    assert_eq!(mirror.job_of_template(&seen), None);
}

#[test]
fn a_namespace_is_reported_if_its_fact_changes() {
    let mut mirror = Mirror::default();
    let named = |labels: Value| {
        Delta::Upserted(read::<Namespace>(
            json!({"metadata": {"name": "team", "labels": labels}}),
        ))
    };
    let managed = || named(json!({ names::MANAGED_LABEL: "true" }));
    assert_eq!(mirror.namespace(managed()).as_deref(), Some("team"));
    assert_eq!(mirror.namespace(managed()), None);
    assert_eq!(mirror.namespace(named(json!({}))).as_deref(), Some("team"));
    let gone = ObjectKey {
        namespace: None,
        name: "team".into(),
    };
    assert_eq!(
        mirror.namespace(Delta::Gone(gone.clone())).as_deref(),
        Some("team")
    );
    assert_eq!(mirror.namespace(Delta::Gone(gone)), None);
}

#[test]
fn jobs_are_found_by_namespace_and_only_pod_kinds_are_listed() {
    let mut mirror = Mirror::default();
    for (namespace, name, kind) in [
        ("tea", "x", "Job"),
        ("team", "a", "Job"),
        ("team", "b", "ConfigMap"),
        ("team2", "y", "Job"),
    ] {
        let mut binding = binding(name, name, kind);
        binding.metadata.namespace = Some(namespace.into());
        mirror.binding(Delta::Upserted(binding));
    }
    let names: Vec<String> = mirror
        .jobs_in("team")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["team/a", "team/b"]);
    let kinds: Vec<String> = mirror
        .template_kinds()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(kinds, ["batch/v1/Job"]);
}

#[test]
fn a_job_keeps_what_its_claim_templates_claimed_when_it_was_placed() {
    let mut mirror = Mirror::default();
    let job = JobKey::new("team", "a");
    mirror.binding(Delta::Upserted(binding("a", "id-a", "Job")));
    let kind = TemplateKind {
        api_version: "batch/v1".into(),
        kind: "Job".into(),
    };
    let pods = json!({"spec": {
        "resourceClaims": [{"name": "c", "resourceClaimTemplateName": "gpus"}],
        "containers": [{"name": "c"}],
    }});
    let object = json!({
        "metadata": {"namespace": "team", "name": "a", "uid": "u1"}, "spec": {"template": pods},
    });
    let template = Template::read(&kind, read(object));
    mirror.template(&kind, Delta::Upserted(template));
    let claims = |count: u32| {
        let requests =
            json!([{"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}]);
        Delta::Upserted(read::<ResourceClaimTemplate>(json!({
            "metadata": {"namespace": "team", "name": "gpus"},
            "spec": {"spec": {"devices": {"requests": requests}}},
        })))
    };
    let request = |mirror: &Mirror| {
        let ask = mirror.ask_of(&mirror.bindings[&job]).unwrap();
        let whole = ask.with_claims(&|name| mirror.claims.claimed_by(&job, name));
        whole.map_or("unknown".to_owned(), |ask| ask.roles[0].request.to_string())
    };
    let gpus = |count| format!("deviceclass.resource.kubernetes.io/gpu {count}, pods 1");
    assert_eq!(request(&mirror), "unknown");
    let named = mirror.claims.file(claims(2)).unwrap();
    assert_eq!(mirror.jobs_that_claim(&named), std::slice::from_ref(&job));
    assert_eq!(mirror.claims.file(claims(2)), None, "nothing new");
    assert_eq!(request(&mirror), gpus(2));
    mirror.keep_claims(&job);
    mirror.claims.file(claims(4));
    assert_eq!(request(&mirror), gpus(2));
    mirror.claims.file(Delta::Gone(gone("team", "gpus")));
    assert_eq!(request(&mirror), gpus(2));
    mirror.claims.drop_placed(&job);
    assert_eq!(request(&mirror), "unknown");
    mirror.claims.file(claims(4));
    assert_eq!(request(&mirror), gpus(4));
    // A template of the same name in another namespace does not concern the job.
    let elsewhere = gone("other", "gpus");
    assert!(mirror.jobs_that_claim(&elsewhere).is_empty());
}
