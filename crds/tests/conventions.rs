//! The conventions of Kubernetes' APIs (sig-architecture/api-conventions.md, and the rules of kube-api-linter that
//! apply to custom resources), checked for all kinds of `muster.io`.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

/// Fields that may break a rule, and why.
const EXCEPTIONS: [(&str, &str); 2] = [
    // Paused and Trial are all that it can be, and what else is known of it has fields of its own.
    (
        "FaultPolicy.status.pausedClusters[].phase",
        "is a phase; conditions are needed",
    ),
    // Keys are the names of scores, each a property of its own with a default.
    (
        "CapacityPolicy.spec.placement.weights",
        "is a map of integers; a list with names is needed",
    ),
];

/// A property of a schema, and where it stands.
struct Property<'a> {
    path: &'a str,
    name: &'a str,
    schema: &'a Value,
}

impl Property<'_> {
    fn of_type(&self, type_: &str) -> bool {
        self.schema["type"] == type_
    }

    fn is_stated(&self, field: &str) -> bool {
        self.schema.get(field).is_some()
    }

    fn in_spec(&self) -> bool {
        self.path.contains(".spec.")
    }

    /// Returns which rules it breaks.
    fn problems(&self) -> Vec<&'static str> {
        let schema = self.schema;
        let is_list = self.of_type("array");
        let of_objects = schema["items"]["type"] == "object";
        let format = schema["format"].as_str();
        let is_number = self.of_type("integer");
        let is_text = self.of_type("string");
        let bounded = ["maxLength", "enum", "pattern", "format"];
        let values = schema["additionalProperties"]["type"].as_str();
        let is_time = ["since", "until"].contains(&self.name) || self.name.ends_with("Time");
        let words = schema["enum"].as_array().into_iter().flatten();
        let is_word = |word: &Value| {
            let first = word.as_str().and_then(|word| word.chars().next());
            first.is_some_and(|first| first.is_ascii_uppercase())
        };
        let rules = [
            (!self.is_stated("description"), "has no description"),
            (!is_camel_case(self.name), "is not in camelCase"),
            (
                self.of_type("number"),
                "is a float; an integer or a quantity is needed",
            ),
            (
                is_number && !matches!(format, Some("int32" | "int64")),
                "is neither int32 nor int64",
            ),
            (
                self.in_spec() && self.of_type("boolean"),
                "is a boolean; words are needed that leave room for a third",
            ),
            (
                self.in_spec() && is_text && !bounded.iter().any(|of| self.is_stated(of)),
                "is a text without a bound",
            ),
            (
                self.in_spec() && is_list && !self.is_stated("maxItems"),
                "is a list without maxItems",
            ),
            (
                is_list && of_objects && !self.is_stated("x-kubernetes-list-type"),
                "is a list of objects without a list type",
            ),
            (
                values == Some("object"),
                "is a map of objects; a list with names is needed",
            ),
            (
                values == Some("integer"),
                "is a map of integers; a list with names is needed",
            ),
            (
                is_text && self.name.to_lowercase().ends_with("duration"),
                "is a duration as a text; whole seconds are needed",
            ),
            (
                self.name.ends_with("Seconds") && !is_number,
                "is no integer and is named Seconds",
            ),
            (
                is_text && is_time && format != Some("date-time"),
                "is a time without the format date-time",
            ),
            (self.name == "phase", "is a phase; conditions are needed"),
            (
                self.name == "conditions"
                    && of_objects
                    && schema["x-kubernetes-list-map-keys"] != json!(["type"]),
                "are conditions without the key type",
            ),
            (
                !words.into_iter().all(is_word),
                "has a word that is not in CamelCase",
            ),
        ];
        let broken = rules.into_iter().filter(|(is_broken, _)| *is_broken);
        broken.map(|(_, rule)| rule).collect()
    }
}

fn is_camel_case(name: &str) -> bool {
    let is_lower = name.starts_with(|first: char| first.is_ascii_lowercase());
    is_lower && name.chars().all(|letter| letter.is_ascii_alphanumeric())
}

/// Adds what is wrong with the properties of `schema`, and of those below them.
fn walk(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        // Its schema is Kubernetes' own.
        if name == "namespaceSelector" {
            continue;
        }
        let stands = Property {
            path: &path,
            name,
            schema: property,
        };
        for problem in stands.problems() {
            if !EXCEPTIONS.contains(&(path.as_str(), problem)) {
                found.push(format!("{path} {problem}"));
            }
        }
        if name == "conditions" {
            // They are Kubernetes' own type.
            continue;
        }
        walk(&path, property, found);
        walk(&format!("{path}[]"), &property["items"], found);
    }
}

#[test]
fn the_kinds_of_muster_follow_the_conventions() {
    let mut found = Vec::new();
    for (name, yaml) in crds::yaml::manifests() {
        let definition: Value = serde_saphyr::from_str(yaml).unwrap();
        let spec = &definition["spec"];
        if spec["group"] != "muster.io" {
            continue;
        }
        let kind = spec["names"]["kind"].as_str().unwrap();
        let versions = spec["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 1, "{name}");
        let schema = &versions[0]["schema"]["openAPIV3Schema"]["properties"];
        // apiVersion and kind have no bounds anywhere.
        for part in ["spec", "status"] {
            if schema[part].is_null() {
                continue;
            }
            let parts = json!({"properties": {part: schema[part]}});
            walk(kind, &parts, &mut found);
        }
        // Settings are read, as a PriorityClass is; there is nothing to report on them.
        let has_status = !versions[0]["subresources"]["status"].is_null();
        assert_eq!(has_status, kind != "MusterConfig", "{name}: status");
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
