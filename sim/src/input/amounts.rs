//! Quantities of resources in the short forms: `gpus`, `cpu`, `memory`, and any other resource by
//! its Kubernetes name.

use crate::error::{InputError, InputLocation};
use engine::resources::ResourceName;
use engine::{Amount, Resources};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// The resource for which `gpus` is short.
pub(crate) const GPU: &str = "nvidia.com/gpu";

/// A quantity, quoted or not: `8`, `500m`, `1.5Gi`.
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

/// Quantities by resource; `gpus` and `gpu` are short for `nvidia.com/gpu`.
pub(crate) type QuantityTexts = BTreeMap<String, Text>;

/// Parses a list of quantities.
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

/// The short form of a node or pod: `gpus`, `cpu`, `memory`, and `resources` for all others.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ResourceShorthand<'a> {
    pub(crate) gpus: Option<u32>,
    pub(crate) cpu: Option<&'a Text>,
    pub(crate) memory: Option<&'a Text>,
    pub(crate) resources: Option<&'a QuantityTexts>,
}

impl ResourceShorthand<'_> {
    /// Returns the resources of the shape and `pods` pod slots.
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

/// Parses a duration such as `90s`, `10m`, `1h30m` to milliseconds; a number without unit is in
/// seconds.
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
