//! Errors of input files: each names the place, the cause and what would be valid.

use std::path::Path;

/// An input file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// The error of the operating system.
        reason: String,
    },
    /// The text is not YAML or CSV of an accepted form.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// The error of the parser, with line and column.
        reason: String,
    },
    /// A value is invalid.
    #[error("{file}, {place}: {field} is {value}; {needed}")]
    Value {
        /// The file.
        file: String,
        /// Line, or name of the object.
        place: String,
        /// The field.
        field: String,
        /// The value, as written.
        value: String,
        /// What would be valid.
        needed: String,
    },
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<String, InputError> {
    std::fs::read_to_string(path).map_err(|error| InputError::Unreadable {
        file: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// A place in a file, which errors of its values name.
#[derive(Debug, Clone)]
pub(crate) struct InputLocation<'a> {
    pub(crate) file: &'a str,
    pub(crate) place: String,
}

impl InputLocation<'_> {
    /// Returns the error of one value.
    pub(crate) fn refuse(&self, field: &str, value: &str, needed: &str) -> InputError {
        let quoted = if value.is_empty() {
            "empty".to_owned()
        } else {
            format!("{value:?}")
        };
        InputError::Value {
            file: self.file.to_owned(),
            place: self.place.clone(),
            field: field.to_owned(),
            value: quoted,
            needed: needed.to_owned(),
        }
    }

    /// Parses a whole number.
    pub(crate) fn whole<N: std::str::FromStr>(
        &self,
        field: &str,
        text: &str,
    ) -> Result<N, InputError> {
        let number = text.trim().parse();
        number.map_err(|_| self.refuse(field, text, "a whole number, 0 or more, is needed"))
    }

    /// Parses a number of seconds, which may have a fraction, and returns milliseconds.
    pub(crate) fn seconds(&self, field: &str, text: &str) -> Result<i64, InputError> {
        let needed = "a number of seconds, 0 or more, is needed";
        let seconds: f64 = text
            .trim()
            .parse()
            .map_err(|_| self.refuse(field, text, needed))?;
        if !(0.0..1e12).contains(&seconds) {
            return Err(self.refuse(field, text, needed));
        }
        Ok((seconds * 1000.0).round() as i64)
    }
}
