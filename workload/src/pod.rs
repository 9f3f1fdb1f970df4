//! What one pod asks of a node: the pod spec, by Kubernetes' own rules
//! (k8s.io/component-helpers `resource.PodRequests`, with the defaults that the API server
//! sets on the pods made from a template).

use crate::claims;
use crate::error::SpecError;
use crate::field::Field;
use crate::nodes;
use engine::Resources;
use engine::facts::Role;
use engine::matching::{NodeTerm, Toleration};
use engine::quantity::Amount;
use engine::resources::ResourceName;

/// What a pod asks for.
#[derive(Debug, Clone)]
pub(crate) struct PodRequirements {
    /// Where its spec stands in the template, for errors.
    path: String,
    pub(crate) request: Resources,
    node_terms: Vec<NodeTerm>,
    tolerations: Vec<Toleration>,
    pub(crate) priority_class: Option<String>,
}

impl PodRequirements {
    /// Reads a pod spec.
    pub(crate) fn read(spec: &Field<'_>) -> Result<Self, SpecError> {
        Ok(Self {
            path: spec.path().to_owned(),
            request: request(spec)?,
            node_terms: nodes::terms(spec)?,
            tolerations: nodes::tolerations(&spec.get("tolerations")?)?,
            priority_class: spec.get("priorityClassName")?.name()?.map(str::to_owned),
        })
    }

    /// The pod that requests `request` and may run anywhere its claim allows.
    pub(crate) fn with(
        path: &str,
        request: Resources,
        terms: Vec<NodeTerm>,
        tolerations: Vec<Toleration>,
    ) -> Self {
        Self {
            path: path.to_owned(),
            request: one_pod(request),
            node_terms: terms,
            tolerations,
            priority_class: None,
        }
    }

    /// The pod with the request of one more container that runs beside the others.
    pub(crate) fn and(mut self, container: &Resources) -> Result<Self, SpecError> {
        self.request = plus(&self.path, &self.request, container)?;
        Ok(self)
    }

    /// `count` of it, of which the job needs `min` to start.
    ///
    /// # Errors
    /// Where all of them together cannot be counted.
    pub(crate) fn role(
        self,
        name: impl Into<String>,
        count: u32,
        min: u32,
    ) -> Result<Role, SpecError> {
        if self.request.checked_mul(count).is_none() {
            let what = format!("{count} pods of {}", self.request);
            return Err(SpecError::too_large(&self.path, what));
        }
        Ok(Role {
            name: name.into(),
            count,
            min,
            request: self.request,
            node_terms: self.node_terms,
            tolerations: self.tolerations,
        })
    }
}

/// What a pod of `spec` requests: the most it needs at any time, and one `pods`.
fn request(spec: &Field<'_>) -> Result<Resources, SpecError> {
    let containers = spec.get("containers")?;
    if containers.items()?.is_empty() {
        return Err(containers.invalid("at least one container"));
    }
    let mut running = Resources::new();
    for container in containers.items()? {
        running = plus(spec.path(), &running, &container_request(&container)?)?;
    }
    // Init containers run one by one, each beside the sidecars that were started before it.
    let mut sidecars = Resources::new();
    let mut starting = Resources::new();
    for container in spec.get("initContainers")?.items()? {
        let own = container_request(&container)?;
        if container.get("restartPolicy")?.text()? == Some("Always") {
            running = plus(spec.path(), &running, &own)?;
            sidecars = plus(spec.path(), &sidecars, &own)?;
            starting = Resources::max(&starting, &sidecars);
        } else {
            starting = Resources::max(&starting, &plus(spec.path(), &sidecars, &own)?);
        }
    }
    let of_containers = Resources::max(&running, &starting);
    let of_pod = pod_level(&spec.get("resources")?, of_containers)?;
    let with_overhead = plus(spec.path(), &of_pod, &spec.get("overhead")?.resources()?)?;
    // Claims are the pod's, whichever of its containers use them.
    Ok(one_pod(plus(
        spec.path(),
        &with_overhead,
        &claims::named_by(spec)?,
    )?))
}

/// What a container requests; its limits count where it names no request, per resource.
pub(crate) fn container_request(container: &Field<'_>) -> Result<Resources, SpecError> {
    requirements(&container.get("resources")?)
}

/// A `ResourceRequirements`: requests, and limits where requests are absent.
pub(crate) fn requirements(resources: &Field<'_>) -> Result<Resources, SpecError> {
    let mut requests = resources.get("requests")?.resources()?;
    for (name, amount) in resources.get("limits")?.resources()?.iter() {
        if requests.get(name).is_none() {
            requests.set(name.clone(), amount);
        }
    }
    Ok(requests)
}

/// Resources of the pod as a whole (KEP-2837) stand above what its containers add up to. A
/// limit of the pod is its request only where no container requests the resource; huge pages
/// cannot be overcommitted, so for them it always is.
fn pod_level(resources: &Field<'_>, mut of_containers: Resources) -> Result<Resources, SpecError> {
    let requests = resources.get("requests")?.resources()?;
    for (name, limit) in resources.get("limits")?.resources()?.iter() {
        let is_huge = name.as_str().starts_with("hugepages-");
        if is_pod_level(name) && (is_huge || of_containers.get(name).is_none()) {
            of_containers.set(name.clone(), limit);
        }
    }
    for (name, amount) in requests.iter().filter(|(name, _)| is_pod_level(name)) {
        of_containers.set(name.clone(), amount);
    }
    Ok(of_containers)
}

fn is_pod_level(name: &ResourceName) -> bool {
    matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY)
        || name.as_str().starts_with("hugepages-")
}

/// `request` with one `pods`, and without what it requests none of.
fn one_pod(request: Resources) -> Resources {
    let mut request: Resources = request
        .iter()
        .filter(|(_, amount)| *amount != Amount::ZERO)
        .map(|(name, amount)| (name.clone(), amount))
        .collect();
    request.set(ResourceName::new(ResourceName::PODS), Amount(1));
    request
}

fn plus(path: &str, sum: &Resources, more: &Resources) -> Result<Resources, SpecError> {
    sum.checked_add(more)
        .ok_or_else(|| SpecError::too_large(path, format!("{sum} and {more}")))
}

#[cfg(test)]
mod tests;
