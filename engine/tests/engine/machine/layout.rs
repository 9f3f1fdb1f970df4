//! The numbers of queues, clusters, nodes and jobs.

/// The names in a world. Numbers in steps are taken modulo the lengths of these lists.
#[derive(Debug, Clone)]
pub struct Layout {
    pub jobs: usize,
    /// Leaf queues.
    pub leaves: &'static [&'static str],
    /// All queues with their parents, from the top down.
    pub tree: &'static [(&'static str, Option<&'static str>)],
    /// Queues whose capability changes.
    pub capped: &'static [&'static str],
    /// Queues whose guarantee and deserved amounts change.
    pub promised: &'static [&'static str],
    pub clusters: &'static [&'static str],
    /// GPUs of the first nodes, by cluster.
    pub nodes: Vec<Vec<u32>>,
    /// The most nodes of a cluster.
    pub most_nodes: usize,
    /// CPUs of each node.
    pub cpus: u32,
}

/// The ranges of the numbers in steps.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub jobs: usize,
    pub queues: usize,
    pub clusters: usize,
    pub nodes: usize,
}

const SMALL_TREE: &[(&str, Option<&str>)] = &[
    ("dept", None),
    ("a", Some("dept")),
    ("b", Some("dept")),
    ("c", None),
    ("d", None),
];

const LARGE_TREE: &[(&str, Option<&str>)] = &[
    ("org", None),
    ("dept", Some("org")),
    ("lab", Some("org")),
    ("unit", None),
    ("a", Some("dept")),
    ("b", Some("dept")),
    ("c", Some("lab")),
    ("d", Some("lab")),
    ("e", Some("lab")),
    ("f", Some("org")),
    ("g", Some("unit")),
    ("h", Some("unit")),
    ("i", None),
    ("j", None),
];

const LARGE_QUEUES: &[&str] = &[
    "a", "dept", "b", "org", "c", "lab", "d", "unit", "e", "f", "g", "h", "i", "j",
];

impl Layout {
    /// Four queues, of which two are below `dept`, and up to nine nodes.
    pub fn small() -> Self {
        Self {
            jobs: super::JOBS,
            leaves: &super::QUEUES,
            tree: SMALL_TREE,
            capped: &["dept", "b", "c", "d"],
            promised: &["dept", "a", "b", "c"],
            clusters: &super::CLUSTERS,
            nodes: vec![vec![8, 8, 4], vec![0, 0, 4]],
            most_nodes: 3,
            cpus: 16,
        }
    }

    /// The small layout with few CPUs.
    pub fn scarce() -> Self {
        Self {
            cpus: 6,
            ..Self::small()
        }
    }

    /// Ten queues on three levels, forty nodes in four clusters and sixty jobs.
    pub fn large() -> Self {
        Self {
            jobs: 60,
            leaves: &["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"],
            tree: LARGE_TREE,
            capped: LARGE_QUEUES,
            promised: LARGE_QUEUES,
            clusters: &["x", "y", "z", "w"],
            nodes: vec![vec![8; 6], vec![4; 8], vec![8, 2, 8, 2], vec![1; 10]],
            most_nodes: 10,
            cpus: 8,
        }
    }
}

impl Span {
    /// The ranges of [`Layout::small`].
    pub const SMALL: Self = Self {
        jobs: super::JOBS,
        queues: super::QUEUES.len(),
        clusters: super::CLUSTERS.len(),
        nodes: 3,
    };
    /// The ranges of the largest layout; smaller ones use remainders.
    pub const LARGE: Self = Self {
        jobs: 60,
        queues: 20,
        clusters: 12,
        nodes: 30,
    };
}
