//! Prints merged lines, each with the rank and cluster of its pod if there are several.

use super::merge::{Merge, Merged};
use super::source::LogSource;
use crate::pods::JobPod;
use std::cell::RefCell;
use std::io::{self, Write};

/// What is put before the lines of a container.
pub(super) struct PrefixOf(String);

impl PrefixOf {
    pub(super) fn new(source: &LogSource, pod: &JobPod, all_containers: bool) -> Self {
        Self(match all_containers {
            true => format!("[{}/{}/{}] ", pod.rank, pod.cluster, source.container),
            false => format!("[{}/{}] ", pod.rank, pod.cluster),
        })
    }
}

/// The prefixes of all containers, by the number of the container.
#[derive(Default)]
pub(super) struct LinePrinter {
    prefixes: Vec<PrefixOf>,
}

impl LinePrinter {
    pub(super) fn add(&mut self, prefix: PrefixOf) {
        self.prefixes.push(prefix);
    }

    /// Returns the number of the next container.
    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Writes what is next. A note goes to standard error, after the lines before it.
    pub(super) fn print(
        &self,
        merged: &Merged<'_>,
        prefix: bool,
        to: &mut impl Write,
    ) -> io::Result<()> {
        match merged {
            Merged::Line(id, line) => {
                if let Some(PrefixOf(own)) = self.prefixes.get(*id).filter(|_| prefix) {
                    to.write_all(own.as_bytes())?;
                }
                to.write_all(line)?;
                to.write_all(b"\n")
            }
            Merged::Note(text) => {
                to.flush()?;
                eprintln!("{text}");
                Ok(())
            }
            Merged::Idle => to.flush(),
        }
    }
}

/// Prints all lines until no reader is left; `prefix` says whether lines have a prefix now.
pub(super) async fn all(
    mut merge: Merge,
    printer: &RefCell<LinePrinter>,
    prefix: &impl Fn() -> bool,
) -> io::Result<()> {
    let mut output = io::BufWriter::with_capacity(64 << 10, io::stdout());
    while let Some(merged) = merge.next().await {
        let printer = printer.borrow();
        printer.print(&merged, prefix(), &mut output)?;
    }
    output.flush()
}
