//! What a bound job is made of, from its template and binding: for a scheduler that is a
//! process of its own. (The controller keeps what it once read of each template.) Pure.

use crds::karmada::ResourceBinding;
use engine::facts::{Demand, Split};
use serde_json::{Value, json};
use workload::{SpecError, WorkloadSpec};

/// The demand of the job that `binding` binds `template` for, which asks for `ask`; `in_parts` says
/// whether it was planned to be placed in parts, which its queue may have a say in.
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

/// What it asks for: by kind, else by what Karmada's interpreter says of it on the binding. What
/// its pods claim by ResourceClaimTemplates is still to be put in.
///
/// # Errors
/// Where its size cannot be known, or a value of the template cannot be used.
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
