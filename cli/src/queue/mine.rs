//! `queue list --mine`: the queues of a namespace, as its users may see them.

use crate::args::{Format, ListArgs};
use crate::connect;
use crate::output::{self, columns};
use anyhow::Result;
use crds::capacity_policy::condition_type::OPEN;
use crds::loose::QuantityText;
use crds::namespace_queue::{NamespaceQueue, NamespaceResource};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, ResourceExt};

/// Returns the NamespaceQueues of the client's namespace.
pub(crate) fn api(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<NamespaceQueue>(&());
    Api::namespaced_with(client.clone(), client.default_namespace(), &kind)
}

/// Returns the output of the command.
pub(super) async fn list(
    list: &ListArgs,
    selector: Option<String>,
    client: &Client,
) -> Result<String> {
    let params = ListParams {
        label_selector: selector,
        ..ListParams::default()
    };
    let objects = connect::list(&api(client), &params, "NamespaceQueues").await?;
    match list.output.format {
        Format::Name => Ok(objects
            .iter()
            .map(output::name_line::<NamespaceQueue>)
            .collect()),
        format @ (Format::Json | Format::Yaml) => output::machine(&objects, format),
        format @ (Format::Table | Format::Wide) => {
            let queues = objects.iter().map(connect::typed);
            let queues: Vec<NamespaceQueue> = queues.collect::<Result<_>>()?;
            let namespace = client.default_namespace();
            Ok(render(
                &queues,
                namespace,
                format == Format::Wide,
                !list.no_headers,
            ))
        }
    }
}

/// Formats the table: a row for each queue and kind of device, or with `wide` for each resource.
fn render(queues: &[NamespaceQueue], namespace: &str, wide: bool, header: bool) -> String {
    if queues.is_empty() {
        return format!(
            "No queues found in namespace {namespace}: it has one once it is managed (label muster.io/managed=true)\n"
        );
    }
    let names = [
        "QUEUE",
        "OPEN",
        "RUNNING",
        "PENDING",
        "AHEAD",
        "RESOURCE",
        "USED",
        "FREE",
        "QUEUE USED",
        "QUEUE LIMIT",
        "FREE IN CLUSTERS",
    ];
    columns(
        header.then_some(names),
        queues.iter().flat_map(|queue| rows(queue, wide)),
    )
}

fn rows(queue: &NamespaceQueue, wide: bool) -> Vec<[String; 11]> {
    let status = queue.status.clone().unwrap_or_default();
    let open = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == OPEN);
    let number = |number: i64| number.to_string();
    let own = [
        queue.name_any(),
        open.map_or_else(String::new, |open| open.status.clone()),
        number(status.counts.running),
        number(status.counts.pending),
        status.pending_ahead.map_or_else(String::new, number),
    ];
    // A device has the domain of its vendor.
    let is_shown = |resource: &&NamespaceResource| wide || resource.name.contains('/');
    let mut resources: Vec<[String; 6]> = status
        .resources
        .iter()
        .filter(is_shown)
        .map(amounts)
        .collect();
    if resources.is_empty() {
        resources.push(Default::default());
    }
    let row = |amounts: [String; 6]| {
        let [name, open, running, pending, ahead] = own.clone();
        let [resource, used, free, queue_used, limit, in_clusters] = amounts;
        [
            name,
            open,
            running,
            pending,
            ahead,
            resource,
            used,
            free,
            queue_used,
            limit,
            in_clusters,
        ]
    };
    resources.into_iter().map(row).collect()
}

fn amounts(resource: &NamespaceResource) -> [String; 6] {
    let stated = |amount: &Option<QuantityText>| amount.clone().unwrap_or_default().0;
    [
        resource.name.clone(),
        resource.used.0.clone(),
        stated(&resource.free),
        resource.queue_used.0.clone(),
        stated(&resource.queue_limit),
        stated(&resource.free_in_clusters),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn queue(text: &str) -> NamespaceQueue {
        serde_saphyr::from_str(text).unwrap()
    }

    #[test]
    fn each_kind_of_device_is_a_row() {
        let vision = queue(
            "
apiVersion: muster.io/v1alpha2
kind: NamespaceQueue
metadata: {namespace: team, name: vision}
spec: {}
status:
  conditions:
  - {type: Open, status: 'True', reason: Open, message: '', lastTransitionTime: 2026-11-20T12:00:00Z}
  resources:
  - {name: cpu, used: '64', pending: '0', queueUsed: '80'}
  - {name: nvidia.com/gpu, used: '8', pending: '16', limit: '16', queueUsed: '24', queueLimit: '32', free: '8', freeInClusters: '12'}
  counts: {pending: 2, running: 1}
  queuePending: 5
  pendingAhead: 3
",
        );
        let fresh = queue(
            "
apiVersion: muster.io/v1alpha2
kind: NamespaceQueue
metadata: {namespace: team, name: default}
spec: {}
",
        );
        let queues = [vision, fresh];
        insta::assert_snapshot!(render(&queues, "team", false, true), @r"
        QUEUE     OPEN     RUNNING   PENDING   AHEAD    RESOURCE         USED     FREE     QUEUE USED   QUEUE LIMIT   FREE IN CLUSTERS
        vision    True     1         2         3        nvidia.com/gpu   8        8        24           32            12
        default   <none>   0         0         <none>   <none>           <none>   <none>   <none>       <none>        <none>
        ");
        insta::assert_snapshot!(render(&queues[..1], "team", true, false), @r"
        vision   True   1   2   3   cpu              64   <none>   80   <none>   <none>
        vision   True   1   2   3   nvidia.com/gpu   8    8        24   32       12
        ");
        insta::assert_snapshot!(render(&[], "team", false, true), @"No queues found in namespace team: it has one once it is managed (label muster.io/managed=true)");
    }
}
