//! Reads a template field by field.
//!
//! A [`Field`] is a value with its path, so that every error has the full path. Null counts as absent, as
//! for the API server; a wrong type is an error and never a panic. Fields that are not requested are not
//! read.

use crate::error::{SpecError, THE_OBJECT};
use facts::{Amount, QuantityError, ResourceName, Resources};
use serde_json::Value;

/// Most pods of one job: far above any real gang, far below an overflow.
pub(crate) const MAX_PODS: u32 = 1_000_000;

/// A field of a template, set or not.
#[derive(Debug, Clone)]
pub(crate) struct Field<'a> {
    path: String,
    value: Option<&'a Value>,
}

impl<'a> Field<'a> {
    /// Returns the whole object.
    pub(crate) fn root(object: &'a Value) -> Self {
        Self::at("", object)
    }

    /// Returns a value at `path`.
    pub(crate) fn at(path: &str, value: &'a Value) -> Self {
        Self {
            path: path.to_owned(),
            value: Some(value).filter(|value| !value.is_null()),
        }
    }

    /// Returns an absent field.
    pub(crate) fn absent() -> Self {
        Self {
            path: String::new(),
            value: None,
        }
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the value itself.
    pub(crate) fn value(&self) -> Option<&'a Value> {
        self.value
    }

    /// Returns true if it is set.
    pub(crate) fn is_set(&self) -> bool {
        self.value.is_some()
    }

    /// Returns the field at `keys` below it, names separated by dots.
    pub(crate) fn get(&self, keys: &str) -> Result<Self, SpecError> {
        keys.split('.').try_fold(self.clone(), |field, key| {
            let path = match field.path.as_str() {
                "" => key.to_owned(),
                parent => format!("{parent}.{key}"),
            };
            field.child(key, path)
        })
    }

    /// Returns the entry `key` of a map whose keys are data (`annotations[muster.io/queue]`).
    pub(crate) fn entry(&self, key: &str) -> Result<Self, SpecError> {
        self.child(key, format!("{}[{key}]", self.path))
    }

    fn child(&self, key: &str, path: String) -> Result<Self, SpecError> {
        let value = match self.value {
            None => None,
            Some(Value::Object(map)) => map.get(key).filter(|value| !value.is_null()),
            Some(_) => return Err(self.invalid("an object")),
        };
        Ok(Self { path, value })
    }

    /// Returns the items of a list; none if it is absent.
    pub(crate) fn items(&self) -> Result<Vec<Self>, SpecError> {
        match self.value {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => Ok(items
                .iter()
                .enumerate()
                .map(|(index, value)| Self {
                    path: format!("{}[{index}]", self.path),
                    value: (!value.is_null()).then_some(value),
                })
                .collect()),
            Some(_) => Err(self.invalid("a list")),
        }
    }

    /// Returns the entries of a map in order of their keys; none if it is absent.
    pub(crate) fn entries(&self) -> Result<Vec<(&'a str, Self)>, SpecError> {
        let Some(value) = self.value else {
            return Ok(Vec::new());
        };
        let map = value.as_object().ok_or_else(|| self.invalid("an object"))?;
        let mut entries: Vec<_> = map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| {
                (
                    key.as_str(),
                    Self {
                        path: format!("{}[{key}]", self.path),
                        value: Some(value),
                    },
                )
            })
            .collect();
        entries.sort_by_key(|(key, _)| *key);
        Ok(entries)
    }

    /// Reads a string.
    pub(crate) fn text(&self) -> Result<Option<&'a str>, SpecError> {
        self.value
            .map(|value| value.as_str().ok_or_else(|| self.invalid("a text")))
            .transpose()
    }

    /// Reads a string that is not empty: Kubernetes writes "unset" in both ways.
    pub(crate) fn name(&self) -> Result<Option<&'a str>, SpecError> {
        Ok(self.text()?.filter(|text| !text.is_empty()))
    }

    /// Reads a flag; false if it is absent.
    pub(crate) fn flag(&self) -> Result<bool, SpecError> {
        self.value.map_or(Ok(false), |value| {
            value.as_bool().ok_or_else(|| self.invalid("true or false"))
        })
    }

    /// Reads a flag that is written as text, as in annotations and labels (Go's `strconv.ParseBool`).
    pub(crate) fn truth(&self) -> Result<Option<bool>, SpecError> {
        match self.name()? {
            None => Ok(None),
            Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(Some(true)),
            Some("0" | "f" | "F" | "false" | "FALSE" | "False") => Ok(Some(false)),
            Some(_) => Err(self.invalid("true or false")),
        }
    }

    /// Reads a number of pods or of groups of pods.
    pub(crate) fn count(&self) -> Result<Option<u32>, SpecError> {
        self.value
            .map(|value| {
                value
                    .as_u64()
                    .and_then(|count| u32::try_from(count).ok())
                    .filter(|count| *count <= MAX_PODS)
                    .ok_or_else(|| self.invalid(format!("a whole number from 0 to {MAX_PODS}")))
            })
            .transpose()
    }

    /// Reads a duration in whole seconds.
    pub(crate) fn seconds(&self) -> Result<Option<i64>, SpecError> {
        self.value
            .map(|value| {
                value
                    .as_i64()
                    .filter(|seconds| *seconds >= 0)
                    .ok_or_else(|| self.invalid("a whole number of seconds"))
            })
            .transpose()
    }

    /// Reads an amount of a resource.
    pub(crate) fn amount(&self, of: &ResourceName) -> Result<Amount, SpecError> {
        of.amount(&self.quantity()?)
            .map_err(|error| self.wrong(&error))
    }

    /// Reads a Kubernetes resource list.
    pub(crate) fn resources(&self) -> Result<Resources, SpecError> {
        self.entries()?
            .into_iter()
            .map(|(name, field)| {
                let name = ResourceName::new(name);
                let amount = field.amount(&name)?;
                Ok((name, amount))
            })
            .collect()
    }

    /// Returns the text of a quantity. If a schema allows it (int-or-string), numbers are stored as they were
    /// written.
    fn quantity(&self) -> Result<String, SpecError> {
        match self.value {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Number(number)) => Ok(number.to_string()),
            _ => Err(self.invalid(QUANTITY)),
        }
    }

    fn wrong(&self, error: &QuantityError) -> SpecError {
        self.invalid(match error {
            QuantityError::Malformed(_) => QUANTITY,
            QuantityError::Negative(_) => "0 or more",
            QuantityError::TooLarge(_) => "at most 2^63-1 base units",
        })
    }

    /// Returns the error that it is not `want`.
    pub(crate) fn invalid(&self, want: impl Into<String>) -> SpecError {
        SpecError::invalid(self.shown_path(), self.value, want)
    }

    fn shown_path(&self) -> &str {
        if self.path.is_empty() {
            THE_OBJECT
        } else {
            &self.path
        }
    }
}

const QUANTITY: &str = "a quantity such as 500m, 2 or 1.5Gi";
