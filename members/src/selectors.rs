//! Evaluates which devices a DeviceClass selects: its CEL expressions, as kube-scheduler does
//! (k8s.io/dynamic-resource-allocation/cel, v1.35).
//!
//! Nothing is guessed: an expression is accepted only if every part of it can be evaluated exactly here,
//! and a failure on a device is an error, as for kube-scheduler. Device classes in practice use:
//! `device.driver`, attributes and capacities by domain and name, comparisons, `in`, `has`, `&&`, `||`,
//! `!`, `?:`, `startsWith`, `endsWith`, `contains`, and quantities. Versions, regular expressions and
//! macros over lists are not supported. Pure.

use cel::common::ast::{CallExpr, Expr, LiteralValue, SelectExpr, operators};
use cel::extractors::This;
use cel::objects::{Key, Map, Opaque};
use cel::{Context, ExecutionError, IdedExpr, Value};
use crds::devices::{Device, DeviceClass, DeviceSelector};
use facts::Quantity;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The selectors of one class.
#[derive(Debug, Clone)]
pub(super) struct Selectors(Vec<Selector>);

/// One expression, with the parts of a device that it reads.
#[derive(Debug, Clone)]
struct Selector {
    expression: IdedExpr,
    /// Domains whose attributes or capacities it reads.
    domains: BTreeSet<String>,
    /// Attributes whose values it reads.
    attributes: BTreeSet<(String, String)>,
}

impl Selectors {
    /// Returns the selectors of `class`.
    ///
    /// # Errors
    /// Returns a message if one of them uses something that is not supported.
    pub(super) fn of(class: &DeviceClass) -> Result<Self, String> {
        Self::read(&class.spec.selectors)
    }

    /// Does the same for `selectors`.
    ///
    /// # Errors
    /// As [`Self::of`].
    pub(super) fn read(selectors: &[DeviceSelector]) -> Result<Self, String> {
        let each = selectors.iter().map(|selector| match &selector.cel {
            Some(cel) => Selector::read(&cel.expression),
            None => Err("a selector of a kind that is not known".to_owned()),
        });
        each.collect::<Result<_, _>>().map(Self)
    }
}

impl Selector {
    fn read(text: &str) -> Result<Self, String> {
        let expression = cel::parser::Parser::new()
            .parse(text)
            .map_err(|error| format!("{text:?} cannot be read: {error}"))?;
        let mut selector = Self {
            expression: IdedExpr::default(),
            domains: BTreeSet::new(),
            attributes: BTreeSet::new(),
        };
        selector
            .check(&expression)
            .map_err(|what| format!("{text:?} uses {what}, which is not evaluated here"))?;
        selector.expression = expression;
        Ok(selector)
    }

    /// Returns an error with the first part of the expression that is not supported.
    fn check(&mut self, part: &IdedExpr) -> Result<(), String> {
        match &part.expr {
            Expr::Literal(
                LiteralValue::Boolean(_) | LiteralValue::Int(_) | LiteralValue::String(_),
            ) => Ok(()),
            Expr::List(list) => list.elements.iter().try_for_each(|part| self.check(part)),
            Expr::Select(select) => self.check_select(select),
            Expr::Call(call) => self.check_call(call),
            Expr::Ident(name) => Err(format!("`{name}`")),
            Expr::Comprehension(_) => Err("a macro over a list".to_owned()),
            _ => Err("a literal of another kind".to_owned()),
        }
    }

    /// Checks `device.driver`, `device.attributes["domain"].name` or `has()` of the latter.
    fn check_select(&mut self, select: &SelectExpr) -> Result<(), String> {
        if is_device(&select.operand) {
            return match select.field.as_str() {
                "driver" | "allowMultipleAllocations" if !select.test => Ok(()),
                field => Err(format!("`device.{field}` as a whole")),
            };
        }
        let domain = self.domain(&select.operand);
        let (of, domain) = domain.ok_or_else(|| format!("field `{}`", select.field))?;
        if of == "attributes" && !select.test {
            self.attributes.insert((domain, select.field.clone()));
        }
        Ok(())
    }

