//! The demo's plane: the clusters with their operators, and Muster installed as on any control
//! plane.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use parking_lot::Mutex;
use testbed::Testbed;
use testbed::operators::training_operator;
use testbed::tools::{self, Tool, Toolset};
use tokio::task::JoinSet;

use super::kubectl::Kubectl;
use super::world::World;
use super::{fleet, watch};
use crate::harness::muster::{self, Muster, ProcessRole};
use crate::harness::objects::Objects;

/// All processes of the demo, which end when this is dropped.
pub(super) struct DemoPlane {
    pub(super) testbed: Testbed,
    pub(super) kubectl: Kubectl,
    pub(super) karmada: Objects,
    /// All observations so far, which watches update.
    pub(super) world: Arc<Mutex<World>>,
    /// GPUs of all clusters.
    pub(super) gpus: u64,
    _watches: JoinSet<()>,
}

impl DemoPlane {
    /// Starts all processes and prints each that becomes ready.
    ///
    /// # Errors
    /// Returns an error if something does not become ready.
    pub(super) async fn start(state: &Path) -> Result<Self> {
        let say = |line: &str| println!("  {line}");
        println!(
            "Three clusters, a Karmada control plane and Muster, as plain processes on this machine:\n"
        );
        let sets = [&Testbed::TOOLSETS[..], &[Toolset::TrainingOperator]].concat();
        let tools = tools::ensure(&sets, &say)?;
        let spec = fleet::spec(&tools)?;
        let gpus = fleet::gpus(&spec);
        let testbed = Testbed::up(spec, state, &tools, &say).await?;
        for member in testbed.members() {
            training_operator::start(&testbed, &tools, &member.name)?;
        }
        let muster = Muster::install(&testbed, muster::program()?, &["--log-format=json"]).await?;
        muster.start(&testbed, ProcessRole::All).await?;
        let karmada = testbed.karmada();
        say(&format!(
            "muster ready; export KUBECONFIG={}\n",
            karmada.kubeconfig.display()
        ));

        let world = Arc::new(Mutex::new(World::default()));
        Ok(Self {
            _watches: watch::spawn(&testbed, &world).await?,
            kubectl: Kubectl {
                program: tools.program(Tool::Kubectl)?,
                kubeconfig: karmada.kubeconfig.clone(),
            },
            karmada: Objects::new(karmada.client().await?),
            testbed,
            world,
            gpus,
        })
    }
}
