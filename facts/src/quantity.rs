//! Exact Kubernetes quantities.
//!
//! A text such as `500m`, `1.5Gi` or `1e3` becomes an [`Amount`] in the base unit of its resource:
//! milli-cores of CPU, bytes of memory and storage, units of everything else. No float is used
//! and nothing wraps. An illegal quantity is an error that says what would be right.

use std::fmt;
use std::str::FromStr;

/// Nano-units in one unit: the finest step a Kubernetes quantity has.
const NANOS_PER_UNIT: i128 = 1_000_000_000;
/// Kubernetes caps every quantity at 2^63-1 units (`resource.ParseQuantity`).
const MAX_NANOS: i128 = (i64::MAX as i128) * NANOS_PER_UNIT;

/// A parsed Kubernetes quantity, in nano-units.
///
/// Parsing follows `resource.ParseQuantity` of k8s.io/apimachinery: it rounds away from zero to
/// whole nano-units, and caps at 2^63-1 units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Why a text is not a Kubernetes quantity, or not one that can be charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not follow the grammar.
    #[error("quantity {0:?} is not a number with an optional suffix (like 500m, 2, 1.5Gi or 1e3)")]
    Malformed(String),
    /// A request or limit below zero.
    #[error("quantity {0:?} is negative; 0 or more is needed")]
    Negative(String),
    /// More than 2^63-1 base units of the resource.
    #[error("quantity {0:?} is too large to be counted; at most 2^63-1 base units are")]
    TooLarge(String),
}

/// An amount of one resource in its base unit: milli-cores for `cpu`, bytes for memory and
/// storage, units for everything else. Amounts in facts are never negative; differences may be.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    serde::Serialize,
    serde::Deserialize,
)]
#[serde(transparent)]
pub struct Amount(pub i64);

impl Amount {
    /// Zero. In a bound, an explicit zero differs from an absent resource.
    pub const ZERO: Self = Self(0);

    /// `self + other`, or `None` if the sum overflows.
    #[inline]
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// `self × times`, or `None` if the product overflows.
    #[inline]
    #[must_use]
    pub fn checked_mul(self, times: u32) -> Option<Self> {
        self.0.checked_mul(i64::from(times)).map(Self)
    }
}

impl Quantity {
    /// The quantity in steps of `10^-9 × nanos_per_step`, rounded away from zero, as Kubernetes
    /// rounds requests.
    ///
    /// # Errors
    /// [`QuantityError::TooLarge`] if the steps do not fit 63 bits.
    fn steps(self, nanos_per_step: i128) -> Result<Amount, QuantityError> {
        let whole = self.0 / nanos_per_step;
        let rest = (self.0 % nanos_per_step).signum();
        i64::try_from(whole + rest)
            .map(Amount)
            .map_err(|_| QuantityError::TooLarge(self.to_string()))
    }

    /// The quantity in milli-units (of CPU: milli-cores), rounded up.
    ///
    /// # Errors
    /// [`QuantityError::TooLarge`] above 2^63-1 milli-cores.
    pub fn milli(self) -> Result<Amount, QuantityError> {
        self.steps(NANOS_PER_UNIT / 1000)
    }

    /// The quantity in whole units (bytes, devices, pods), rounded up.
    ///
    /// # Errors
    /// None in practice: parsing caps quantities at 2^63-1 units.
    pub fn units(self) -> Result<Amount, QuantityError> {
        self.steps(NANOS_PER_UNIT)
    }

    /// Returns true if it is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.0 < 0
    }
}

impl fmt::Display for Quantity {
    /// In units, milli-units or nano-units: the coarsest that is exact.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % NANOS_PER_UNIT == 0 {
            write!(f, "{}", self.0 / NANOS_PER_UNIT)
        } else if self.0 % 1_000_000 == 0 {
            write!(f, "{}m", self.0 / 1_000_000)
        } else {
            write!(f, "{}n", self.0)
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || QuantityError::Malformed(text.to_owned());
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let number_end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || (integer.is_empty() && fraction.is_empty()) {
            return Err(malformed());
        }
        let scale = Scale::parse(suffix).ok_or_else(malformed)?;
        let nanos = scale.nanos(integer, fraction).min(MAX_NANOS);
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

/// The factor of a suffix.
#[derive(Clone, Copy)]
enum Scale {
    /// 10 to this power.
    Decimal(i32),
    /// 2 to this power.
    Binary(u32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "" => Self::Decimal(0),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                // A larger exponent caps or rounds in the same way.
                let clamped = digits.parse::<i32>().unwrap_or(i32::MAX).min(10_000);
                Self::Decimal(if exponent.starts_with('-') {
                    -clamped
                } else {
                    clamped
                })
            }
        })
    }

    /// `integer.fraction × scale` in nano-units, rounded up. Any result from [`MAX_NANOS`] on means
    /// that it is at least as much.
    fn nanos(self, integer: &str, fraction: &str) -> i128 {
        match self {
            Self::Decimal(power) => decimal_nanos(integer, fraction, power),
            Self::Binary(power) => binary_nanos(integer, fraction, power),
        }
    }
}

