//! Keeps what stands outside the code, and must say the same, equal to it.
//!
//! `UPDATE_DOCS=1 cargo test -p cli --test reference` rewrites the generated pages.
#![allow(clippy::unwrap_used)]

use engine::Reason;

fn reasons() -> String {
    let mut page = String::from(
        "<!-- Generated from engine/src/reason.rs by `UPDATE_DOCS=1 cargo test -p cli --test reference`; do not edit. -->\n\
         # Reasons\n\n\
         Every job that does not run says why, in one word of this list and a sentence with names and numbers:\n\
         in `kubectl get podgroups` (REASON), in the conditions of its PodGroup, in events, in the log and in\n\
         metrics. The list is closed: alerts and scripts may rely on the words.\n\n\
         | reason | what it says of the job |\n|---|---|\n",
    );
    for (reason, meaning) in Reason::ALL {
        page += &format!("| `{reason}` | {} |\n", meaning.trim());
    }
    page
}

#[test]
fn the_page_of_reasons_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/reasons.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, reasons()).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == reasons(),
        "docs/reference/reasons.md is not what engine/src/reason.rs says: run UPDATE_DOCS=1 cargo test -p cli --test reference"
    );
}

#[test]
fn what_is_installed_is_labelled_with_this_version() {
    let manifest = include_str!("../../deploy/namespace.yaml");
    let label = concat!(
        "app.kubernetes.io/version: v",
        env!("CARGO_PKG_VERSION"),
        "\n"
    );
    assert!(
        manifest.contains(label),
        "deploy/namespace.yaml must say {label}"
    );
}

#[test]
fn every_known_kind_of_workload_may_be_read() {
    let manifest = include_str!("../../deploy/rbac-workloads.yaml");
    let roles: Vec<serde_json::Value> = serde_saphyr::from_multiple(manifest).unwrap();
    let rules = roles
        .iter()
        .filter_map(|role| role["rules"].as_array())
        .flatten();
    let readable: Vec<(String, String)> = rules
        .flat_map(|rule| {
            let resources = rule["resources"].as_array().unwrap();
            resources.iter().map(|resource| {
                let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                (text(&rule["apiGroups"][0]), text(resource))
            })
        })
        .collect();
    for kind in workload::KNOWN_KINDS {
        let wanted = (kind.group.to_owned(), kind.plural.to_owned());
        assert!(
            readable.contains(&wanted),
            "deploy/rbac-workloads.yaml lacks {wanted:?}"
        );
    }
}
