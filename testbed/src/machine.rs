//! Real nodes: a container runtime and a kubelet each, which run the programs of their pods.
//!
//! Each node is a machine of its own, as far as its programs see: they have mounts, process ids and a network for pods
//! that nothing else on the host sees (`machine/machine.sh`). These end with the process that made them, and so do all
//! containers, also if the testbed crashes. Only control groups outlive their processes; they are removed at the end,
//! or when a testbed starts again in the same folder.
//!
//! A node is named by the loopback address on which its kubelet serves, since API servers must resolve the name. API
//! server and kubelet authenticate to each other by certificates, and the kubelet asks the API server what a
//! caller may do. The network of pods reaches the pods of the same node, and nothing else.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::Testbed;
use crate::cluster::TestbedCluster;
use crate::components::{Components, flag};
use crate::devices::{DeviceOffer, devices_file};
use crate::error::{Error, Result};
use crate::manifests::Manifests;
use crate::names::NodeProcess;
use crate::nodes::GPU_RESOURCE;
use crate::pki::NodeKeys;
use crate::process::Launch;
use crate::spec::{MemberSpec, RealNodes};
use crate::tools::Tool;
use crate::wait;

/// The folder of the machines within a testbed's.
pub(crate) const MACHINES: &str = "machines";

/// The file that a machine has once its runtime has the images.
const IMPORTED: &str = "images-imported";

/// The parent of all testbeds' control groups.
const CGROUP: &str = "muster-testbed";

/// Where control groups are mounted.
const CGROUP_MOUNT: &str = "/sys/fs/cgroup";

const MACHINE: &str = include_str!("../machine/machine.sh");
const CONTAINERD: &str = include_str!("../machine/containerd.toml");
const BRIDGE: &str = include_str!("../machine/bridge.sh");

/// The plugins that CNI finds besides the bridge, which runs through a script.
const CNI_PLUGINS: [&str; 2] = ["host-local", "loopback"];

/// The first address of nodes; lower ones are in use on some machines.
const FIRST_ADDRESS: u8 = 11;

/// One machine.
struct Machine<'a> {
    cluster: &'a TestbedCluster,
    /// Its number in the member, from 1.
    number: u8,
    address: Ipv4Addr,
    folder: PathBuf,
    programs: PathBuf,
}

impl Testbed {
    /// Returns the name of a real node of a member, by its number from 1; it is the node's address too.
    ///
    /// # Errors
    /// Returns an error if there is no such member or node.
    pub fn real_node(&self, member: &str, number: u8) -> Result<String> {
        let names = self.real_names(member)?;
        let index = usize::from(number).saturating_sub(1);
        let count = names.len();
        names.into_iter().nth(index).ok_or_else(|| {
            Error::Spec(format!(
                "{member} has {count} real nodes, and none of number {number}"
            ))
        })
    }

    /// Returns the flags with which an API server calls kubelets, and lets them say of a pod how well its devices are.
    pub(super) fn kubelet_flags(&self) -> [String; 5] {
        let pki = &self.pki;
        [
            // A kubelet accepts no loopback address as that of its node, but as its name.
            "--kubelet-preferred-address-types=Hostname".into(),
            flag("kubelet-certificate-authority", &pki.ca),
            flag("kubelet-client-certificate", &pki.kubelet_client.cert),
            flag("kubelet-client-key", &pki.kubelet_client.key),
            "--feature-gates=ResourceHealthStatus=true".into(),
        ]
    }

    /// Starts the runtimes and kubelets of a member; the kubelets create the nodes. Returns their names.
    pub(super) async fn start_machines(
        &self,
        client: &Client,
        cluster: &TestbedCluster,
        member: &MemberSpec,
    ) -> Result<Vec<String>> {
        let Some(real) = &member.real_nodes else {
            return Ok(Vec::new());
        };
        node_rights()?.apply(client, &cluster.name).await?;
        let programs = self.tools.program(Tool::Containerd)?;
        let programs = programs.parent().unwrap_or(Path::new("/")).to_owned();
        let names = self.real_names(&member.name)?;
        for (name, number) in names.iter().zip(1..) {
            let address = name.parse().unwrap_or(Ipv4Addr::LOCALHOST);
            let machine = Machine {
                cluster,
                number,
                address,
                folder: self.machine_folder(&cluster.name, number),
                programs: programs.clone(),
            };
            machine.lay_out()?;
            let cgroup = cgroup_of(&self.dir).join(format!("{}-{number}", cluster.name));
            self.spawn(machine.runtime(&cgroup))?;
            let runtime = machine.process(NodeProcess::Containerd);
            self.wait_runtime(&runtime, &machine.folder).await?;
            let keys = self.pki.node(&cluster.name, address)?;
            self.spawn(machine.kubelet(&self.components(), &keys, real)?)?;
            if real.gpus > 0 {
                let file = devices_file(&machine.folder);
                DeviceOffer::of(real.gpus).write(&file)?;
                let plugin = self.tools.program(Tool::DevicePlugin)?;
                self.spawn(machine.device_plugin(&plugin, &file))?;
            }
        }
        Ok(names)
    }

