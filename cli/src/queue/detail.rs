//! `queue get`: one queue by resource, cluster and pool.

use super::Shown;
use super::quota::guaranteed;
use crate::age::human;
use crate::output::columns;
use crds::capacity_policy::{
    CapacityPolicyFairShareWithin, CapacityPolicyStatus, PoolUse, ResourceUse, UnadmittedUse,
};
use crds::loose::{Loose, QuantityList, QuantityText};
use crds::queue::Queue;
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::fmt::Write;

/// Formats the whole status.
pub(crate) fn render(queue: &Shown) -> String {
    let mut text = format!("Queue   {}{}\n", queue.policy.name_any(), of_queue(queue));
    let Some(status) = queue.policy.status.clone() else {
        return text + "Note    Muster has not reported on it yet\n";
    };
    let counts = &status.counts;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "Jobs    {} queued, {} admitted, {} running, {} ending, {} finished",
        counts.pending, counts.admitted, counts.running, counts.ending, counts.finished
    );
    if let Some(head) = &status.head {
        let _ = writeln!(
            text,
            "Next    {}: {}\n        {}",
            head.job, head.reason, head.message
        );
    }
    for condition in status
        .conditions
        .iter()
        .filter(|condition| condition.status != "True")
    {
        let _ = writeln!(
            text,
            "Note    {}={}: {}",
            condition.type_, condition.status, condition.message
        );
    }
    text += &turns(queue);
    text += &limits(queue);
    text + &resources(&status, queue.queue.as_ref())
        + &pools(&status.pools)
        + &unadmitted(&status.unadmitted)
}

/// Formats whose jobs come in turn. What each user has is shown with their jobs only.
fn turns(queue: &Shown) -> String {
    let Some(fair_share) = &queue.policy.spec.fair_share else {
        return String::new();
    };
    let past = match fair_share.usage_half_life_seconds {
        Some(seconds) => format!("past usage counts half after {}", human(seconds)),
        None => "past usage does not count".to_owned(),
    };
    match fair_share.within {
        Some(Loose::Known(CapacityPolicyFairShareWithin::User)) => {
            format!("Order   users come in turn, the smallest share first; {past}\n")
        }
        _ => String::new(),
    }
}

/// Formats what one user and one namespace may have. What each of them has is shown with their jobs only.
fn limits(queue: &Shown) -> String {
    let Some(limits) = &queue.policy.spec.limits else {
        return String::new();
    };
    let limited = [
        ("user", &limits.resources_per_user),
        ("namespace", &limits.resources_per_namespace),
    ];
    let lines = limited.into_iter().filter(|(_, most)| !most.is_empty());
    let lines = lines.map(|(of, most)| {
        let most: Vec<String> = most
            .iter()
            .map(|(name, amount)| format!("{name} {}", amount.0))
            .collect();
        format!("Limit   {} for each {of}\n", most.join(", "))
    });
    lines.collect()
}

/// Formats what pods use beyond what was admitted.
pub(crate) fn unadmitted(used: &[UnadmittedUse]) -> String {
    if used.is_empty() {
        return String::new();
    }
    let rows = used.iter().flat_map(|used| {
        used.allocated.iter().map(|(resource, amount)| {
            [
                used.namespace.clone(),
                used.job.clone().unwrap_or_else(|| "-".to_owned()),
                used.cluster.clone(),
                resource.clone(),
                amount.0.clone(),
            ]
        })
    });
    format!(
        "\nPods beyond what was admitted:\n{}",
        columns(
            Some(["NAMESPACE", "JOB", "CLUSTER", "RESOURCE", "ALLOCATED"]),
            rows
        )
    )
}

fn of_queue(queue: &Shown) -> String {
    let Some(spec) = queue.queue.as_ref().map(|queue| &queue.spec) else {
        return String::new();
    };
    format!(
        "  ({}, parent {}, weight {})",
        queue.state(),
        queue.parent(),
        spec.weight.unwrap_or(1)
    )
}

