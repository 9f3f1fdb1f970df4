//! The taints that DeviceTaintRules give to devices, as Kubernetes applies them (KEP-5055). Pure.
//!
//! A rule of the effect `None` is an administrator's trial and gives no taint. A rule with a selector that cannot be
//! evaluated for a device does not taint it: a fault must not be seen where there may be none. Such rules are named in
//! the log.

use super::pools::DevicePool;
use super::{Class, Known};
use crate::selectors::{Evaluator, Selectors};
use crds::devices::{Device, DeviceTaint, DeviceTaintRule, DeviceTaintRuleSpec};
use runtime::watch::ObjectKey;
use std::collections::{BTreeMap, HashMap};

/// The part of a DeviceTaintRule that concerns devices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaintRule(DeviceTaintRuleSpec);

impl TaintRule {
    pub(super) fn new(rule: DeviceTaintRule) -> Self {
        // The status, which Kubernetes writes often, and the version of the object concern nothing here.
        Self(rule.spec)
    }
}

/// A rule with what its selectors read.
struct ReadTaintRule<'a> {
    name: &'a str,
    driver: Option<&'a str>,
    pool: Option<&'a str>,
    device: Option<&'a str>,
    /// The selectors of the class, and its own; or why they cannot be evaluated.
    selectors: Result<Vec<Selectors>, String>,
    taint: &'a DeviceTaint,
}

impl<'a> ReadTaintRule<'a> {
    /// Returns `None` for a rule that taints no device.
    fn new(name: &'a str, rule: &'a DeviceTaintRuleSpec, classes: &Known<Class>) -> Option<Self> {
        let (taint, selector) = (&rule.taint, rule.device_selector.as_ref()?);
        if taint.effect == "None" {
            return None;
        }
        let class = selector.device_class_name.as_ref();
        let class = class.map(|name| {
            classes.get(&ObjectKey {
                namespace: None,
                name: name.clone(),
            })
        });
        let of_class = match class {
            // A class that does not exist selects no device.
            Some(None) => return None,
            Some(Some(Ok(selectors))) => Ok(Some(selectors.clone())),
            Some(Some(Err(why))) => Err(format!("its class: {why}")),
            None => Ok(None),
        };
        let mut unknown = selector
            .unknown
            .iter()
            .filter(|(_, value)| !value.is_null());
        let selectors = match unknown.next() {
            Some((field, _)) => Err(format!(
                "spec.deviceSelector.{field} is not known to this version"
            )),
            None => of_class.and_then(|of_class| {
                let own = Selectors::read(&selector.selectors)?;
                Ok(of_class.into_iter().chain([own]).collect())
            }),
        };
        Some(Self {
            name,
            driver: selector.driver.as_deref(),
            pool: selector.pool.as_deref(),
            device: selector.device.as_deref(),
            selectors,
            taint,
        })
    }

    /// Returns true if it selects `device`.
    fn selects(
        &self,
        evaluator: &mut Evaluator,
        pool: &DevicePool<'_>,
        device: &Device,
    ) -> Result<bool, String> {
        let is = |wanted: Option<&str>, name: &str| wanted.is_none_or(|wanted| wanted == name);
        if !is(self.driver, pool.driver)
            || !is(self.pool, pool.name)
            || !is(self.device, &device.name)
        {
            return Ok(false);
        }
        for selectors in self.selectors.as_ref().map_err(Clone::clone)? {
            if !evaluator.matches(selectors, pool.driver, device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The taints of devices by rules.
pub(super) struct RuledTaints<'a> {
    /// By driver, pool and name of the device.
    taints: HashMap<(&'a str, &'a str, &'a str), Vec<&'a DeviceTaint>>,
    /// Why a rule cannot be evaluated for a device, by its name.
    unclear: BTreeMap<String, String>,
}

impl<'a> RuledTaints<'a> {
    /// Applies `rules` to the devices of `pools`.
    pub(super) fn new(
        rules: &'a Known<TaintRule>,
        classes: &Known<Class>,
        pools: &'a BTreeMap<(&str, &str), DevicePool<'_>>,
    ) -> Self {
        let mut evaluator = Evaluator::new();
        let rules: Vec<ReadTaintRule<'_>> = rules
            .iter()
            .filter_map(|(key, TaintRule(rule))| ReadTaintRule::new(&key.name, rule, classes))
            .collect();
        let mut ruled = Self {
            taints: HashMap::new(),
            unclear: BTreeMap::new(),
        };
        if rules.is_empty() {
            return ruled;
        }
        for pool in pools.values() {
            for (device, ..) in pool.devices() {
                for rule in &rules {
                    match rule.selects(&mut evaluator, pool, device) {
                        Ok(true) => {
                            let id = (pool.driver, pool.name, device.name.as_str());
                            ruled.taints.entry(id).or_default().push(rule.taint);
                        }
                        Ok(false) => {}
                        Err(why) => {
                            ruled.unclear.entry(rule.name.to_owned()).or_insert(why);
                        }
                    }
                }
            }
        }
        ruled
    }

    /// Returns the taints of `device` of `pool`.
    pub(super) fn of(&self, pool: &'a DevicePool<'_>, device: &'a Device) -> &[&'a DeviceTaint] {
        let id = (pool.driver, pool.name, device.name.as_str());
        self.taints.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns why rules cannot be evaluated, by their names.
    pub(super) fn into_unclear(self) -> BTreeMap<String, String> {
        self.unclear
    }
}
