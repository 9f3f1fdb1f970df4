//! UIDs of API objects. They are compact, since every pending job and every pod has one.
//!
//! API servers write UUIDs, which are stored as sixteen bytes. Any other text is stored as it is,
//! so that a UID always reads as it was received.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The UID of an API object. A re-created object has a new one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "String")]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    /// A UUID as API servers write it.
    Canonical(Uuid),
    /// Anything else.
    Text(Arc<str>),
}

impl Uid {
    /// A UID from its text.
    #[must_use]
    pub fn new(uid: impl AsRef<str>) -> Self {
        let text = uid.as_ref();
        Self(canonical(text).map_or_else(|| Form::Text(Arc::from(text)), Form::Canonical))
    }
}

/// The UUID whose canonical text is `text`, if there is one.
fn canonical(text: &str) -> Option<Uuid> {
    let parsed = Uuid::try_parse(text).ok()?;
    let mut written = [0; Hyphenated::LENGTH];
    (parsed.hyphenated().encode_lower(&mut written) == text).then_some(parsed)
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Canonical(uuid) => uuid.hyphenated().fmt(f),
            Form::Text(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uid").field(&self.to_string()).finish()
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, text: &str) -> bool {
        match &self.0 {
            Form::Canonical(uuid) => canonical(text).as_ref() == Some(uuid),
            Form::Text(known) => **known == *text,
        }
    }
}

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self::new(uid)
    }
}

impl From<Arc<str>> for Uid {
    fn from(uid: Arc<str>) -> Self {
        Self::new(uid)
    }
}

impl From<Uid> for String {
    fn from(uid: Uid) -> Self {
        uid.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const CANONICAL: &str = "9f1c0a52-3a0e-4d8e-8f6e-0123456789ab";

    #[test]
    fn a_uid_reads_as_it_was_received() {
        let upper = CANONICAL.to_uppercase();
        let bare = CANONICAL.replace('-', "");
        let braced = format!("{{{CANONICAL}}}");
        let texts = [CANONICAL, &upper, &bare, &braced, "u", ""];
        for text in texts {
            let uid = Uid::new(text);
            assert_eq!(uid.to_string(), text);
            assert_eq!(format!("{uid:?}"), format!("Uid({text:?})"));
            let json = serde_json::to_string(&uid).unwrap();
            assert_eq!(json, serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<Uid>(&json).unwrap(), uid);
            // Only equal texts are equal UIDs.
            for other in texts {
                assert_eq!(uid == *other, text == other, "{text} {other}");
                assert_eq!(uid == Uid::new(other), text == other, "{text} {other}");
            }
        }
    }

    #[test]
    fn a_canonical_uuid_is_stored_as_bytes() {
        assert!(matches!(Uid::new(CANONICAL).0, Form::Canonical(_)));
    }

    #[test]
    fn canonical_uids_are_ordered_as_their_texts() {
        let texts = [
            "00000000-0000-4000-8000-000000000002",
            "00000000-0000-4000-8000-00000000000a",
            "0a000000-0000-4000-8000-000000000001",
            "f0000000-0000-4000-8000-000000000000",
        ];
        assert!(texts.is_sorted());
        assert!(texts.map(Uid::new).is_sorted());
    }

    #[test]
    fn a_uid_takes_24_bytes() {
        assert_eq!(std::mem::size_of::<Uid>(), 24);
    }
}
