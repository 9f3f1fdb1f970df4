//! Decoding that survives what it does not know.
//!
//! A LIST is decoded as one: a single object with a surprising value would hide all others.
//! So slim types read through the helpers here, which keep or drop what they cannot read, and
//! never fail. Saying that a value is unusable is the business of each type's `to_fact`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A value of a closed set, or one that this version does not know.
///
/// In a CRD's schema it is the closed set alone: the API server refuses anything else, but
/// what a later version has stored can still be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Loose<T> {
    /// One that is known.
    Known(T),
    /// One that is not, as it stands.
    Unknown(Value),
}

impl<T> Loose<T> {
    /// The value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T: JsonSchema> JsonSchema for Loose<T> {
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Decodes a field; what does not fit its type counts as absent.
///
/// # Errors
/// Only where the input is no JSON at all.
pub fn lenient<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + DeserializeOwned,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Decodes a field that may be `null`, which Go writes for an empty list without `omitempty`.
///
/// # Errors
/// Where the value is neither `null` nor of the field's type.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Decodes metadata without what is large and never looked at: managed fields and kubectl's
/// copy of the object. For kinds that come by the hundred thousand.
///
/// # Errors
/// Where the metadata is malformed beyond what an API server would ever store.
pub fn slim_metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let slim = SlimMetadata::deserialize(deserializer)?;
    let mut annotations = slim.annotations;
    if let Some(annotations) = annotations.as_mut() {
        annotations.remove(LAST_APPLIED);
    }
    Ok(ObjectMeta {
        name: slim.name,
        namespace: slim.namespace,
        uid: slim.uid,
        resource_version: slim.resource_version,
        generation: slim.generation,
        creation_timestamp: slim.creation_timestamp,
        deletion_timestamp: slim.deletion_timestamp,
        labels: slim.labels,
        annotations,
        owner_references: slim.owner_references,
        finalizers: slim.finalizers,
        ..ObjectMeta::default()
    })
}

/// What [`slim_metadata`] keeps.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct SlimMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    /// Skipped without a copy.
    #[serde(rename = "managedFields")]
    _managed_fields: IgnoredAny,
}

/// A resource list as it stands in JSON: quantities may be text or numbers.
pub type QuantityList = BTreeMap<String, QuantityText>;

/// A quantity as the object states it, not yet checked: the text, or the digits of a number.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub String);

/// Non-negative quantities, as Kubernetes reads them.
pub const QUANTITY_PATTERN: &str =
    r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$";

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        }))
    }
}

impl JsonSchema for QuantityText {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "x-kubernetes-int-or-string": true,
            "minimum": 0,
            "maxLength": 32,
            "pattern": QUANTITY_PATTERN,
        })
    }
}

impl From<&str> for QuantityText {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Reads the resource list of `field`; the error names the field, the resource and the value.
///
/// # Errors
/// The first quantity that is malformed, negative or too large.
pub fn resources(field: &str, list: &QuantityList) -> Result<engine::Resources, String> {
    engine::Resources::parse(
        list.iter()
            .map(|(name, text)| (name.as_str(), text.0.as_str())),
    )
    .map_err(|error| format!("{field}[{}]: {}", error.resource, error.error))
}

/// Any object, kept as it stands.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
