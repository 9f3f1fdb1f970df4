//! Objects that a job references are in the member when it runs.

use e2e::harness::kinds::{CONFIG_MAP, PRIORITY_CLASS, PVC, QUEUE};
use serde_json::json;

use crate::story::managed;

#[test]
fn a_job_finds_its_config_map_and_its_claim_in_its_member() {
    managed("deps", async |case| {
        case.queue(16).await?;
        case.nodes("member2", 2).await?;
        let metadata = |name: &str| json!({"name": name, "namespace": case.name});
        for word in ["volcano", "batch"] {
            let settings =
                json!({"metadata": metadata(&format!("{word}-settings")), "data": {"a": "b"}});
            case.karmada().create(CONFIG_MAP, &settings).await?;
            let claim = json!({"metadata": metadata(&format!("{word}-data")), "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "shared",
                "resources": {"requests": {"storage": "1Gi"}},
            }});
            case.karmada().create(PVC, &claim).await?;
        }
        let mut volcano = case.gang("volcano", 1, 8).volcano();
        use_volumes(
            &mut volcano["spec"]["tasks"][0]["template"]["spec"],
            "volcano",
        );
        let mut batch = case.gang("batch", 1, 8).batch();
        use_volumes(&mut batch["spec"]["template"]["spec"], "batch");
        let jobs = [case.submit(&volcano).await?, case.submit(&batch).await?];
        for job in &jobs {
            assert_eq!(case.placed(job).await?, ["member2"]);
        }
        for word in ["volcano", "batch"] {
            follows(case, word).await?;
        }
        Ok(())
    });
}

fn use_volumes(pod: &mut serde_json::Value, word: &str) {
    pod["volumes"] = json!([
        {"name": "settings", "configMap": {"name": format!("{word}-settings")}},
        {"name": "data", "persistentVolumeClaim": {"claimName": format!("{word}-data")}},
    ]);
}

async fn follows(case: &crate::case::Case, word: &str) -> anyhow::Result<()> {
    let member = case.plane.member("member2").await?;
    for (kind, name) in [(CONFIG_MAP, "settings"), (PVC, "data")] {
        let name = format!("{word}-{name}");
        let what = format!("{} {name} in the member", kind.name);
        e2e::harness::wait::eventually(crate::case::SOON, &what, async || {
            match member.get(kind, Some(&case.name), &name).await {
                Ok(Some(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await?;
    }
    Ok(())
}

#[test]
fn a_jobs_queue_and_priority_class_are_made_in_its_member() {
    managed("prepared", async |case| {
        case.queue(8).await?;
        case.nodes("member1", 1).await?;
        let class = case.priority_class("urgent", 77).await?;
        let member = case.plane.member("member1").await?;
        // As an earlier version made it: its pods would evict others' there.
        let preempts = json!({
            "metadata": {"name": class, "labels": {"app.kubernetes.io/managed-by": "muster"}},
            "value": 77,
            "preemptionPolicy": "PreemptLowerPriority",
        });
        member.create(PRIORITY_CLASS, &preempts).await?;
        let gang = e2e::harness::jobs::TestGang {
            priority_class: Some(class.clone()),
            ..case.short_gang("train", 1, 8, 2)
        };
        let job = case.submit(&gang.volcano()).await?;
        case.finished(&job, "Succeeded").await?;
        let found = member.get(PRIORITY_CLASS, None, &class).await?;
        let found = found.unwrap_or_default();
        assert_eq!(found["value"], 77);
        assert_eq!(found["preemptionPolicy"], "Never");
        assert!(member.get(QUEUE, None, &case.name).await?.is_some());
        Ok(())
    });
}
