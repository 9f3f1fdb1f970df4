//! The images that a job's pods need, and the full name of an image.

use crate::pod_specs;
use facts::RoleImages;
use serde_json::Value;

/// The registry of names without one, as container runtimes list them.
const DEFAULT_REGISTRY: &str = "docker.io";

/// Returns the images of each role of `template`, as far as its kind is known. The template is not changed.
#[must_use]
pub fn images(template: &mut Value) -> Vec<RoleImages> {
    let specs = pod_specs::of(template).into_iter();
    let roles = specs.map(|(role, spec)| RoleImages {
        role,
        images: images_of(spec),
    });
    roles.filter(|role| !role.images.is_empty()).collect()
}

/// Returns the full names of the images of a pod spec, each once.
fn images_of(spec: &Value) -> Vec<String> {
    let names = names_of(spec).into_iter();
    let mut images: Vec<String> = names.map(full_image_name).collect();
    images.sort_unstable();
    images.dedup();
    images
}

/// Returns the images of a pod spec as it names them: those of its init containers, containers and image volumes.
pub(crate) fn names_of(spec: &Value) -> Vec<&str> {
    let list = |name: &str| spec.get(name).and_then(Value::as_array);
    let of_containers = ["initContainers", "containers"]
        .into_iter()
        .filter_map(list)
        .flatten()
        .filter_map(|container| container.get("image"));
    let of_volumes = list("volumes").into_iter().flatten();
    let of_volumes = of_volumes.filter_map(|volume| volume.pointer("/image/reference"));
    of_containers
        .chain(of_volumes)
        .filter_map(Value::as_str)
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns the name of an image with registry and tag or digest, as container runtimes list it: `nginx` is
/// `docker.io/library/nginx:latest`. Of a name with both, the digest counts. Whether it is valid is not checked.
#[must_use]
pub fn full_image_name(name: &str) -> String {
    let (registry, path) = match name.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DEFAULT_REGISTRY, name),
    };
    let registry = match registry {
        "index.docker.io" => DEFAULT_REGISTRY,
        other => other,
    };
    let library = match registry == DEFAULT_REGISTRY && !path.contains('/') {
        true => "library/",
        false => "",
    };
    let (path, digest) = match path.split_once('@') {
        Some((path, digest)) => (path, Some(digest)),
        None => (path, None),
    };
    let tag_at = path
        .rfind(':')
        .filter(|colon| path.rfind('/').is_none_or(|slash| slash < *colon));
    match (digest, tag_at) {
        (Some(digest), None) => format!("{registry}/{library}{path}@{digest}"),
        (Some(digest), Some(at)) => format!("{registry}/{library}{}@{digest}", &path[..at]),
        (None, Some(_)) => format!("{registry}/{library}{path}"),
        (None, None) => format!("{registry}/{library}{path}:latest"),
    }
}

/// Returns true if the first part of a name is a registry: it has a dot or a port, or is `localhost`.
fn is_registry(first: &str) -> bool {
    first == "localhost"
        || first.contains(['.', ':'])
        || first.chars().any(|letter| letter.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::yaml;

    #[test]
    fn the_full_name_is_that_of_container_runtimes() {
        for (name, full) in [
            ("nginx", "docker.io/library/nginx:latest"),
            ("nginx:1.27", "docker.io/library/nginx:1.27"),
            ("team/train", "docker.io/team/train:latest"),
            ("team/sub/train:v1", "docker.io/team/sub/train:v1"),
            ("index.docker.io/nginx", "docker.io/library/nginx:latest"),
            ("docker.io/nginx:1", "docker.io/library/nginx:1"),
            (
                "nvcr.io/nvidia/pytorch:25.01-py3",
                "nvcr.io/nvidia/pytorch:25.01-py3",
            ),
            ("nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/pytorch:latest"),
            ("localhost/train", "localhost/train:latest"),
            ("localhost:5000/train", "localhost:5000/train:latest"),
            ("10.0.0.1:5000/a/b:v2", "10.0.0.1:5000/a/b:v2"),
            ("nginx@sha256:ab", "docker.io/library/nginx@sha256:ab"),
            ("r.io/a/b:v1@sha256:ab", "r.io/a/b@sha256:ab"),
            ("", "docker.io/library/:latest"),
            ("@", "docker.io/library/@"),
            ("/", "docker.io//:latest"),
        ] {
            assert_eq!(full_image_name(name), full, "{name:?}");
            let again = full_image_name(full);
            assert!(name.len() < 2 || again == full, "{full:?}: {again:?}");
        }
    }

    #[test]
    fn each_role_has_the_images_of_all_its_containers_once() {
        let mut job = yaml(
            "{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, spec: {tasks: [
               {name: launcher, replicas: 1, template: {spec: {containers: [{name: c, image: r.io/mpi:1}]}}},
               {name: worker, replicas: 4, template: {spec: {
                 initContainers: [{name: i, image: busybox}],
                 containers: [{name: c, image: r.io/mpi:1}, {name: d, image: r.io/mpi:1}, {name: e}],
                 volumes: [{name: v, image: {reference: r.io/data:2}}, {name: w, emptyDir: {}}]}}},
               {name: none, template: {spec: {containers: [{name: c}]}}}]}}",
        );
        let before = job.clone();
        let roles = images(&mut job);
        let shown: Vec<String> = roles
            .iter()
            .map(|of| format!("{}: {}", of.role, of.images.join(" ")))
            .collect();
        assert_eq!(
            shown,
            [
                "launcher: r.io/mpi:1",
                "worker: docker.io/library/busybox:latest r.io/data:2 r.io/mpi:1"
            ]
        );
        assert_eq!(job, before);
        let mut unknown = yaml("{apiVersion: example.com/v1, kind: Train, spec: {image: a}}");
        assert_eq!(images(&mut unknown), []);
    }
}
