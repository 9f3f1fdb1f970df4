//! Resources as people write them in the simple forms: `gpus`, `cpu`, `memory`, and any other
//! by its Kubernetes name.

use crate::error::{InputError, InputLocation};
use engine::resources::ResourceName;
use engine::{Amount, Resources};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The resource that `gpus` stands for.
pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A quantity: `8`, `500m`, `1.5Gi`, quoted or not.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Text(pub(crate) String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Any {
            Whole(i64),
            Fraction(f64),
            Text(String),
        }
        Ok(Self(match Any::deserialize(deserializer)? {
            Any::Whole(number) => number.to_string(),
            Any::Fraction(number) => number.to_string(),
            Any::Text(text) => text,
        }))
    }
}

/// A list of quantities by resource; `gpus` or `gpu` stands for `nvidia.com/gpu`.
pub(crate) type QuantityTexts = BTreeMap<String, Text>;

/// Reads a list of quantities.
pub(crate) fn resources(
    place: &InputLocation<'_>,
    field: &str,
    list: &QuantityTexts,
) -> Result<Resources, InputError> {
    let mut all = Resources::new();
    for (name, text) in list {
        let known = match name.as_str() {
            "gpu" | "gpus" => GPU,
            other => other,
        };
        let name_of = ResourceName::new(known);
        let amount = name_of.amount(&text.0).map_err(|error| {
            place.refuse(&format!("{field}.{name}"), &text.0, &error.to_string())
        })?;
        all.set(name_of, amount);
    }
    Ok(all)
}

/// The shorthand of a node or pod: `gpus`, `cpu`, `memory`, and `resources` for the rest.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResourceShorthand<'a> {
    pub(crate) gpus: Option<u32>,
    pub(crate) cpu: Option<&'a Text>,
    pub(crate) memory: Option<&'a Text>,
    pub(crate) resources: Option<&'a QuantityTexts>,
}

impl ResourceShorthand<'_> {
    /// All that the shape names, and so many slots for pods.
    pub(crate) fn read(
        &self,
        place: &InputLocation<'_>,
        pods: i64,
    ) -> Result<Resources, InputError> {
        let none = QuantityTexts::new();
        let mut all = resources(place, "resources", self.resources.unwrap_or(&none))?;
        if let Some(gpus) = self.gpus.filter(|gpus| *gpus > 0) {
            all.set(ResourceName::new(GPU), Amount(i64::from(gpus)));
        }
        for (field, text) in [("cpu", self.cpu), ("memory", self.memory)] {
            if let Some(text) = text {
                let name = ResourceName::new(field);
                let amount = name
                    .amount(&text.0)
                    .map_err(|error| place.refuse(field, &text.0, &error.to_string()))?;
                all.set(name, amount);
            }
        }
        let slots = ResourceName::new(ResourceName::PODS);
        if all.get(&slots).is_none() {
            all.set(slots, Amount(pods));
        }
        Ok(all)
    }
}

/// Milliseconds in `90s`, `10m`, `1h30m`; a bare number is seconds.
pub(crate) fn millis(
    place: &InputLocation<'_>,
    field: &str,
    text: &str,
) -> Result<i64, InputError> {
    if text.parse::<f64>().is_ok() {
        return place.seconds(field, text);
    }
    workload::duration_millis(text).ok_or_else(|| {
        let needed = "digits with units h, m, s or ms are needed, like 90s or 1h30m";
        place.refuse(field, text, needed)
    })
}
