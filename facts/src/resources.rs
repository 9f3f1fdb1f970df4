//! Amounts by resource: the request of a pod, the capacity of a node, the bounds of a queue.
//!
//! [`Resources`] distinguishes an absent resource from an explicit zero, as Volcano does: `cpu: 0`
//! in a capability means none, and no `cpu` means no bound.

use crate::quantity::{Amount, Quantity, QuantityError};
use crate::small_map::SmallMap;
use crate::texts::name_type;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

name_type! {
    /// The name of a resource, as in a Kubernetes resource list: `cpu`, `memory`,
    /// `nvidia.com/gpu`, ...
    ResourceName
}

/// The unit in which a resource is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Milli-cores: `cpu`.
    Milli,
    /// Bytes: `memory`, storage, huge pages.
    Bytes,
    /// Whole devices, pods, and everything else.
    Count,
}

impl ResourceName {
    /// `cpu`.
    pub const CPU: &'static str = "cpu";
    /// `memory`.
    pub const MEMORY: &'static str = "memory";
    /// `pods`: the slots of a node.
    pub const PODS: &'static str = "pods";
    /// The prefix with which Kubernetes makes a resource name of the name of a DeviceClass.
    const OF_DEVICE_CLASS: &'static str = "deviceclass.resource.kubernetes.io/";

    /// The resource whose units are the devices of a DeviceClass.
    #[must_use]
    pub fn of_device_class(class: &str) -> Self {
        Self::new(format!("{}{class}", Self::OF_DEVICE_CLASS))
    }

    /// The DeviceClass whose devices are its units, if there is one.
    #[must_use]
    pub fn device_class(&self) -> Option<&str> {
        self.0.strip_prefix(Self::OF_DEVICE_CLASS)
    }

    /// The unit of an [`Amount`] of this resource.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.as_str() {
            Self::CPU => Unit::Milli,
            Self::MEMORY | "ephemeral-storage" | "storage" => Unit::Bytes,
            name if name.starts_with("hugepages-") => Unit::Bytes,
            _ => Unit::Count,
        }
    }

    /// Returns true if its name is that of an accelerator. A node is counted in accelerators before other
    /// devices: a node with GPUs may have RDMA devices, too.
    #[must_use]
    pub fn is_accelerator(&self) -> bool {
        const WORDS: [&str; 10] = [
            "gpu", "mig-", "mig.", "npu", "tpu", "ascend", "mlu", "dcu", "gaudi", "neuron",
        ];
        let kind = self.as_str().rsplit('/').next().unwrap_or_default();
        let kind = kind.to_ascii_lowercase();
        self.is_device() && WORDS.iter().any(|word| kind.contains(word))
    }

    /// Returns true if it is a device, which determines the class of a node: an extended resource such as
    /// `nvidia.com/gpu`.
    #[must_use]
    pub fn is_device(&self) -> bool {
        self.0.contains('/') && !self.0.starts_with("kubernetes.io/")
    }

    /// Sort key of the devices of a node; the node is counted in the first. Accelerators come
    /// first, then resources of device plugins before DeviceClasses (both may offer the same
    /// devices), then the name.
    #[must_use]
    pub fn rank_as_device(&self) -> impl Ord + use<> {
        let (other, of_class) = (!self.is_accelerator(), self.device_class().is_some());
        (other, of_class, self.clone())
    }

    /// Parses `text` as an amount of this resource.
    ///
    /// # Errors
    /// If the text is not a Kubernetes quantity, is negative, or is too large to count.
    pub fn amount(&self, text: &str) -> Result<Amount, QuantityError> {
        let quantity: Quantity = text.parse()?;
        if quantity.is_negative() {
            return Err(QuantityError::Negative(text.to_owned()));
        }
        match self.unit() {
            Unit::Milli => quantity.milli(),
            Unit::Bytes | Unit::Count => quantity.units(),
        }
        .map_err(|_| QuantityError::TooLarge(text.to_owned()))
    }

    /// The exact `amount` of this resource as Kubernetes writes it (`1500m`, `16Gi`, `8`).
    #[must_use]
    pub fn format(&self, amount: Amount) -> String {
        match self.unit() {
            Unit::Milli if amount.0 % 1000 == 0 => (amount.0 / 1000).to_string(),
            Unit::Milli => format!("{}m", amount.0),
            Unit::Bytes => format_bytes(amount.0),
            Unit::Count => amount.0.to_string(),
        }
    }
}

/// Bytes in the largest binary unit that is exact.
fn format_bytes(bytes: i64) -> String {
    const UNITS: [(&str, u32); 6] = [
        ("Ei", 60),
        ("Pi", 50),
        ("Ti", 40),
        ("Gi", 30),
        ("Mi", 20),
        ("Ki", 10),
    ];
    UNITS
        .iter()
        .find(|(_, power)| bytes != 0 && bytes % (1_i64 << power) == 0)
        .map_or_else(
            || bytes.to_string(),
            |(unit, power)| format!("{}{unit}", bytes >> power),
        )
}

/// A resource whose quantity in a list is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: {error}")]
pub struct ResourceError {
    /// The resource named in the list.
    pub resource: String,
    /// Why its quantity is invalid.
    pub error: QuantityError,
}

/// Amounts by resource. Serialized as a Kubernetes resource list, quantities as text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Resources(SmallMap<ResourceName, Amount>);

