//! `nodes clear`: nodes that are avoided no more, by an annotation of their Cluster.
//!
//! The annotation says when each node was cleared: what was seen of it before does not count any more.

use crate::acts::{self, consent};
use crate::args::{ClearNodesArgs, Cli, DryRun, KubectlConnection};
use crate::connect;
use crate::nodes::{self, avoided};
use crate::output::ChangedObjects;
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::CommandFactory;
use clap::error::ErrorKind;
use crds::gpu_pool::{AvoidedNode, GpuPool};
use crds::karmada::Cluster;
use crds::names::{AVOID_TAINT, CLEARED_NODES_ANNOTATION};
use crds::node_health::ClearedNodes;
use engine::counted;
use jiff::Timestamp;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt};
use serde_json::json;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// The name that means every node of a cluster.
const EVERY: &str = "*";
/// How often a change is tried when the Cluster changes meanwhile.
const TRIES: usize = 4;

/// The nodes to clear, by cluster, each with what the server shows of it.
type Chosen = BTreeMap<String, BTreeMap<String, Option<AvoidedNode>>>;

/// Runs the command.
pub(crate) async fn run(args: &ClearNodesArgs, connection: &KubectlConnection) -> Result<ExitCode> {
    if args.nodes.is_empty() && !args.all && args.rule.is_none() {
        let text = "name the nodes as CLUSTER/NODE, or select them with --all or --rule";
        return Err(Cli::command()
            .error(ErrorKind::MissingRequiredArgument, text)
            .into());
    }
    let client = connect::connect(connection).await?;
    let pools = nodes::read(&nodes::pools(&client).await?);
    let (chosen, errors) = choose(args, &pools);
    for error in &errors {
        eprintln!("error: {error:#}");
    }
    if chosen.is_empty() && errors.is_empty() {
        eprintln!("No nodes found");
    }
    let count = chosen.values().map(BTreeMap::len).sum::<usize>();
    if args.nodes.len() != 1 && count > 0 && args.write.dry_run == DryRun::None {
        let lines = lines(&chosen, " will be cleared").concat();
        eprint!("{}:\n{lines}", counted(count, "node"));
        consent::ask(args.yes)?;
    }
    let done = clear_all(&chosen, args, &client).await?;
    Ok(match done && errors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns the nodes that are named or selected, and what is wrong with names.
fn choose(args: &ClearNodesArgs, pools: &[GpuPool]) -> (Chosen, Vec<anyhow::Error>) {
    let (mut chosen, mut errors) = (Chosen::new(), Vec::new());
    let mut add = |cluster: &str, node: &str, shown: Option<&AvoidedNode>| {
        let nodes = chosen.entry(cluster.to_owned()).or_default();
        nodes.insert(node.to_owned(), shown.cloned());
    };
    for (pool, node) in avoided(pools) {
        let by_rule = match &args.rule {
            Some(rule) => node.avoidance.rule == *rule,
            None => args.all,
        };
        if by_rule && !node.avoidance.is_by_hand() {
            add(&pool.spec.cluster, &node.node, Some(node));
        }
    }
    for name in &args.nodes {
        match named(name, pools) {
            Ok((cluster, node, shown)) => add(cluster, node, shown),
            Err(error) => errors.push(error),
        }
    }
    (chosen, errors)
}

/// Returns cluster, node and what is shown of it.
fn named<'a>(
    name: &'a str,
    pools: &'a [GpuPool],
) -> Result<(&'a str, &'a str, Option<&'a AvoidedNode>)> {
    let parts = name.split_once('/').filter(|(cluster, node)| {
        !cluster.is_empty() && !node.is_empty() && !node.contains(['/', '=', ','])
    });
    let (cluster, node) = parts.with_context(|| {
        format!("{name:?} is no node; CLUSTER/NODE is needed, as `kubectl muster nodes -o name` prints it")
    })?;
    if node == EVERY {
        return Ok((cluster, node, None));
    }
    let is_it = |(pool, shown): &(&GpuPool, &AvoidedNode)| {
        pool.spec.cluster == cluster && shown.node == node
    };
    let Some((_, shown)) = avoided(pools).find(is_it) else {
        let cut = |pool: &&GpuPool| pool.spec.cluster == cluster && nodes::is_cut(pool);
        ensure!(pools.iter().any(|pool| cut(&pool)), "{name} is not avoided");
        return Ok((cluster, node, None));
    };
    ensure!(
        !shown.avoidance.is_by_hand(),
        "{name}: it has the taint {AVOID_TAINT}, which Muster did not set and does not remove: in its cluster, kubectl \
         taint node {node} {AVOID_TAINT}-"
    );
    Ok((cluster, node, Some(shown)))
}

/// Returns a line for each node.
fn lines(chosen: &Chosen, done: &str) -> Vec<String> {
    let nodes = chosen.iter().flat_map(|(cluster, nodes)| {
        nodes
            .iter()
            .map(move |(node, shown)| (cluster, node, shown))
    });
    nodes
        .map(|(cluster, node, shown)| {
            let why = shown.as_ref().map(|shown| &shown.avoidance.message);
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            format!("{cluster}/{node}{done}{why}\n")
        })
        .collect()
}

/// Clears the nodes of one cluster after the other, and prints a line for each. Returns true if all succeeded.
async fn clear_all(chosen: &Chosen, args: &ClearNodesArgs, client: &Client) -> Result<bool> {
    let write = args.write;
    let (mut changed, mut done) = (
        ChangedObjects::new(write.output.format, args.nodes.len() != 1),
        true,
    );
    for (cluster, nodes) in chosen {
        let object = match clear(cluster, nodes, write.dry_run, client).await {
            Ok(object) => object,
            Err(error) => {
                done = false;
                eprintln!("error: {cluster}: {error:#}");
                continue;
            }
        };
        let names = nodes.keys().map(|node| format!("{cluster}/{node}\n"));
        let only = Chosen::from([(cluster.clone(), nodes.clone())]);
        let lines = lines(&only, &format!(" cleared{}", write.dry_run.suffix()));
        changed.print(&names.collect::<String>(), &lines.concat(), object)?;
    }
    changed.finish()?;
    Ok(done)
}

/// Clears nodes of one cluster, and returns the Cluster as it is now.
async fn clear(
    cluster: &str,
    nodes: &BTreeMap<String, Option<AvoidedNode>>,
    dry_run: DryRun,
    client: &Client,
) -> Result<DynamicObject> {
    let api = connect::objects::<Cluster>(client);
    for _ in 0..TRIES {
        let found = api.get_opt(cluster).await.map_err(connect::api_error)?;
        let Some(mut object) = found else {
            bail!("there is no such Cluster");
        };
        object.metadata.managed_fields = None;
        let text = object.annotations().get(CLEARED_NODES_ANNOTATION);
        let text = text.map_or("", String::as_str);
        let text = marked(text, nodes, Timestamp::now()).to_string();
        let patch = json!({"metadata": {
            "resourceVersion": object.resource_version(),
            "annotations": {(CLEARED_NODES_ANNOTATION): text},
        }});
        match acts::patched(&api, object, patch, dry_run).await? {
            Ok(object) => return Ok(object),
            // Another node was cleared meanwhile, or Karmada wrote the status.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(connect::api_error(error)),
        }
    }
    Err(anyhow!("the Cluster changes all the time; try again"))
}

/// Returns the annotation `text` with `nodes` cleared at `now`, or when they began to be avoided if that is later:
/// clocks differ.
fn marked(
    text: &str,
    nodes: &BTreeMap<String, Option<AvoidedNode>>,
    now: Timestamp,
) -> ClearedNodes {
    let mut cleared = ClearedNodes::parse(text).unwrap_or_else(|(readable, _)| readable);
    // Kubernetes' times have no fractions: without one, the text stays short.
    let now = Timestamp::from_second(now.as_second().saturating_add(1)).unwrap_or(now);
    for (node, shown) in nodes {
        let since = shown
            .as_ref()
            .and_then(|shown| shown.avoidance.since.parse().ok());
        cleared.clear(node, since.map_or(now, |since: Timestamp| since.max(now)));
    }
    cleared
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use runtime::testing::{FakeApi, Fault};
    use serde_json::Value;

    const CLUSTER: &str = "/apis/cluster.karmada.io/v1alpha1/clusters/m1";

    fn pools(avoided: i64) -> Vec<GpuPool> {
        let pool = serde_json::from_value(json!({
            "metadata": {"name": "m1.h100"},
            "spec": {"cluster": "m1", "class": "h100", "device": "nvidia.com/gpu"},
            "status": {"avoided": avoided, "avoidedNodes": [
                {"node": "n1", "class": "Device", "rule": "xid", "since": "2026-11-25T09:00:00Z",
                 "until": "2026-11-26T09:00:00Z", "message": "3 jobs failed there"},
                {"node": "n2", "class": "Device", "rule": "memory", "since": "2026-11-25T09:59:00Z",
                 "message": "its condition GpuMemWatch is True"},
                {"node": "n3"},
            ]},
        }));
        vec![pool.unwrap()]
    }

    fn args(nodes: &[&str]) -> ClearNodesArgs {
        ClearNodesArgs {
            nodes: nodes.iter().map(ToString::to_string).collect(),
            ..ClearNodesArgs::default()
        }
    }

    fn said(args: &ClearNodesArgs, avoided: i64) -> String {
        let (chosen, errors) = choose(args, &pools(avoided));
        let errors = errors.iter().map(|error| format!("error: {error:#}\n"));
        lines(&chosen, " cleared")
            .into_iter()
            .chain(errors)
            .collect()
    }

    #[test]
    fn nodes_are_named_or_selected() {
        let names = ["m1/n1", "m1/n3", "m1/n9", "m2/*", "n1", "m1/a=b"];
        insta::assert_snapshot!(said(&args(&names), 3), @r#"
        m1/n1 cleared (3 jobs failed there)
        m2/* cleared
        error: m1/n3: it has the taint muster.io/avoid, which Muster did not set and does not remove: in its cluster, kubectl taint node n3 muster.io/avoid-
        error: m1/n9 is not avoided
        error: "n1" is no node; CLUSTER/NODE is needed, as `kubectl muster nodes -o name` prints it
        error: "m1/a=b" is no node; CLUSTER/NODE is needed, as `kubectl muster nodes -o name` prints it
        "#);
        assert_eq!(said(&args(&["m1/n9"]), 60), "m1/n9 cleared\n");
        let all = ClearNodesArgs {
            all: true,
            ..ClearNodesArgs::default()
        };
        insta::assert_snapshot!(said(&all, 3), @r"
        m1/n1 cleared (3 jobs failed there)
        m1/n2 cleared (its condition GpuMemWatch is True)
        ");
        let by_rule = ClearNodesArgs {
            rule: Some("memory".to_owned()),
            ..ClearNodesArgs::default()
        };
        assert!(said(&by_rule, 3).starts_with("m1/n2 cleared"));
    }

    #[test]
    fn a_clock_that_is_late_clears_too() {
        let (chosen, _) = choose(&args(&["m1/n1", "m1/n2"]), &pools(3));
        let now = "2026-11-25T09:30:00.5Z".parse().unwrap();
        let text = "n7=2026-01-01T00:00:00Z,broken";
        assert_eq!(
            marked(text, &chosen["m1"], now).to_string(),
            "n1=2026-11-25T09:30:01Z,n2=2026-11-25T09:59:00Z,n7=2026-01-01T00:00:00Z"
        );
    }

    fn annotation(object: &Value) -> String {
        let text = &object["metadata"]["annotations"][CLEARED_NODES_ANNOTATION];
        text.as_str().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn the_annotation_is_written_in_the_version_that_was_read() {
        let api = FakeApi::new();
        let before = json!({CLEARED_NODES_ANNOTATION: "n7=2026-01-01T00:00:00Z"});
        api.put(
            CLUSTER,
            json!({"metadata": {"name": "m1", "annotations": before}}),
        );
        let nodes = BTreeMap::from([("n1".to_owned(), None)]);
        let client = api.client();
        for dry_run in [DryRun::Client, DryRun::None] {
            assert_eq!(
                annotation(&api.get(CLUSTER).unwrap()),
                "n7=2026-01-01T00:00:00Z"
            );
            let object = clear("m1", &nodes, dry_run, &client).await.unwrap();
            let text = annotation(&serde_json::to_value(object).unwrap());
            assert!(
                text.starts_with("n1=") && text.ends_with("n7=2026-01-01T00:00:00Z"),
                "{text}"
            );
        }
        let is_patch = |request: &runtime::testing::Recorded| request.verb == "PATCH";
        api.fault(
            1,
            Fault::Status(409, "the object has been modified"),
            is_patch,
        );
        let nodes = BTreeMap::from([("*".to_owned(), None)]);
        clear("m1", &nodes, DryRun::None, &client).await.unwrap();
        let text = annotation(&api.get(CLUSTER).unwrap());
        assert!(text.starts_with("*=") && text.contains(",n1="), "{text}");
        let patches = api.requests_of("PATCH");
        assert_eq!(patches.len(), 3);
        assert!(patches[0].body["metadata"]["resourceVersion"].is_string());
        let error = clear("m2", &nodes, DryRun::None, &client)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), "there is no such Cluster");
    }
}
