use super::*;

mod validating;
mod warning;

#[test]
fn configurations_for_a_url() {
    let target = WebhookTarget::Url("https://127.0.0.1:9443/".to_owned());
    insta::assert_yaml_snapshot!(mutating(&target, "PEM"), @r#"
    apiVersion: admissionregistration.k8s.io/v1
    kind: MutatingWebhookConfiguration
    metadata:
      name: muster
    webhooks:
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/gate/namespace"
        failurePolicy: Fail
        matchPolicy: Equivalent
        name: namespace.gate.muster.io
        namespaceSelector:
          matchExpressions:
            - key: muster.io/managed
              operator: In
              values:
                - "true"
            - key: kubernetes.io/metadata.name
              operator: NotIn
              values:
                - kube-system
                - kube-public
                - kube-node-lease
                - karmada-system
                - karmada-cluster
                - muster-system
        reinvocationPolicy: Never
        rules:
          - apiGroups:
              - work.karmada.io
            apiVersions:
              - "*"
            operations:
              - CREATE
            resources:
              - resourcebindings
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/gate/scheduler"
        failurePolicy: Ignore
        matchConditions:
          - expression: "object.spec.?schedulerName.orValue('') == 'muster'"
            name: scheduler
        matchPolicy: Equivalent
        name: scheduler.gate.muster.io
        namespaceSelector:
          matchExpressions:
            - key: muster.io/managed
              operator: NotIn
              values:
                - "true"
            - key: kubernetes.io/metadata.name
              operator: NotIn
              values:
                - kube-system
                - kube-public
                - kube-node-lease
                - karmada-system
                - karmada-cluster
                - muster-system
        reinvocationPolicy: Never
        rules:
          - apiGroups:
              - work.karmada.io
            apiVersions:
              - "*"
            operations:
              - CREATE
            resources:
              - resourcebindings
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/mutate/templates"
        failurePolicy: Ignore
        matchPolicy: Equivalent
        name: users.templates.muster.io
        namespaceSelector:
          matchExpressions:
            - key: muster.io/managed
              operator: In
              values:
                - "true"
            - key: kubernetes.io/metadata.name
              operator: NotIn
              values:
                - kube-system
                - kube-public
                - kube-node-lease
                - karmada-system
                - karmada-cluster
                - muster-system
        reinvocationPolicy: Never
        rules:
          - apiGroups:
              - ""
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - pods
            scope: Namespaced
          - apiGroups:
              - apps
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - deployments
              - statefulsets
              - replicasets
            scope: Namespaced
          - apiGroups:
              - batch
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - jobs
            scope: Namespaced
          - apiGroups:
              - batch.volcano.sh
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - jobs
            scope: Namespaced
          - apiGroups:
              - jobset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - jobsets
            scope: Namespaced
          - apiGroups:
              - kubeflow.org
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - pytorchjobs
              - tfjobs
              - mpijobs
              - jaxjobs
              - paddlejobs
              - xgboostjobs
            scope: Namespaced
          - apiGroups:
              - leaderworkerset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - leaderworkersets
            scope: Namespaced
          - apiGroups:
              - ray.io
            apiVersions:
              - "*"
            operations:
              - CREATE
              - UPDATE
            resources:
              - rayjobs
              - rayclusters
              - rayservices
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/probe"
        failurePolicy: Fail
        matchPolicy: Equivalent
        name: probe.muster.io
        namespaceSelector:
          matchLabels:
            kubernetes.io/metadata.name: muster-system
        objectSelector:
          matchLabels:
            muster.io/webhook-probe: "true"
        reinvocationPolicy: Never
        rules:
          - apiGroups:
              - coordination.k8s.io
            apiVersions:
              - "*"
            operations:
              - CREATE
            resources:
              - leases
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
    "#);
}

#[test]
fn a_service_is_named_with_its_port() {
    let target = WebhookTarget::Service {
        namespace: "muster-system".to_owned(),
        name: "muster-webhook".to_owned(),
        port: 443,
    };
    insta::assert_json_snapshot!(client_config(&target, GATE_NAMESPACE, "PEM"), @r#"
    {
      "caBundle": "UEVN",
      "service": {
        "name": "muster-webhook",
        "namespace": "muster-system",
        "path": "/gate/namespace",
        "port": 443
      }
    }
    "#);
}
