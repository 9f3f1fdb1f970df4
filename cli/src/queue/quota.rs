//! The quota of a queue in devices, as cells of a table.

use super::Shown;
use crds::capacity_policy::ResourceUse;
use crds::loose::QuantityText;
use crds::queue::Queue;
use engine::ResourceName;

/// Returns an amount of each kind of device of a queue, side by side: a sum over kinds means nothing.
pub(super) fn devices(
    queue: &Shown,
    amount: impl Fn(&ResourceUse) -> Option<&QuantityText>,
) -> String {
    let status = queue.policy.status.iter();
    let resources = status.flat_map(|status| &status.resources);
    let devices = resources.filter(|used| is_device(&used.name));
    let amounts: Vec<&str> = devices
        .filter_map(|used| Some(amount(used)?.0.as_str()))
        .collect();
    amounts.join(",")
}

/// Returns what the queue is guaranteed of each kind of device.
pub(super) fn guaranteed_devices(queue: &Shown) -> String {
    let guarantee = queue
        .queue
        .as_ref()
        .and_then(|queue| queue.spec.guarantee.as_ref());
    let stated = guarantee.iter().flat_map(|guarantee| &guarantee.resource);
    let devices = stated.filter(|(name, _)| is_device(name));
    let amounts: Vec<&str> = devices.map(|(_, amount)| amount.0.as_str()).collect();
    amounts.join(",")
}

/// Returns what the queue is guaranteed of a resource.
pub(super) fn guaranteed<'a>(queue: Option<&'a Queue>, resource: &str) -> Option<&'a QuantityText> {
    let guarantee = queue?.spec.guarantee.as_ref()?;
    guarantee.resource.get(resource)
}

fn is_device(resource: &str) -> bool {
    ResourceName::new(resource).is_device()
}
