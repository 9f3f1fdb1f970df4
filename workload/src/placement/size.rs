//! How large a placement may be. Each job is evaluated against all of it, and Karmada copies it into each binding.

use serde_json::Value;

/// Most bytes of a placement as JSON.
const BYTES: usize = 64 * 1024;

/// Most entries of each list, by its field.
const ENTRIES: [(&str, usize); 9] = [
    ("clusterAffinities", 100),
    ("clusterNames", 1_000),
    ("clusterTolerations", 100),
    ("exclude", 1_000),
    ("matchExpressions", 100),
    ("overflowAffinities", 100),
    ("spreadConstraints", 20),
    ("staticWeightList", 1_000),
    ("values", 1_000),
];

/// Returns why `placement` is too large, if so: the field, its size, the limit, and what to do.
#[must_use]
pub fn too_large(placement: Option<&Value>) -> Option<String> {
    let mut bytes = 0;
    let found = placement.and_then(|placement| walk("spec.placement", placement, &mut bytes));
    found.or_else(|| {
        (bytes > BYTES).then(|| {
            format!("spec.placement has {bytes} bytes; at most {BYTES} are allowed: {MEND}")
        })
    })
}

const MEND: &str = "select clusters by their labels (labelSelector)";

/// Adds the size of `value`, the field at `path`, to `bytes`; returns why one of its lists is too long.
fn walk(path: &str, value: &Value, bytes: &mut usize) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            *bytes += name.len() + 4;
            let path = format!("{path}.{name}");
            too_long(&path, name, value).or_else(|| walk(&path, value, bytes))
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, item)| {
            *bytes += 1;
            match item {
                // Most items are names, and there may be many.
                Value::String(text) => {
                    *bytes += text.len() + 2;
                    None
                }
                item => walk(&format!("{path}[{index}]"), item, bytes),
            }
        }),
        Value::String(text) => {
            *bytes += text.len() + 2;
            None
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            *bytes += 4;
            None
        }
    }
}

fn too_long(path: &str, name: &str, value: &Value) -> Option<String> {
    let count = value.as_array()?.len();
    let (_, limit) = ENTRIES.iter().find(|(field, _)| *field == name)?;
    let is_long = count > *limit;
    is_long.then(|| format!("{path} has {count} entries; at most {limit} are allowed: {MEND}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn names(count: usize, length: usize) -> Vec<String> {
        (0..count).map(|n| format!("{n:0length$}")).collect()
    }

    #[test]
    fn a_placement_that_is_too_large_is_named_with_its_field_and_limit() {
        let exclude = |count| json!({"clusterAffinity": {"exclude": names(count, 20)}});
        assert_eq!(too_large(None), None);
        assert_eq!(too_large(Some(&exclude(1_000))), None);
        assert_eq!(
            too_large(Some(&exclude(1_001))).as_deref(),
            Some(
                "spec.placement.clusterAffinity.exclude has 1001 entries; at most 1000 are allowed: select clusters by \
                 their labels (labelSelector)"
            )
        );
        let groups = |count| {
            let group = json!({"affinityName": "g", "clusterNames": names(2, 3)});
            json!({ "clusterAffinities": vec![group; count] })
        };
        assert_eq!(too_large(Some(&groups(100))), None);
        let said = too_large(Some(&groups(101))).unwrap_or_default();
        assert!(
            said.starts_with("spec.placement.clusterAffinities has 101 entries; "),
            "{said}"
        );
        let inner = json!({"clusterAffinities": [{}, {"labelSelector": {"matchExpressions": [
            {"key": "a", "operator": "In", "values": names(1_001, 1)},
        ]}}]});
        let said = too_large(Some(&inner)).unwrap_or_default();
        let field = "spec.placement.clusterAffinities[1].labelSelector.matchExpressions[0].values has 1001 entries; ";
        assert!(said.starts_with(field), "{said}");
        let long = json!({"clusterAffinity": {"clusterNames": names(1_000, 100)}});
        let said = too_large(Some(&long)).unwrap_or_default();
        assert!(
            said.starts_with("spec.placement has 10") && said.contains("at most 65536"),
            "{said}"
        );
    }
}
