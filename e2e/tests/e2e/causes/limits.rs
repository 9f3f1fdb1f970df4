//! Jobs that the limits of their queue's CapacityPolicy block, and the limits that let them start.

use super::Causes;
use e2e::harness::jobs::TestGang;
use serde_json::json;

impl Causes<'_> {
    /// What limits say.
    pub(super) async fn of_limits(&mut self) -> anyhow::Result<()> {
        let two = json!({"capability": {"nvidia.com/gpu": 2}});
        for (word, limits, raised, reasons) in [
            (
                "jobs",
                json!({"jobs": 1}),
                json!({"jobs": 2}),
                &["JobLimitReached"],
            ),
            (
                "users",
                json!({"jobsPerUser": 1}),
                json!({"jobsPerUser": 2}),
                &["UserJobLimitReached"],
            ),
            (
                "gpus-per-user",
                json!({"resourcesPerUser": {"nvidia.com/gpu": 1}}),
                json!({"resourcesPerUser": {"nvidia.com/gpu": 2}}),
                &["UserResourceLimitReached"],
            ),
            (
                "gpus-per-namespace",
                json!({"resourcesPerNamespace": {"nvidia.com/gpu": 1}}),
                json!({"resourcesPerNamespace": {"nvidia.com/gpu": 2}}),
                &["NamespaceResourceLimitReached"],
            ),
        ] {
            let policy = json!({ "limits": limits });
            let gang = self.in_queue(word, two.clone(), Some(policy)).await?;
            self.holder(&gang).await?;
            let remedy = self.limit(word, &raised);
            self.add(gang.batch(), reasons, self.queue_of(word), remedy);
        }

        let limits = json!({"limits": {"resourcesPerUser": {"nvidia.com/gpu": 1}}});
        let beyond = self.in_queue("beyond", two, Some(limits)).await?;
        let beyond = TestGang { gpus: 2, ..beyond };
        let raised = json!({"resourcesPerUser": {"nvidia.com/gpu": 2}});
        let remedy = self.limit("beyond", &raised);
        let words = self.queue_of("beyond");
        self.add(beyond.volcano(), &["ExceedsLimit"], words, remedy);
        Ok(())
    }
}
