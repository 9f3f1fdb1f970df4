//! Fleets, which are clusters with their nodes: from YAML, or from the node lists of the Philly and
//! openb traces.

use super::amounts::GPU;
use super::fleet_yaml::read_yaml;
use super::table::CsvTable;
use super::{is_csv, plain};
use crate::error::InputError;
use crate::scenario::Fleet;
use engine::facts::NodeFact;
use engine::resources::ResourceName;
use engine::{Amount, Resources};
use std::collections::BTreeMap;
use std::path::Path;

/// The resource of openb's GPUs, in thousandths, since its tasks request fractions of a GPU. The
/// GPUs of one node are not distinguished.
pub const OPENB_GPU: &str = "alibabacloud.com/gpu-milli";
/// GPUs of a Philly node, the unit of its node list.
const PHILLY_GPUS: i64 = 8;
/// Pod slots of a node, the kubelet's default.
pub(crate) const PODS_PER_NODE: i64 = 110;
/// The node label by which openb tasks select GPU models.
pub(crate) const MODEL_LABEL: &str = "model";

/// Reads a fleet.
///
/// # Errors
/// Returns the first invalid value.
pub fn read_fleet(path: &Path) -> Result<Fleet, InputError> {
    if !is_csv(path) {
        return read_yaml(path);
    }
    let table = CsvTable::read(path)?;
    if table.has(&["vc", "node num"]) {
        philly(&table)
    } else if table.has(&["sn", "cpu_milli", "memory_mib", "gpu", "model"]) {
        openb(&table)
    } else {
        Err(table.unknown_form("vc,node num (Philly); sn,cpu_milli,memory_mib,gpu,model (openb)"))
    }
}

/// Builds one cluster for each virtual cluster, with nodes of 8 GPUs.
fn philly(table: &CsvTable) -> Result<Fleet, InputError> {
    let mut fleet = Fleet::default();
    for row in table.rows() {
        let name = row.text("vc");
        if name.is_empty() {
            return Err(row.place.refuse("vc", name, "a name is needed"));
        }
        fleet.clusters.push(plain::cluster(name));
        for index in 0..row.whole::<u32>("node num")? {
            fleet.nodes.push(NodeFact {
                allocatable: amounts([(GPU, PHILLY_GPUS)]),
                ..plain::node(name, &format!("{name}-{index}"), "gpu")
            });
        }
    }
    Ok(fleet)
}

/// Builds one cluster with a pool for each GPU model.
fn openb(table: &CsvTable) -> Result<Fleet, InputError> {
    let mut fleet = Fleet {
        clusters: vec![plain::cluster("openb")],
        nodes: Vec::new(),
    };
    for row in table.rows() {
        let gpus: i64 = row.whole("gpu")?;
        let model = row.text("model");
        let class = if model.is_empty() {
            "cpu".to_owned()
        } else {
            model.to_ascii_lowercase()
        };
        let mut allocatable = amounts([
            (ResourceName::CPU, row.whole("cpu_milli")?),
            (ResourceName::MEMORY, row.whole::<i64>("memory_mib")? << 20),
        ]);
        if gpus > 0 {
            allocatable.set(ResourceName::new(OPENB_GPU), Amount(gpus * 1000));
        }
        fleet.nodes.push(NodeFact {
            allocatable,
            labels: BTreeMap::from([(MODEL_LABEL.to_owned(), model.to_owned())]),
            ..plain::node("openb", row.text("sn"), &class)
        });
    }
    Ok(fleet)
}

fn amounts<const N: usize>(named: [(&str, i64); N]) -> Resources {
    let pods = (ResourceName::PODS, PODS_PER_NODE);
    let named = named.into_iter().chain([pods]);
    named
        .map(|(name, amount)| (ResourceName::new(name), Amount(amount)))
        .collect()
}
