//! Jobs whose pods request more in a member than their template says, or are refused there.

use super::*;
use members::RulesUpdate;
use std::collections::BTreeMap;
use workload::{LimitRangeRules, NamespaceRules, QuotaRules};

impl Stage {
    fn rules(&mut self, rules: RulesUpdate) {
        self.take(Input::Member(MemberEvent::Rules {
            cluster: ClusterName::new("m1"),
            rules,
        }));
    }

    fn runtime_class(&mut self, name: &str, cpus: &str) {
        let overhead = Resources::parse([("cpu", cpus)]).unwrap();
        let classes = [(name.to_owned(), overhead)].into();
        self.rules(RulesUpdate::RuntimeClasses(Some(classes)));
    }

    /// Namespace `team` of the member gets a LimitRange with one limit.
    fn limit_range(&mut self, limit: Value) {
        let rules = LimitRangeRules::read(&json!({"limits": [limit]})).unwrap();
        let rules = NamespaceRules {
            limit_ranges: BTreeMap::from([("defaults".to_owned(), rules)]),
            ..NamespaceRules::default()
        };
        self.rules(RulesUpdate::Namespace("team".to_owned(), rules));
    }

    /// Namespace `team` of the member gets a ResourceQuota.
    fn quota(&mut self, hard: Value, used: Value) {
        let rules = QuotaRules::read(&json!({"hard": hard}), &json!({"used": used})).unwrap();
        let rules = NamespaceRules {
            quotas: BTreeMap::from([("budget".to_owned(), rules)]),
            ..NamespaceRules::default()
        };
        self.rules(RulesUpdate::Namespace("team".to_owned(), rules));
    }

    /// Creates a job of `pods` pods with this pod spec.
    fn job_with(&mut self, name: &str, pods: u32, spec: Value) {
        self.template(name, pods, json!({"spec": {"template": {"spec": spec}}}));
        self.binding(name, pods, json!({}));
    }

    fn is_placed(&self, name: &str) -> bool {
        self.record(name).is_some()
    }
}

#[tokio::test]
async fn the_overhead_of_a_runtime_class_is_charged() {
    let mut stage = stage().await;
    stage.runtime_class("kata", "1");
    stage.job_with("a", 2, json!({"runtimeClassName": "kata"}));
    stage.job_with("b", 1, json!({"runtimeClassName": "kata"}));
    stage.rest(&["a", "b"]).await;
    // 2 pods × (1 + 1 CPU) of the queue's 4.
    assert!(stage.is_placed("a"));
    assert!(!stage.is_placed("b"));
    assert_eq!(stage.charged(), "4");
    // The record has the requests of the template, to which raised requests are capped.
    let record = stage.record("a").unwrap();
    assert_eq!(record.requests["main"].to_string(), "cpu 1, pods 1");
    let charge = record.clusters[0].charge.values().next().unwrap();
    assert_eq!(charge.to_string(), "cpu 4, pods 2");
    // A class that changes later changes pods that are made later, and no running job is an excess.
    stage.runtime_class("kata", "3");
    stage.rest(&["a", "b"]).await;
    assert_eq!(stage.charged(), "4");
    assert!(
        !stage
            .api
            .requests()
            .iter()
            .any(|sent| sent.path.contains("overridepolicies"))
    );
}

#[tokio::test]
async fn a_member_known_to_have_no_runtime_class_refuses_pods_that_name_one() {
    let mut stage = stage().await;
    stage.rules(RulesUpdate::RuntimeClasses(Some(BTreeMap::new())));
    stage.job_with("a", 1, json!({"runtimeClassName": "gvisor"}));
    stage.rest(&["a"]).await;
    assert!(!stage.is_placed("a"));
    let why = stage.why("a");
    assert!(why.contains("m1: it has no RuntimeClass gvisor"), "{why}");
    // The right to list them is withdrawn: it may have the class.
    stage.rules(RulesUpdate::RuntimeClasses(None));
    stage.rest(&["a"]).await;
    assert!(stage.is_placed("a"));
}

#[tokio::test]
async fn what_a_limit_range_adds_is_charged() {
    let mut stage = stage().await;
    let default = json!({"cpu": "2"});
    stage.limit_range(json!({"type": "Container", "default": default, "defaultRequest": default}));
    let without = json!({"containers": [{"name": "main"}]});
    for name in ["a", "b", "c"] {
        stage.job_with(name, 1, without.clone());
    }
    stage.rest(&["a", "b", "c"]).await;
    assert_eq!(stage.charged(), "4");
    let record = stage.record("a").unwrap();
    let charge = record.clusters[0].charge.values().next().unwrap();
    assert_eq!(charge.to_string(), "cpu 2, pods 1");
    assert!(!stage.is_placed("c"));
}

#[tokio::test]
async fn a_quota_of_the_member_keeps_jobs_away_and_is_named() {
    let mut stage = stage().await;
    stage.quota(json!({"requests.cpu": "3"}), json!({"requests.cpu": "2"}));
    stage.job("a", 2);
    stage.rest(&["a"]).await;
    assert!(!stage.is_placed("a"));
    let why = stage.why("a");
    let named =
        "m1: its ResourceQuota budget refuses the pods: requests.cpu: hard 3, used 2, needed 2";
    assert!(why.contains(named), "{why}");
    // What others use becomes free.
    stage.quota(json!({"requests.cpu": "3"}), json!({"requests.cpu": "0"}));
    stage.ahead_ms += 3_000;
    stage.rest(&["a"]).await;
    assert!(stage.is_placed("a"));
    // Its own pods are in the quota now, and refuse it nothing.
    stage.quota(json!({"requests.cpu": "3"}), json!({"requests.cpu": "2"}));
    stage.ahead_ms += 3_000;
    stage.rest(&["a"]).await;
    assert!(stage.is_placed("a"));
}

#[tokio::test]
async fn a_limit_range_that_refuses_the_pods_is_named() {
    let mut stage = stage().await;
    stage.limit_range(json!({"type": "Container", "min": {"cpu": "2"}}));
    stage.job("a", 1);
    stage.rest(&["a"]).await;
    let why = stage.why("a");
    let named = "m1: its LimitRange defaults refuses pods of main: at least cpu 2 for each container, which requests cpu 1";
    assert!(why.contains(named), "{why}");
}
