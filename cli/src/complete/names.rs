//! Names of objects on the server, for completion.

use super::Completion;
use crate::args::{JobFilter, KubectlConnection};
use crate::{connect, jobs, nodes};
use anyhow::Result;
use crds::karmada::Cluster;
use crds::kubernetes::{Namespace, PriorityClass};
use crds::queue::Queue;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt};
use runtime::pages;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::Duration;

/// For how long the server is waited for: the user waits for each letter.
const LIMIT: Duration = Duration::from_secs(2);

/// The names of what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NamesOf {
    Jobs,
    Queues,
    PriorityClasses,
    Namespaces,
    Clusters,
    /// The nodes of a cluster.
    Nodes(String),
    AvoidedNodes,
}

impl NamesOf {
    /// Returns what the value of an argument is a name of, if it is one: by the name of the value in the help.
    /// `word` is what is typed of it; `avoided` says that only nodes that are avoided can be meant.
    pub(super) fn of(value: &str, word: &str, avoided: bool) -> Option<Self> {
        Some(match value {
            "JOB" => Self::Jobs,
            "QUEUE" => Self::Queues,
            "CLASS" => Self::PriorityClasses,
            "NAMESPACE" => Self::Namespaces,
            "CLUSTER" => Self::Clusters,
            "CLUSTER/NODE" if avoided => Self::AvoidedNodes,
            "CLUSTER/NODE" | "CLUSTER[/NODE]" => match word.split_once('/') {
                Some((cluster, _)) => Self::Nodes(cluster.to_owned()),
                None => Self::Clusters,
            },
            _ => return None,
        })
    }
}

/// Returns the names, or none if the server does not say them in time.
pub(super) async fn of(wanted: NamesOf, connection: &KubectlConnection) -> Vec<Completion> {
    let named = tokio::time::timeout(LIMIT, read(wanted, connection)).await;
    match named {
        Ok(Ok(names)) => names,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

async fn read(wanted: NamesOf, connection: &KubectlConnection) -> Result<Vec<Completion>> {
    let client = connect::connect(connection).await?;
    let plain = |names: Vec<String>| names.into_iter().map(|name| (name, String::new()));
    Ok(match wanted {
        NamesOf::Jobs => return job_names(&client).await,
        NamesOf::Queues => plain(names::<Queue>(&client).await?).collect(),
        NamesOf::PriorityClasses => plain(names::<PriorityClass>(&client).await?).collect(),
        NamesOf::Namespaces => plain(names::<Namespace>(&client).await?).collect(),
        NamesOf::Clusters => plain(names::<Cluster>(&client).await?).collect(),
        NamesOf::Nodes(cluster) => {
            let member = connect::member(&cluster, &client)?;
            let nodes = names::<Node>(&member).await?;
            let nodes = nodes.into_iter().map(|node| format!("{cluster}/{node}"));
            plain(nodes.collect()).collect()
        }
        NamesOf::AvoidedNodes => {
            let pools = nodes::read(&nodes::pools(&client).await?);
            let avoided = nodes::avoided(&pools);
            let named = avoided.map(|(pool, node)| {
                let name = format!("{}/{}", pool.spec.cluster, node.node);
                (name, node.avoidance.message.clone())
            });
            named.collect()
        }
    })
}

async fn names<K>(client: &Client) -> Result<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let api = Api::<K>::all(client.clone());
    let listed = pages::list_metadata(&api, &ListParams::default(), LIMIT).await?;
    Ok(listed.items.iter().map(ResourceExt::name_any).collect())
}

/// Returns the jobs of the namespace by the names of their workloads, and with their kinds.
async fn job_names(client: &Client) -> Result<Vec<Completion>> {
    let listed = jobs::list(&JobFilter::default(), &mut None, client).await?;
    let named = listed.jobs.iter().flat_map(|job| {
        let about = format!("{} in queue {}", job.status(), job.group.spec.queue);
        [(job.name(), about.clone()), (job.reference(), about)]
    });
    Ok(named.collect())
}
