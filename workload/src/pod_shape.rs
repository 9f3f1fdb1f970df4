//! The resources in a pod spec, container by container, as far as they decide what the pod requests: what a
//! member adds to it is added to this, so that a template itself need not be kept.

use crate::error::SpecError;
use crate::field::Field;
use crate::{kinds, pod, pod_specs};
use facts::{ResourceName, Resources};
use serde_json::Value;

/// What the containers of a pod request, and how they run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodShape {
    /// The role of the pod.
    pub(crate) role: String,
    /// The path of its spec in the template, for errors.
    path: String,
    pub(crate) containers: Vec<ContainerShape>,
    /// Requests and limits of the pod as a whole (KEP-2837), which override the sums of its containers.
    pod_requests: Resources,
    pod_limits: Resources,
    /// What its runtime needs besides its containers.
    pub(crate) overhead: Resources,
    /// Its RuntimeClass.
    pub(crate) runtime_class: Option<String>,
    /// Its PriorityClass.
    pub(crate) priority_class: Option<String>,
    /// True if it has an `activeDeadlineSeconds`.
    pub(crate) has_deadline: bool,
}

/// One container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContainerShape {
    runs: ContainerRuns,
    /// Its requests; a limit without a request is its request.
    pub(crate) requests: Resources,
    pub(crate) limits: Resources,
}

/// When a container runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContainerRuns {
    /// With the other containers.
    Together,
    /// Before them, alone but for the sidecars that were started before it.
    First,
    /// From its turn among the init containers to the end.
    Sidecar,
}

/// The init container that the operator of a job adds to pods of some roles, after those of the template. It is in no
/// template, and yet the pods request it.
#[derive(Debug, Clone)]
pub(crate) struct AddedInit {
    container: ContainerShape,
    has_it: fn(&str) -> bool,
}

impl AddedInit {
    /// Returns one that requests `requests`, in the pods of each role for which `has_it` returns true.
    pub(crate) fn new(requests: Resources, limits: Resources, has_it: fn(&str) -> bool) -> Self {
        let container = ContainerShape {
            runs: ContainerRuns::First,
            requests,
            limits,
        };
        Self { container, has_it }
    }

    /// Returns what the operator adds to pods of `template`; none for an unknown kind.
    pub(crate) fn of(template: &Value) -> Option<Self> {
        kinds::of_template(template)?.added_init(template)
    }

    /// Returns the container if pods of this role have it.
    pub(crate) fn in_role(&self, role: &str) -> Option<&ContainerShape> {
        (self.has_it)(role).then_some(&self.container)
    }
}

/// Returns the pods of `template`, each with its role; none for an unknown kind. A pod spec that cannot be read
/// is left out: no member accepts it. The template is not changed.
#[must_use]
pub fn pod_shapes(template: &mut Value) -> Vec<PodShape> {
    let added = AddedInit::of(template);
    let specs = pod_specs::of(template).into_iter();
    let shapes = specs.filter_map(|(role, spec)| {
        let added = added.as_ref().and_then(|added| added.in_role(&role));
        let shape = PodShape::read(&Field::root(spec), added).ok()?;
        Some(PodShape { role, ..shape })
    });
    shapes.collect()
}

impl PodShape {
    /// Reads a pod spec; `added` is the init container that an operator adds to its pods.
    pub(crate) fn read(
        spec: &Field<'_>,
        added: Option<&ContainerShape>,
    ) -> Result<Self, SpecError> {
        let list = spec.get("containers")?;
        if list.items()?.is_empty() {
            return Err(list.invalid("at least one container"));
        }
        let mut containers = Vec::new();
        for container in list.items()? {
            containers.push(ContainerShape::read(&container, ContainerRuns::Together)?);
        }
        for container in spec.get("initContainers")?.items()? {
            let is_sidecar = container.get("restartPolicy")?.text()? == Some("Always");
            let runs = if is_sidecar {
                ContainerRuns::Sidecar
            } else {
                ContainerRuns::First
            };
            containers.push(ContainerShape::read(&container, runs)?);
        }
        // Before the requests of the pod as a whole are read: a limit of the pod is no request if it has one.
        containers.extend(added.cloned());
        let mut shape = Self {
            role: String::new(),
            path: spec.path().to_owned(),
            containers,
            pod_requests: Resources::new(),
            pod_limits: Resources::new(),
            overhead: spec.get("overhead")?.resources()?,
            runtime_class: spec.get("runtimeClassName")?.name()?.map(str::to_owned),
            priority_class: spec.get("priorityClassName")?.name()?.map(str::to_owned),
            has_deadline: spec.get("activeDeadlineSeconds")?.is_set(),
        };
        shape.read_pod_level(&spec.get("resources")?)?;
        Ok(shape)
    }