    fn check_call(&mut self, call: &CallExpr) -> Result<(), String> {
        let name = call.func_name.as_str();
        match (name, &call.target, call.args.as_slice()) {
            (operators::INDEX, None, [map, key]) => self.check_index(map, key),
            (operators::IN, None, [item, whole]) => {
                self.check(item)?;
                match self.domain(whole) {
                    Some(_) => Ok(()),
                    None => self.check(whole),
                }
            }
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::CONDITIONAL
                | operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | "quantity",
                None,
                parts,
            ) => parts.iter().try_for_each(|part| self.check(part)),
            (
                "startsWith" | "endsWith" | "contains" | "compareTo" | "isGreaterThan"
                | "isLessThan",
                Some(target),
                [argument],
            ) => {
                self.check(target)?;
                self.check(argument)
            }
            _ => Err(format!("`{}`", name.trim_matches(['_', '@']))),
        }
    }

    /// Checks `device.attributes["domain"]["name"]`.
    fn check_index(&mut self, map: &IdedExpr, key: &IdedExpr) -> Result<(), String> {
        let key = text(key).ok_or("an index that is no text")?.to_owned();
        let domain = self.domain(map);
        let (of, domain) = domain.ok_or_else(|| format!("index {key:?}"))?;
        if of == "attributes" {
            self.attributes.insert((domain, key));
        }
        Ok(())
    }

    /// Returns the map and domain if `part` is `device.attributes["domain"]` or `device.capacity["domain"]`.
    /// Every domain exists for every device; it may be empty.
    fn domain(&mut self, part: &IdedExpr) -> Option<(&'static str, String)> {
        let Expr::Call(call) = &part.expr else {
            return None;
        };
        let [map, key] = call.args.as_slice() else {
            return None;
        };
        let Expr::Select(select) = &map.expr else {
            return None;
        };
        let of = ["attributes", "capacity"]
            .into_iter()
            .find(|of| *of == select.field)?;
        let is_one =
            call.func_name == operators::INDEX && is_device(&select.operand) && !select.test;
        let domain = text(key).filter(|_| is_one)?.to_owned();
        self.domains.insert(domain.clone());
        Some((of, domain))
    }
}

fn is_device(part: &IdedExpr) -> bool {
    matches!(&part.expr, Expr::Ident(name) if name == "device")
}

fn text(part: &IdedExpr) -> Option<&str> {
    match &part.expr {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner()),
        _ => None,
    }
}

/// Evaluates selectors.
pub(super) struct Evaluator(Context<'static, 'static>);

impl Evaluator {
    pub(super) fn new() -> Self {
        let mut context = Context::default();
        let declared = [
            context.add_function("quantity", quantity),
            context.add_function("compareTo", compare_to),
            context.add_function("isGreaterThan", is_greater_than),
            context.add_function("isLessThan", is_less_than),
        ];
        debug_assert!(declared.iter().all(Result::is_ok), "{declared:?}");
        Self(context)
    }