    /// Returns the addresses of a member's nodes. They differ from those of other members, as names of nodes do.
    fn real_names(&self, member: &str) -> Result<Vec<String>> {
        self.cluster(member)?;
        let members = self.members_with_real_nodes.lock();
        let mut first = FIRST_ADDRESS;
        for (name, count) in members.iter() {
            if name == member {
                let addresses = (0..*count).map(|index| Ipv4Addr::new(127, 0, 0, first + index));
                return Ok(addresses.map(|address| address.to_string()).collect());
            }
            first = first.saturating_add(*count);
        }
        Ok(Vec::new())
    }

    /// Returns the node whose container runtime has this process name.
    pub(super) fn node_with_runtime(&self, process: &str) -> Option<(String, u8)> {
        let members = self.members_with_real_nodes.lock();
        let mut numbers = members
            .iter()
            .flat_map(|(member, count)| (1..=*count).map(move |number| (member, number)));
        let found =
            numbers.find(|(member, number)| NodeProcess::Containerd.of(member, *number) == process);
        found.map(|(member, number)| (member.clone(), number))
    }

    /// Restarts a container runtime, and then what has joined the mounts that ended with it.
    pub(super) async fn restart_machine(&self, member: &str, number: u8) -> Result<()> {
        let folder = self.machine_folder(member, number);
        let _ = fs::remove_file(folder.join(IMPORTED));
        let runtime = NodeProcess::Containerd.of(member, number);
        self.supervisor.restart(&runtime)?;
        self.wait_runtime(&runtime, &folder).await?;
        let processes = self.supervisor.status();
        for process in [NodeProcess::Kubelet, NodeProcess::DevicePlugin] {
            let name = process.of(member, number);
            if processes.iter().any(|process| process.name == name) {
                self.supervisor.restart(&name)?;
                wait::serving(&self.supervisor, &name).await?;
            }
        }
        self.record(|_| ())
    }

    /// Returns the disk of a node.
    pub(super) fn machine_folder(&self, member: &str, number: u8) -> PathBuf {
        self.dir.join(MACHINES).join(format!("{member}-{number}"))
    }

    async fn wait_runtime(&self, process: &str, folder: &Path) -> Result<()> {
        let imported = folder.join(IMPORTED);
        let what = format!("{process} has its images");
        wait::until(&self.supervisor, process, &what, || async {
            match imported.exists() {
                true => Ok(()),
                false => Err("not imported yet".to_owned()),
            }
        })
        .await
    }
}