    /// Reads the resources of the pod as a whole. A limit of the pod is its request only if no container requests the
    /// resource; huge pages cannot be overcommitted, so for them it always is.
    fn read_pod_level(&mut self, resources: &Field<'_>) -> Result<(), SpecError> {
        if !resources.is_set() {
            return Ok(());
        }
        let of_containers = self.over_containers(|container| &container.requests)?;
        let requests = resources.get("requests")?.resources()?;
        let limits = resources.get("limits")?.resources()?;
        for (name, limit) in limits.iter().filter(|(name, _)| is_pod_level(name)) {
            self.pod_limits.set(name.clone(), limit);
            let is_huge = name.as_str().starts_with("hugepages-");
            if is_huge || of_containers.get(name).is_none() {
                self.pod_requests.set(name.clone(), limit);
            }
        }
        for (name, amount) in requests.iter().filter(|(name, _)| is_pod_level(name)) {
            self.pod_requests.set(name.clone(), amount);
        }
        Ok(())
    }

    /// Returns the most that it requests at any time, without `pods` and the devices that it claims.
    pub(crate) fn request(&self) -> Result<Resources, SpecError> {
        let mut of_pod = self.over_containers(|container| &container.requests)?;
        for (name, amount) in self.pod_requests.iter() {
            of_pod.set(name.clone(), amount);
        }
        pod::plus(&self.path, &of_pod, &self.overhead)
    }

    /// Returns its limits; overhead is part of those that it has.
    pub(crate) fn limits(&self) -> Result<Resources, SpecError> {
        let mut of_pod = self.over_containers(|container| &container.limits)?;
        for (name, amount) in self.pod_limits.iter() {
            of_pod.set(name.clone(), amount);
        }
        let overhead = self.overhead.iter();
        let overhead = overhead.filter(|(name, _)| of_pod.amount_of(name).0 > 0);
        let overhead = overhead.map(|(name, amount)| (name.clone(), amount));
        pod::plus(&self.path, &of_pod, &overhead.collect())
    }

    /// Returns true if it requests and limits nothing.
    pub(crate) fn is_best_effort(&self) -> bool {
        let of_containers = self.containers.iter();
        let mut all = of_containers
            .flat_map(|container| [&container.requests, &container.limits])
            .chain([&self.pod_requests, &self.pod_limits]);
        all.all(|list| list.iter().all(|(_, amount)| amount.0 == 0))
    }

    /// Returns true if it has requests or limits as a whole.
    pub(crate) fn has_pod_level(&self) -> bool {
        !self.pod_requests.is_empty() || !self.pod_limits.is_empty()
    }

    /// Returns the most of `each` that its containers have at any time. Init containers run one after the other, each
    /// with the sidecars that were started before it.
    pub(crate) fn over_containers(
        &self,
        each: impl Fn(&ContainerShape) -> &Resources,
    ) -> Result<Resources, SpecError> {
        let plus = |sum: &Resources, more: &Resources| pod::plus(&self.path, sum, more);
        let mut running = Resources::new();
        let mut sidecars = Resources::new();
        let mut starting = Resources::new();
        for container in &self.containers {
            let own = each(container);
            match container.runs {
                ContainerRuns::Together => running = plus(&running, own)?,
                ContainerRuns::Sidecar => {
                    running = plus(&running, own)?;
                    sidecars = plus(&sidecars, own)?;
                    starting = Resources::max(&starting, &sidecars);
                }
                ContainerRuns::First => {
                    starting = Resources::max(&starting, &plus(&sidecars, own)?)
                }
            }
        }
        Ok(Resources::max(&running, &starting))
    }
}

impl ContainerShape {
    fn read(container: &Field<'_>, runs: ContainerRuns) -> Result<Self, SpecError> {
        Ok(Self {
            runs,
            requests: pod::container_request(container)?,
            limits: container.get("resources")?.get("limits")?.resources()?,
        })
    }
}

fn is_pod_level(name: &ResourceName) -> bool {
    matches!(name.as_str(), ResourceName::CPU | ResourceName::MEMORY)
        || name.as_str().starts_with("hugepages-")
}
