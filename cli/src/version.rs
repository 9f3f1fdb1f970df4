//! `version`: the versions of this program and of the server.

use crate::age::human;
use crate::args::{Format, KubectlConnection, VersionCommand};
use crate::connect::connect;
use crate::output;
use anyhow::{Context, Result};
use crds::names;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt};
use serde::Serialize;

/// Label of the namespace `muster-system`: the installed version.
const VERSION_LABEL: &str = "app.kubernetes.io/version";

/// The versions of both sides.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Versions {
    /// Version of this program.
    client: String,
    /// The server's versions, unless only the client's were requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<Server>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Server {
    kubernetes: String,
    /// `group/version` of Muster's own kinds; empty if it is not installed.
    apis: Vec<String>,
    installed: Option<String>,
    leader: Option<Leader>,
}

/// The leading process.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Leader {
    holder: String,
    /// Seconds since it renewed the Lease.
    renewed_seconds_ago: i64,
}

/// Runs the command and returns its output.
pub(crate) async fn run(
    command: &VersionCommand,
    connection: &KubectlConnection,
) -> Result<String> {
    let server = match command.client {
        true => None,
        false => Some(server(&connect(connection).await?).await?),
    };
    let versions = Versions {
        client: format!("v{}", env!("CARGO_PKG_VERSION")),
        server,
    };
    match command.output.format {
        Format::Json | Format::Yaml => output::machine(&versions, command.output.format),
        Format::Table | Format::Wide | Format::Name => Ok(render(&versions)),
    }
}

/// Reads the server's versions. What the caller may not read is left out.
async fn server(client: &Client) -> Result<Server> {
    let kubernetes = client
        .apiserver_version()
        .await
        .context("the server does not answer")?
        .git_version;
    let groups = client
        .list_api_groups()
        .await
        .context("the server does not list its APIs")?;
    let muster = groups
        .groups
        .into_iter()
        .filter(|group| group.name == names::GROUP);
    let apis = muster
        .flat_map(|group| group.versions)
        .map(|version| version.group_version)
        .collect();
    let namespace = Api::<Namespace>::all(client.clone())
        .get_opt(names::SYSTEM_NAMESPACE)
        .await;
    let installed = namespace
        .ok()
        .flatten()
        .and_then(|namespace| namespace.labels().get(VERSION_LABEL).cloned());
    let lease = Api::<Lease>::namespaced(client.clone(), names::SYSTEM_NAMESPACE)
        .get_opt(names::LEASE)
        .await;
    let leader = lease
        .ok()
        .flatten()
        .and_then(|lease| leader(lease, Timestamp::now()));
    Ok(Server {
        kubernetes,
        apis,
        installed,
        leader,
    })
}

fn leader(lease: Lease, now: Timestamp) -> Option<Leader> {
    let spec = lease.spec?;
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty())?;
    let renewed = spec.renew_time?.0;
    Some(Leader {
        holder,
        renewed_seconds_ago: now.as_second() - renewed.as_second(),
    })
}

/// Formats the versions as a few lines.
fn render(versions: &Versions) -> String {
    let mut text = format!("Client      {}\n", versions.client);
    let Some(server) = &versions.server else {
        return text;
    };
    text += &format!("Kubernetes  {}\n", server.kubernetes);
    text += &match (&server.apis[..], &server.installed) {
        ([], _) => "Muster      not installed\n".to_owned(),
        (apis, installed) => format!(
            "Muster      {} ({})\n",
            installed.as_deref().unwrap_or("<unknown>"),
            apis.join(", ")
        ),
    };
    text += &match &server.leader {
        None => "Leader      <unknown>\n".to_owned(),
        Some(leader) => format!(
            "Leader      {}, {} ago\n",
            leader.holder,
            human(leader.renewed_seconds_ago)
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Lease, Server, Versions, leader, render};

    fn versions(server: Option<Server>) -> Versions {
        Versions {
            client: "v0.1.0".to_owned(),
            server,
        }
    }

    #[test]
    fn both_sides_are_shown() {
        let lease: Lease = serde_saphyr::from_str(
            "
metadata: {name: muster}
spec: {holderIdentity: host-1_4711, renewTime: 2026-11-21T12:00:00.000000Z}
",
        )
        .unwrap();
        let server = Server {
            kubernetes: "v1.35.4".to_owned(),
            apis: vec!["muster.io/v1alpha2".to_owned()],
            installed: Some("v0.1.0".to_owned()),
            leader: leader(lease, "2026-11-21T12:00:07Z".parse().unwrap()),
        };
        insta::assert_snapshot!(render(&versions(Some(server))), @r"
        Client      v0.1.0
        Kubernetes  v1.35.4
        Muster      v0.1.0 (muster.io/v1alpha2)
        Leader      host-1_4711, 7s ago
        ");
    }

    #[test]
    fn a_server_without_it_says_so() {
        let server = Server {
            kubernetes: "v1.35.4".to_owned(),
            apis: Vec::new(),
            installed: None,
            leader: None,
        };
        insta::assert_snapshot!(render(&versions(Some(server))), @r"
        Client      v0.1.0
        Kubernetes  v1.35.4
        Muster      not installed
        Leader      <unknown>
        ");
        insta::assert_snapshot!(render(&versions(None)), @"Client      v0.1.0");
    }
}
