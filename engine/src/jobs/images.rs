//! The images that a job needs, in little memory: many of a million jobs need the same.

use facts::RoleImages;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of images, in one text with spaces between them: it is shared like any other text, and no name has a space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct ImageList(Arc<str>);

impl Default for ImageList {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl ImageList {
    /// The list of all images of these roles; `share` returns the shared copy of a text.
    pub(super) fn new(roles: &[RoleImages], share: impl FnOnce(&str) -> Arc<str>) -> Self {
        let names: BTreeSet<&str> = roles
            .iter()
            .flat_map(|role| &role.images)
            .map(String::as_str)
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        Self(share(&names.join(" ")))
    }

    /// Returns true if it names none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.split(' ').filter(|name| !name.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_each_image_once() {
        let role = |images: &[&str]| RoleImages {
            role: "worker".to_owned(),
            images: images.iter().map(ToString::to_string).collect(),
        };
        let list = |roles: &[RoleImages]| ImageList::new(roles, |text| Arc::from(text));
        let two = list(&[role(&["b", "a"]), role(&["b"])]);
        assert_eq!(two.iter().collect::<Vec<_>>(), ["a", "b"]);
        assert!(list(&[]).is_empty() && list(&[role(&[])]).is_empty());
        assert_eq!(list(&[]).iter().next(), None);
        assert_eq!(list(&[]), ImageList::default());
    }
}
