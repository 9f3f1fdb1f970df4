//! Decodes values that this version may not know.
//!
//! A LIST is decoded as a whole: a single object with an unexpected value would hide all others. So slim
//! types read through these helpers, which keep or drop unreadable values, and never fail. Each type's
//! `to_fact` reports invalid values.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A value of a fixed set, or one that this version does not know.
///
/// The schema of a CRD has only the fixed set: the API server refuses other values, but a value that a
/// later version has stored can still be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Loose<T> {
    /// A known value.
    Known(T),
    /// An unknown value, unparsed. Boxed, because it is rare and larger than any word.
    Unknown(Box<Value>),
}

impl<T: Default> Default for Loose<T> {
    fn default() -> Self {
        Self::Known(T::default())
    }
}

impl<T> Loose<T> {
    /// Returns the value, if it is known.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }
}

impl<T> Loose<Vec<T>> {
    /// Returns the items of a list; none if it cannot be read.
    pub fn items(&self) -> &[T] {
        self.known().map_or(&[], Vec::as_slice)
    }
}

impl<T: JsonSchema> Loose<T> {
    /// Returns what is wrong with an unknown value, and which words are possible: those of the schema.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Known(_) => None,
            Self::Unknown(value) => {
                Some(format!("{value} is not known; {} is needed", Self::words()))
            }
        }
    }

    /// Returns the words of `T`, in the order of its schema: `A, B or C`.
    #[must_use]
    pub fn words() -> String {
        let schema = SchemaGenerator::default().into_root_schema_for::<T>();
        let variants = schema.get("oneOf").or_else(|| schema.get("enum"));
        let variants = variants
            .and_then(|all| all.as_array())
            .into_iter()
            .flatten();
        let word = |variant: &Value| {
            let word = variant.get("const").unwrap_or(variant).as_str();
            word.unwrap_or_default().to_owned()
        };
        let mut words: Vec<String> = variants.map(word).collect();
        match words.pop() {
            Some(last) if !words.is_empty() => format!("{} or {last}", words.join(", ")),
            last => last.unwrap_or_default(),
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
        let mut schema = T::json_schema(generator);
        // The description of the field counts. That of the type would replace it.
        schema.remove("description");
        if let Some(Value::Array(words)) = schema.get("oneOf") {
            let words = words.clone();
            describe_words(&mut schema, &words);
        }
        schema
    }
}

/// Property of a schema until the CRD is written: what each word means, for the description of the field. Of those
/// that a CRD can have, nothing else uses it.
pub const WORDS: &str = "title";

/// Makes a list of words of words that are described one by one, of which only the words would be left.
fn describe_words(schema: &mut Schema, words: &[Value]) {
    let lines = words.iter().map(|word| {
        let meaning = word["description"].as_str().unwrap_or_default();
        format!(
            "- `{}`: {}",
            word["const"].as_str().unwrap_or_default(),
            meaning.replace('\n', " ")
        )
    });
    let lines: Vec<String> = lines.collect();
    schema.remove("oneOf");
    schema.insert("type".to_owned(), "string".into());
    let words = words.iter().map(|word| word["const"].clone());
    schema.insert("enum".to_owned(), words.collect());
    schema.insert(WORDS.to_owned(), lines.join("\n").into());
}

/// Decodes a field; a value of another type counts as absent.
///
/// # Errors
/// Returns an error only if the input is no JSON.
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
/// Returns an error if the value is neither `null` nor of the field's type.
pub fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// The annotation in which `kubectl apply` keeps a copy of the whole object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Decodes metadata without large fields that are not needed: managed fields and kubectl's copy of the
/// object. For kinds with hundreds of thousands of objects.
///
/// # Errors
/// Returns an error if the metadata is malformed in a way that no API server stores.
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
        deletion_grace_period_seconds: slim.deletion_grace_period_seconds,
        labels: slim.labels,
        annotations,
        owner_references: slim.owner_references,
        finalizers: slim.finalizers,
        ..ObjectMeta::default()
    })
}

/// The fields that [`slim_metadata`] keeps.
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
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    owner_references: Option<Vec<OwnerReference>>,
    finalizers: Option<Vec<String>>,
    /// Skipped without a copy.
    #[serde(rename = "managedFields")]
    _managed_fields: IgnoredAny,
}

/// A resource list as in JSON: quantities may be strings or numbers.
pub type QuantityList = BTreeMap<String, QuantityText>;

/// An unchecked quantity: the string, or the digits of a number.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub String);

/// Pattern of non-negative quantities, as in Kubernetes.
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

/// Parses the resource list of `field`; the error names the field, the resource and the value.
///
/// # Errors
/// Returns the first quantity that is malformed, negative or too large.
pub fn resources(field: &str, list: &QuantityList) -> Result<facts::Resources, String> {
    facts::Resources::parse(
        list.iter()
            .map(|(name, text)| (name.as_str(), text.0.as_str())),
    )
    .map_err(|error| format!("{field}[{}]: {}", error.resource, error.error))
}

/// Reads a number of at least `least`; one above the type's maximum counts as the maximum.
///
/// # Errors
/// Returns the field, the value and what is needed.
pub fn at_least(field: &str, value: i64, least: i64) -> Result<u32, String> {
    match value < least {
        true => Err(format!(
            "{field}: {value} is too small; {least} or more is needed"
        )),
        false => Ok(u32::try_from(value).unwrap_or(u32::MAX)),
    }
}

/// Returns the schema of any object, which is kept unparsed.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
