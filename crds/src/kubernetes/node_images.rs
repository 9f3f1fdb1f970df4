//! Reads the images of a node (`status.images`): of those that count, all names.

use crate::loose::nullable;
use facts::LARGE_IMAGE_BYTES;
use serde::{Deserialize, Deserializer};

/// An image, as the kubelet reports it.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReportedImage {
    /// Names with a tag, with a digest, or both.
    #[serde(deserialize_with = "nullable")]
    names: Vec<String>,
    size_bytes: i64,
}

/// Reads the full names of the large images, in order, each once.
///
/// # Errors
/// Returns an error if the field is no list of images.
pub(super) fn large<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let images: Vec<ReportedImage> = nullable(deserializer)?;
    let large = images.iter().filter(|image| {
        u64::try_from(image.size_bytes).is_ok_and(|size| size >= LARGE_IMAGE_BYTES)
    });
    let mut names: Vec<String> = large
        .flat_map(|image| &image.names)
        // Of a deleted tag.
        .filter(|name| !name.contains("<none>"))
        .map(|name| workload::full_image_name(name))
        .collect();
    names.sort_unstable();
    names.dedup();
    Ok(names)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::kubernetes::Node;
    use serde_json::json;

    #[test]
    fn only_large_images_count_by_all_their_names() {
        let of = |images: serde_json::Value| {
            let node = json!({"metadata": {"name": "n1"}, "status": {"images": images}});
            let node: Node = serde_json::from_value(node).unwrap();
            node.status.images
        };
        let large = 256_i64 << 20;
        let images = json!([
            {"names": ["nginx:1", "docker.io/library/nginx@sha256:ab"], "sizeBytes": large},
            {"names": ["small"], "sizeBytes": large - 1},
            {"names": ["<none>@<none>", "<none>:<none>"], "sizeBytes": large},
            {"names": null, "sizeBytes": large},
            {"names": ["negative"], "sizeBytes": -1},
            {"names": ["unsized"]},
            {"names": ["docker.io/library/nginx:1"], "sizeBytes": large},
        ]);
        assert_eq!(
            of(images),
            [
                "docker.io/library/nginx:1",
                "docker.io/library/nginx@sha256:ab"
            ]
        );
        assert_eq!(of(json!(null)), [""; 0]);
        assert_eq!(of(json!([])), [""; 0]);
    }
}
