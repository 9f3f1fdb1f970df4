#![allow(clippy::unwrap_used)]

use super::*;

fn binding() -> ResourceBinding {
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a-job", "uid": "b-uid"},
        "spec": {"resource": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "namespace": "team", "name": "a",
        }},
    }))
    .unwrap()
}

#[test]
fn a_policy_selects_one_template_and_is_owned_by_its_binding() {
    let rules = [
        Rule {
            cluster: Some(ClusterName::new("gpu-a")),
            mark: Some("attempt 1, part 1 of 1: w=4".to_owned()),
            fields: vec![
                (
                    "/spec/tasks".to_owned(),
                    json!([{"name": "w", "replicas": 4}]),
                ),
                ("/spec/policies".to_owned(), Value::Null),
            ],
        },
        Rule {
            cluster: None,
            mark: None,
            fields: vec![("/spec/minAvailable".to_owned(), json!(4))],
        },
    ];
    let policy = policy(&JobKey::new("team", "a-job"), &binding(), &rules);
    assert_eq!(
        policy,
        json!({
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "OverridePolicy",
            "metadata": {
                "name": "muster-a-job",
                "namespace": "team",
                "ownerReferences": [{
                    "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                    "name": "a-job", "uid": "b-uid",
                }],
            },
            "spec": {
                "resourceSelectors": [{
                    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job",
                    "namespace": "team", "name": "a",
                }],
                "overrideRules": [
                    {
                        "targetCluster": {"clusterNames": ["gpu-a"]},
                        "overriders": {
                            "annotationsOverrider": [{
                                "operator": "add",
                                "value": {"muster.io/part": "attempt 1, part 1 of 1: w=4"},
                            }],
                            "plaintext": [
                                {
                                    "path": "/spec/tasks", "operator": "add",
                                    "value": [{"name": "w", "replicas": 4}],
                                },
                                {"path": "/spec/policies", "operator": "remove"},
                            ],
                        },
                    },
                    {"overriders": {"plaintext": [
                        {"path": "/spec/minAvailable", "operator": "add", "value": 4},
                    ]}},
                ],
            },
        })
    );
}

#[tokio::test(start_paused = true)]
async fn an_override_of_a_later_attempt_stays() {
    const PATH: &str =
        "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a-job";
    let api = runtime::testing::FakeApi::new();
    let overrides = Overrides::new(api.client(), &Term::always());
    let key = JobKey::new("team", "a-job");
    let put = |mark: Option<&str>| {
        let rule = Rule {
            cluster: None,
            mark: mark.map(str::to_owned),
            fields: Vec::new(),
        };
        let mut policy = policy(&key, &binding(), &[rule]);
        policy["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
        api.put(PATH, policy);
    };
    put(Some("attempt 2, part 1 of 1: w=4"));
    overrides.clear(&binding(), Attempt(1)).await.unwrap();
    assert!(api.get(PATH).is_some());
    overrides.clear(&binding(), Attempt(2)).await.unwrap();
    assert!(api.get(PATH).is_none());
    // It is gone already.
    overrides.clear(&binding(), Attempt(2)).await.unwrap();
    put(None);
    overrides.clear(&binding(), Attempt(1)).await.unwrap();
    assert!(api.get(PATH).is_none(), "a pin ends with its attempt");
}

/// An indexed Job of four pods with a Service for the first pod, and its binding.
fn found_by_a_service(api: &runtime::testing::FakeApi) -> ResourceBinding {
    api.put(
        "/apis/batch/v1/namespaces/team/jobs/a",
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"uid": "a-uid"},
            "spec": {
                "completionMode": "Indexed", "parallelism": 4, "completions": 4,
                "template": {"spec": {"containers": [{"name": "c"}]}},
            },
        }),
    );
    serde_json::from_value(json!({
        "metadata": {"namespace": "team", "name": "a-job", "uid": "b-uid"},
        "spec": {"resource": {
            "apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "a", "uid": "a-uid",
        }},
    }))
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn services_are_written_with_the_policy_and_go_with_their_attempt() {
    let api = runtime::testing::FakeApi::new();
    let binding = found_by_a_service(&api);
    let overrides = Overrides::new(api.client(), &Term::always());
    let share = |cluster: &str| Share {
        cluster: ClusterName::new(cluster),
        pods: vec![facts::RolePods {
            role: "main".to_owned(),
            count: 2,
        }],
        charge: std::collections::BTreeMap::new(),
        slots: Vec::new(),
    };
    let reach = Reach {
        leader: Some("{service}.team.svc".to_owned()),
        ..Reach::default()
    };
    let take_apart = async |attempt: u32, first: &str, second: &str| {
        let shares = [share(first), share(second)];
        let plan = PartsPlan {
            attempt: Attempt(attempt),
            shares: &shares,
            reach: &reach,
            resizable: false,
            avoided: &[],
        };
        overrides.take_apart(&binding, &plan).await.unwrap();
    };
    // The cluster that provides the Service, from the objects of both kinds.
    let providers = || {
        let applied = api.requests_of("APPLY").into_iter();
        let services = applied.filter(|request| request.path.contains("/services/"));
        let there = services.filter_map(|service| {
            let name = service.path.rsplit('/').next()?.to_owned();
            let carried = format!(
                "/apis/networking.karmada.io/v1alpha1/namespaces/team/multiclusterservices/{name}"
            );
            let managed = json!([{"manager": MANAGER, "operation": "Apply"}]);
            let managed = json!({"metadata": {"managedFields": managed}});
            api.merge(&service.path, &managed);
            api.merge(&carried, &managed);
            let carried = api.get(&carried);
            assert_eq!(api.get(&service.path).is_some(), carried.is_some());
            let provider = carried?["spec"]["providerClusters"][0]["name"].clone();
            Some(provider.as_str()?.to_owned())
        });
        there.collect::<Vec<_>>()
    };
    take_apart(1, "m1", "m2").await;
    assert_eq!(providers(), ["m1"]);
    // The next attempt has other shares.
    take_apart(2, "m3", "m1").await;
    assert_eq!(providers(), ["m3"]);
    overrides.clear(&binding, Attempt(1)).await.unwrap();
    assert_eq!(providers(), ["m3"], "of the attempt that goes on");
    overrides.clear(&binding, Attempt(2)).await.unwrap();
    assert_eq!(providers(), Vec::<String>::new());
}

