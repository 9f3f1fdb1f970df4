//! The command line of every component.
//!
//! Every component listens on loopback, on a port of its own, because all members share one host
//! and default ports would clash. Leader election is off, since each component has one instance.
//! Profiling and metrics are off where possible, to save CPU time.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::{KARMADA, TestbedCluster};
use crate::error::{Error, Result};
use crate::names::{
    ETCD, KARMADA_AGGREGATED_APISERVER, KARMADA_CONTROLLER_MANAGER, KARMADA_SCHEDULER,
    KARMADA_WEBHOOK, MemberProcess,
};
use crate::pki::{FRONT_PROXY_NAME, Pki};
use crate::process::{Launch, Supervisor};
use crate::spec::{KarmadaSpec, MemberSpec};
use crate::tools::{Tool, Tools, Toolset};

/// Client limits of the members' controllers, as in a large cluster, so that they are no
/// bottleneck.
const MEMBER_QPS: u32 = 500;
const MEMBER_BURST: u32 = 1000;

/// A feature of Karmada, off by default, that propagates Services between members.
const MULTI_CLUSTER_SERVICES: &str = "--feature-gates=MultiClusterService=true";

/// Features of members, off by default, by which an administrator taints devices (DeviceTaintRule). Those of the
/// scheduler are on too, so that it allocates no device with a taint.
pub(super) const DEVICE_TAINTS: &str =
    "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true";
/// The API of these rules, which the API server serves only if told to.
pub(super) const DEVICE_TAINT_RULES: &str = "--runtime-config=resource.k8s.io/v1alpha3=true";

/// The controllers of Kubernetes that the control plane needs. Controllers of workloads are
/// excluded, except that of CronJobs: a template on the control plane must not start pods there.
const CONTROL_PLANE_CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,cronjob-controller,\
    serviceaccount-token-controller,ttl-after-finished-controller,clusterrole-aggregation-controller";

/// The controllers of Kubernetes that a member needs. Without the node lifecycle controller, nodes
/// keep the taint `not-ready`; karmada-agent waits for the tokens of the accounts that it creates.
const MEMBER_CONTROLLERS: &str = "namespace-controller,garbage-collector-controller,job-controller,\
    serviceaccount-token-controller,clusterrole-aggregation-controller,\
    deployment-controller,replicaset-controller,statefulset-controller,endpointslice-controller,\
    node-lifecycle-controller,pod-garbage-collector-controller,ttl-after-finished-controller,\
    resourceclaim-controller,taint-eviction-controller";

/// The stages of KWOK's module in use: nodes become and stay ready, pods run at once and go when
/// deleted, claims are bound to new volumes.
const KWOK_STAGES: [&str; 8] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-delete.yaml",
    "volume/fast/pv-bind.yaml",
    "volume/fast/pv-delete.yaml",
    "volume/fast/pvc-provision.yaml",
    "volume/fast/pvc-delete.yaml",
];

/// The stages of the testbed: by their annotations, pods end after a time, wait for ever on their node, or
/// are refused by it.
const OWN_STAGES: [&str; 4] = [
    include_str!("../stages/pod-run-for.yaml"),
    include_str!("../stages/pod-fail.yaml"),
    include_str!("../stages/pod-wait.yaml"),
    include_str!("../stages/pod-refused.yaml"),
];

/// Volcano's default policy for members: gangs, priorities, weighted queues, dense packing.
const VOLCANO_POLICY: &str = r#"actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}, {name: binpack}]
"#;

/// The input of all command lines.
#[derive(Debug)]
pub(super) struct Components<'a> {
    pub(super) tools: &'a Tools,
    pub(super) pki: &'a Pki,
    pub(super) supervisor: &'a Supervisor,
    /// The folder of generated configuration files.
    pub(super) conf_dir: PathBuf,
    pub(super) etcd_port: u16,
}