fn resources(status: &CapacityPolicyStatus, queue: Option<&Queue>) -> String {
    if status.resources.is_empty() {
        return String::new();
    }
    let rows = status.resources.iter().flat_map(|resource| {
        let clusters = status.clusters.iter().filter_map(|cluster| {
            let allocated = cluster.allocated.get(&resource.name)?;
            let none = || "-".to_owned();
            Some([
                resource.name.clone(),
                cluster.name.clone(),
                none(),
                none(),
                none(),
                allocated.0.clone(),
                none(),
                none(),
                none(),
            ])
        });
        let guaranteed = guaranteed(queue, &resource.name);
        clusters
            .chain([total(resource, guaranteed)])
            .collect::<Vec<_>>()
    });
    format!(
        "\n{}",
        columns(
            Some([
                "RESOURCE",
                "CLUSTER",
                "DESERVED",
                "GUARANTEE",
                "CAPABILITY",
                "ALLOCATED",
                "BORROWED",
                "LENT",
                "PENDING"
            ]),
            rows
        )
    )
}

fn total(resource: &ResourceUse, guaranteed: Option<&QuantityText>) -> [String; 9] {
    let text = |quantity: Option<&QuantityText>| {
        let text = quantity.map(|quantity| quantity.0.clone());
        text.unwrap_or_default()
    };
    [
        resource.name.clone(),
        "TOTAL".to_owned(),
        text(resource.deserved.as_ref()),
        text(guaranteed),
        text(resource.capability.as_ref()),
        resource.allocated.0.clone(),
        text(resource.borrowed.as_ref()),
        text(resource.lent.as_ref()),
        resource.pending.0.clone(),
    ]
}

fn pools(pools: &[PoolUse]) -> String {
    if pools.is_empty() {
        return String::new();
    }
    let rows = pools.iter().flat_map(|pool| {
        let clusters = pool
            .clusters
            .as_ref()
            .map_or_else(|| "all".to_owned(), |clusters| clusters.join(","));
        let resources: BTreeSet<&String> =
            pool.capability.keys().chain(pool.deserved.keys()).collect();
        let text = |list: &QuantityList, resource: &str, none: &str| {
            let text = list.get(resource).map(|quantity| quantity.0.clone());
            text.unwrap_or_else(|| none.to_owned())
        };
        let row = move |resource: &String| {
            [
                pool.class.clone(),
                clusters.clone(),
                resource.clone(),
                text(&pool.deserved, resource, ""),
                text(&pool.capability, resource, ""),
                text(&pool.allocated, resource, "0"),
            ]
        };
        resources.into_iter().map(row)
    });
    format!(
        "\n{}",
        columns(
            Some([
                "POOL",
                "CLUSTERS",
                "RESOURCE",
                "DESERVED",
                "CAPABILITY",
                "ALLOCATED"
            ]),
            rows
        )
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fresh, vision};
    use super::render;

    #[test]
    fn a_queue_is_shown_by_resource_cluster_and_pool() {
        insta::assert_snapshot!(render(&vision()), @r"
        Queue   vision  (Closed, parent research, weight 2)
        Jobs    2 queued, 1 admitted, 2 running, 0 ending, 5 finished
        Next    vision/resnet-job: WaitingForQuota
                needs nvidia.com/gpu 16; queue vision may use 32 and has 24 charged: short by 8
        Note    Open=False: its state is Closing
        Order   users come in turn, the smallest share first; past usage counts half after 24h
        Limit   cpu 64, nvidia.com/gpu 8 for each user
        Limit   nvidia.com/gpu 16 for each namespace

        RESOURCE         CLUSTER   DESERVED   GUARANTEE   CAPABILITY   ALLOCATED   BORROWED   LENT     PENDING
        cpu              gpu-a     -          -           -            48          -          -        -
        cpu              gpu-b     -          -           -            16          -          -        -
        cpu              TOTAL     <none>     <none>      <none>       64          <none>     <none>   32
        nvidia.com/gpu   gpu-a     -          -           -            16          -          -        -
        nvidia.com/gpu   gpu-b     -          -           -            8           -          -        -
        nvidia.com/gpu   TOTAL     16         4           32           24          8          4        16

        POOL               CLUSTERS      RESOURCE         DESERVED   CAPABILITY   ALLOCATED
        nvidia-h100-80gb   all           nvidia.com/gpu   8          16           16
        nvidia-l40s        gpu-b,gpu-c   nvidia.com/gpu   <none>     8            0
        ");
        insta::assert_snapshot!(render(&fresh()), @r#"
    Queue   fresh
    Note    Muster has not reported on it yet
    "#);
    }
}