impl Machine<'_> {
    fn process(&self, process: NodeProcess) -> String {
        process.of(&self.cluster.name, self.number)
    }

    /// Creates the machine's disk.
    fn lay_out(&self) -> Result<()> {
        for folder in ["lib/kubelet", "log", "cni/bin", "cni/conf"] {
            let path = self.folder.join(folder);
            fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        let programs = self.programs.display().to_string();
        let containerd = CONTAINERD
            .replace("PAUSE_IMAGE", crate::tools::PAUSE_IMAGE)
            .replace("PROGRAMS", &programs)
            .replace("FOLDER", &self.folder.display().to_string());
        self.write("containerd.toml", &containerd, 0o644)?;
        self.write("machine.sh", MACHINE, 0o755)?;
        let bridge = BRIDGE.replace("PROGRAMS", &programs);
        self.write("cni/bin/bridge", &bridge, 0o755)?;
        for plugin in CNI_PLUGINS {
            let link = self.folder.join("cni/bin").join(plugin);
            symlink(self.programs.join(plugin), &link).map_err(Error::io("create", &link))?;
        }
        let subnet = format!("10.88.{}.0/24", self.address.octets()[3]);
        let network = json!({"cniVersion": "1.0.0", "name": "pods", "plugins": [{
            "type": "bridge",
            "bridge": "pods",
            "isGateway": true,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": subnet}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }]});
        self.write("cni/conf/pods.conflist", &network.to_string(), 0o644)
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).map_err(Error::io("write", &path))?;
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(&path, mode).map_err(Error::io("change", &path))
    }

    fn script(&self, process: NodeProcess, args: Vec<String>, ports: Vec<u16>) -> Launch {
        Launch {
            name: self.process(process),
            program: self.folder.join("machine.sh"),
            args,
            ports,
        }
    }

    fn runtime(&self, cgroup: &Path) -> Launch {
        let paths = [&self.folder, &self.programs, cgroup].map(|path| path.display().to_string());
        let args = std::iter::once("start".to_owned()).chain(paths);
        self.script(NodeProcess::Containerd, args.collect(), Vec::new())
    }

    fn kubelet(
        &self,
        components: &Components<'_>,
        keys: &NodeKeys,
        real: &RealNodes,
    ) -> Result<Launch> {
        let (health, port) = (components.port()?, components.port()?);
        let name = self.process(NodeProcess::Kubelet);
        let config = self.kubelet_config(components, keys, [health, port]);
        let config = components.write_conf(&format!("{name}.json"), &config.to_string())?;
        let kubeconfig = self.kubeconfig(components, keys);
        let kubeconfig =
            components.write_conf(&format!("{name}.kubeconfig"), &kubeconfig.to_string())?;
        let labels = real
            .labels
            .iter()
            .map(|(key, value)| format!("{key}={value}"));
        let labels: Vec<String> = labels.collect();
        let args = vec![
            "join".into(),
            self.folder.display().to_string(),
            components
                .tools
                .program(Tool::Kubelet)?
                .display()
                .to_string(),
            flag("config", &config),
            flag("kubeconfig", &kubeconfig),
            format!("--hostname-override={}", self.address),
            format!("--node-labels={}", labels.join(",")),
        ];
        Ok(self.script(NodeProcess::Kubelet, args, vec![health, port]))
    }

    fn device_plugin(&self, program: &Path, file: &Path) -> Launch {
        let args = vec![
            "join".into(),
            self.folder.display().to_string(),
            program.display().to_string(),
            format!("--resource={GPU_RESOURCE}"),
            flag("devices", file),
        ];
        self.script(NodeProcess::DevicePlugin, args, Vec::new())
    }

    fn kubelet_config(
        &self,
        components: &Components<'_>,
        keys: &NodeKeys,
        [health, port]: [u16; 2],
    ) -> serde_json::Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": false},
                "webhook": {"enabled": true},
                "x509": {"clientCAFile": components.pki.ca},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": keys.server.cert,
            "tlsPrivateKeyFile": keys.server.key,
            "address": self.address.to_string(),
            "port": port,
            "readOnlyPort": 0,
            // With leases of a quarter of the usual duration, the node controller may wait for less, too.
            "nodeLeaseDurationSeconds": 10,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": health,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            // Containers have control groups, which enforce their limits; pods have none of their own.
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "featureGates": {"ResourceHealthStatus": true},
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            // The disk is the host's, and its other contents are not the node's to remove.
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "resolvConf": "",
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        })
    }

    fn kubeconfig(&self, components: &Components<'_>, keys: &NodeKeys) -> serde_json::Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": self.cluster.name, "cluster": {
                "server": self.cluster.server,
                "certificate-authority": components.pki.ca,
            }}],
            "users": [{"name": "kubelet", "user": {
                "client-certificate": keys.client.cert,
                "client-key": keys.client.key,
            }}],
            "contexts": [{"name": "kubelet", "context": {"cluster": self.cluster.name, "user": "kubelet"}}],
            "current-context": "kubelet",
        })
    }
}

/// Lets nodes do what kubelets do, in any namespace.
fn node_rights() -> Result<Manifests> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "testbed-nodes"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}],
    });
    Manifests::literal("rights of nodes", vec![binding])
}

/// Returns the control group of the testbed in `dir`, below the root of each hierarchy.
fn cgroup_of(dir: &Path) -> PathBuf {
    let hash = Sha256::digest(dir.as_os_str().as_encoded_bytes());
    let hash: String = hash
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    Path::new(CGROUP).join(hash)
}

/// Removes the control groups of the testbed in `dir`, whose processes have been killed, in each hierarchy.
pub(crate) fn remove_cgroups(dir: &Path) {
    let name = cgroup_of(dir);
    let mount = Path::new(CGROUP_MOUNT);
    let hierarchies = fs::read_dir(mount).into_iter().flatten().flatten();
    let roots = hierarchies
        .map(|hierarchy| hierarchy.path())
        .chain([mount.to_owned()]);
    for group in roots
        .map(|root| root.join(&name))
        .filter(|group| group.exists())
    {
        let end = Instant::now() + Duration::from_secs(5);
        // The kernel still ends the last processes.
        while remove_group(&group).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        // That of all testbeds goes with the last of them.
        let _ = group.parent().map(fs::remove_dir);
    }
}

/// Removes a control group and those in it. Their files cannot be removed, and need not be.
fn remove_group(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_group(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}
