use super::*;

/// A warning must not delay what it is about, and its absence must not keep anybody out.
#[test]
fn an_entry_that_only_warns_is_short_and_ignored_on_failure() {
    let target = WebhookTarget::Url("https://127.0.0.1:9443/".to_owned());
    let mut lines = Vec::new();
    for WebhookEntry(mut entry) in warning(&target, "PEM") {
        assert_eq!(entry["failurePolicy"], "Ignore");
        assert_eq!(entry["timeoutSeconds"], 1);
        let rules = entry["rules"].take();
        let rule = |rule: &Value| {
            format!(
                "{} {} {} {}",
                rule["apiGroups"], rule["resources"], rule["operations"], rule["scope"]
            )
        };
        let rules: Vec<String> = rules.as_array().into_iter().flatten().map(rule).collect();
        lines.push(format!(
            "{} {}",
            entry["name"], entry["clientConfig"]["url"]
        ));
        lines.extend(rules.into_iter().take(2));
        for field in ["objectSelector", "namespaceSelector", "matchConditions"] {
            lines.extend(entry.get(field).map(Value::to_string));
        }
    }
    insta::assert_snapshot!(lines.join("\n"), @r#"
    "objects.warnings.muster.io" "https://127.0.0.1:9443/warn/objects"
    ["*"] ["*"] ["CREATE"] "Namespaced"
    {"matchExpressions":[{"key":"muster.io/queue","operator":"Exists"}]}
    {"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-public","kube-node-lease","karmada-system","karmada-cluster","muster-system"]}]}
    "mislabelled.warnings.muster.io" "https://127.0.0.1:9443/warn/objects"
    [""] ["pods"] ["CREATE"] "Namespaced"
    ["apps"] ["deployments","statefulsets","replicasets"] ["CREATE"] "Namespaced"
    {"matchExpressions":[{"key":"muster.io/queue","operator":"DoesNotExist"}]}
    {"matchExpressions":[{"key":"muster.io/managed","operator":"Exists"},{"key":"muster.io/managed","operator":"NotIn","values":["true","false"]},{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system","kube-public","kube-node-lease","karmada-system","karmada-cluster","muster-system"]}]}
    "namespaces.warnings.muster.io" "https://127.0.0.1:9443/warn/namespaces"
    [""] ["namespaces"] ["CREATE","UPDATE"] "Cluster"
    [{"expression":"object.metadata.?labels.orValue({}).exists(key, key.contains('muster')) && (oldObject == null || oldObject.metadata.?labels.orValue({}) != object.metadata.labels)","name":"labels"}]
    "policies.warnings.muster.io" "https://127.0.0.1:9443/warn/policies"
    ["muster.io"] ["capacitypolicies"] ["CREATE","UPDATE"] "Cluster"
    "#);
}
