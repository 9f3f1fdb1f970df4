//! `--watch`: what changes is printed again, until the server or the user ends it.
//!
//! [`follow`] is the watch of all commands. A table whose rows depend on several kinds is listed again after a
//! change of the kind that it is about ([`run`]), and the rows that look different are printed.

use crate::args::{Format, ListArgs};
use crate::connect::{WATCH_SECONDS, api_error};
use crate::output::{self, FixedColumns};
use anyhow::{Result, ensure};
use futures::TryStreamExt;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

/// The status of the HTTP answer when a version is too old to be watched from.
const GONE: u16 = 410;
/// The time between two lists at least: statuses change about once a second.
const PAUSE: Duration = Duration::from_secs(1);
/// Columns whose text changes by itself.
const BY_TIME: [&str; 3] = ["AGE", "FOR", "ENDS"];
/// Columns that can show GONE; the first one that the table has is used.
const SAYS_GONE: [&str; 4] = ["STATUS", "STATE", "OPEN", "ENDS"];

/// Writes lines, for instance [`output::print`].
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&str) -> io::Result<()>;

/// Calls `changed` with each object that changes after `version`, and whether it was deleted. Returns when
/// `changed` breaks, or the server no longer has that version: then it has to be listed again.
pub(crate) async fn follow(
    api: &Api<DynamicObject>,
    mut version: String,
    changed: &mut impl AsyncFnMut(DynamicObject, bool) -> Result<ControlFlow<()>>,
) -> Result<()> {
    let params = WatchParams::default().timeout(WATCH_SECONDS);
    loop {
        let events = match api.watch(&params, &version).await {
            Ok(events) => events,
            Err(kube::Error::Api(status)) if status.code == GONE => return Ok(()),
            Err(error) => return Err(api_error(error)),
        };
        let mut events = pin!(events);
        while let Some(event) = events.try_next().await.map_err(api_error)? {
            let (object, deleted) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
                WatchEvent::Deleted(object) => (object, true),
                WatchEvent::Bookmark(mark) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(status) if status.code == GONE => return Ok(()),
                WatchEvent::Error(status) => return Err(api_error(kube::Error::Api(status))),
            };
            if let Some(next) = object.metadata.resource_version.clone() {
                version = next;
            }
            if changed(object, deleted).await?.is_break() {
                return Ok(());
            }
        }
    }
}

/// Prints a table, and after each change of an object of `api` the rows that look different. `list` returns the
/// table with its header; the first `keys` columns name a row. Ends only with an error.
pub(crate) async fn run(
    api: &Api<DynamicObject>,
    list: impl AsyncFn() -> Result<String>,
    keys: usize,
    args: &ListArgs,
) -> Result<()> {
    check(args.output.format)?;
    rows(api, list, keys, !args.no_headers, &mut output::print).await
}

