//! How Works name the binding that they belong to.

use crds::karmada::ResourceBinding;
use crds::names;
use engine::JobKey;
use kube::core::ObjectMeta;

/// A binding as its Works name it: by Karmada's permanent id and by namespace and name.
///
/// The id alone names none: it is a label, and a user who may create a binding can give it the id of another one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct BindingIdentity {
    pub(crate) job: JobKey,
    /// Karmada's permanent id.
    pub(crate) id: String,
}

impl BindingIdentity {
    /// Returns the identity of `binding`; `None` before Karmada has given it an id.
    pub(crate) fn of(binding: &ResourceBinding) -> Option<Self> {
        Some(Self {
            job: binding.job_key(),
            id: permanent_id(binding)?.to_owned(),
        })
    }

    /// Returns the identity of the binding of a Work with this `metadata`; `None` if it names none.
    pub(crate) fn of_work(metadata: &ObjectMeta) -> Option<Self> {
        let annotations = metadata.annotations.as_ref()?;
        Some(Self {
            job: JobKey::new(
                annotations.get(names::BINDING_NAMESPACE_ANNOTATION)?,
                annotations.get(names::BINDING_NAME_ANNOTATION)?,
            ),
            id: label(metadata, names::BINDING_PERMANENT_ID)?.to_owned(),
        })
    }
}

/// Returns Karmada's permanent id of a binding, which its Works carry.
pub(super) fn permanent_id(binding: &ResourceBinding) -> Option<&str> {
    label(&binding.metadata, names::BINDING_PERMANENT_ID)
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}
