//! What the checks found, for people and for scripts.

use crate::CheckError;
use serde::Serialize;
use std::fmt::Write as _;

/// What a finding means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Severity {
    /// Muster does not work, or not for a part of the fleet.
    Blocks,
    /// Muster works, and something is lost.
    Warns,
}

/// One finding: what was found, why it matters, and what mends it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckFinding {
    /// Whether Muster works in spite of it.
    pub severity: Severity,
    /// The name of the check, for scripts.
    pub check: &'static str,
    /// What was found.
    pub found: String,
    /// Why it matters.
    pub why: String,
    /// What mends it.
    pub fix: String,
}

impl CheckFinding {
    pub(crate) fn blocks(
        check: &'static str,
        found: impl Into<String>,
        why: &str,
        fix: &str,
    ) -> Self {
        Self {
            severity: Severity::Blocks,
            check,
            found: found.into(),
            why: why.to_owned(),
            fix: fix.to_owned(),
        }
    }

    pub(crate) fn warns(
        check: &'static str,
        found: impl Into<String>,
        why: &str,
        fix: &str,
    ) -> Self {
        Self {
            severity: Severity::Warns,
            ..Self::blocks(check, found, why, fix)
        }
    }
}

/// What was not checked, and who can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotChecked {
    /// The name of the check.
    pub check: &'static str,
    /// Why not.
    pub why: String,
    /// How to find out.
    pub instead: String,
}

/// All findings, and what was not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// What keeps Muster from working, or diminishes it.
    pub findings: Vec<CheckFinding>,
    /// What was not checked: it may be right or wrong.
    pub unchecked: Vec<NotChecked>,
}

impl CheckReport {
    /// Returns true if a finding blocks.
    #[must_use]
    pub fn blocks(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.severity == Severity::Blocks)
    }

    /// Formats the report for people. `rest` adds what was not checked.
    #[must_use]
    pub fn text(&self, rest: bool) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Blocks => "BLOCKS",
                Severity::Warns => "warns",
            };
            let _ = writeln!(
                text,
                "{severity} {}: {}\n  why: {}\n  fix: {}",
                finding.check, finding.found, finding.why, finding.fix
            );
        }
        if self.findings.is_empty() {
            text += "no findings";
            text += &match self.unchecked.len() {
                0 => "\n".to_owned(),
                count => format!("; not checked: {count}\n"),
            };
        }
        for skipped in self.unchecked.iter().filter(|_| rest) {
            let _ = writeln!(
                text,
                "not checked: {}: {}\n  instead: {}",
                skipped.check, skipped.why, skipped.instead
            );
        }
        text
    }

    pub(crate) fn unchecked(&mut self, check: &'static str, why: impl Into<String>, instead: &str) {
        self.unchecked.push(NotChecked {
            check,
            why: why.into(),
            instead: instead.to_owned(),
        });
    }

    /// Adds the findings of a check. One that may not read what it needs is unchecked.
    pub(crate) fn absorb(
        &mut self,
        check: &'static str,
        found: Result<Vec<CheckFinding>, CheckError>,
    ) -> Result<(), CheckError> {
        match found {
            Ok(findings) => self.findings.extend(findings),
            Err(error) if error.is_forbidden() => self.unchecked(
                check,
                error.to_string(),
                "check with an account that may read it",
            ),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
