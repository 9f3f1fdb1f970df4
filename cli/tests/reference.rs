//! Checks that generated files agree with the code.
//!
//! `UPDATE_DOCS=1 cargo test -p cli --test reference` rewrites the generated pages.
#![allow(clippy::unwrap_used)]

use engine::facts::plugins::{FILTERS, Holds, SCORES};
use engine::{Actor, Reason};

fn reasons() -> String {
    let mut page = String::from(
        "<!-- Generated from facts/src/reason.rs by `UPDATE_DOCS=1 cargo test -p cli --test reference`; do not edit. -->\n\
         # Reasons\n\n\
         Every job that does not run says why, in one word of this list and a sentence with names and numbers:\n\
         in `kubectl get podgroups` (REASON), in the conditions of its PodGroup, in events, in the log and in\n\
         metrics. The list is closed: alerts and scripts may rely on the words.\n\n\
         The user is who submitted the job; a queue admin may change its queue (ClusterRole `muster-queue-admin`); an\n\
         operator runs Muster, Karmada and the members. Rows without them report what has happened.\n\n\
         | reason | what it says of the job | who acts | what to do |\n|---|---|---|---|\n",
    );
    for (reason, meaning) in Reason::ALL {
        let meaning = meaning.trim();
        let (who, what) = match reason.next_step() {
            Some(step) => (step.who.to_string(), step.what),
            None => (String::new(), ""),
        };
        page += &format!("| `{reason}` | {meaning} | {who} | {what} |\n");
    }
    page
}

fn placement() -> String {
    let mut page = String::from(
        "<!-- Generated from facts/src/plugins by `UPDATE_DOCS=1 cargo test -p cli --test reference`; do not edit. -->\n\
         # Filters and scores\n\n\
         Filters leave out clusters that a job may not go to, in this order; the reason of a job that has none names\n\
         what each cluster is left out for. A CapacityPolicy names those that can be chosen in `placement.filters`.\n\n\
         | filter | keeps | holds |\n|---|---|---|\n",
    );
    for filter in FILTERS {
        let holds = match filter.unset {
            Holds::Always => "always",
            Holds::Unset => "unless `placement.filters` names others",
            Holds::Named => "where `placement.filters` names it",
        };
        page += &format!("| `{}` | {} | {holds} |\n", filter.name, filter.about);
    }
    page += "\nScores tell which of several placements is the better one, after the fewest clusters, whole topology domains\n\
             and `placement.preferredClusters`. Each counts in thousandths and is weighed by `placement.weights`.\n\n\
             | score | aim | weight unset |\n|---|---|---|\n";
    for score in SCORES {
        page += &format!("| `{}` | {} | {} |\n", score.name, score.about, score.unset);
    }
    page += "\nTo add one, see [A filter or score of your own](../../CONTRIBUTING.md#a-filter-or-score-of-your-own).\n";
    page
}

#[test]
fn generated_pages_are_current() {
    for (name, page) in [("reasons", reasons()), ("placement", placement())] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference");
        let path = format!("{folder}/{name}.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            committed == page,
            "docs/reference/{name}.md is not what the code says: run UPDATE_DOCS=1 cargo test -p cli --test reference"
        );
    }
}

#[test]
fn who_acts_is_said_of_every_reason_why_a_job_waits() {
    for (reason, _) in Reason::ALL {
        let acts = reason.next_step().map(|step| step.who);
        if reason.is_of_waiting() {
            assert!(acts.is_some(), "{reason} has no next step");
        }
        if reason.needs_change() {
            assert_ne!(acts, Some(Actor::NoOne), "{reason} does not end by itself");
        }
    }
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
    for kind in workload::known_kinds() {
        let wanted = (kind.group.to_owned(), kind.plural.to_owned());
        assert!(
            readable.contains(&wanted),
            "deploy/rbac-workloads.yaml lacks {wanted:?}"
        );
    }
}
