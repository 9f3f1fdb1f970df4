//! Counters that processes publish for Prometheus, and their growth over a period of time.

use std::collections::BTreeMap;

/// Counters of an API server's writes, or of Muster.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters(BTreeMap<String, f64>);

/// Verbs of write requests.
const WRITES: [&str; 6] = [
    "APPLY",
    "CREATE",
    "DELETE",
    "DELETECOLLECTION",
    "PATCH",
    "PUT",
];

impl Counters {
    /// Reads the writes of an API server, by `verb resource[/subresource]`.
    pub(super) fn of_api_server(text: &str) -> Self {
        let mut counters = Self::default();
        for (name, labels, value) in samples(text) {
            let label = |wanted: &str| {
                labels
                    .iter()
                    .find(|(key, _)| *key == wanted)
                    .map_or("", |(_, value)| value)
            };
            let verb = match label("verb") {
                "POST" => "CREATE",
                verb => verb,
            };
            if name != "apiserver_request_total" || !WRITES.contains(&verb) {
                continue;
            }
            let what = match (label("resource"), label("subresource")) {
                (resource, "") => resource.to_owned(),
                (resource, part) => format!("{resource}/{part}"),
            };
            *counters.0.entry(format!("{verb} {what}")).or_default() += value;
        }
        counters
    }

    /// Reads all counters of a process of Muster, by name without the common prefix.
    pub(super) fn of_muster(text: &str) -> Self {
        let mut counters = Self::default();
        for (name, labels, value) in samples(text) {
            let Some(name) = name
                .strip_prefix("muster_")
                .and_then(|name| name.strip_suffix("_total"))
            else {
                continue;
            };
            let labels: Vec<&str> = labels.iter().map(|(_, value)| *value).collect();
            let key = format!("{name} {}", labels.join(" "));
            *counters.0.entry(key.trim_end().to_owned()).or_default() += value;
        }
        counters
    }

    /// Returns the counters that grew since `earlier`, and by how much.
    pub(super) fn since(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let grown = self.0.iter().map(|(key, value)| {
            let before = earlier.0.get(key).copied().unwrap_or(0.0);
            // A smaller value means that the process and its counters restarted.
            let growth = if *value < before {
                *value
            } else {
                value - before
            };
            (key.clone(), growth)
        });
        grown.filter(|(_, growth)| *growth > 0.0).collect()
    }
}

type MetricSample<'a> = (&'a str, Vec<(&'a str, &'a str)>, f64);

/// Parses the samples of a text in Prometheus' format. It does not support label values with quotes
/// or commas, which none of these metrics have.
fn samples(text: &str) -> impl Iterator<Item = MetricSample<'_>> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let (series, value) = line.trim().rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.trim_end_matches('}').split(',').filter_map(|label| {
            let (key, value) = label.split_once('=')?;
            Some((key, value.trim_matches('"')))
        });
        Some((name, labels.collect(), value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const API_SERVER: &str = r#"# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="resourcebindings",subresource="",verb="PATCH"} 7
apiserver_request_total{code="409",resource="resourcebindings",subresource="",verb="PATCH"} 1
apiserver_request_total{code="200",resource="resourcebindings",subresource="status",verb="PATCH"} 3
apiserver_request_total{code="201",resource="podgroups",subresource="",verb="POST"} 2
apiserver_request_total{code="200",resource="podgroups",subresource="",verb="LIST"} 9
"#;

    #[test]
    fn writes_are_counted_by_what_they_write_to() {
        let growth = Counters::of_api_server(API_SERVER).since(&Counters::default());
        let growth: Vec<_> = growth
            .iter()
            .map(|(key, value)| (key.as_str(), *value))
            .collect();
        assert_eq!(
            growth,
            [
                ("CREATE podgroups", 2.0),
                ("PATCH resourcebindings", 8.0),
                ("PATCH resourcebindings/status", 3.0),
            ]
        );
    }

    #[test]
    fn a_counter_that_started_over_has_grown_by_what_it_shows() {
        let text = |value: u32| {
            format!("muster_binding_writes_total{{kind=\"Place\",result=\"Written\"}} {value}")
        };
        let (before, after) = (
            Counters::of_muster(&text(10)),
            Counters::of_muster(&text(4)),
        );
        assert_eq!(after.since(&before)["binding_writes Place Written"], 4.0);
        assert!(before.since(&before).is_empty());
    }
}
