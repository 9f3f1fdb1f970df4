//! Quantities: the test vectors of Kubernetes, and the amounts that follow.

use engine::{Amount, Quantity, ResourceName};

/// The table of `TestQuantityParse` in k8s.io/apimachinery v0.36.1: a text, its integer and its
/// power of ten.
const VECTORS: &str = "
    0 0 0
    0n 0 0
    0u 0 0
    0m 0 0
    0Ki 0 0
    0k 0 0
    0Mi 0 0
    0M 0 0
    0Gi 0 0
    0G 0 0
    0Ti 0 0
    0T 0 0
    1 1 0
    1Ki 1024 0
    8Ki 8192 0
    7Mi 7340032 0
    6Gi 6442450944 0
    5Ti 5497558138880 0
    4Pi 4503599627370496 0
    3Ei 3458764513820540928 0
    10Ti 10995116277760 0
    100Ti 109951162777600 0
    5n 5 -9
    4u 4 -6
    3m 3 -3
    9 9 0
    8k 8 3
    50k 5 4
    7M 7 6
    6G 6 9
    5T 5 12
    40T 4 13
    300T 3 14
    2P 2 15
    1E 1 18
    1E-3 1 -3
    1e3 1 3
    1E6 1 6
    1e9 1 9
    1E12 1 12
    1e15 1 15
    1E18 1 18
    1e14 1 14
    1e13 1 13
    100.035k 100035 0
    0.001 1 -3
    0.0005k 5 -1
    0.005 5 -3
    0.05 5 -2
    0.5 5 -1
    0.00050k 5 -1
    0.00500 5 -3
    0.05000 5 -2
    0.50000 5 -1
    0.5e0 5 -1
    0.5e-1 5 -2
    0.5e-2 5 -3
    10.035M 10035 3
    1.2e3 12 2
    1.3E+6 13 5
    1.40e9 14 8
    1.53E12 153 10
    1.6e15 16 14
    1.7E18 17 17
    9.01 901 -2
    8.1k 81 2
    7.123456M 7123456 0
    6.987654321G 6987654321 0
    5.444T 5444 9
    40.1T 401 11
    300.2T 3002 11
    2.5P 25 14
    1.01E 101 16
    3.001n 4 -9
    1.1E-9 2 -9
    0.0000000001 1 -9
    0.0000000005 1 -9
    0.00000000050 1 -9
    0.5e-9 1 -9
    0.9n 1 -9
    0.00000012345 124 -9
    0.00000012354 124 -9
    9Ei 9223372036854775807 0
    9223372036854775807Ki 9223372036854775807 0
    12E 12 18
    100.035Ki 10243584 -2
    0.5Mi 524288 0
    0.05Gi 536870912 -1
    0.025Ti 274877906944 -1
    0.000000000001Ki 2 -9
    .001 1 -3
    .0001k 100 -3
    1. 1 0
    1.G 1 9
";

/// The texts that the same test expects to be refused.
const REFUSED: [&str; 11] = [
    "1.1.M", "1+1.0M", "0.1mi", "0.1am", "aoeu", ".5i", "1i", "-3.01i", "-3.01e-", " 1", "1 ",
];

fn parse(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// Nano-units of `integer × 10^power`, at most 2^63-1 units: Kubernetes stores larger ones in
/// another representation (12E), which has no amount.
fn nanos(integer: i128, power: u32) -> i128 {
    (integer * 10_i128.pow(power)).min(i128::from(i64::MAX) * 1_000_000_000)
}

fn vectors() -> impl Iterator<Item = (&'static str, i128)> {
    VECTORS.lines().filter(|line| !line.is_empty()).map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let power: i32 = fields[2].parse().unwrap();
        let power = u32::try_from(power + 9).unwrap();
        (fields[0], nanos(fields[1].parse().unwrap(), power))
    })
}

#[test]
fn kubernetes_vectors_are_read_exactly() {
    for (text, nanos) in vectors() {
        assert_eq!(parse(text), parse(&format!("{nanos}n")), "{text}");
        assert_eq!(
            parse(&format!("-{text}")),
            parse(&format!("-{nanos}n")),
            "-{text}"
        );
        assert_eq!(parse(&format!("+{text}")), parse(text), "+{text}");
    }
}

#[test]
fn texts_that_kubernetes_refuses_are_refused() {
    for text in REFUSED {
        assert!(text.parse::<Quantity>().is_err(), "{text:?}");
    }
}

#[test]
fn a_written_quantity_reads_as_the_same() {
    for (text, _) in vectors() {
        let quantity = parse(text);
        assert_eq!(parse(&quantity.to_string()), quantity, "{text}");
    }
}

/// `TestQuantityRoundUp` of the same package, in the base units of accounts.
#[test]
fn requests_are_rounded_up_to_base_units() {
    let cpu = ResourceName::new("cpu");
    let memory = ResourceName::new("memory");
    for (text, milli, units) in [
        ("9.01", 9010, 10),
        ("9.0101", 9011, 10),
        ("1n", 1, 1),
        ("1500u", 2, 1),
        ("0.5", 500, 1),
        ("2", 2000, 2),
        ("1.5Ki", 1_536_000, 1536),
        ("0", 0, 0),
    ] {
        assert_eq!(cpu.amount(text).unwrap(), Amount(milli), "cpu {text}");
        assert_eq!(memory.amount(text).unwrap(), Amount(units), "memory {text}");
    }
}

#[test]
fn a_quantity_is_written_in_the_coarsest_exact_unit() {
    for (text, written) in [
        ("0", "0"),
        ("2", "2"),
        ("1Ki", "1024"),
        ("-3", "-3"),
        ("1500m", "1500m"),
        ("1.5", "1500m"),
        ("1001u", "1001000n"),
        ("1n", "1n"),
    ] {
        assert_eq!(parse(text).to_string(), written, "{text}");
    }
}
