//! What one pod requests from a node, from its pod spec, by Kubernetes' own rules (k8s.io/component-helpers
//! `resource.PodRequests`, with the defaults that the API server sets on the pods of a template).

use crate::claims;
use crate::error::SpecError;
use crate::field::Field;
use crate::nodes;
use crate::pod_shape::{ContainerShape, PodShape};
use facts::matching::{NodeTerm, Toleration};
use facts::{Amount, ResourceName, Resources, Role};

/// What a pod requests.
#[derive(Debug, Clone)]
pub(crate) struct PodRequirements {
    /// The path of its spec in the template, for errors.
    path: String,
    pub(crate) request: Resources,
    node_terms: Vec<NodeTerm>,
    tolerations: Vec<Toleration>,
    pub(crate) priority_class: Option<String>,
}

impl PodRequirements {
    /// Reads a pod spec.
    pub(crate) fn read(spec: &Field<'_>) -> Result<Self, SpecError> {
        Self::read_with(spec, None)
    }

    /// Reads a pod spec whose pods get one more init container from their operator.
    pub(crate) fn read_with(
        spec: &Field<'_>,
        added: Option<&ContainerShape>,
    ) -> Result<Self, SpecError> {
        Ok(Self {
            path: spec.path().to_owned(),
            request: request(spec, added)?,
            node_terms: nodes::terms(spec)?,
            tolerations: nodes::tolerations(&spec.get("tolerations")?)?,
            priority_class: spec.get("priorityClassName")?.name()?.map(str::to_owned),
        })
    }

    /// Returns a pod that requests `request` and may run anywhere as far as its claims allow.
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

    /// Returns the pod with the request of one more container that runs besides the others.
    pub(crate) fn and(mut self, container: &Resources) -> Result<Self, SpecError> {
        self.request = plus(&self.path, &self.request, container)?;
        Ok(self)
    }

    /// Returns a role of `count` such pods, of which the job needs `min` to start.
    ///
    /// # Errors
    /// Returns an error if the sum overflows.
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
            min,
            node_terms: self.node_terms,
            tolerations: self.tolerations,
            ..Role::of(name, count, self.request)
        })
    }
}

/// Returns what a pod of `spec` requests: the most that it needs at any time, and one `pods`.
fn request(spec: &Field<'_>, added: Option<&ContainerShape>) -> Result<Resources, SpecError> {
    let of_pod = PodShape::read(spec, added)?.request()?;
    // Claims belong to the pod, whichever of its containers use them.
    let claims = claims::named_by(spec)?;
    Ok(one_pod(plus(spec.path(), &of_pod, &claims)?))
}

/// Returns what a container requests; per resource, its limit counts if it has no request.
pub(crate) fn container_request(container: &Field<'_>) -> Result<Resources, SpecError> {
    requirements(&container.get("resources")?)
}

/// Reads a `ResourceRequirements`: requests, and limits of resources without a request.
pub(crate) fn requirements(resources: &Field<'_>) -> Result<Resources, SpecError> {
    let mut requests = resources.get("requests")?.resources()?;
    for (name, amount) in resources.get("limits")?.resources()?.iter() {
        if requests.get(name).is_none() {
            requests.set(name.clone(), amount);
        }
    }
    Ok(requests)
}

/// Returns a request of CPU, in thousandths, and memory, in bytes.
pub(crate) fn cpu_and_memory(milli: i64, bytes: i64) -> Resources {
    [(ResourceName::CPU, milli), (ResourceName::MEMORY, bytes)]
        .map(|(name, amount)| (ResourceName::new(name), Amount(amount)))
        .into_iter()
        .collect()
}

/// Returns `request` with one `pods`, and without zero amounts.
fn one_pod(request: Resources) -> Resources {
    let mut request: Resources = request
        .iter()
        .filter(|(_, amount)| *amount != Amount::ZERO)
        .map(|(name, amount)| (name.clone(), amount))
        .collect();
    request.set(ResourceName::new(ResourceName::PODS), Amount(1));
    request
}

/// Returns the sum of two requests in the pod spec at `path`.
pub(crate) fn plus(path: &str, sum: &Resources, more: &Resources) -> Result<Resources, SpecError> {
    sum.checked_add(more)
        .ok_or_else(|| SpecError::too_large(path, format!("{sum} and {more}")))
}

#[cfg(test)]
mod tests;
