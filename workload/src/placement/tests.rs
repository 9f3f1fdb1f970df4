#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::cluster_placement;
use crate::testing::yaml;
use facts::{ClusterFact, ClusterName, ClusterPlacement, Division};
use insta::assert_snapshot;

fn placement(text: &str) -> ClusterPlacement {
    cluster_placement(Some(&yaml(text)), "batch/v1/Job")
}

#[test]
fn reads_what_a_policy_may_say() {
    let read = placement(
        r#"
clusterAffinities:
- affinityName: own
  clusterNames: [gpu-a, gpu-b]
  exclude: [gpu-b]
- affinityName: rented
  labelSelector: {matchLabels: {tier: cloud}, matchExpressions: [{key: spot, operator: NotIn, values: ['true']}]}
  fieldSelector: {matchExpressions: [{key: region, operator: In, values: [eu]}]}
clusterTolerations: [{key: busy, operator: Exists}]
spreadConstraints:
- {spreadByField: cluster, minGroups: 1, maxGroups: 3}
- {spreadByField: region, minGroups: 2, maxGroups: 2}
- {spreadByLabel: rack}
replicaScheduling:
  replicaDivisionPreference: Weighted
  weightPreference: {staticWeightList: [{targetCluster: {clusterNames: [gpu-a]}, weight: 3}]}
"#,
    );
    assert_snapshot!(serde_json::to_string_pretty(&read).unwrap(), @r#"
    {
      "api": "batch/v1/Job",
      "groups": [
        {
          "name": "own",
          "names": [
            "gpu-a",
            "gpu-b"
          ],
          "exclude": [
            "gpu-b"
          ],
          "labels": [],
          "fields": []
        },
        {
          "name": "rented",
          "names": null,
          "exclude": [],
          "labels": [
            {
              "key": "tier",
              "operator": "In",
              "values": [
                "cloud"
              ]
            },
            {
              "key": "spot",
              "operator": "NotIn",
              "values": [
                "true"
              ]
            }
          ],
          "fields": [
            {
              "key": "region",
              "operator": "In",
              "values": [
                "eu"
              ]
            }
          ]
        }
      ],
      "tolerations": [
        {
          "key": "busy",
          "value": null,
          "effect": null
        }
      ],
      "max_clusters": 3,
      "min_clusters": 2,
      "data_clusters": [],
      "filters": null,
      "spread": [
        {
          "by": "Region",
          "min": 2,
          "max": 2
        },
        {
          "by": {
            "Label": "rack"
          },
          "min": 1,
          "max": null
        }
      ],
      "division": {
        "ByWeight": [
          {
            "clusters": {
              "name": "",
              "names": [
                "gpu-a"
              ],
              "exclude": [],
              "labels": [],
              "fields": []
            },
            "weight": 3
          }
        ]
      }
    }
    "#);
}

fn cluster(name: &str) -> ClusterFact {
    ClusterFact {
        name: ClusterName::new(name),
        labels: Default::default(),
        provider: String::new(),
        region: String::new(),
        zones: Vec::new(),
        taints: Vec::new(),
        price_milli: None,
        network: std::collections::BTreeMap::new(),
        apis: None,
        usable: true,
        unusable_because: String::new(),
        paused: None,
    }
}

#[test]
fn without_a_placement_every_cluster_is_allowed() {
    for text in ["{}", "clusterAffinity: null", "clusterAffinities: []"] {
        assert_eq!(placement(text).groups, [], "{text}");
    }
    assert_eq!(cluster_placement(None, "v1/Pod").api, "v1/Pod");
    let empty = placement("clusterAffinity: {clusterNames: [], labelSelector: {}}");
    assert!(
        empty
            .groups
            .iter()
            .all(|group| group.selects(&cluster("any")))
    );
}

#[test]
fn an_unreadable_placement_selects_no_cluster() {
    for text in [
        "clusterAffinity: {clusterNames: gpu-a}",
        "clusterAffinity: {labelSelector: {matchExpressions: [{key: a, operator: Like}]}}",
        "clusterAffinities: {a: b}",
    ] {
        let groups = placement(text).groups;
        assert!(!groups.is_empty(), "{text}");
        assert!(
            !groups.iter().any(|group| group.selects(&cluster("gpu-a"))),
            "{text}"
        );
    }
}

#[test]
fn without_weights_a_divided_job_goes_to_the_fewest_clusters() {
    let division = |text: &str| placement(&format!("replicaScheduling: {text}")).division;
    for text in [
        "{}",
        "{replicaDivisionPreference: Weighted}",
        "{replicaDivisionPreference: Weighted, weightPreference: {staticWeightList: []}}",
        "{replicaDivisionPreference: Aggregated, weightPreference: {dynamicWeight: AvailableReplicas}}",
    ] {
        assert_eq!(division(text), Division::Fewest, "{text}");
    }
    let dynamic = "{weightPreference: {dynamicWeight: AvailableReplicas}}";
    assert_eq!(division(dynamic), Division::ByCapacity);
}