impl Resources {
    /// No resources.
    #[inline]
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a Kubernetes resource list.
    ///
    /// # Errors
    /// The first entry whose quantity is malformed, negative or too large.
    pub fn parse<'a>(
        list: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, ResourceError> {
        list.into_iter()
            .map(|(name, text)| {
                let resource = ResourceName::new(name);
                let amount = resource.amount(text).map_err(|error| ResourceError {
                    resource: name.to_owned(),
                    error,
                })?;
                Ok((resource, amount))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The amount of `name`, if it is present.
    #[inline]
    #[must_use]
    pub fn get(&self, name: &ResourceName) -> Option<Amount> {
        self.0.get(name).copied()
    }

    /// The amount of `name`, zero if it is absent: for requests and usage, not for bounds.
    #[inline]
    #[must_use]
    pub fn amount_of(&self, name: &ResourceName) -> Amount {
        self.get(name).unwrap_or_default()
    }

    /// Sets the amount of `name`.
    #[inline]
    pub fn set(&mut self, name: ResourceName, amount: Amount) {
        self.0.insert(name, amount);
    }

    /// Sets the amount of `name`, which is cloned only if it is absent.
    #[inline]
    fn put(&mut self, name: &ResourceName, amount: Amount) {
        match self.0.get_mut(name) {
            Some(known) => *known = amount,
            None => self.0.insert(name.clone(), amount),
        }
    }

    /// All resources with their amounts, in order of name.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (&ResourceName, Amount)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// Returns true if no resource is present.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `self + other`, or `None` if a sum overflows.
    #[must_use]
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let mut sum = self.clone();
        for (name, amount) in other.iter() {
            let whole = sum.amount_of(name).checked_add(amount)?;
            sum.put(name, whole);
        }
        Some(sum)
    }

    /// `self × times`, or `None` if a product overflows.
    #[must_use]
    pub fn checked_mul(&self, times: u32) -> Option<Self> {
        self.iter()
            .map(|(name, amount)| Some((name.clone(), amount.checked_mul(times)?)))
            .collect::<Option<_>>()
            .map(Self)
    }

    /// The larger amount of each resource (a pod's init containers run one after the other).
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut largest = self.clone();
        for (name, amount) in other.iter() {
            let larger = largest.get(name).map_or(amount, |known| known.max(amount));
            largest.put(name, larger);
        }
        largest
    }

    /// The Kubernetes resource list.
    #[must_use]
    pub fn to_list(&self) -> BTreeMap<String, String> {
        self.iter()
            .map(|(name, amount)| (name.to_string(), name.format(amount)))
            .collect()
    }
}

impl FromIterator<(ResourceName, Amount)> for Resources {
    fn from_iter<I: IntoIterator<Item = (ResourceName, Amount)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl fmt::Display for Resources {
    /// `cpu 4, memory 16Gi, nvidia.com/gpu 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, amount)) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name} {}", name.format(amount))?;
        }
        Ok(())
    }
}

impl Serialize for Resources {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_list().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Resources {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let list = BTreeMap::<String, String>::deserialize(deserializer)?;
        Self::parse(list.iter().map(|(k, v)| (k.as_str(), v.as_str())))
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_and_writes_kubernetes_lists() {
        let list = [
            ("cpu", "1500m"),
            ("memory", "1.5Gi"),
            ("nvidia.com/gpu", "8"),
            ("hugepages-2Mi", "0"),
        ];
        let resources = Resources::parse(list).unwrap();
        assert_eq!(
            resources.to_string(),
            "cpu 1500m, hugepages-2Mi 0, memory 1536Mi, nvidia.com/gpu 8"
        );
        let json = serde_json::to_string(&resources).unwrap();
        assert_eq!(serde_json::from_str::<Resources>(&json).unwrap(), resources);
    }

    #[test]
    fn names_are_ordered_as_their_texts() {
        let names = ["cpu", "memory", "nvidia.com/gpu"].map(ResourceName::new);
        assert!(names.is_sorted() && names[1] > names[0]);
    }

    #[test]
    fn names_the_resource_that_is_wrong() {
        let error = |list| Resources::parse(list).unwrap_err().to_string();
        assert_eq!(
            error([("nvidia.com/gpu", "-1")]),
            "nvidia.com/gpu: quantity \"-1\" is negative; 0 or more is needed"
        );
        assert_eq!(
            error([("cpu", "9223372036854775807")]),
            "cpu: quantity \"9223372036854775807\" is too large to be counted; at most 2^63-1 base units are"
        );
    }

    #[test]
    fn a_device_class_is_a_resource_of_devices() {
        let gpus = ResourceName::of_device_class("gpu.nvidia.com");
        assert_eq!(
            gpus.as_str(),
            "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
        );
        assert_eq!(gpus.device_class(), Some("gpu.nvidia.com"));
        assert!(gpus.is_device() && gpus.is_accelerator());
        assert!(ResourceName::of_device_class("mig.nvidia.com").is_accelerator());
        assert!(!ResourceName::of_device_class("nic.example.com").is_accelerator());
        assert_eq!(ResourceName::new("nvidia.com/gpu").device_class(), None);
    }

    #[test]
    fn an_explicit_zero_is_not_absence() {
        let none = Resources::parse([("cpu", "0")]).unwrap();
        assert_eq!(none.get(&ResourceName::new("cpu")), Some(Amount::ZERO));
        assert_eq!(none.get(&ResourceName::new("memory")), None);
    }
}
