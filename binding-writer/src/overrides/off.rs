//! Overrides that keep the pods of a job off nodes where they failed.
//!
//! A job that is split has the affinity in its parts. Any other has a policy of its own with nothing else in it, so
//! that it can be pinned besides, and overrides of its user go on to apply. Each Work shows by a mark that it applies
//! the policy. A pod's affinity cannot change once it is there, so nothing is dispatched before that.

use super::{OverrideError, Overrides, PartsPlan, Rule, failed, name, policy, template};
use crds::karmada::ResourceBinding;
use crds::record::AvoidedByJob;
use facts::{Attempt, ClusterName, JobKey, Share};
use serde_json::{Value, json};

/// Returns true if a job that avoids `avoided` has to keep off one of them where `shares` place it.
#[must_use]
pub fn keeps_off(avoided: &[AvoidedByJob], shares: &[Share]) -> bool {
    let is_there = |avoided: &AvoidedByJob| {
        let mut clusters = shares.iter().map(|share| &share.cluster);
        clusters.any(|cluster| *cluster == avoided.cluster)
    };
    avoided.iter().any(is_there)
}

/// Returns the name of the policy that keeps a job which is not split off nodes. No binding's name ends like this.
#[must_use]
pub fn off_name(key: &JobKey) -> String {
    format!("{}.off", name(key))
}

impl Overrides {
    /// Keeps the pods of the job of `binding`, which is not split, off the nodes that it avoids, as `plan` says.
    /// When the call returns, the API server has the policy.
    ///
    /// # Errors
    /// Returns an error if its template is gone, or the control plane refuses the policy.
    pub async fn keep_off(
        &self,
        binding: &ResourceBinding,
        plan: &PartsPlan<'_>,
    ) -> Result<(), OverrideError> {
        let template = template(&self.client, binding).await?;
        let key = binding.job_key();
        let clusters = plan.shares.iter().map(|share| &share.cluster);
        let rules: Vec<Rule> = clusters
            .map(|cluster| off_rule(&template, plan, cluster))
            .collect();
        let name = off_name(&key);
        let mut policy = policy(&key, binding, &rules);
        policy["metadata"]["name"] = json!(name);
        let turn = self.writer.turn(&key.namespace, &name).await;
        let written = turn.write(|_| Some(policy.clone())).await;
        written.map_err(|error| {
            failed(
                "its OverridePolicy that keeps it off nodes",
                "written",
                &error,
            )
        })
    }

    /// Deletes the policy that kept the job of `binding` off nodes in `ended` or earlier attempts.
    ///
    /// # Errors
    /// Returns an error if the control plane does not answer.
    pub async fn clear_off(
        &self,
        binding: &ResourceBinding,
        ended: Attempt,
    ) -> Result<(), OverrideError> {
        let key = binding.job_key();
        self.clear_policy(&key, off_name(&key), ended).await
    }
}

fn off_rule(template: &Value, plan: &PartsPlan<'_>, cluster: &ClusterName) -> Rule {
    let nodes = AvoidedByJob::in_cluster(plan.avoided, cluster);
    let off = workload::off_nodes(template, &nodes);
    Rule {
        cluster: Some(cluster.clone()),
        mark: Some(workload::whole_mark(plan.attempt)),
        fields: workload::changed_affinities(template, &off),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use facts::{NodeName, RolePods};
    use jiff::Timestamp;
    use std::collections::BTreeMap;
    use workload::{Reach, RenderedPart};

    fn share(cluster: &str) -> Share {
        Share {
            cluster: ClusterName::new(cluster),
            pods: vec![RolePods {
                role: "main".to_owned(),
                count: 1,
            }],
            charge: BTreeMap::new(),
            slots: Vec::new(),
        }
    }

    fn avoided(cluster: &str, node: &str) -> AvoidedByJob {
        AvoidedByJob {
            cluster: ClusterName::new(cluster),
            node: NodeName::new(node),
            since: Timestamp::UNIX_EPOCH,
            until: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn each_part_keeps_off_the_nodes_of_its_own_cluster() {
        let template = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "team"},
            "spec": {"parallelism": 2, "template": {"spec": {"containers": [{"name": "c"}]}}},
        });
        let shares = [share("m1"), share("m2")];
        let nodes = [avoided("m2", "n1"), avoided("m3", "n2")];
        assert!(keeps_off(&nodes, &shares) && !keeps_off(&nodes, &shares[..1]));
        let plan = PartsPlan {
            attempt: Attempt(2),
            shares: &shares,
            reach: &Reach::default(),
            resizable: false,
            avoided: &nodes,
        };
        let parts = plan.parts(&template).unwrap();
        let path = "/spec/template/spec/affinity";
        let affinity = |part: &RenderedPart| {
            let mut fields = part.fields.iter();
            fields
                .find(|(at, _)| at == path)
                .map(|(_, value)| value.to_string())
        };
        assert_eq!(affinity(&parts[0]), None);
        let second = affinity(&parts[1]).unwrap();
        assert!(second.contains("n1") && !second.contains("n2"), "{second}");
        let rule = off_rule(&template, &plan, &ClusterName::new("m2"));
        assert_eq!(rule.mark.as_deref(), Some("attempt 2, whole"));
        assert_eq!(rule.fields.len(), 1);
        assert_eq!(rule.fields[0].0, path);
        assert!(
            off_rule(&template, &plan, &ClusterName::new("m1"))
                .fields
                .is_empty()
        );
    }
}
