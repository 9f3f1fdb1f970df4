//! Starts a member cluster and joins it to Karmada, and removes it again.
//!
//! Joining needs no karmadactl: a Secret with a bearer token and the CA, and a Cluster object. The
//! karmada-agent of a member in pull mode joins it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cluster::TestbedCluster;
use crate::components::{DEVICE_TAINT_RULES, DEVICE_TAINTS};
use crate::control_plane::{namespace, volcano_crds};
use crate::error::{Error, Result, describe};
use crate::manifests::Manifests;
use crate::names::{KARMADA_CONTROLLER_MANAGER, MemberProcess, NodeProcess};
use crate::spec::{MemberSpec, SyncMode};
use crate::tools::Toolset;
use crate::{Testbed, nodes, wait};

/// The queue of jobs that name none; Volcano's scheduler creates it when it starts.
const DEFAULT_QUEUE: &str = "default";

/// How long a kubelet may be silent until its node is not Ready: less than usual, as the leases of real nodes are.
const NODE_GRACE: &str = "--node-monitor-grace-period=16s";

impl Testbed {
    /// Starts a further member and joins it; returns when it is Ready in Karmada.
    ///
    /// # Errors
    /// Returns an error if its name is taken, or a component does not become ready.
    pub async fn add_member(&self, member: &MemberSpec) -> Result<TestbedCluster> {
        let mut spec = self.spec.clone();
        spec.members = vec![member.clone()];
        spec.validate()?;
        if self.cluster(&member.name).is_ok() {
            return Err(Error::Spec(format!(
                "a cluster {:?} is there already",
                member.name
            )));
        }
        let port = self.supervisor.reserve_port()?;
        let cluster =
            TestbedCluster::create(&member.name, port, &self.pki, &self.dir.join("kubeconfig"))?;
        self.record(|state| state.clusters.push(cluster.clone()))?;
        self.note_real_nodes(member);
        let token = self.spawn_member_apiserver(member, port)?;
        let (_karmada, ready) = watch::channel(true);
        self.start_member(member, &token, ready).await?;
        Ok(cluster)
    }

