//! Every link of the documents to a file or a heading of this repository leads there.

use super::{documents, root};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// What a page offers and where it leads.
#[derive(Default)]
struct DocumentPage {
    /// The anchors of its headings, as GitHub makes them.
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

fn page(text: &str) -> DocumentPage {
    let mut page = DocumentPage::default();
    let mut heading: Option<String> = None;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(words) | Event::Code(words) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap());
                let before = seen.entry(anchor.clone()).or_default();
                page.anchors.insert(match *before {
                    0 => anchor,
                    number => format!("{anchor}-{number}"),
                });
                *before += 1;
            }
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                page.links.push(dest_url.into_string());
            }
            _ => {}
        }
    }
    page
}

/// Returns the anchor of a heading: in lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns a path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
        plain
    })
}

/// Returns why a link of the page at `from` leads nowhere.
fn broken(from: &Path, link: &str, pages: &BTreeMap<PathBuf, DocumentPage>) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let to = match file {
        "" => from.to_owned(),
        file => plain(&from.parent().unwrap().join(file)),
    };
    if !to.exists() {
        return Some(format!("{link}: there is no such file"));
    }
    let known = pages.get(&to).filter(|_| !anchor.is_empty())?;
    (!known.anchors.contains(anchor)).then(|| format!("{link}: there is no such heading"))
}

#[test]
fn each_link_of_the_documents_leads_somewhere() {
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, page(&text))
    };
    let pages: BTreeMap<PathBuf, DocumentPage> = documents().into_iter().map(read).collect();
    let mut wrong = Vec::new();
    for (from, page) in &pages {
        let why = page
            .links
            .iter()
            .filter_map(|link| broken(from, link, &pages));
        let name = from.strip_prefix(root()).unwrap().display();
        wrong.extend(why.map(|why| format!("{name}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let links: usize = pages.values().map(|page| page.links.len()).sum();
    assert!(links > 300, "only {links} links were found");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "# A `b`: c's d\n## Same\n## Same\n[x](#same-1) [y](other.md)";
    let here = root().join("cli/Cargo.toml");
    let pages = BTreeMap::from([(here.clone(), page(text))]);
    let why = |link: &str| broken(&here, link, &pages);
    assert_eq!(pages[&here].links, ["#same-1", "other.md"]);
    for link in [
        "#a-b-cs-d",
        "#same",
        "#same-1",
        "src",
        "../Cargo.toml",
        "https://example.com",
    ] {
        assert_eq!(why(link), None, "{link}");
    }
    assert!(why("#same-2").unwrap().contains("no such heading"));
    assert!(why("other.md").unwrap().contains("no such file"));
}
