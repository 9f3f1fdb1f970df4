//! Why the size of a template is unknown.

use facts::Reason;
use serde_json::Value;

/// The path of the whole object, in errors.
pub(crate) const THE_OBJECT: &str = "the object";
/// Most characters of a wrong value in an error: values come from users' objects.
const SHOWN_CHARS: usize = 80;

/// Why a template has no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Nothing says how many pods it starts, or what they request.
    #[error("size of {api_version} {kind} is unknown: {why}")]
    SizeUnknown {
        /// Its apiVersion.
        api_version: String,
        /// Its kind.
        kind: String,
        /// What is missing, and what to do.
        why: String,
    },
    /// A field requests devices whose number is unknown.
    #[error("{field}: {why}")]
    Uncounted {
        /// Path of the field (`spec.template.spec.resourceClaims[0].resourceClaimName`).
        field: String,
        /// What is unknown, and what to do.
        why: String,
    },
    /// A field has an invalid value.
    #[error("{field} is {value}; needed: {want}")]
    Invalid {
        /// Path of the field (`spec.tasks[1].replicas`).
        field: String,
        /// Its value as JSON, shortened; `absent` where there is none.
        value: String,
        /// The expected value.
        want: String,
    },
}

impl SpecError {
    /// Returns the reason that the job shows.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::SizeUnknown { .. } | Self::Uncounted { .. } => Reason::SizeUnknown,
            Self::Invalid { .. } => Reason::InvalidTemplate,
        }
    }

    /// Returns the error for `value` at `field`, which is not `want`.
    pub(crate) fn invalid(field: &str, value: Option<&Value>, want: impl Into<String>) -> Self {
        let shown = match value {
            None => "absent".to_owned(),
            Some(Value::Object(map)) if !map.is_empty() => "an object".to_owned(),
            Some(Value::Array(items)) if !items.is_empty() => format!("a list of {}", items.len()),
            Some(simple) => shorten(&simple.to_string()),
        };
        Self::Invalid {
            field: field.to_owned(),
            value: shown,
            want: want.into(),
        }
    }

    /// Returns the error for `field`, which requests devices that cannot be counted.
    pub(crate) fn uncounted(field: &str, why: impl Into<String>) -> Self {
        Self::Uncounted {
            field: field.to_owned(),
            why: why.into(),
        }
    }

    /// Returns the error for values at `field` whose sum is too large.
    pub(crate) fn too_large(field: &str, what: impl Into<String>) -> Self {
        Self::Invalid {
            field: (if field.is_empty() { THE_OBJECT } else { field }).to_owned(),
            value: what.into(),
            want: "amounts whose sum can be counted in 63 bits".to_owned(),
        }
    }
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
