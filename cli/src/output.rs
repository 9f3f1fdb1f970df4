//! Output: aligned columns like kubectl's, and objects as the server has them.

use crate::args::{Format, WriteArgs};
use anyhow::Result;
use comfy_table::{ContentArrangement, Table, presets};
use crds::names::kubectl_kind;
use crds::podgroup::{EXACT_COUNTS, EXACT_POSITIONS};
use kube::api::DynamicObject;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::json;
use std::io::{self, ErrorKind, Write};

/// Spaces between columns, as many as kubectl's.
const GAP: u16 = 3;
/// Text of a cell without a value.
pub(crate) const NONE: &str = "<none>";

/// Writes to standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Returns true if `error` says that nobody reads any more (`| head`), which is no failure.
pub(crate) fn is_reader_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Formats objects for programs: a List where several are possible, whatever their number, else the one.
fn objects(objects: &[DynamicObject], several: bool, format: Format) -> Result<String> {
    match objects {
        [] if !several => Ok(String::new()),
        [object] if !several => machine(object, format),
        _ => machine(
            &json!({"apiVersion": "v1", "kind": "List", "items": objects}),
            format,
        ),
    }
}

/// Formats `value` for programs.
pub(crate) fn machine(value: &impl Serialize, format: Format) -> Result<String> {
    Ok(match format {
        Format::Yaml => serde_saphyr::to_string(value)?,
        _ => serde_json::to_string_pretty(value)? + "\n",
    })
}

/// Formats `capacitypolicy.muster.io/vision`, as kubectl prints names.
pub(crate) fn name_line<K: Resource<DynamicType = ()>>(object: &DynamicObject) -> String {
    let kind = kubectl_kind(&K::api_version(&()), &K::kind(&()));
    format!("{kind}/{}\n", object.name_any())
}

/// Formats what was done to an object whose line of a name is `name`.
pub(crate) fn changed(
    name: &str,
    done: &str,
    object: &DynamicObject,
    args: &WriteArgs,
) -> Result<String> {
    match args.output.format {
        Format::Name => Ok(name.to_owned()),
        Format::Json | Format::Yaml => machine(object, args.output.format),
        Format::Table | Format::Wide => {
            let suffix = args.dry_run.suffix();
            Ok(format!("{} {done}{suffix}\n", name.trim_end()))
        }
    }
}

/// The objects that a command changes one by one: lines are printed at once, objects for programs at the end.
pub(crate) struct ChangedObjects {
    format: Format,
    /// Several are possible.
    several: bool,
    objects: Vec<DynamicObject>,
}

impl ChangedObjects {
    pub(crate) fn new(format: Format, several: bool) -> Self {
        Self {
            format,
            several,
            objects: Vec::new(),
        }
    }

    /// Takes an object that was changed: the lines of its names, and the lines that say what was done.
    pub(crate) fn print(
        &mut self,
        names: &str,
        lines: &str,
        object: DynamicObject,
    ) -> io::Result<()> {
        match self.format {
            Format::Json | Format::Yaml => self.objects.push(object),
            Format::Name => print(names)?,
            Format::Table | Format::Wide => print(lines)?,
        }
        Ok(())
    }

    /// Prints the objects for programs.
    pub(crate) fn finish(self) -> Result<()> {
        if !self.format.is_table() && self.format != Format::Name {
            print(&objects(&self.objects, self.several, self.format)?)?;
        }
        Ok(())
    }
}

/// Formats rows of `N` cells, see [`table`].
pub(crate) fn columns<const N: usize>(
    header: Option<[&str; N]>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let rows = rows.into_iter().map(Vec::from);
    table(header.map(Vec::from), rows)
}

/// Formats rows below `header`, in columns [`GAP`] spaces apart, without lines.
pub(crate) fn table(
    header: Option<Vec<&str>>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    if let Some(header) = header {
        table.set_header(header);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| shown(cell)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// Returns the cells of what [`table`] formatted: no cell has [`GAP`] spaces in a row.
pub(crate) fn rows(table: &str) -> Vec<Vec<String>> {
    let gap = " ".repeat(usize::from(GAP));
    let cells = |line: &str| {
        let cells = line
            .split(&gap)
            .map(str::trim)
            .filter(|cell| !cell.is_empty());
        cells.map(str::to_owned).collect()
    };
    table.lines().map(cells).collect()
}

/// Formats a position as it is shown: `7`, or `100+` if it is rounded down.
pub(crate) fn position_text(position: i64) -> String {
    let is_exact = usize::try_from(position).is_ok_and(|place| place < EXACT_POSITIONS);
    match is_exact {
        true => position.to_string(),
        false => format!("{position}+"),
    }
}

/// Formats a count as it is shown: `7`, or `~130` if it is rounded down.
pub(crate) fn count_text(count: i64) -> String {
    match count {
        ..=EXACT_COUNTS => count.to_string(),
        _ => format!("~{count}"),
    }
}

fn shown(cell: &str) -> &str {
    if cell.is_empty() { NONE } else { cell }
}

/// Columns of lines that are printed one by one: as wide as the widest cell so far.
#[derive(Debug, Default)]
pub(crate) struct FixedColumns(Vec<usize>);

impl FixedColumns {
    /// Makes the columns wide enough for `cells`.
    pub(crate) fn widen(&mut self, cells: &[impl AsRef<str>]) {
        self.0.resize(self.0.len().max(cells.len()), 0);
        for (width, cell) in self.0.iter_mut().zip(cells) {
            *width = (*width).max(shown(cell.as_ref()).chars().count());
        }
    }

    /// Formats one line.
    pub(crate) fn line(&mut self, cells: &[impl AsRef<str>]) -> String {
        self.widen(cells);
        let cells = self.0.iter().zip(cells);
        let padded: String = cells
            .map(|(width, cell)| format!("{:<1$}", shown(cell.as_ref()), width + usize::from(GAP)))
            .collect();
        padded.trim_end().to_owned() + "\n"
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{FixedColumns, columns, objects, rows};
    use crate::args::Format;

    #[test]
    fn programs_get_a_list_where_several_objects_are_possible() {
        let object: kube::api::DynamicObject =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}})).unwrap();
        let one = [object];
        for (all, several, wanted) in [
            (&one[..], false, "{\n  \"metadata\""),
            (&one[..], true, "\"items\": [\n"),
            (&[], true, "\"items\": []"),
        ] {
            let text = objects(all, several, Format::Json).unwrap();
            assert!(text.contains(wanted), "{text}");
        }
        assert_eq!(objects(&[], false, Format::Json).unwrap(), "");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let cells = [
            ["a".to_owned(), String::new()],
            ["longer".to_owned(), "x".to_owned()],
        ];
        let text = columns(Some(["NAME", "B"]), cells);
        insta::assert_snapshot!(text, @r"
        NAME     B
        a        <none>
        longer   x
        ");
        let again = [["NAME", "B"], ["a", "<none>"], ["longer", "x"]];
        assert_eq!(rows(&text), again);
    }

    #[test]
    fn lines_that_are_printed_one_by_one_are_aligned() {
        let mut fixed = FixedColumns::default();
        fixed.widen(&["a", "wide"]);
        let lines = [["NAME", "B", "C"], ["longer", "", "x"], ["a", "b", ""]];
        let text: String = lines.iter().map(|line| fixed.line(line)).collect();
        insta::assert_snapshot!(text, @r"
        NAME   B      C
        longer   <none>   x
        a        b        <none>
        ");
    }
}