    /// Returns true if all of `selectors` match a device of `driver`.
    ///
    /// # Errors
    /// Returns a message if that cannot be evaluated: kube-scheduler then allocates nothing there.
    pub(super) fn matches(
        &mut self,
        selectors: &Selectors,
        driver: &str,
        device: &Device,
    ) -> Result<bool, String> {
        for selector in &selectors.0 {
            if !self.matches_one(selector, driver, device)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn matches_one(
        &mut self,
        selector: &Selector,
        driver: &str,
        device: &Device,
    ) -> Result<bool, String> {
        let read = read(selector, driver, device)?;
        self.0.add_variable_from_value("device", read);
        match Value::resolve(&selector.expression, &self.0) {
            Ok(Value::Bool(matches)) => Ok(matches),
            Ok(other) => Err(format!("device {}: {other:?} is no answer", device.name)),
            Err(error) => Err(format!("device {}: {error}", device.name)),
        }
    }
}

/// Values by domain, then by name.
type ValuesByDomain = HashMap<String, HashMap<String, Value>>;

/// Returns the device as `selector` sees it.
fn read(selector: &Selector, driver: &str, device: &Device) -> Result<Value, String> {
    let empty = || -> ValuesByDomain {
        let domains = selector.domains.iter();
        domains.map(|name| (name.clone(), HashMap::new())).collect()
    };
    let (mut attributes, mut capacity) = (empty(), empty());
    for (name, value) in &device.attributes {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        let value = attribute(value);
        let at = (domain.to_owned(), name.to_owned());
        if selector.attributes.contains(&at) && matches!(value, Value::Opaque(_)) {
            let name = &device.name;
            return Err(format!(
                "device {name}: attribute {}/{} is a version or a list, which are not compared here",
                at.0, at.1
            ));
        }
        attributes.entry(at.0).or_default().insert(at.1, value);
    }
    for (name, value) in &device.capacity {
        let (domain, name) = name.split_once('/').unwrap_or((driver, name));
        let value = value.get("value").and_then(serde_json::Value::as_str);
        let value = amount(value.unwrap_or_default())
            .map_err(|error| format!("device {}: capacity {name}: {error}", device.name))?;
        let domain = capacity.entry(domain.to_owned()).or_default();
        domain.insert(name.to_owned(), value);
    }
    let fields: HashMap<&str, Value> = [
        ("driver", Value::from(driver)),
        ("attributes", map(attributes)),
        ("capacity", map(capacity)),
        (
            "allowMultipleAllocations",
            Value::Bool(device.allow_multiple_allocations),
        ),
    ]
    .into();
    Ok(Value::Map(Map::from(fields)))
}

fn map(domains: ValuesByDomain) -> Value {
    let domains = domains
        .into_iter()
        .map(|(name, values)| (Key::from(name), Value::Map(Map::from(values))));
    Value::Map(Map::from(domains.collect::<HashMap<_, _>>()))
}

fn attribute(value: &serde_json::Value) -> Value {
    let of = |kind: &str| value.get(kind);
    if let Some(text) = of("string").and_then(serde_json::Value::as_str) {
        return Value::from(text);
    }
    if let Some(number) = of("int").and_then(serde_json::Value::as_i64) {
        return Value::Int(number);
    }
    if let Some(flag) = of("bool").and_then(serde_json::Value::as_bool) {
        return Value::Bool(flag);
    }
    Value::Opaque(Arc::new(Other))
}

/// A value of a kind that is not compared here; it only exists.
#[derive(Debug, PartialEq, Eq)]
struct Other;

impl Opaque for Other {
    fn runtime_type_name(&self) -> &'static str {
        "muster.Other"
    }
}

/// `kubernetes.Quantity`.
#[derive(Debug, PartialEq, Eq)]
struct CelQuantity(Quantity);

impl Opaque for CelQuantity {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

fn amount(text: &str) -> Result<Value, String> {
    let quantity: Quantity = text
        .parse()
        .map_err(|error: facts::QuantityError| error.to_string())?;
    Ok(Value::Opaque(Arc::new(CelQuantity(quantity))))
}

fn quantity(text: Arc<String>) -> Result<Value, ExecutionError> {
    amount(&text).map_err(|error| ExecutionError::function_error("quantity", error))
}

fn compare_to(This(one): This<Value>, other: Value) -> Result<i64, ExecutionError> {
    let (one, other) = both("compareTo", &one, &other)?;
    Ok(one.cmp(&other) as i64)
}

fn is_greater_than(This(one): This<Value>, other: Value) -> Result<bool, ExecutionError> {
    let (one, other) = both("isGreaterThan", &one, &other)?;
    Ok(one > other)
}

fn is_less_than(This(one): This<Value>, other: Value) -> Result<bool, ExecutionError> {
    let (one, other) = both("isLessThan", &one, &other)?;
    Ok(one < other)
}

fn both(
    function: &str,
    one: &Value,
    other: &Value,
) -> Result<(Quantity, Quantity), ExecutionError> {
    let of = |value: &Value| match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<CelQuantity>().map(|found| found.0),
        _ => None,
    };
    of(one)
        .zip(of(other))
        .ok_or_else(|| ExecutionError::function_error(function, "both must be quantities"))
}

#[cfg(test)]
mod tests;
