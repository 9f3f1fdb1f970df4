//! Empties a member, as if its etcd was lost and the cluster was set up again.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::Testbed;
use crate::error::{Error, Result};
use crate::names::MemberProcess;
use crate::nodes;
use crate::spec::MemberSpec;
use crate::wait;

/// The timeout of a request to etcd.
const ANSWER: Duration = Duration::from_secs(30);

impl Testbed {
    /// Ends all processes of a member, deletes every key of its API server from etcd, and starts it
    /// again with the CRDs and nodes of `member`. It keeps the address, certificate and token that
    /// Karmada knows. Returns when its nodes are Ready and its controllers run.
    ///
    /// # Errors
    /// Returns an error if there is no such member, etcd refuses, or a component does not become
    /// ready.
    pub async fn empty_member(&self, member: &MemberSpec) -> Result<()> {
        let cluster = self.cluster(&member.name)?;
        let running = self.status().into_iter().map(|process| process.name);
        let own = self.processes_of(&member.name);
        let own: Vec<String> = running.filter(|name| own.contains(name)).collect();
        for process in &own {
            self.kill(process)?;
        }
        let etcd = Path::new("etcd");
        self.delete_keys(&member.name)
            .await
            .map_err(Error::io("delete keys from", etcd))?;

        let apiserver = MemberProcess::Apiserver.of(&member.name);
        self.restart(&apiserver).await?;
        let client = cluster.client().await?;
        self.install_member_crds(&apiserver, &client, &cluster, member)
            .await?;
        for process in own.iter().filter(|name| **name != apiserver) {
            self.supervisor.restart(process)?;
        }
        for process in own.iter().filter(|name| **name != apiserver) {
            wait::serving(&self.supervisor, process).await?;
        }
        self.record(|_| ())?;
        let mut names = Vec::new();
        for group in &member.nodes {
            names.extend(nodes::create(&client, &member.name, group).await?);
        }
        self.wait_nodes_ready(&client, &member.name, &names).await
    }

    /// Deletes all keys below `/cluster/`, by etcd's JSON gateway.
    async fn delete_keys(&self, cluster: &str) -> std::io::Result<()> {
        let body = json!({
            "key": BASE64_STANDARD.encode(format!("/{cluster}/")),
            // This is the first key after the prefix: `0` follows `/`.
            "range_end": BASE64_STANDARD.encode(format!("/{cluster}0")),
        })
        .to_string();
        let conversation = async {
            let address = (std::net::Ipv4Addr::LOCALHOST, self.etcd_port);
            let mut stream = TcpStream::connect(address).await?;
            let request = format!(
                "POST /v3/kv/deleterange HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            Ok::<_, std::io::Error>(answer)
        };
        let answer = tokio::time::timeout(ANSWER, conversation).await??;
        // etcd omits the number if it is 0.
        match answer.starts_with("HTTP/1.1 200") && answer.contains("\"deleted\"") {
            true => Ok(()),
            false => Err(std::io::Error::other(format!(
                "nothing below /{cluster}/ was deleted: {answer}"
            ))),
        }
    }
}
