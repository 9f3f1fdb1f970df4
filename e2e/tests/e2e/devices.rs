//! Devices of Dynamic Resource Allocation, from a driver's ResourceSlices to a job's pods. The test
//! simulates the driver; kube-scheduler allocates the devices and writes the claims.

use e2e::harness::kinds::{
    DEVICE_CLASS, DEVICE_TAINT_RULE, FAULT_POLICY, GPU_POOL, NAMESPACE, POD, QUEUE, RESOURCE_CLAIM,
    RESOURCE_CLAIM_TEMPLATE, RESOURCE_SLICE,
};
use e2e::harness::objects::Objects;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};
use testbed::NodeGroup;

use crate::case::{A_WHILE, Case, SOON, brief};
use crate::job::Job;
use crate::story::managed;

const MEMBER: &str = "member1";

/// Returns the DeviceClass of this test.
fn class(case: &Case) -> String {
    format!("gpu.{}.example.com", case.name)
}

/// Returns the resource name of its devices.
fn resource(case: &Case) -> String {
    format!("deviceclass.resource.kubernetes.io/{}", class(case))
}

/// Returns a queue with a quota of `devices` of them.
fn queue(case: &Case, devices: u32) -> Value {
    json!({
        "metadata": {"name": case.name},
        "spec": {"weight": 1, "capability": {resource(case): devices}},
    })
}

