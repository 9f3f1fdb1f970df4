use super::*;

#[test]
fn the_validating_configuration_for_a_url() {
    let target = WebhookTarget::Url("https://127.0.0.1:9443/".to_owned());
    insta::assert_yaml_snapshot!(configuration("ValidatingWebhookConfiguration", checking(&target, "PEM")), @r#"
    apiVersion: admissionregistration.k8s.io/v1
    kind: ValidatingWebhookConfiguration
    metadata:
      name: muster
    webhooks:
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/validate/templates/managed"
        failurePolicy: Ignore
        matchPolicy: Equivalent
        name: namespace.templates.muster.io
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
          - apiGroups:
              - batch
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobs/scale
            scope: Namespaced
          - apiGroups:
              - batch.volcano.sh
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobs/scale
            scope: Namespaced
          - apiGroups:
              - jobset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobsets/scale
            scope: Namespaced
          - apiGroups:
              - kubeflow.org
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - pytorchjobs/scale
              - tfjobs/scale
              - mpijobs/scale
              - jaxjobs/scale
              - paddlejobs/scale
              - xgboostjobs/scale
            scope: Namespaced
          - apiGroups:
              - leaderworkerset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - leaderworkersets/scale
            scope: Namespaced
          - apiGroups:
              - ray.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - rayjobs/scale
              - rayclusters/scale
              - rayservices/scale
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
      - admissionReviewVersions:
          - v1
        clientConfig:
          caBundle: UEVN
          url: "https://127.0.0.1:9443/validate/templates"
        failurePolicy: Ignore
        matchPolicy: Equivalent
        name: templates.muster.io
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
        rules:
          - apiGroups:
              - ""
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - pods
            scope: Namespaced
          - apiGroups:
              - apps
            apiVersions:
              - "*"
            operations:
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
              - UPDATE
            resources:
              - jobs
            scope: Namespaced
          - apiGroups:
              - batch.volcano.sh
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobs
            scope: Namespaced
          - apiGroups:
              - jobset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobsets
            scope: Namespaced
          - apiGroups:
              - kubeflow.org
            apiVersions:
              - "*"
            operations:
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
              - UPDATE
            resources:
              - leaderworkersets
            scope: Namespaced
          - apiGroups:
              - ray.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - rayjobs
              - rayclusters
              - rayservices
            scope: Namespaced
          - apiGroups:
              - batch
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobs/scale
            scope: Namespaced
          - apiGroups:
              - batch.volcano.sh
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobs/scale
            scope: Namespaced
          - apiGroups:
              - jobset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - jobsets/scale
            scope: Namespaced
          - apiGroups:
              - kubeflow.org
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - pytorchjobs/scale
              - tfjobs/scale
              - mpijobs/scale
              - jaxjobs/scale
              - paddlejobs/scale
              - xgboostjobs/scale
            scope: Namespaced
          - apiGroups:
              - leaderworkerset.x-k8s.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - leaderworkersets/scale
            scope: Namespaced
          - apiGroups:
              - ray.io
            apiVersions:
              - "*"
            operations:
              - UPDATE
            resources:
              - rayjobs/scale
              - rayclusters/scale
              - rayservices/scale
            scope: Namespaced
        sideEffects: None
        timeoutSeconds: 3
    "#);
}
