//! A node of a member, through Karmada's cluster proxy.

use crate::acts::{self, merge};
use crate::args::{DrainCommand, DryRun, WriteArgs};
use crate::connect;
use crate::output;
use anyhow::{Result, anyhow, bail};
use engine::counted;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DynamicObject, EvictParams, ListParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::process::ExitCode;

/// A node and the client of its cluster.
struct MemberNode<'a> {
    cluster: &'a str,
    name: &'a str,
    client: Client,
}

pub(super) async fn drain(
    cluster: &str,
    name: &str,
    command: &DrainCommand,
    client: &Client,
) -> Result<ExitCode> {
    let node = MemberNode::of(cluster, name, command.write.dry_run, client)?;
    let object = node.read().await?;
    let pods = node.pods().await?;
    let dry_run = command.write.dry_run;
    eprint!("{}", preview(&node, &pods));
    if !pods.is_empty() && dry_run == DryRun::None {
        acts::ask(command.yes)?;
    }
    let is_cordoned = object.data["spec"]["unschedulable"] == true;
    let object = match is_cordoned {
        true => object,
        false => node.cordon(object, json!(true), dry_run).await?,
    };
    let mut left = 0;
    for pod in &pods {
        if let Err(error) = node.evict(pod, dry_run).await {
            left += 1;
            eprintln!("error: {}: {error:#}", named(pod));
        }
    }
    let evicted = counted(pods.len() - left, "pod");
    let done = match (is_cordoned, pods.is_empty()) {
        (true, true) => "unchanged (it is drained already)".to_owned(),
        _ => format!("drained ({evicted} evicted)"),
    };
    node.reply(&done, &object, &command.write)?;
    if left > 0 {
        eprintln!(
            "error: {} stay; run the command again",
            counted(left, "pod")
        );
        return Ok(ExitCode::FAILURE);
    }
    if command.wait && dry_run == DryRun::None {
        node.wait().await?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn undrain(
    cluster: &str,
    name: &str,
    write: &WriteArgs,
    client: &Client,
) -> Result<ExitCode> {
    let node = MemberNode::of(cluster, name, write.dry_run, client)?;
    let object = node.read().await?;
    if object.data["spec"]["unschedulable"] != true {
        node.reply("unchanged (it is not drained)", &object, write)?;
        return Ok(ExitCode::SUCCESS);
    }
    let object = node.cordon(object, Value::Null, write.dry_run).await?;
    node.reply("undrained", &object, write)?;
    Ok(ExitCode::SUCCESS)
}

impl<'a> MemberNode<'a> {
    /// Connects to the cluster. Fails for a dry run by the server: the API server refuses `dryRun` on the way
    /// of a proxy ("dryRun is not supported").
    fn of(cluster: &'a str, name: &'a str, dry_run: DryRun, client: &Client) -> Result<Self> {
        if dry_run == DryRun::Server {
            bail!(
                "--dry-run=server: Karmada's cluster proxy, which leads to nodes, takes no dry runs; use --dry-run=client"
            );
        }
        let client = connect::member(cluster, client)?;
        Ok(Self {
            cluster,
            name,
            client,
        })
    }

    fn api(&self) -> Api<DynamicObject> {
        connect::objects::<Node>(&self.client)
    }

    async fn read(&self) -> Result<DynamicObject> {
        let found = self.api().get(self.name).await;
        let mut node = found.map_err(|error| self.refused(error))?;
        node.metadata.managed_fields = None;
        Ok(node)
    }

    /// Returns the pods on the node that `kubectl drain --ignore-daemonsets` evicts.
    async fn pods(&self) -> Result<Vec<Pod>> {
        let params = ListParams::default().fields(&format!("spec.nodeName={}", self.name));
        let api = Api::<Pod>::all(self.client.clone());
        let listed = runtime::pages::list(&api, &params, connect::LIMIT);
        let pods = match listed.await {
            Ok(pods) => pods.items,
            Err(error) => return Err(self.instead(error.message())),
        };
        Ok(pods
            .into_iter()
            .filter(|pod| is_evicted(pod, self.name))
            .collect())
    }

    async fn cordon(
        &self,
        object: DynamicObject,
        unschedulable: Value,
        dry_run: DryRun,
    ) -> Result<DynamicObject> {
        let patch = json!({"spec": {"unschedulable": unschedulable}});
        let merged = merge(&self.api(), object, patch, dry_run).await;
        merged.map_err(|error| self.instead(format!("{error:#}")))
    }

    /// Evicts a pod, which its PodDisruptionBudget may refuse.
    async fn evict(&self, pod: &Pod, dry_run: DryRun) -> Result<()> {
        if dry_run == DryRun::Client {
            return Ok(());
        }
        let api: Api<Pod> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        match api.evict(&pod.name_any(), &EvictParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            other => other.map(drop).map_err(connect::api_error),
        }
    }

    /// Waits until the pods are gone.
    async fn wait(&self) -> Result<()> {
        let place = format!("on {}/{}", self.cluster, self.name);
        let left = async || Ok(self.pods().await?.len());
        super::until_none_left("pod", &place, left).await?;
        eprintln!("no pod of a job runs {place} any more");
        Ok(())
    }

    fn refused(&self, error: kube::Error) -> anyhow::Error {
        self.instead(format!("{:#}", connect::api_error(error)))
    }

    /// Adds what to do where the way through the control plane does not work.
    fn instead(&self, message: String) -> anyhow::Error {
        anyhow!(
            "{message}: node {} of cluster {} is reached through Karmada's cluster proxy with your own rights (get and \
             patch nodes, list pods, create pods/eviction). With a kubeconfig of the cluster: kubectl drain {} \
             --ignore-daemonsets --delete-emptydir-data",
            self.name,
            self.cluster,
            self.name
        )
    }

    fn reply(&self, done: &str, object: &DynamicObject, args: &WriteArgs) -> Result<()> {
        let name = format!("node/{} of cluster {}\n", self.name, self.cluster);
        Ok(output::print(&output::changed(&name, done, object, args)?)?)
    }
}

/// Returns true for a pod that can run elsewhere: not one of a DaemonSet, nor one of the kubelet's own.
fn is_evicted(pod: &Pod, node: &str) -> bool {
    let on_node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
    let is_mirror = pod
        .annotations()
        .contains_key("kubernetes.io/config.mirror");
    let mut owners = pod.owner_references().iter();
    let of_daemon = owners.any(|owner| owner.controller == Some(true) && owner.kind == "DaemonSet");
    on_node && !has_ended && !is_mirror && !of_daemon
}

fn named(pod: &Pod) -> String {
    format!(
        "pod {}/{}",
        pod.namespace().unwrap_or_default(),
        pod.name_any()
    )
}

fn preview(node: &MemberNode<'_>, pods: &[Pod]) -> String {
    let place = format!("{}/{}", node.cluster, node.name);
    if pods.is_empty() {
        return format!("No pod to be evicted runs on {place}.\n");
    }
    let lines = pods.iter().map(|pod| format!("  {}\n", named(pod)));
    let lines: String = lines.collect();
    let count = counted(pods.len(), "pod");
    format!(
        "{count} will be evicted from {place}, and gangs that lack them start again elsewhere:\n{lines}"
    )
}
