//! Filters that a queue's policy enables, and scores.

use e2e::harness::kinds::NODE;
use e2e::harness::wait::eventually;
use serde_json::json;

use crate::case::{Case, SOON};
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
        let why = case
            .waits(&waits, &["WaitingForRoom", "NextInLine"])
            .await?;
        assert!(!why.contains("member1"), "mentions member1: {why}");

        // A job goes where there is capacity once the filter is off.
        case.capacity_policy(choose(&[])).await?;
        assert_eq!(case.placed(&waits).await?, ["member1"]);
        Ok(())
    });
}

#[test]
fn a_job_goes_where_the_nodes_have_its_image() {
    managed("images", async |case| {
        case.queue(64).await?;
        case.nodes("member1", 2).await?;
        let nodes = case.nodes("member2", 2).await?;
        let image = "registry.example/train:v1";
        let names = [image, "registry.example/train@sha256:ab"];
        let images = json!({"status": {"images": [{"names": names, "sizeBytes": 20_i64 << 30}]}});
        let member = case.plane.member("member2").await?;
        for node in &nodes {
            member.merge_status(NODE, None, node, &images).await?;
        }
        let with = async |name: &str, image: &str| {
            let mut job = case.gang(name, 2, 4).volcano();
            job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["image"] = image.into();
            case.submit(&job).await
        };
        // Muster may see the images after the first jobs: then these go to member1 as well.
        eventually(SOON, "a job goes to the nodes with its image", async || {
            let trial = with("trial", image)
                .await
                .map_err(|error| error.to_string())?;
            let placed = case
                .placed(&trial)
                .await
                .map_err(|error| error.to_string())?;
            case.delete(&trial)
                .await
                .map_err(|error| error.to_string())?;
            case.gone(&trial).await.map_err(|error| error.to_string())?;
            match placed == ["member2"] {
                true => Ok(()),
                false => Err(format!("{placed:?}")),
            }
        })
        .await?;
        // All else is equal: the first by name is used.
        let other = with("other", "registry.example/other:v1").await?;
        assert_eq!(case.placed(&other).await?, ["member1"]);
        let train = with("train", image).await?;
        assert_eq!(case.placed(&train).await?, ["member2"]);
        Ok(())
    });
}
