//! Exact quantities of resources in thousandths, rounded up as the Kubernetes scheduler does.

use std::collections::BTreeMap;

use serde_json::Value;

/// Thousandths, by resource.
pub(super) type AuditedAmounts = BTreeMap<String, u128>;

/// Thousandths in one unit.
pub(super) const UNIT: u128 = 1_000;

/// The largest amount, to which larger ones are cut, so that sums do not overflow.
const LARGEST: u128 = 1 << 96;

/// Parses a quantity: a number, or text such as `100m`, `1.5Gi`, `2e3`. Returns `None` if it is
/// invalid or negative.
pub(super) fn read(value: &Value) -> Option<u128> {
    match value {
        Value::String(text) => parse(text),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

fn parse(text: &str) -> Option<u128> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.len() + fraction.len() == 0 || fraction.contains('.') {
        return None;
    }
    let digits: u128 = format!("{whole}{fraction}").parse().ok()?;
    let (binary, decimal) = scale(suffix)?;
    let digits = digits.saturating_mul(1 << binary);
    let exponent = decimal.saturating_add(3 - i32::try_from(fraction.len()).ok()?);
    let power = 10_u128.saturating_pow(exponent.unsigned_abs());
    let thousandths = match exponent >= 0 {
        true => digits.saturating_mul(power),
        false => digits.div_ceil(power),
    };
    Some(thousandths.min(LARGEST))
}

/// Returns the powers of two and of ten of a suffix.
fn scale(suffix: &str) -> Option<(u32, i32)> {
    let decimal = match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        "Ki" => return Some((10, 0)),
        "Mi" => return Some((20, 0)),
        "Gi" => return Some((30, 0)),
        "Ti" => return Some((40, 0)),
        "Pi" => return Some((50, 0)),
        "Ei" => return Some((60, 0)),
        _ => suffix.strip_prefix(['e', 'E'])?.parse().ok()?,
    };
    Some((0, decimal))
}

/// Adds `times` × `more`.
pub(super) fn add(to: &mut AuditedAmounts, more: &AuditedAmounts, times: u128) {
    for (resource, amount) in more {
        *to.entry(resource.clone()).or_default() += amount * times;
    }
}

/// Raises every amount to that of `other` if it is larger.
pub(super) fn raise(to: &mut AuditedAmounts, other: &AuditedAmounts) {
    for (resource, &amount) in other {
        let own = to.entry(resource.clone()).or_default();
        *own = amount.max(*own);
    }
}

/// Returns true if a resource is a kind of devices, whose use is counted in device-seconds.
pub(super) fn is_device(resource: &str) -> bool {
    let plain = ["cpu", "memory", "ephemeral-storage", "pods"];
    !plain.contains(&resource) && !resource.starts_with("hugepages-")
}

/// Formats an amount: `16`, `0.1`.
pub(super) fn show(thousandths: u128) -> String {
    match thousandths % UNIT {
        0 => (thousandths / UNIT).to_string(),
        rest => {
            let text = format!("{}.{rest:03}", thousandths / UNIT);
            text.trim_end_matches('0').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quantities_are_read_exactly() {
        let cases = [
            (json!(8), Some(8_000)),
            (json!("8"), Some(8_000)),
            (json!(0.5), Some(500)),
            (json!("100m"), Some(100)),
            (json!("1.5"), Some(1_500)),
            (json!(".5"), Some(500)),
            (json!("1u"), Some(1)),
            (json!("1001u"), Some(2)),
            (json!("2k"), Some(2_000_000)),
            (json!("2e3"), Some(2_000_000)),
            (json!("25E-1"), Some(2_500)),
            (json!("2E"), Some(2_000_000_000_000_000_000_000)),
            (json!("64Mi"), Some(67_108_864_000)),
            (json!("1.5Gi"), Some(1_610_612_736_000)),
            (json!("-1"), None),
            (json!("1.5.3"), None),
            (json!("one"), None),
            (json!("1 Gi"), None),
            (json!(""), None),
            (json!(null), None),
            (json!("0e60"), Some(0)),
            (json!("1e60"), Some(LARGEST)),
            (json!("9999999999999999999999E"), Some(LARGEST)),
            (json!("1e-60"), Some(1)),
            (json!("1e"), None),
        ];
        for (value, expected) in cases {
            assert_eq!(read(&value), expected, "{value}");
        }
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        for (amount, expected) in [(16_000, "16"), (100, "0.1"), (1_500, "1.5"), (0, "0")] {
            assert_eq!(show(amount), expected);
        }
    }
}