#[test]
fn parts_are_retried_as_often_as_earlier_attempts_have_left() {
    let template = json!({
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "spec": {"maxRetry": 4, "tasks": []},
    });
    let record = |uid: &str| {
        let record = json!({
            "templateUID": uid, "attempt": 2, "state": "Requeued", "queue": "q", "retries": 1,
            "time": "2026-11-21T04:00:00Z",
        });
        json!({ names::ADMISSION_ANNOTATION: record.to_string() })
    };
    let most = |annotations: Value| {
        let mut binding = binding();
        binding.metadata.annotations = serde_json::from_value(annotations).unwrap();
        binding.spec.resource.uid = "a-uid".into();
        let template = as_admitted(template.clone(), &binding, Attempt(3));
        template["spec"]["maxRetry"].clone()
    };
    assert_eq!(most(json!({})), 4);
    assert_eq!(most(record("a-uid")), 3);
    assert_eq!(most(record("of-an-earlier-job")), 4);
}

const PIN: &str = "/apis/policy.karmada.io/v1alpha1/namespaces/team/overridepolicies/muster-a-job";

/// A policy that sets this number of replicas everywhere, or in one part of an attempt.
fn sized(replicas: u32, mark: Option<&str>) -> Value {
    let rule = Rule {
        cluster: mark.map(|_| ClusterName::new("m1")),
        mark: mark.map(str::to_owned),
        fields: vec![("/spec/replicas".to_owned(), json!(replicas))],
    };
    let mut policy = policy(&JobKey::new("team", "a-job"), &binding(), &[rule]);
    policy["metadata"]["managedFields"] = json!([{"manager": MANAGER, "operation": "Apply"}]);
    policy
}