    /// Removes a member from Karmada, waits until Karmada has removed its finalizer, and ends its
    /// processes. Its objects stay in etcd while the testbed is up, so its name must not be reused.
    ///
    /// # Errors
    /// Returns an error if there is no such member, or Karmada keeps it.
    pub async fn remove_member(&self, member: &str) -> Result<()> {
        self.cluster(member)?;
        let karmada = self.karmada().client().await?;
        let clusters = api(&karmada, "cluster.karmada.io", "v1alpha1", "Cluster");
        let gone = |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.is_not_found());
        match clusters.delete(member, &DeleteParams::default()).await {
            Err(error) if !gone(&error) => {
                return Err(Error::kube(format!("delete cluster {member}"))(error));
            }
            _ => {}
        }
        let what = format!("cluster {member} gone from Karmada");
        wait::until(
            &self.supervisor,
            KARMADA_CONTROLLER_MANAGER,
            &what,
            || async {
                match clusters.get(member).await {
                    Err(error) if gone(&error) => Ok(()),
                    Err(error) => Err(describe(&error)),
                    Ok(cluster) => Err(format!("{:?}", cluster.metadata.finalizers)),
                }
            },
        )
        .await?;
        for process in self.processes_of(member).iter().rev() {
            self.supervisor.remove(process);
        }
        self.record(|state| state.clusters.retain(|cluster| cluster.name != member))
    }

    /// Starts the API server process of a member and returns Karmada's token for it.
    pub(super) fn spawn_member_apiserver(&self, member: &MemberSpec, port: u16) -> Result<String> {
        let components = self.components();
        let token = random_token()?;
        let tokens = components.token_file(member, &token)?;
        let mut own = vec![
            format!("--token-auth-file={}", tokens.display()),
            DEVICE_TAINTS.into(),
            DEVICE_TAINT_RULES.into(),
        ];
        if member.real_nodes.is_some() {
            own.extend(self.kubelet_flags());
        }
        self.spawn(components.apiserver(&member.name, port, own)?)?;
        Ok(token)
    }

    /// Turns a started API server process into a member that is Ready in Karmada with all its
    /// nodes. It joins the member after `karmada_ready` is true; all earlier steps run in parallel
    /// with Karmada's start.
    pub(super) async fn start_member(
        &self,
        member: &MemberSpec,
        token: &str,
        mut karmada_ready: watch::Receiver<bool>,
    ) -> Result<()> {
        let cluster = self.cluster(&member.name)?;
        let client = cluster.client().await?;
        let apiserver = MemberProcess::Apiserver.of(&member.name);
        wait::api_ready(&self.supervisor, &apiserver, &client).await?;
        self.spawn_member_controllers(&cluster, member)?;
        self.install_member_crds(&apiserver, &client, &cluster, member)
            .await?;
        if member.volcano_webhook {
            self.start_volcano_webhook(&client, &cluster).await?;
        }
        if member.volcano {
            self.spawn_volcano(&cluster)?;
        }
        let mut node_names = self.start_machines(&client, &cluster, member).await?;
        for group in &member.nodes {
            node_names.extend(nodes::create(&client, &member.name, group).await?);
        }
        // The sender is dropped earlier only if the whole start is cancelled.
        let _ = karmada_ready.wait_for(|ready| *ready).await;
        let karmada = self.karmada().client().await?;
        match member.sync {
            SyncMode::Push => self.join(&karmada, &cluster, member, token).await?,
            SyncMode::Pull => self.have_agent_join(&karmada, &cluster, member).await?,
        }
        self.wait_nodes_ready(&client, &member.name, &node_names)
            .await?;
        if let Some(real) = member.real_nodes.as_ref().filter(|real| real.gpus > 0) {
            self.wait_devices(&client, &member.name, &node_names, real.gpus)
                .await?;
        }
        if member.volcano {
            self.wait_volcano(&client, &member.name).await?;
        }
        self.wait_joined(&karmada, member).await
    }

    /// Waits until KWOK or the kubelets, and the member's controllers, have made the nodes usable.
    pub(super) async fn wait_nodes_ready(
        &self,
        client: &Client,
        member: &str,
        names: &[String],
    ) -> Result<()> {
        let what = format!("nodes of {member} ready");
        let maker = match self.real_node(member, 1) {
            Ok(_) => NodeProcess::Kubelet.of(member, 1),
            Err(_) => MemberProcess::Kwok.of(member),
        };
        wait::until(&self.supervisor, &maker, &what, || async {
            match nodes::unready(client, names).await?.as_slice() {
                [] => Ok(()),
                missing => Err(format!("not ready: {}", missing.join(", "))),
            }
        })
        .await
    }

    fn spawn_member_controllers(
        &self,
        cluster: &TestbedCluster,
        member: &MemberSpec,
    ) -> Result<()> {
        let components = self.components();
        let mut controllers = components.kube_controller_manager(cluster)?;
        if member.real_nodes.is_some() {
            controllers.args.push(NODE_GRACE.into());
        }
        self.spawn(controllers)?;
        self.spawn(components.kube_scheduler(cluster)?)?;
        match member.real_nodes {
            Some(_) => Ok(()),
            None => self.spawn(components.kwok(cluster)?),
        }
    }

    /// Installs CRDs in a member. Volcano's CRDs are installed only if Volcano runs there:
    /// elsewhere its jobs would be accepted and never run.
    pub(super) async fn install_member_crds(
        &self,
        apiserver: &str,
        client: &Client,
        cluster: &TestbedCluster,
        member: &MemberSpec,
    ) -> Result<()> {
        let stages = self
            .tools
            .module_dir(Toolset::Kwok)?
            .join("kustomize/stage");
        let storage_class = stages.join("volume/fast/storage-class.yaml");
        let essentials = Manifests::literal("namespaces", vec![namespace("volcano-system")])?;
        let volcano = match member.volcano {
            true => volcano_crds(&self.tools)?,
            false => Manifests::default(),
        };
        let further = match member.without_crds {
            true => Manifests::default(),
            false => Manifests::read(&self.spec.member_crds)?,
        };
        let manifests = volcano
            .and(&essentials)
            .and(&Manifests::read(&[storage_class])?)
            .and(&further);
        self.install_crds(apiserver, client, &cluster.name, &manifests)
            .await
    }

    /// Starts Volcano's webhook before the rest of Volcano, whose first writes it admits.
    async fn start_volcano_webhook(&self, client: &Client, cluster: &TestbedCluster) -> Result<()> {
        let module = self.tools.module_dir(Toolset::Volcano)?;
        let path = module.join("installer/volcano-development.yaml");
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        // The other documents are its Deployments and their accounts, which processes do not need.
        let documents = text
            .split("\n---\n")
            .filter(|text| text.contains("WebhookConfiguration\n"));
        let registrations = documents.collect::<Vec<_>>().join("\n---\n");
        let paths = registrations
            .lines()
            .filter_map(|line| line.trim().strip_prefix("path: "));
        let paths: Vec<&str> = paths.collect();

        let launch = self.components().volcano_webhook(cluster, &paths)?;
        let url = format!("https://127.0.0.1:{}", launch.ports[0]);
        let registrations = Manifests::parse(&path, &registrations)?;
        let local = registrations.with_webhooks_at(&url, &self.ca_bundle());
        local.apply(client, &cluster.name).await?;
        self.spawn(launch)?;
        wait::serving(
            &self.supervisor,
            &MemberProcess::VolcanoWebhook.of(&cluster.name),
        )
        .await
    }

    fn spawn_volcano(&self, cluster: &TestbedCluster) -> Result<()> {
        let components = self.components();
        self.spawn(components.volcano_controllers(cluster)?)?;
        self.spawn(components.volcano_scheduler(cluster)?)
    }

    async fn wait_volcano(&self, client: &Client, member: &str) -> Result<()> {
        wait::serving(
            &self.supervisor,
            &MemberProcess::VolcanoControllers.of(member),
        )
        .await?;
        let scheduler = MemberProcess::VolcanoScheduler.of(member);
        let queues = api(client, "scheduling.volcano.sh", "v1beta1", "Queue");
        let what = format!("queue {DEFAULT_QUEUE} in {member}");
        wait::until(&self.supervisor, &scheduler, &what, || async {
            queues
                .get(DEFAULT_QUEUE)
                .await
                .map(drop)
                .map_err(|error| describe(&error))
        })
        .await
    }

    async fn join(
        &self,
        karmada: &Client,
        cluster: &TestbedCluster,
        member: &MemberSpec,
        token: &str,
    ) -> Result<()> {
        let name = &member.name;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "namespace": "karmada-cluster"},
            "data": {"token": BASE64_STANDARD.encode(token), "caBundle": self.ca_bundle()},
        });
        let reference = json!({"namespace": "karmada-cluster", "name": name});
        let object = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name, "labels": member.labels},
            "spec": {
                "syncMode": "Push",
                "apiEndpoint": cluster.server,
                "secretRef": reference,
                "impersonatorSecretRef": reference,
            },
        });
        for object in [secret, object] {
            Manifests::literal(name, vec![object])?
                .apply(karmada, "karmada")
                .await?;
        }
        Ok(())
    }

    /// Waits until the agent has created the Cluster, and adds the labels that the agent does not
    /// know.
    async fn have_agent_join(
        &self,
        karmada: &Client,
        cluster: &TestbedCluster,
        member: &MemberSpec,
    ) -> Result<()> {
        let launch = self.components().karmada_agent(cluster, &self.karmada())?;
        let agent = launch.name.clone();
        self.spawn(launch)?;
        let clusters = api(karmada, "cluster.karmada.io", "v1alpha1", "Cluster");
        let labels = json!({"metadata": {"labels": member.labels}});
        let what = format!("{} joined by its agent", member.name);
        wait::until(&self.supervisor, &agent, &what, || async {
            let (params, patch) = (PatchParams::default(), Patch::Merge(&labels));
            let patched = clusters.patch(&member.name, &params, &patch);
            patched.await.map(drop).map_err(|error| describe(&error))
        })
        .await
    }

    /// Waits until Karmada reports the member Ready and knows its APIs, including Volcano's jobs if
    /// Volcano runs there.
    async fn wait_joined(&self, karmada: &Client, member: &MemberSpec) -> Result<()> {
        let clusters = api(karmada, "cluster.karmada.io", "v1alpha1", "Cluster");
        let what = format!("cluster {} ready in Karmada", member.name);
        wait::until(
            &self.supervisor,
            KARMADA_CONTROLLER_MANAGER,
            &what,
            || async {
                let cluster = clusters
                    .get(&member.name)
                    .await
                    .map_err(|error| describe(&error))?;
                joined(&cluster.data["status"], member.volcano)
            },
        )
        .await
    }
}

fn joined(status: &Value, volcano: bool) -> Result<(), String> {
    let list = |name: &str| status[name].as_array().cloned().unwrap_or_default();
    let ready = list("conditions")
        .into_iter()
        .find(|condition| condition["type"] == "Ready");
    let Some(ready) = ready else {
        return Err("no condition Ready yet".into());
    };
    if ready["status"] != "True" {
        return Err(format!("condition Ready is {ready}"));
    }
    let expected = match volcano {
        true => "batch.volcano.sh/v1alpha1",
        false => "batch/v1",
    };
    let expected_is = |enablement: &Value| enablement["groupVersion"] == expected;
    match list("apiEnablements").iter().any(expected_is) {
        true => Ok(()),
        false => Err(format!("its API enablements do not show {expected} yet")),
    }
}

fn api(client: &Client, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::all_with(client.clone(), &resource)
}

/// Returns 128 random bits in hex.
fn random_token() -> Result<String> {
    use std::io::Read as _;
    let source = "/dev/urandom";
    let mut bytes = [0u8; 16];
    let mut file = std::fs::File::open(source).map_err(Error::io("open", source))?;
    file.read_exact(&mut bytes)
        .map_err(Error::io("read", source))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
