//! Filters that a queue's policy enables.

use serde_json::json;

use crate::case::Case;
use crate::job::Job;
use crate::story::managed;

/// Submits a job whose data are in member2, and which prefers member1.
async fn submit(case: &Case, name: &str) -> anyhow::Result<Job> {
    let mut job = case.gang(name, 1, 4).volcano();
    job["metadata"]["annotations"] = json!({"muster.io/data-clusters": "member2"});
    case.submit(&job).await
}

#[test]
fn data_that_may_not_leave_its_region() {
    managed("data-region", async |case| {
        case.queue(64).await?;
        case.nodes("member1", 2).await?;
        case.nodes("member2", 1).await?;
        let choose = |filters: &[&str]| {
            let placement = json!({"preferredClusters": ["member1"], "filters": filters});
            json!({"spec": {"placement": placement}})
        };
        case.capacity_policy(choose(&["APIEnablement"])).await?;
        let first = submit(case, "anywhere").await?;
        assert_eq!(case.placed(&first).await?, ["member1"]);

        // The next jobs are kept where the data are, although another member has capacity.
        let both = ["APIEnablement", "DataRegion"];
        case.capacity_policy(choose(&both)).await?;
        let mut kept = Vec::new();
        for name in ["kept-0", "kept-1"] {
            kept.push(submit(case, name).await?);
        }
        for job in &kept {
            assert_eq!(case.placed(job).await?, ["member2"]);
        }
        let waits = submit(case, "waits").await?;
        let why = case.waits(&waits, &["WaitingForRoom", "Reserved"]).await?;
        assert!(!why.contains("member1"), "mentions member1: {why}");

        // A job goes where there is capacity once the filter is off.
        case.capacity_policy(choose(&[])).await?;
        assert_eq!(case.placed(&waits).await?, ["member1"]);
        Ok(())
    });
}
