//! docs/reference/api.md is generated from the CRDs: `UPDATE_DOCS=1 cargo test -p crds --test api_reference` rewrites
//! it after a type has changed.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fmt::Write as _;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/api.md");

const OPENING: &str = "\
# The API `muster.io`

Every field of Muster's own kinds, as `kubectl explain` shows them: `kubectl explain capacitypolicy.spec.pools`. All
kinds are of the cluster, not of a namespace. A field without a default may be absent. What the fields of a
CapacityPolicy do together is in [For tenant admins](../tenants.md#capacitypolicy), and what those of a FaultPolicy do
in [Faults](../operators/faults.md). Jobs have no kind of Muster's: [labels and annotations](jobs.md) configure them.

<!-- Generated from crds/yaml by `UPDATE_DOCS=1 cargo test -p crds --test api_reference`; do not edit. -->
";

/// Returns the type of a value, and which values are possible.
fn type_of(schema: &Value) -> String {
    if schema["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str);
        return words
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let name = schema["type"].as_str().unwrap_or("any");
    match (name, schema["format"].as_str()) {
        ("array", _) => format!("list of {}", type_of(&schema["items"])),
        ("object", _) if schema["additionalProperties"].is_object() => {
            format!("map of {}", type_of(&schema["additionalProperties"]))
        }
        ("string", Some("date-time")) => "time".to_owned(),
        ("integer", _) => format!("integer{}", range(schema)),
        (name, _) => name.to_owned(),
    }
}

/// Returns the least and the largest value of an integer.
fn range(schema: &Value) -> String {
    let bound = |name: &str| schema[name].as_f64().map(|bound| format!("{bound}"));
    match (bound("minimum"), bound("maximum")) {
        (None, None) => String::new(),
        (Some(least), None) => format!(", {least} or more"),
        (None, Some(most)) => format!(", at most {most}"),
        (Some(least), Some(most)) => format!(", {least} to {most}"),
    }
}

/// Adds a line for each property of `schema`, and for those below it. `path` ends with a dot.
fn rows(path: &str, schema: &Value, text: &mut String) {
    let required = schema["required"].as_array();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_required =
            required.is_some_and(|names| names.iter().any(|known| known == name.as_str()));
        let default = match property.get("default") {
            _ if is_required => "required".to_owned(),
            Some(Value::String(word)) => format!("`{word}`"),
            Some(Value::Object(_)) | None => String::new(),
            Some(other) => format!("`{other}`"),
        };
        let description = property["description"].as_str().unwrap_or_default();
        let description = description.split_whitespace().collect::<Vec<_>>().join(" ");
        let description = description.replace('|', "\\|").replace('<', "&lt;");
        let description = description.replace(" - `", "<br>`");
        let type_ = type_of(property);
        writeln!(
            text,
            "| `{path}{name}` | {type_} | {default} | {description} |"
        )
        .unwrap();
        // Their schemas are Kubernetes' own.
        if name == "namespaceSelector" || (name == "conditions" && path == "status.") {
            continue;
        }
        rows(&format!("{path}{name}."), property, text);
        rows(&format!("{path}{name}[]."), &property["items"], text);
    }
}

fn reference() -> String {
    let mut text = OPENING.to_owned();
    for (_, yaml) in crds::yaml::manifests() {
        let definition: Value = serde_saphyr::from_str(yaml).unwrap();
        let spec = &definition["spec"];
        if spec["group"] != "muster.io" {
            continue;
        }
        let schema = &spec["versions"][0]["schema"]["openAPIV3Schema"];
        let (kind, version) = (&spec["names"]["kind"], &spec["versions"][0]["name"]);
        let (kind, version) = (kind.as_str().unwrap(), version.as_str().unwrap());
        let short = spec["names"]["shortNames"][0].as_str();
        let short = short.map_or_else(String::new, |short| format!(", short name `{short}`"));
        let about = schema["description"].as_str().unwrap();
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(text, "\n## {kind}\n\n`muster.io/{version}`{short}.\n").unwrap();
        for line in wrapped(&about) {
            writeln!(text, "{line}").unwrap();
        }
        writeln!(
            text,
            "\n| Field | Type | Default | Meaning |\n|---|---|---|---|"
        )
        .unwrap();
        for part in ["spec", "status"] {
            rows(&format!("{part}."), &schema["properties"][part], &mut text);
        }
    }
    text
}

/// Breaks a text into lines of at most 120 characters.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() > 120 {
            lines.push(word.to_owned());
        } else {
            line.push(' ');
            line.push_str(word);
        }
    }
    lines
}

#[test]
fn the_reference_says_what_the_schemas_say() {
    let reference = reference();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(PATH, &reference).unwrap();
    }
    let committed = std::fs::read_to_string(PATH).unwrap_or_default();
    assert!(
        committed == reference,
        "docs/reference/api.md is not current: run UPDATE_DOCS=1 cargo test -p crds --test api_reference"
    );
}
