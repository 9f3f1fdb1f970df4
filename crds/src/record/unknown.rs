//! Fields of a record that this version does not know: kept unchanged and written back.

use super::AdmissionRecord;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Fields by name, each with its text in the annotation.
#[derive(Debug, Clone, Default)]
pub struct UnknownFields(BTreeMap<String, Box<RawValue>>);

impl UnknownFields {
    /// Returns true if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the text of its fields from `all` fields of the containing object.
    fn take_text(&mut self, all: &BTreeMap<String, Box<RawValue>>) {
        for (name, value) in &mut self.0 {
            if let Some(text) = all.get(name) {
                value.clone_from(text);
            }
        }
    }
}

impl PartialEq for UnknownFields {
    fn eq(&self, other: &Self) -> bool {
        let text = |fields: &Self| -> Vec<(String, String)> {
            let fields = fields.0.iter();
            fields
                .map(|(n, v)| (n.clone(), v.get().to_owned()))
                .collect()
        };
        text(self) == text(other)
    }
}

impl Eq for UnknownFields {}

impl Serialize for UnknownFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(&self.0)
    }
}

/// Reads names and values. The exact text of the values comes from `with_exact_bytes`: serde buffers
/// flattened fields, which may change numbers and the order of keys.
impl<'de> Deserialize<'de> for UnknownFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let values = BTreeMap::<String, Value>::deserialize(deserializer)?;
        let text = |(name, value): (String, Value)| {
            let text = RawValue::from_string(value.to_string());
            Ok((name, text.map_err(serde::de::Error::custom)?))
        };
        values
            .into_iter()
            .map(text)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// Returns `record`, which was read from `text`, with the exact text of its unknown fields.
pub(super) fn with_exact_bytes(mut record: AdmissionRecord, text: &str) -> AdmissionRecord {
    let known = |share: &super::RecordedShare| share.unknown.is_empty();
    if record.unknown.is_empty() && record.clusters.iter().all(known) {
        return record;
    }
    let Ok(all) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(text) else {
        return record; // it was parsed as an object before
    };
    record.unknown.take_text(&all);
    let shares = all.get("clusters").map(|clusters| clusters.get());
    let shares: Vec<BTreeMap<String, Box<RawValue>>> = shares
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();
    for (share, all) in record.clusters.iter_mut().zip(&shares) {
        share.unknown.take_text(all);
    }
    record
}