/// `integer.fraction × 10^power` in nano-units: shifts the decimal point, and rounds up at the end.
fn decimal_nanos(integer: &str, fraction: &str, power: i32) -> i128 {
    // The decimal point in nano-units comes after `point` digits of `integer ++ fraction`.
    let point = integer.len() as i64 + i64::from(power) + 9;
    let mut value: i128 = 0;
    let mut lost = false;
    let mut position: i64 = 0;
    for digit in integer
        .bytes()
        .chain(fraction.bytes())
        .map(|b| i128::from(b - b'0'))
    {
        if position < point {
            value = (value * 10 + digit).min(MAX_NANOS);
        } else {
            lost |= digit != 0;
        }
        position += 1;
    }
    while position < point && value != 0 && value < MAX_NANOS {
        value = (value * 10).min(MAX_NANOS);
        position += 1;
    }
    value + i128::from(lost)
}

/// `integer.fraction × 2^power` in nano-units, rounded up.
fn binary_nanos(integer: &str, fraction: &str, power: u32) -> i128 {
    let factor = NANOS_PER_UNIT << power; // at most 2^60 × 10^9 < 2^90
    let whole = integer.bytes().fold(0_i128, |value, b| {
        (value * 10 + i128::from(b - b'0')).min(i128::from(i64::MAX))
    });
    // Horner's rule from the last digit on; `lost` is set if any step had to round down.
    let mut lost = false;
    let part = fraction.bytes().rev().fold(0_i128, |value, b| {
        let sum = value + i128::from(b - b'0') * factor;
        lost |= sum % 10 != 0;
        sum / 10
    });
    whole
        .checked_mul(factor)
        .and_then(|w| w.checked_add(part))
        .unwrap_or(MAX_NANOS)
        .min(MAX_NANOS)
        + i128::from(lost)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn nanos(text: &str) -> i128 {
        text.parse::<Quantity>().unwrap().0
    }

    /// Vectors of k8s.io/apimachinery/pkg/api/resource/quantity_test.go (TestQuantityParse…).
    #[test]
    fn parses_what_kubernetes_parses() {
        let unit = NANOS_PER_UNIT;
        for (text, shape) in [
            ("0", 0),
            ("0n", 0),
            ("0Ki", 0),
            ("-0", 0),
            ("+0", 0),
            ("0E0", 0),
            ("0.000", 0),
            ("1", unit),
            ("1.", unit),
            (".5", unit / 2),
            ("+1", unit),
            ("-1", -unit),
            ("100m", unit / 10),
            ("1n", 1),
            ("1u", 1000),
            ("1k", 1000 * unit),
            ("1E", unit * 10_i128.pow(18)),
            ("1e3", 1000 * unit),
            ("1E3", 1000 * unit),
            ("1e-3", unit / 1000),
            ("1.5e+2", 150 * unit),
            ("1Ki", 1024 * unit),
            ("1.5Gi", 3 * (unit << 29)),
            ("0.5Mi", unit << 19),
            ("9223372036854775807", MAX_NANOS),
            ("9007199254740993", 9_007_199_254_740_993 * unit),
        ] {
            assert_eq!(nanos(text), shape, "{text}");
        }
    }

    #[test]
    fn rounds_up_and_caps_as_kubernetes_does() {
        assert_eq!(nanos("0.1n"), 1);
        assert_eq!(nanos("1.000000000000001"), NANOS_PER_UNIT + 1);
        assert_eq!(nanos("1e-20"), 1);
        assert_eq!(nanos("9223372036854775808"), MAX_NANOS);
        assert_eq!(nanos("10Ei"), MAX_NANOS);
        assert_eq!(nanos("1e400"), MAX_NANOS);
        assert_eq!(
            "1500u".parse::<Quantity>().unwrap().milli().unwrap(),
            Amount(2)
        );
        assert_eq!(
            "0.5".parse::<Quantity>().unwrap().units().unwrap(),
            Amount(1)
        );
        assert!(
            "9223372036854775807"
                .parse::<Quantity>()
                .unwrap()
                .milli()
                .is_err()
        );
    }

    #[test]
    fn refuses_what_kubernetes_refuses() {
        for text in [
            "", ".", "-", "+-5", "1.2.3", "Ki", "1ki", "1 Gi", "1e", "1e1.5", "1Kii", "0x10", "1i",
            "−1", "inf",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }
}
