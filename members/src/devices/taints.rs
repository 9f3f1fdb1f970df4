//! Taints of devices, as conditions of their nodes.

use crds::devices::{Device, DeviceTaint};
use crds::node_health::{DEVICE_TAINT, NodeCondition};
use facts::faults::Symptom;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most devices with a taint that are named.
const NAMED_DEVICES: usize = 8;

/// Devices with a taint of one key: what is said of each, and the taint.
type TaintedDevices<'a> = Vec<(String, &'a DeviceTaint)>;

/// Returns the taints of devices as conditions of their nodes, each key once: those of their slices, and those that
/// rules give them. A taint counts since it was last added.
pub(super) fn of<'a>(
    devices: impl Iterator<Item = (Arc<str>, &'a Device, &'a [&'a DeviceTaint])>,
) -> BTreeMap<Arc<str>, Vec<NodeCondition>> {
    let mut found: BTreeMap<Arc<str>, BTreeMap<String, TaintedDevices<'_>>> = BTreeMap::new();
    for (node, device, ruled) in devices {
        for taint in device.taints.iter().chain(ruled.iter().copied()) {
            let keys = found.entry(Arc::clone(&node)).or_default();
            let devices = keys.entry(taint.key.clone()).or_default();
            let value = match taint.value.as_str() {
                "" => String::new(),
                value => format!(": {value}"),
            };
            devices.push((format!("{}{value}", device.name), taint));
        }
    }
    let condition = |(key, mut devices): (String, TaintedDevices<'_>)| {
        devices.sort_by(|a, b| a.0.cmp(&b.0));
        let since = devices.iter().filter_map(|(_, taint)| taint.time_added);
        let since = since.max();
        // A taint of the slice may be one of a rule too.
        devices.dedup_by(|a, b| a.0 == b.0);
        let more = devices.len().saturating_sub(NAMED_DEVICES);
        let named = devices.iter().take(NAMED_DEVICES);
        let named: Vec<&str> = named.map(|(said, _)| said.as_str()).collect();
        let named = named.join(", ");
        let message = match more {
            0 => named,
            more => format!("{named} and {more} more"),
        };
        NodeCondition {
            symptom: Symptom {
                reason: format!("{DEVICE_TAINT}{key}"),
                message,
                exit_code: None,
            },
            since,
        }
    };
    let nodes = found.into_iter();
    nodes
        .map(|(node, keys)| (node, keys.into_iter().map(condition).collect()))
        .collect()
}
