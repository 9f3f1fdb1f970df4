//! Computes the demand of a job from its template and binding, for a scheduler in a process of its own.
//! (The controller keeps what it has read of each template.) Pure.

use crds::karmada::ResourceBinding;
use engine::facts::{Demand, Split};
use serde_json::{Value, json};
use workload::{SpecError, WorkloadSpec};

/// Returns the demand of the job for which `binding` binds `template`, which requests `ask`. `in_parts`
/// says whether it was planned in parts, which its queue may determine.
pub(crate) fn demand(
    binding: &ResourceBinding,
    template: &Value,
    ask: &WorkloadSpec,
    in_parts: bool,
) -> Demand {
    let split = if in_parts {
        Split::Allowed
    } else {
        Split::Never
    };
    let spec = &binding.spec;
    let api = format!("{}/{}", spec.resource.api_version, spec.resource.kind);
    ask.demand(
        workload::natively_divisible(template, spec.placement.as_ref()),
        split,
        workload::cluster_placement(spec.placement.as_ref(), &api),
    )
}

/// Returns what the job requests: by its kind, or else by what Karmada's interpreter says on the binding.
/// The devices that its pods claim by ResourceClaimTemplates are not included yet.
///
/// # Errors
/// Returns an error if its size is unknown, or a value of the template is invalid.
pub(crate) fn ask(binding: &ResourceBinding, template: &Value) -> Result<WorkloadSpec, SpecError> {
    match workload::read_spec(template) {
        Err(SpecError::SizeUnknown { .. }) => {
            let spec = &binding.spec;
            let interpreted = json!({
                "resource": spec.resource,
                "replicas": spec.replicas,
                "replicaRequirements": spec.replica_requirements,
                "components": spec.components,
            });
            workload::read_spec_from_binding(&interpreted, Some(template))
        }
        known => known,
    }
}
