//! What is wrong with an input file: the place, the cause and the cure.

use std::path::Path;

/// An input file that cannot be used: which, where in it, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The file cannot be read.
    #[error("{file}: cannot be read: {reason}")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        reason: String,
    },
    /// The text is no YAML or CSV of the form that is read.
    #[error("{file}: {reason}")]
    Malformed {
        /// The file.
        file: String,
        /// What the parser says, with line and column.
        reason: String,
    },
    /// One value cannot be used.
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
        /// What would be right.
        needed: String,
    },
}

/// Reads a file whole.
pub(crate) fn read(path: &Path) -> Result<String, InputError> {
    std::fs::read_to_string(path).map_err(|error| InputError::Unreadable {
        file: path.display().to_string(),
        reason: error.to_string(),
    })
}

/// A place in a file, from which values are refused.
#[derive(Debug, Clone)]
pub(crate) struct InputLocation<'a> {
    pub(crate) file: &'a str,
    pub(crate) place: String,
}

impl InputLocation<'_> {
    /// The error of one value.
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

    /// The whole number in `text`.
    pub(crate) fn whole<N: std::str::FromStr>(
        &self,
        field: &str,
        text: &str,
    ) -> Result<N, InputError> {
        let number = text.trim().parse();
        number.map_err(|_| self.refuse(field, text, "a whole number, 0 or more, is needed"))
    }

    /// The milliseconds in a number of seconds, which may have a fraction.
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
