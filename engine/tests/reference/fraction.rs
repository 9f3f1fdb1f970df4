//! Exact fractions.

use std::cmp::Ordering;
use std::fmt;

/// `over / under` with a positive `under`, or infinity if `under` is zero.
#[derive(Debug, Clone, Copy)]
pub struct Fraction {
    over: i128,
    under: i128,
}

impl Fraction {
    pub const ZERO: Self = Self { over: 0, under: 1 };

    /// `over / under`; 0/0 is zero, and any other amount over 0 is infinity.
    pub fn new(over: i64, under: i64) -> Self {
        assert!(under >= 0 && over >= 0);
        Self::reduced(over.into(), under.into())
    }

    pub fn whole(number: i64) -> Self {
        Self::new(number, 1)
    }

    pub fn is_whole(self) -> bool {
        self.under == 1
    }

    fn reduced(over: i128, under: i128) -> Self {
        let divisor = gcd(over, under);
        if divisor == 0 {
            return Self::ZERO;
        }
        Self {
            over: over / divisor,
            under: under / divisor,
        }
    }

    pub fn plus(self, other: Self) -> Self {
        Self::reduced(
            self.over * other.under + other.over * self.under,
            self.under * other.under,
        )
    }

    /// `self - other`, which must not be negative.
    pub fn minus(self, other: Self) -> Self {
        let over = self.over * other.under - other.over * self.under;
        assert!(over >= 0, "{self} - {other}");
        Self::reduced(over, self.under * other.under)
    }

    pub fn times(self, other: Self) -> Self {
        Self::reduced(self.over * other.over, self.under * other.under)
    }

    /// `self / other`, which must not be zero.
    pub fn per(self, other: Self) -> Self {
        assert!(other.over > 0);
        Self::reduced(self.over * other.under, self.under * other.over)
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Ord for Fraction {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.under, other.under) {
            (0, 0) => Ordering::Equal,
            (0, _) => Ordering::Greater,
            (_, 0) => Ordering::Less,
            _ => (self.over * other.under).cmp(&(other.over * self.under)),
        }
    }
}

impl PartialOrd for Fraction {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Fraction {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Fraction {}

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.over, self.under)
    }
}
