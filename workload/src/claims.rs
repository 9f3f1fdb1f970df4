//! Devices that pods claim (Dynamic Resource Allocation, `resource.k8s.io/v1`).
//!
//! A pod names ResourceClaimTemplates; from each the member creates a claim for that pod alone. The content
//! of a template is in another object, so a size is read in two steps: each named template counts as one
//! unit of a placeholder resource with its name, which is summed like any other; [`resolved`] replaces it
//! by the claimed devices.

use crate::error::SpecError;
use crate::field::Field;
use facts::{Amount, ResourceName, Resources};
use serde_json::Value;

/// Prefix of the placeholder resource of a template. No API server accepts a resource with this name.
const NAMED: &str = "claims of ResourceClaimTemplate ";

/// The devices that a ResourceClaimTemplate claims for one pod, by class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedDevices(Result<Resources, SpecError>);

/// Returns what `template`, a ResourceClaimTemplate, claims for one pod.
#[must_use]
pub fn claimed_devices(template: &Value) -> ClaimedDevices {
    ClaimedDevices(of_template(&Field::root(template)))
}

/// Returns what a pod of `spec` claims: one unit of each template for each time that it is named.
///
/// # Errors
/// Returns an error if it uses an existing claim: other pods may use it too, so that its devices belong to
/// no single pod.
pub(crate) fn named_by(spec: &Field<'_>) -> Result<Resources, SpecError> {
    let mut named = Resources::new();
    for claim in spec.get("resourceClaims")?.items()? {
        let shared = claim.get("resourceClaimName")?;
        if let Some(name) = shared.name()? {
            let why = format!(
                "ResourceClaim {name} may be shared, and its devices cannot be counted for one pod; name a ResourceClaimTemplate instead"
            );
            return Err(SpecError::uncounted(shared.path(), why));
        }
        let template = claim.get("resourceClaimTemplateName")?;
        let name = template
            .name()?
            .ok_or_else(|| template.invalid("the name of a ResourceClaimTemplate"))?;
        let unit = ResourceName::new(format!("{NAMED}{name}"));
        let times = Amount(named.amount_of(&unit).0.saturating_add(1));
        named.set(unit, times);
    }
    Ok(named)
}

/// Returns the templates in `request`.
pub(crate) fn templates(request: &Resources) -> impl Iterator<Item = &str> {
    request
        .iter()
        .filter_map(|(name, _)| name.as_str().strip_prefix(NAMED))
}

/// Returns `request` with its templates replaced by the devices that `of` finds.
///
/// # Errors
/// Returns an error if a template is not found, or claims devices that cannot be counted.
pub(crate) fn resolved<'a>(
    request: &Resources,
    of: &dyn Fn(&str) -> Option<&'a ClaimedDevices>,
) -> Result<Resources, SpecError> {
    let mut whole = Resources::new();
    for (name, amount) in request.iter() {
        let part = match name.as_str().strip_prefix(NAMED) {
            None => Some([(name.clone(), amount)].into_iter().collect()),
            Some(template) => times(&claimed(template, of)?, amount),
        };
        whole = part
            .and_then(|part| whole.checked_add(&part))
            .ok_or_else(|| SpecError::too_large("", "what its ResourceClaimTemplates claim"))?;
    }
    Ok(whole)
}

/// Returns `request` without its templates.
pub(crate) fn left_out(request: &Resources) -> Resources {
    let is_known = |name: &ResourceName| !name.as_str().starts_with(NAMED);
    let known = request.iter().filter(|(name, _)| is_known(name));
    known.map(|(name, amount)| (name.clone(), amount)).collect()
}

fn times(devices: &Resources, amount: Amount) -> Option<Resources> {
    devices.checked_mul(u32::try_from(amount.0).ok()?)
}

fn claimed<'a>(
    template: &str,
    of: &dyn Fn(&str) -> Option<&'a ClaimedDevices>,
) -> Result<Resources, SpecError> {
    let field = format!("ResourceClaimTemplate {template}");
    match of(template) {
        None => {
            let why = "it was not found in the job's namespace: it is missing, or Muster may not read resourceclaimtemplates (resource.k8s.io/v1)";
            Err(SpecError::uncounted(&field, why))
        }
        Some(ClaimedDevices(Ok(devices))) => Ok(devices.clone()),
        Some(ClaimedDevices(Err(error))) => Err(SpecError::uncounted(&field, error.to_string())),
    }
}

fn of_template(template: &Field<'_>) -> Result<Resources, SpecError> {
    let requests = template.get("spec.spec.devices.requests")?;
    let mut devices = Resources::new();
    for request in requests.items()? {
        let Some((class, count)) = of_request(&request)? else {
            continue;
        };
        let more = [(ResourceName::of_device_class(class), count)];
        devices = devices
            .checked_add(&more.into_iter().collect())
            .ok_or_else(|| SpecError::too_large(requests.path(), "all its devices"))?;
    }
    Ok(devices)
}

/// Returns the class and number of devices of one request; `None` if it takes no device from others.
fn of_request<'a>(request: &Field<'a>) -> Result<Option<(&'a str, Amount)>, SpecError> {
    let exactly = request.get("exactly")?;
    if !exactly.is_set() {
        let either = request.get("firstAvailable")?;
        let why = "which of its alternatives is taken, and so how many devices of which class, is known in the member only; use `exactly`";
        return Err(SpecError::uncounted(either.path(), why));
    }
    let mode = exactly.get("allocationMode")?;
    match mode.name()? {
        None | Some("ExactCount") => {}
        Some(other) => {
            let why = format!(
                "with {other:?} the number of devices is known in the member only; use ExactCount"
            );
            return Err(SpecError::uncounted(mode.path(), why));
        }
    }
    let part = exactly.get("capacity")?;
    if part.is_set() {
        let why = "parts of devices that many share cannot be counted as devices";
        return Err(SpecError::uncounted(part.path(), why));
    }
    // Administrative access does not take a device from its users.
    if exactly.get("adminAccess")?.flag()? {
        return Ok(None);
    }
    let class = exactly.get("deviceClassName")?;
    let name = class
        .name()?
        .ok_or_else(|| class.invalid("the name of a DeviceClass"))?;
    let count = exactly.get("count")?.count()?.unwrap_or(1);
    Ok(Some((name, Amount(i64::from(count)))))
}

#[cfg(test)]
mod tests;
