//! CSV with a header: columns by name, rows by line number.

use crate::error::{InputError, InputLocation, read};
use std::path::Path;

/// A CSV file in memory.
pub(crate) struct CsvTable {
    file: String,
    columns: Vec<String>,
    rows: Vec<(u64, csv::StringRecord)>,
}

/// A line of the file.
pub(crate) struct CsvRow<'a> {
    pub(crate) place: InputLocation<'a>,
    columns: &'a [String],
    record: &'a csv::StringRecord,
}

impl CsvTable {
    /// Reads the file.
    pub(crate) fn read(path: &Path) -> Result<Self, InputError> {
        let file = path.display().to_string();
        let text = read(path)?;
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let malformed = |error: csv::Error| InputError::Malformed {
            file: file.clone(),
            reason: error.to_string(),
        };
        let header = reader.headers().map_err(malformed)?;
        let columns = header.iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(malformed)?;
            let line = record.position().map_or(0, csv::Position::line);
            rows.push((line, record));
        }
        Ok(Self {
            file,
            columns,
            rows,
        })
    }

    /// Returns true if all of these columns exist.
    pub(crate) fn has(&self, columns: &[&str]) -> bool {
        let known = |column: &&str| self.columns.iter().any(|known| known == column);
        columns.iter().all(known)
    }

    /// Returns the error of a header that matches no known form.
    pub(crate) fn unknown_form(&self, forms: &str) -> InputError {
        InputError::Value {
            file: self.file.clone(),
            place: "line 1".to_owned(),
            field: "header".to_owned(),
            value: format!("{:?}", self.columns.join(",")),
            needed: format!("one of these is needed: {forms}"),
        }
    }

    /// Iterates over the rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = CsvRow<'_>> {
        self.rows.iter().map(|(line, record)| CsvRow {
            place: InputLocation {
                file: &self.file,
                place: format!("line {line}"),
            },
            columns: &self.columns,
            record,
        })
    }
}

impl<'a> CsvRow<'a> {
    /// Returns the text of a column; empty if the column is absent.
    pub(crate) fn text(&self, column: &str) -> &'a str {
        let index = self.columns.iter().position(|known| known == column);
        index
            .and_then(|index| self.record.get(index))
            .unwrap_or_default()
    }

    /// Parses the whole number of a column.
    pub(crate) fn whole<N: std::str::FromStr>(&self, column: &str) -> Result<N, InputError> {
        self.place.whole(column, self.text(column))
    }

    /// Parses the seconds of a column, and returns milliseconds.
    pub(crate) fn seconds(&self, column: &str) -> Result<i64, InputError> {
        self.place.seconds(column, self.text(column))
    }
}
