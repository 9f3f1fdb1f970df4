#![allow(clippy::unwrap_used)]
use super::*;

#[test]
fn the_key_changes_with_all_that_determines_the_binaries() {
    let key = hashed_name;
    let base = key(Toolset::Karmada, "a", "b", "c");
    assert_eq!(base, key(Toolset::Karmada, "a", "b", "c"));
    assert_ne!(base, key(Toolset::Karmada, "a2", "b", "c"));
    assert_ne!(base, key(Toolset::Karmada, "a", "b2", "c"));
    assert_ne!(base, key(Toolset::Karmada, "a", "b", "c2"));
    let hash = |name: String| name.rsplit_once('-').unwrap().1.to_owned();
    // Only the ldflags differ.
    assert_ne!(
        hash(base.clone()),
        hash(key(Toolset::Kubernetes, "a", "b", "c"))
    );
    assert_eq!(hash(base).len(), 16);
}

#[test]
fn kubernetes_gets_the_version_that_its_module_requires() {
    let flags = Toolset::Kubernetes.ldflags(&go_mod(Toolset::Kubernetes).unwrap());
    insta::assert_snapshot!(flags, @"-s -w -X k8s.io/component-base/version.gitVersion=v1.35.4 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35");
}

#[test]
fn every_set_names_its_programs_and_requires_its_module() {
    let sets = Toolset::ALL.into_iter().chain(Toolset::SOAK);
    for set in sets.chain([Toolset::Node]) {
        let text = go_mod(set).unwrap();
        assert!(module_version(&text, set.module()).is_some(), "{set:?}");
        key(set).unwrap();
    }
}

#[test]
fn the_kubelet_is_of_the_version_of_its_api_server() {
    let version = |set: Toolset| {
        let text = go_mod(set).unwrap();
        module_version(&text, "k8s.io/kubernetes")
            .unwrap()
            .to_owned()
    };
    assert_eq!(version(Toolset::Node), version(Toolset::Kubernetes));
}

#[test]
fn versions_compare_by_number() {
    assert!(version("1.9.3") < version("1.26.0"));
    assert!(version("1.26.8") > version("1.26.0"));
    assert!(version("1.25") < version("1.25.10"));
    assert_eq!(version("1.27rc1"), [1, 27]);
}
