//! The size that Karmada's interpreter writes into a binding.

use crate::error::SpecError;
use crate::field::Field;
use crate::kinds::batch::MAIN;
use crate::nodes;
use crate::pod::PodRequirements;
use crate::size::Size;
use facts::Role;

/// Returns the size in the `spec` of a binding, if there is one.
pub(crate) fn size(spec: &Field<'_>) -> Result<Option<Size>, SpecError> {
    let components = spec.get("components")?;
    if !components.items()?.is_empty() {
        return of_components(&components).map(Some);
    }
    let requirements = spec.get("replicaRequirements")?;
    if !requirements.is_set() {
        return Ok(None);
    }
    let replicas = spec.get("replicas")?.count()?.unwrap_or(0);
    let role = role(MAIN, replicas, &requirements)?;
    let size = Size::gang(spec, vec![role], replicas)?;
    Ok(Some(Size {
        priority_class: priority_class(&requirements)?,
        ..size
    }))
}

fn of_components(components: &Field<'_>) -> Result<Size, SpecError> {
    let mut roles = Vec::new();
    let mut class = None;
    for component in components.items()? {
        let name = component.get("name")?;
        let name = name.name()?.ok_or_else(|| name.invalid("a name"))?;
        let replicas = component.get("replicas")?.count()?.unwrap_or(0);
        let requirements = component.get("replicaRequirements")?;
        if class.is_none() {
            class = priority_class(&requirements)?;
        }
        roles.push(role(name, replicas, &requirements)?);
    }
    // Sorted, because an interpreter that iterates over a map returns components in any order.
    roles.sort_by(|a, b| a.name.cmp(&b.name));
    let pods = roles
        .iter()
        .fold(0_u32, |sum, role| sum.saturating_add(role.count));
    Ok(Size {
        priority_class: class,
        ..Size::gang(components, roles, pods)?
    })
}

fn role(name: &str, replicas: u32, requirements: &Field<'_>) -> Result<Role, SpecError> {
    let claim = requirements.get("nodeClaim")?;
    let request = requirements.get("resourceRequest")?.resources()?;
    let terms = nodes::merged(
        &claim.get("nodeSelector")?,
        &claim.get("hardNodeAffinity")?,
        None,
    )?;
    let tolerations = nodes::tolerations(&claim.get("tolerations")?)?;
    PodRequirements::with(requirements.path(), request, terms, tolerations)
        .role(name, replicas, replicas)
}

fn priority_class(requirements: &Field<'_>) -> Result<Option<String>, SpecError> {
    Ok(requirements
        .get("priorityClassName")?
        .name()?
        .map(str::to_owned))
}