async fn rows(
    api: &Api<DynamicObject>,
    list: impl AsyncFn() -> Result<String>,
    keys: usize,
    header: bool,
    print: Sink<'_>,
) -> Result<()> {
    let mut rows = WatchedRows::new(keys, header);
    loop {
        // The version comes before the table, so that no change is missed between both.
        let one = ListParams::default().limit(1);
        #[expect(clippy::disallowed_methods, reason = "of one object")]
        let listed = api.list(&one).await.map_err(api_error)?;
        let version = listed.metadata.resource_version.unwrap_or_default();
        print(&rows.changes(&list().await?))?;
        follow(api, version, &mut async |_, _| Ok(ControlFlow::Break(()))).await?;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Checks that a format has rows.
fn check(format: Format) -> Result<()> {
    ensure!(
        matches!(format, Format::Table | Format::Wide),
        "--watch prints the rows of a table; for objects, use kubectl get --watch -o json"
    );
    Ok(())
}

/// The rows that were printed last.
struct WatchedRows {
    keys: usize,
    header: bool,
    columns: FixedColumns,
    names: Vec<String>,
    shown: BTreeMap<Vec<String>, Vec<String>>,
}

impl WatchedRows {
    fn new(keys: usize, header: bool) -> Self {
        Self {
            keys,
            header,
            columns: FixedColumns::default(),
            names: Vec::new(),
            shown: BTreeMap::new(),
        }
    }

    /// Returns the lines of the rows that are new, look different or are gone.
    fn changes(&mut self, table: &str) -> String {
        let mut rows = output::rows(table).into_iter();
        // What is no table has one line without columns: no pool, no queue.
        let names = rows
            .next()
            .filter(|names| names.len() > 1)
            .unwrap_or_default();
        let rows: Vec<Vec<String>> = rows.filter(|row| row.len() == names.len()).collect();
        let mut text = String::new();
        for row in &rows {
            self.columns.widen(row);
        }
        if self.names.is_empty() && !names.is_empty() {
            self.names = names;
            self.columns.widen(&self.names);
            if self.header {
                text += &self.columns.line(&self.names);
            }
        }
        let key = |row: &Vec<String>| row[..self.keys].to_vec();
        let now: BTreeSet<Vec<String>> = rows.iter().map(key).collect();
        let gone: Vec<_> = self
            .shown
            .keys()
            .filter(|key| !now.contains(*key))
            .cloned()
            .collect();
        for key in gone {
            if let Some(mut row) = self.shown.remove(&key) {
                self.say_gone(&mut row);
                text += &self.columns.line(&row);
            }
        }
        for row in rows {
            let before = self.shown.insert(row[..self.keys].to_vec(), row.clone());
            if before.is_none_or(|before| self.lasting(&before) != self.lasting(&row)) {
                text += &self.columns.line(&row);
            }
        }
        text
    }

    /// Returns the cells that do not change by themselves.
    fn lasting<'a>(&self, row: &'a [String]) -> Vec<&'a String> {
        let cells = self.names.iter().zip(row);
        let lasting = cells.filter(|(name, _)| !BY_TIME.contains(&name.as_str()));
        lasting.map(|(_, cell)| cell).collect()
    }

    fn say_gone(&self, row: &mut [String]) {
        let column = |wanted: &&str| self.names.iter().position(|name| name == wanted);
        if let Some(cell) = SAYS_GONE
            .iter()
            .find_map(column)
            .and_then(|at| row.get_mut(at))
        {
            *cell = "Gone".to_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::output::columns;
    use runtime::testing::FakeApi;
    use serde_json::json;
    use tokio::sync::mpsc::unbounded_channel;

    fn table(rows: &[[&str; 4]]) -> String {
        let rows = rows.iter().map(|row| row.map(str::to_owned));
        columns(Some(["NAME", "STATUS", "FREE", "AGE"]), rows)
    }

    #[test]
    fn rows_are_printed_if_they_look_different_or_are_gone() {
        let mut rows = WatchedRows::new(1, true);
        let mut text = String::new();
        for listed in [
            &[["a", "Ready", "8", "60s"], ["b", "", "4", "60s"]][..],
            // The age changes by itself.
            &[["a", "Ready", "8", "61s"], ["b", "Ready", "4", "61s"]],
            &[["b", "Ready", "2", "62s"]],
        ] {
            text += &rows.changes(&table(listed));
        }
        text += &rows.changes("No pools found\n");
        text += &rows.changes(&table(&[["a", "Ready", "8", "1s"]]));
        insta::assert_snapshot!(text, @r"
        NAME   STATUS   FREE   AGE
        a      Ready    8      60s
        b      <none>   4      60s
        b      Ready    4      61s
        a      Gone     8      61s
        b      Ready    2      62s
        b      Gone     2      62s
        a      Ready    8      1s
        ");
    }

    #[tokio::test(start_paused = true)]
    async fn a_table_is_listed_again_after_a_change() {
        let api = FakeApi::new();
        let path = "/apis/muster.io/v1alpha2/gpupools/a";
        api.put(
            path,
            json!({"metadata": {"name": "a"}, "status": {"free": 8}}),
        );
        let pools = crate::connect::objects::<crds::gpu_pool::GpuPool>(&api.client());
        let list = async || {
            let free = api.get(path).unwrap()["status"]["free"].to_string();
            Ok(table(&[["a", "Ready", &free, "1s"]]))
        };
        let (sender, mut texts) = unbounded_channel();
        let mut print = move |text: &str| {
            let sent = sender.send(text.to_owned());
            sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
        };
        let user = async {
            let first = texts.recv().await.unwrap();
            assert_eq!(
                first,
                "NAME   STATUS   FREE   AGE\na      Ready    8      1s\n"
            );
            tokio::time::sleep(Duration::from_secs(5)).await;
            api.merge(path, &json!({"status": {"free": 4}}));
            assert_eq!(texts.recv().await.unwrap(), "a      Ready    4      1s\n");
            drop(texts);
            api.merge(path, &json!({"status": {"free": 2}}));
        };
        let (ended, ()) = tokio::join!(rows(&pools, list, 1, true, &mut print), user);
        assert!(output::is_reader_gone(&ended.unwrap_err()));
        for format in [Format::Json, Format::Yaml, Format::Name] {
            check(format).unwrap_err();
        }
        check(Format::Wide).unwrap();
    }
}