impl Components<'_> {
    pub(super) fn etcd(&self, data_dir: &Path) -> Result<Launch> {
        let peer_port = self.port()?;
        let client_url = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer_url = format!("http://127.0.0.1:{peer_port}");
        let mut launch = self.launch(Tool::Etcd, ETCD, &[self.etcd_port, peer_port])?;
        launch.args = vec![
            format!("--data-dir={}", data_dir.display()),
            // The data need not survive a crash of the machine.
            "--unsafe-no-fsync".into(),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer_url}"),
            format!("--initial-advertise-peer-urls={peer_url}"),
            format!("--initial-cluster=default={peer_url}"),
            "--quota-backend-bytes=8589934592".into(),
            "--log-level=warn".into(),
        ];
        Ok(launch)
    }

    /// Returns the launch of an API server with flags of its `own` besides the common ones.
    pub(super) fn apiserver(
        &self,
        cluster: &str,
        port: u16,
        own: impl IntoIterator<Item = String>,
    ) -> Result<Launch> {
        let pki = self.pki;
        let name = format!("{cluster}-apiserver");
        let mut launch = self.launch(Tool::KubeApiserver, &name, &[port])?;
        launch.args = vec![
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            format!("--etcd-prefix=/{cluster}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            "--allow-privileged=true".into(),
            "--authorization-mode=RBAC".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            flag("service-account-key-file", &pki.service_account_public),
            flag("service-account-signing-key-file", &pki.service_account_key),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            flag("client-ca-file", &pki.ca),
            flag("tls-cert-file", &pki.server.cert),
            flag("tls-private-key-file", &pki.server.key),
            flag("proxy-client-cert-file", &pki.front_proxy.cert),
            flag("proxy-client-key-file", &pki.front_proxy.key),
            flag("requestheader-client-ca-file", &pki.ca),
            format!("--requestheader-allowed-names={FRONT_PROXY_NAME}"),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            // Pods need no service account controller, and claims no protection controller.
            "--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount".into(),
            "--profiling=false".into(),
        ];
        launch.args.extend(own);
        Ok(launch)
    }

    /// Returns flags for an audit log of writes to bindings and works, and to the objects that
    /// limit them.
    pub(super) fn audit_flags(&self, log: &Path) -> Result<Vec<String>> {
        let bindings = ["resourcebindings", "resourcebindings/status"];
        let works = ["works", "works/status"];
        let placed = [bindings, works].concat();
        // The status of these objects is excluded: it is written often and limits nothing.
        let resources = [
            json!({"group": "work.karmada.io", "resources": placed}),
            json!({"group": "scheduling.volcano.sh", "resources": ["queues"]}),
            json!({"group": "muster.io", "resources": ["capacitypolicies"]}),
        ];
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "omitManagedFields": true,
            "rules": [
                {
                    "level": "RequestResponse",
                    "verbs": ["create", "update", "patch", "delete", "deletecollection"],
                    "resources": resources,
                },
                {"level": "None"},
            ],
        });
        let path = self.write_conf("audit-policy.json", &policy.to_string())?;
        Ok(vec![
            flag("audit-policy-file", &path),
            flag("audit-log-path", log),
            // The log is one file of any size.
            "--audit-log-maxsize=100000".into(),
        ])
    }

    pub(super) fn kube_controller_manager(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let port = self.port()?;
        let name = MemberProcess::KubeControllerManager.of(&cluster.name);
        let controllers = match cluster.name.as_str() {
            KARMADA => CONTROL_PLANE_CONTROLLERS,
            _ => MEMBER_CONTROLLERS,
        };
        let mut launch = self.launch(Tool::KubeControllerManager, &name, &[port])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            format!("--controllers={controllers}"),
            "--leader-elect=false".into(),
            flag(
                "service-account-private-key-file",
                &self.pki.service_account_key,
            ),
            flag("root-ca-file", &self.pki.ca),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            "--profiling=false".into(),
            format!("--kube-api-qps={MEMBER_QPS}"),
            format!("--kube-api-burst={MEMBER_BURST}"),
        ];
        if cluster.name == KARMADA {
            // As in a real cluster, each controller has an account with only the rights it needs.
            launch
                .args
                .push("--use-service-account-credentials=true".into());
        }
        Ok(launch)
    }

    pub(super) fn kube_scheduler(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let port = self.port()?;
        let name = MemberProcess::KubeScheduler.of(&cluster.name);
        let config = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": cluster.kubeconfig,
                "qps": MEMBER_QPS,
                "burst": MEMBER_BURST,
            },
            "leaderElection": {"leaderElect": false},
            "enableProfiling": false,
            "enableContentionProfiling": false,
        });
        let path = self.write_conf(&format!("{name}.json"), &config.to_string())?;
        let mut launch = self.launch(Tool::KubeScheduler, &name, &[port])?;
        launch.args = vec![
            flag("config", &path),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            DEVICE_TAINTS.into(),
        ];
        Ok(launch)
    }

    pub(super) fn kwok(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let port = self.port()?;
        let name = MemberProcess::Kwok.of(&cluster.name);
        let stage_dir = self
            .tools
            .module_dir(Toolset::Kwok)?
            .join("kustomize/stage");
        let mut stages = String::new();
        for file in KWOK_STAGES {
            let path = stage_dir.join(file);
            stages.push_str(&fs::read_to_string(&path).map_err(Error::io("read", &path))?);
            stages.push_str("\n---\n");
        }
        stages.push_str(&OWN_STAGES.join("\n---\n"));
        let path = self.write_conf(&format!("{name}-stages.yaml"), &stages)?;
        let mut launch = self.launch(Tool::Kwok, &name, &[port])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            flag("config", &path),
            "--manage-all-nodes=true".into(),
            format!("--server-address=127.0.0.1:{port}"),
            "--v=WARN".into(),
        ];
        Ok(launch)
    }

    pub(super) fn volcano_scheduler(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let (health, metrics) = (self.port()?, self.port()?);
        let name = MemberProcess::VolcanoScheduler.of(&cluster.name);
        // Each member has its own file, because Volcano reloads it whenever it changes.
        let policy = self.write_conf(&format!("{name}.yaml"), VOLCANO_POLICY)?;
        let mut launch = self.launch(Tool::VolcanoScheduler, &name, &[health, metrics])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            flag("scheduler-conf", &policy),
            "--cache-dumper=false".into(),
        ];
        launch.args.extend(volcano_flags(health, metrics));
        Ok(launch)
    }

    pub(super) fn volcano_controllers(&self, cluster: &TestbedCluster) -> Result<Launch> {
        let (health, metrics) = (self.port()?, self.port()?);
        let name = MemberProcess::VolcanoControllers.of(&cluster.name);
        let tool = Tool::VolcanoControllerManager;
        let mut launch = self.launch(tool, &name, &[health, metrics])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            format!("--kube-api-qps={MEMBER_QPS}"),
            format!("--kube-api-burst={MEMBER_BURST}"),
        ];
        launch.args.extend(volcano_flags(health, metrics));
        Ok(launch)
    }

    /// Returns the launch of Volcano's webhook. It waits for minutes for any path that is not
    /// registered, so `admissions` are only the registered ones.
    pub(super) fn volcano_webhook(
        &self,
        cluster: &TestbedCluster,
        admissions: &[&str],
    ) -> Result<Launch> {
        let port = self.port()?;
        let name = MemberProcess::VolcanoWebhook.of(&cluster.name);
        let mut launch = self.launch(Tool::VolcanoWebhookManager, &name, &[port])?;
        launch.args = vec![
            flag("kubeconfig", &cluster.kubeconfig),
            flag("ca-cert-file", &self.pki.ca),
            flag("tls-cert-file", &self.pki.server.cert),
            flag("tls-private-key-file", &self.pki.server.key),
            "--listen-address=127.0.0.1".into(),
            format!("--port={port}"),
            format!("--webhook-url=https://127.0.0.1:{port}"),
            format!("--enabled-admission={}", admissions.join(",")),
        ];
        Ok(launch)
    }

    pub(super) fn karmada_aggregated_apiserver(&self, karmada: &TestbedCluster) -> Result<Launch> {
        let port = self.port()?;
        let tool = Tool::KarmadaAggregatedApiserver;
        let mut launch = self.launch(tool, KARMADA_AGGREGATED_APISERVER, &[port])?;
        launch.args = vec![
            flag("kubeconfig", &karmada.kubeconfig),
            flag("authentication-kubeconfig", &karmada.kubeconfig),
            flag("authorization-kubeconfig", &karmada.kubeconfig),
            format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port),
            "--etcd-prefix=/karmada-aggregated".into(),
            flag("tls-cert-file", &self.pki.server.cert),
            flag("tls-private-key-file", &self.pki.server.key),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
        ];
        Ok(launch)
    }

    pub(super) fn karmada_webhook(&self, karmada: &TestbedCluster) -> Result<Launch> {
        let (port, health) = (self.port()?, self.port()?);
        let mut launch = self.launch(Tool::KarmadaWebhook, KARMADA_WEBHOOK, &[port, health])?;
        launch.args = vec![
            flag("kubeconfig", &karmada.kubeconfig),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            flag("cert-dir", &self.pki.webhook_dir),
            "--metrics-bind-address=0".into(),
            format!("--health-probe-bind-address=127.0.0.1:{health}"),
        ];
        Ok(launch)
    }

    pub(super) fn karmada_controller_manager(
        &self,
        karmada: &TestbedCluster,
        spec: &KarmadaSpec,
    ) -> Result<Launch> {
        let health = self.port()?;
        let tool = Tool::KarmadaControllerManager;
        let mut launch = self.launch(tool, KARMADA_CONTROLLER_MANAGER, &[health])?;
        launch.args = vec![
            flag("kubeconfig", &karmada.kubeconfig),
            "--leader-elect=false".into(),
            "--metrics-bind-address=0".into(),
            format!("--health-probe-bind-address=127.0.0.1:{health}"),
            "--cluster-status-update-frequency=5s".into(),
            // docs/operators/installation.md advises this: no policy selects a PodGroup, but Karmada reads each
            // existing one whenever a policy is created. The value has no kind, because kinds are
            // looked up before the CRD is known, and then nothing would be skipped.
            "--skipped-propagating-apis=scheduling.volcano.sh/v1beta1".into(),
            MULTI_CLUSTER_SERVICES.into(),
        ];
        launch
            .args
            .extend(spec.controller_manager_flags.iter().cloned());
        Ok(launch)
    }

    pub(super) fn karmada_scheduler(
        &self,
        karmada: &TestbedCluster,
        spec: &KarmadaSpec,
    ) -> Result<Launch> {
        let health = self.port()?;
        let mut launch = self.launch(Tool::KarmadaScheduler, KARMADA_SCHEDULER, &[health])?;
        launch.args = vec![
            flag("kubeconfig", &karmada.kubeconfig),
            "--leader-elect=false".into(),
            "--metrics-bind-address=0".into(),
            format!("--health-probe-bind-address=127.0.0.1:{health}"),
        ];
        launch.args.extend(spec.scheduler_flags.iter().cloned());
        Ok(launch)
    }

    /// Returns the launch of the agent of a member in pull mode. It is administrator in the member,
    /// as its own ClusterRole provides, and here on the control plane too.
    pub(super) fn karmada_agent(
        &self,
        member: &TestbedCluster,
        karmada: &TestbedCluster,
    ) -> Result<Launch> {
        let health = self.port()?;
        let name = MemberProcess::KarmadaAgent.of(&member.name);
        let mut launch = self.launch(Tool::KarmadaAgent, &name, &[health])?;
        launch.args = vec![
            flag("kubeconfig", &member.kubeconfig),
            flag("karmada-kubeconfig", &karmada.kubeconfig),
            format!("--karmada-context={KARMADA}"),
            format!("--cluster-name={}", member.name),
            // Karmada's cluster proxy connects to this endpoint.
            format!("--cluster-api-endpoint={}", member.server),
            MULTI_CLUSTER_SERVICES.into(),
            "--cluster-status-update-frequency=5s".into(),
            "--leader-elect=false".into(),
            "--metrics-bind-address=0".into(),
            format!("--health-probe-bind-address=127.0.0.1:{health}"),
        ];
        Ok(launch)
    }

    /// Writes a token file for a member's API server, since Karmada authenticates to members by
    /// bearer token.
    pub(super) fn token_file(&self, member: &MemberSpec, token: &str) -> Result<PathBuf> {
        let line = format!("{token},karmada,karmada,system:masters\n");
        self.write_conf(&format!("{}.tokens", member.name), &line)
    }

    pub(super) fn port(&self) -> Result<u16> {
        self.supervisor.reserve_port()
    }

    pub(super) fn launch(&self, tool: Tool, name: &str, ports: &[u16]) -> Result<Launch> {
        Ok(Launch {
            name: name.to_owned(),
            program: self.tools.program(tool)?,
            args: Vec::new(),
            ports: ports.to_vec(),
        })
    }

    pub(super) fn write_conf(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.conf_dir.join(name);
        crate::pki::write_private(&path, content)?;
        Ok(path)
    }
}

pub(super) fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Returns the flags common to Volcano's two programs. The health port shows when they serve;
/// without it the testbed could not wait for them.
fn volcano_flags(health: u16, metrics: u16) -> [String; 5] {
    [
        "--leader-elect=false".into(),
        "--enable-healthz=true".into(),
        format!("--healthz-address=127.0.0.1:{health}"),
        "--enable-metrics=false".into(),
        format!("--listen-address=127.0.0.1:{metrics}"),
    ]
}
