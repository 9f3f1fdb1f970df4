//! The number of random cases.

/// `otherwise`, unless `PROPTEST_CASES` has another number.
pub fn cases(otherwise: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(otherwise)
}