#[tokio::test(start_paused = true)]
async fn a_pin_replaces_no_split_and_is_deleted_alone() {
    let api = runtime::testing::FakeApi::new();
    let overrides = Overrides::new(api.client(), &Term::always());
    let key = JobKey::new("team", "a-job");
    let parts = sized(2, Some("attempt 2, part 1 of 1: w=2"));
    api.put(PIN, parts.clone());
    // Both were requested in an earlier attempt, and arrive late.
    overrides.pin(&key, &sized(8, None)).await.unwrap();
    overrides.unpin(&key).await.unwrap();
    assert_eq!(api.get(PIN).unwrap()["spec"], parts["spec"]);

    api.remove(PIN);
    overrides.pin(&key, &sized(8, None)).await.unwrap();
    assert_eq!(api.get(PIN).unwrap()["spec"], sized(8, None)["spec"]);
    let version = || api.get(PIN).unwrap()["metadata"]["resourceVersion"].clone();
    let before = version();
    overrides.pin(&key, &sized(8, None)).await.unwrap();
    assert_ne!(version(), before, "else one without an answer could follow");
    api.put(PIN, sized(8, None));
    overrides.unpin(&key).await.unwrap();
    assert_eq!(api.get(PIN), None);
}

/// The operation that an old leader is about to do when it is stopped.
#[derive(Debug, Clone, Copy)]
enum Late {
    Pin,
    Unpin,
    Clear,
}

/// Stops an old leader before its write number `stopped_at` of `late`, lets another one lead meanwhile, and
/// lets the first continue. Returns the rules before and after that.
async fn continues_late(
    late: Late,
    there: Option<Value>,
    stopped_at: usize,
    with_ledger: bool,
) -> [Value; 2] {
    use runtime::lease::ledger::{Ledger, LedgerOptions};
    use runtime::testing::{FakeApi, StoppableProcess};
    let (api, registry) = (FakeApi::new(), runtime::Registry::new());
    let always = runtime::Leadership::always();
    let term = |client: Client, name: &str| {
        let options = LedgerOptions::beside("muster", name);
        Term {
            // It never learns that it no longer leads.
            leadership: always.term(tokio_util::sync::CancellationToken::new()),
            ledger: with_ledger.then(|| Ledger::new(client, options, &registry)),
        }
    };
    let process = StoppableProcess::new(&api);
    let old = term(process.client(), "old");
    let begun = crate::term::begin(&process.client(), &mut always.clone(), &old).await;
    begun.unwrap();
    if let Some(there) = there {
        api.put(PIN, there);
    }
    let overrides = Overrides::new(old.client(&process.client()), &old);
    process.stop_after(stopped_at);
    let acting = tokio::spawn(async move {
        let key = JobKey::new("team", "a-job");
        // The result shows on the server.
        match late {
            Late::Pin => _ = overrides.pin(&key, &sized(8, None)).await,
            Late::Unpin => _ = overrides.unpin(&key).await,
            Late::Clear => _ = overrides.clear(&binding(), Attempt(1)).await,
        }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let new = term(api.client(), "new");
    let begun = crate::term::begin(&api.client(), &mut always.clone(), &new).await;
    begun.unwrap();
    let rules = || {
        let policy = api.get(PIN).unwrap_or_default();
        let rules = policy["spec"]["overrideRules"].clone();
        if rules.is_null() { json!([]) } else { rules }
    };
    let before = rules();
    process.thaw();
    tokio::time::sleep(Duration::from_secs(60)).await;
    acting.await.unwrap();
    [before, rules()]
}

/// All operations of an old leader, stopped at every write.
fn all_late() -> impl Iterator<Item = (Late, Option<Value>, usize)> {
    let cases = [
        (Late::Pin, None),
        (Late::Pin, Some(sized(2, None))),
        (Late::Unpin, Some(sized(2, None))),
        (
            Late::Clear,
            Some(sized(2, Some("attempt 1, part 1 of 1: w=2"))),
        ),
    ];
    let cases = cases.into_iter();
    cases.flat_map(|(late, there)| (0..4).map(move |at| (late, there.clone(), at)))
}

#[tokio::test(start_paused = true)]
async fn no_write_of_an_earlier_leader_follows_once_another_leads() {
    for (late, there, at) in all_late() {
        let [before, after] = continues_late(late, there, at, true).await;
        assert_eq!(before, after, "{late:?} before its write {at}");
    }
}

/// Shows that the ledger is needed: without it each late write can arrive.
#[tokio::test(start_paused = true)]
async fn without_the_ledger_each_late_write_arrives() {
    let mut followed = Vec::new();
    for (late, there, at) in all_late() {
        let [before, after] = continues_late(late, there, at, false).await;
        if before != after {
            followed.push(format!("{late:?}"));
        }
    }
    followed.dedup();
    assert_eq!(followed, ["Pin", "Unpin", "Clear"]);
}