/// Returns a claim's spec that requests `count` devices of this test's class.
fn requests(case: &Case, count: u32) -> Value {
    let exactly = json!({"deviceClassName": class(case), "count": count});
    json!({"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}})
}

/// Adds a node without GPUs of a device plugin, with a ResourceSlice of eight devices and a NIC.
async fn node_with_devices(case: &Case, member: &Objects) -> anyhow::Result<()> {
    let group = NodeGroup {
        prefix: Some(format!("{}-n", case.name)),
        gpus: 0,
        ..NodeGroup::default()
    };
    let names = case.nodes_like(MEMBER, &group).await?;
    let is_gpu = format!(
        "device.driver == '{0}' && device.attributes['{0}'].type == 'gpu'",
        class(case)
    );
    let object = json!({
        "metadata": {"name": class(case)},
        "spec": {"selectors": [{"cel": {"expression": is_gpu}}]},
    });
    member.create(DEVICE_CLASS, &object).await?;
    let device =
        |name: String, kind: &str| json!({"name": name, "attributes": {"type": {"string": kind}}});
    let mut devices: Vec<_> = (0..8)
        .map(|index| device(format!("gpu-{index}"), "gpu"))
        .collect();
    devices.push(device("nic-0".to_owned(), "nic"));
    let slice = json!({
        "metadata": {"name": class(case)},
        "spec": {
            "driver": class(case), "nodeName": names[0], "devices": devices,
            "pool": {"name": names[0], "generation": 1, "resourceSliceCount": 1},
        },
    });
    member.create(RESOURCE_SLICE, &slice).await?;
    Ok(())
}

/// Deletes the objects of the driver, which are not in the namespace.
async fn remove_devices(case: &Case, member: &Objects) -> anyhow::Result<()> {
    member.delete(RESOURCE_SLICE, None, &class(case)).await?;
    member.delete(DEVICE_CLASS, None, &class(case)).await?;
    Ok(())
}

/// An administrator of the member taints the devices that `selects` selects.
async fn taint(case: &Case, member: &Objects, selects: Value) -> anyhow::Result<()> {
    let key = format!("{}.example.com/maintenance", case.name);
    let rule = json!({
        "metadata": {"name": case.name},
        "spec": {"deviceSelector": selects, "taint": {"key": key, "value": "rack-7", "effect": "NoSchedule"}},
    });
    member.create(DEVICE_TAINT_RULE, &rule).await?;
    Ok(())
}

/// Waits until a GpuPool names the node as avoided for the maintenance.
async fn is_avoided(case: &Case) -> anyhow::Result<()> {
    eventually(SOON, "the node is avoided", async || {
        let pools = case.karmada().list(GPU_POOL, None).await;
        let pools = pools.map_err(|error| error.to_string())?;
        let avoided = pools
            .iter()
            .filter_map(|pool| pool["status"]["avoidedNodes"].as_array());
        let words = "have the taint";
        let is_it = |node: &&Value| {
            let message = node["message"].as_str().unwrap_or_default();
            node["policy"] == case.name.as_str() && message.contains(words)
        };
        let found = avoided.flatten().find(is_it);
        found
            .map(drop)
            .ok_or_else(|| "no GpuPool says so".to_owned())
    })
    .await
}

/// Waits until the class's GpuPool shows `free` of eight devices free.
async fn shows_free(case: &Case, free: u64) -> anyhow::Result<()> {
    let name = format!("{MEMBER}.gpu-{}-example-com", case.name);
    let what = format!("GpuPool {name} with {free} free");
    eventually(SOON, &what, async || {
        let pool = case.karmada().get(GPU_POOL, None, &name).await;
        let pool = pool.map_err(|error| error.to_string())?.unwrap_or_default();
        let status = &pool["status"];
        let right = pool["spec"]["device"] == resource(case).as_str()
            && status["total"] == 8
            && status["free"] == free
            && status["used"] == 8 - free
            && status["health"] == "Ready";
        right.then_some(()).ok_or_else(|| brief(&pool))
    })
    .await
}

/// Returns a batch Job of `pods` pods, each with a claim by the template `two`.
fn claiming(case: &Case, name: &str, pods: u32) -> Value {
    let mut job = case.gang(name, pods, 0).batch();
    let pod = &mut job["spec"]["template"]["spec"];
    if let Some(spec) = pod.as_object_mut() {
        spec.remove("nodeSelector");
    }
    pod["resourceClaims"] = json!([{"name": "gpus", "resourceClaimTemplateName": "two"}]);
    let container = &mut pod["containers"][0];
    container["resources"] = json!({
        "requests": {"cpu": "100m", "memory": "64Mi"},
        "claims": [{"name": "gpus"}],
    });
    job
}

/// Creates a pod in the member that Muster does not manage, with its own claim of three devices.
async fn used_by_another(case: &Case, member: &Objects) -> anyhow::Result<()> {
    let another = format!("{}-other", case.name);
    let namespace = json!({"metadata": {"name": another}});
    member.create(NAMESPACE, &namespace).await?;
    let claim = json!({
        "metadata": {"name": "mine", "namespace": another},
        "spec": requests(case, 3),
    });
    member.create(RESOURCE_CLAIM, &claim).await?;
    let pod = json!({
        "metadata": {"name": "notebook", "namespace": another},
        "spec": {
            "resourceClaims": [{"name": "gpus", "resourceClaimName": "mine"}],
            "containers": [{"name": "c", "image": "busybox", "resources": {"claims": [{"name": "gpus"}]}}],
        },
    });
    member.create(POD, &pod).await?;
    Ok(())
}

/// Waits until the job's message contains these words.
async fn waits_since(case: &Case, job: &Job, words: &str) -> anyhow::Result<()> {
    let says = |group: &Value| {
        let message = group["status"]["federation"]["message"].as_str();
        message.is_some_and(|message| message.contains(words))
    };
    let what = format!("waits and says {words:?}");
    case.pod_group_when(job, &what, says).await.map(drop)
}

/// Returns the devices that the claims of this test's job hold in the member.
async fn held(case: &Case, member: &Objects) -> anyhow::Result<Vec<String>> {
    let claims = member.list(RESOURCE_CLAIM, Some(&case.name)).await?;
    let results = claims.iter().flat_map(|claim| {
        let results = claim["status"]["allocation"]["devices"]["results"].as_array();
        results.cloned().unwrap_or_default()
    });
    Ok(results
        .map(|result| result["device"].as_str().unwrap_or_default().to_owned())
        .collect())
}

async fn runs_with_devices(case: &Case, job: &Job, pods: usize) -> anyhow::Result<()> {
    assert_eq!(case.placed(job).await?, [MEMBER]);
    case.running(job).await?;
    let there = case.pods(MEMBER).await?;
    assert_eq!(there.iter().filter(|pod| job.owns(pod)).count(), pods);
    Ok(())
}

#[test]
fn a_job_that_claims_devices_is_counted_placed_and_followed_by_its_template() {
    managed("claims", async |case| {
        let member = &case.plane.member(MEMBER).await?;
        case.cluster_object(QUEUE, &queue(case, 4)).await?;
        node_with_devices(case, member).await?;
        shows_free(case, 8).await?;

        // The job's size is unknown until its claim template exists.
        let first = case.submit(&claiming(case, "first", 2)).await?;
        let message = case.waits(&first, &["SizeUnknown"]).await?;
        assert!(message.contains("ResourceClaimTemplate two"), "{message}");
        case.stays_unplaced(&first, A_WHILE).await?;
        let template = json!({
            "metadata": {"name": "two", "namespace": case.name},
            "spec": {"spec": requests(case, 2)},
        });
        case.karmada()
            .create(RESOURCE_CLAIM_TEMPLATE, &template)
            .await?;
        runs_with_devices(case, &first, 2).await?;
        let there = member
            .get(RESOURCE_CLAIM_TEMPLATE, Some(&case.name), "two")
            .await?;
        assert_eq!(
            there.unwrap_or_default()["spec"]["spec"]["devices"]["requests"][0]["exactly"]["count"],
            2
        );
        let mut devices = held(case, member).await?;
        devices.sort();
        devices.dedup();
        assert_eq!(devices.len(), 4, "{devices:?}");
        shows_free(case, 4).await?;
        case.shows(&case.name, "allocated", &resource(case), 4)
            .await?;

        // Devices of pods that Muster does not manage count as used.
        used_by_another(case, member).await?;
        shows_free(case, 1).await?;

        // The second job is first short of quota, then of capacity.
        let second = case.submit(&claiming(case, "second", 1)).await?;
        case.waits(&second, &["WaitingForQuota", "NextInLine"])
            .await?;
        case.karmada()
            .merge(QUEUE, None, &case.name, &queue(case, 6))
            .await?;
        waits_since(case, &second, "member1 has room for 0 of 1").await?;
        case.stays_unplaced(&second, A_WHILE).await?;
        let another = format!("{}-other", case.name);
        member.delete(NAMESPACE, None, &another).await?;
        runs_with_devices(case, &second, 1).await?;
        shows_free(case, 2).await?;

        for job in [&first, &second] {
            case.end(job).await?;
            case.finished(job, "Succeeded").await?;
        }
        shows_free(case, 8).await?;

        // An administrator takes devices out of service, and the node with the device goes with a rule for that.
        let rule = json!({
            "name": "maintenance", "class": "Device",
            "match": {"node": {"deviceTaints": [format!("{}.example.com/maintenance", case.name)]}},
        });
        let policy = json!({"metadata": {"name": case.name}, "spec": {"rules": [rule]}});
        case.cluster_object(FAULT_POLICY, &policy).await?;
        let selects = json!({"driver": class(case), "device": "gpu-7"});
        taint(case, member, selects).await?;
        is_avoided(case).await?;
        member.delete(DEVICE_TAINT_RULE, None, &case.name).await?;
        shows_free(case, 8).await?;
        remove_devices(case, member).await
    });
}

#[test]
fn what_claims_are_made_from_follows_jobs_of_all_kinds() {
    managed("claimkinds", async |case| {
        case.queue(8).await?;
        case.nodes("member2", 1).await?;
        let mut jobs = [
            (case.gang("batch", 1, 1).batch(), "/spec/template/spec"),
            (
                case.gang("volcano", 1, 1).volcano(),
                "/spec/tasks/0/template/spec",
            ),
            (
                case.gang("pytorch", 2, 1).pytorch(),
                "/spec/pytorchReplicaSpecs/Worker/template/spec",
            ),
            (
                case.gang("deployment", 1, 1).deployment(),
                "/spec/template/spec",
            ),
            (case.gang("pod", 1, 1).pod(), "/spec"),
        ];
        for (job, pod) in &mut jobs {
            // The template requests no device, so the job runs without a class or a driver.
            let name = format!(
                "of-{}",
                job["metadata"]["name"].as_str().unwrap_or_default()
            );
            let template = json!({
                "metadata": {"name": name, "namespace": case.name}, "spec": {"spec": {}},
            });
            case.karmada()
                .create(RESOURCE_CLAIM_TEMPLATE, &template)
                .await?;
            if let Some(pod) = job.pointer_mut(pod) {
                pod["resourceClaims"] =
                    json!([{"name": "none", "resourceClaimTemplateName": name}]);
            }
            let submitted = case.submit(job).await?;
            assert_eq!(case.placed(&submitted).await?, ["member2"]);
            let member = case.plane.member("member2").await?;
            let what = format!("ResourceClaimTemplate {name} in the member");
            eventually(SOON, &what, async || {
                let found = member
                    .get(RESOURCE_CLAIM_TEMPLATE, Some(&case.name), &name)
                    .await;
                match found {
                    Ok(Some(_)) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            })
            .await?;
        }
        Ok(())
    });
}
