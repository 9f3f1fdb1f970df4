//! Output: aligned columns like kubectl's, and objects as the server has them.

use crate::args::Format;
use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::io::{self, ErrorKind, Write};

/// Text of a cell without a value.
pub(crate) const NONE: &str = "<none>";

/// Writes to standard output; a reader that stops reading (`| head`) is no failure.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Formats `value` for programs.
pub(crate) fn machine(value: &impl Serialize, format: Format) -> Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value)?,
        _ => serde_json::to_string_pretty(value)? + "\n",
    })
}

/// Formats rows below `header`, in columns three spaces apart, without lines.
pub(crate) fn columns<const N: usize>(
    header: Option<[&str; N]>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if let Some(header) = header {
        table.set_header(header);
    }
    for row in rows {
        table.add_row(row.map(|cell| {
            if cell.is_empty() {
                NONE.to_owned()
            } else {
                cell
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a".to_owned(), String::new()],
            ["longer".to_owned(), "x".to_owned()],
        ];
        insta::assert_snapshot!(columns(Some(["NAME", "B"]), rows), @r"
        NAME     B
        a        <none>
        longer   x
        ");
    }
}
