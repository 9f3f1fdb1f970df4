//! What the program prints when it fails.

#![allow(clippy::unwrap_used)]

use std::process::Command;

/// Developers have RUST_BACKTRACE set for panics; an error of a user is none.
#[test]
fn an_error_is_one_line_without_a_backtrace() {
    let mut muster = Command::new(env!("CARGO_BIN_EXE_muster"));
    muster.args([
        "simulate",
        "--fleet",
        "no-such-file",
        "--jobs",
        "no-such-file",
    ]);
    let output = muster.env("RUST_BACKTRACE", "1").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(said.starts_with("error: "), "{said}");
    assert!(said.contains("no-such-file"), "{said}");
}
