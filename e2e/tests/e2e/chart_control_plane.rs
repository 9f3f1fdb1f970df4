//! The Helm chart of the control plane: it has the objects of `muster install`, and each of the two takes over what
//! the other has made.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::QUEUE;
use e2e::harness::muster;
use serde_json::{Value, json};
use testbed::tools::{self, Tool, Toolset};

use crate::alerts::ROOT;
use crate::case::Case;
use crate::chart::a_gang_runs;
use crate::chart_values::{helm, text};
use crate::documents::Guide;
use crate::story::managed_alone;

const CHART: &str = "deploy/chart/muster-control-plane";
/// The section of docs/how-to/install.md that the story follows.
const SECTION: &str = "The control plane by Helm or GitOps";
/// The annotation of objects that outlive the release.
const POLICY: &str = "helm.sh/resource-policy";

/// Objects by kind, namespace and name.
type Objects = BTreeMap<(String, String, String), Value>;

fn render(flags: &[&str]) -> anyhow::Result<Output> {
    let mut helm = helm()?;
    helm.args(["template", "x", CHART, "--kube-version=1.30"]);
    Ok(helm.args(flags).output()?)
}

fn rendered(flags: &[&str]) -> anyhow::Result<Objects> {
    let text = text(render(flags)?)?;
    by_name(serde_saphyr::from_multiple(&text)?)
}

/// Returns what `muster install` says that it applies.
fn applied(flags: &[&str]) -> anyhow::Result<Objects> {
    let mut muster = Command::new(muster::program()?);
    let output = muster.args(["install", "--dry-run"]).args(flags).output()?;
    by_name(serde_saphyr::from_multiple(&text(output)?)?)
}

fn by_name(objects: Vec<Value>) -> anyhow::Result<Objects> {
    let mut named = Objects::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, meta) = (text(&object["kind"]), &object["metadata"]);
        let key = (kind, text(&meta["namespace"]), text(&meta["name"]));
        ensure!(!named.contains_key(&key), "{key:?} is there twice");
        named.insert(key, object);
    }
    Ok(named)
}

fn is_kept(object: &Value) -> bool {
    object["metadata"]["annotations"][POLICY] == "keep"
}

/// Removes entries of labels or annotations, and the map if nothing is left.
fn without(object: &mut Value, field: &str, unwanted: &[&str]) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
        map.retain(|key, _| !unwanted.contains(&key.as_str()));
        if map.is_empty() {
            metadata.remove(field);
        }
    }
}

#[test]
fn the_chart_has_the_objects_of_muster_install() -> anyhow::Result<()> {
    let pairs: [(&[&str], &[&str]); 2] = [
        (&[], &[]),
        (
            &["--set=admissionPolicies.enabled=false"],
            &["--without-admission-policies"],
        ),
    ];
    for (values, flags) in pairs {
        let (chart, program) = (rendered(values)?, applied(flags)?);
        let keys = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&chart), keys(&program), "{values:?}");
        for ((key, mut ours), theirs) in chart.into_iter().zip(program.values()) {
            // Users' objects, and what jobs in parts need until they end.
            let outlives = matches!(
                key.0.as_str(),
                "CustomResourceDefinition" | "Queue" | "ResourceInterpreterCustomization"
            );
            assert_eq!(is_kept(&ours), outlives, "{key:?}");
            if !is_kept(theirs) {
                without(&mut ours, "annotations", &[POLICY]);
            }
            assert_eq!(&ours, theirs, "{key:?}");
        }
    }
    Ok(())
}

#[test]
fn values_leave_out_what_somebody_else_provides() -> anyhow::Result<()> {
    let all = rendered(&[])?;
    let left_out = |flags: &[&str]| -> anyhow::Result<Vec<String>> {
        let chosen = rendered(flags)?;
        let missing = all.keys().filter(|key| !chosen.contains_key(*key));
        Ok(missing
            .map(|(kind, _, name)| format!("{kind} {name}"))
            .collect())
    };
    let queue = left_out(&["--set=defaultQueue.enabled=false"])?;
    assert_eq!(queue, ["Queue default"]);
    let podgroups = left_out(&["--set=crds.podGroups=false"])?;
    let name = "CustomResourceDefinition podgroups.scheduling.volcano.sh";
    assert_eq!(podgroups, [name]);
    let crds = left_out(&["--set=crds.enabled=false"])?;
    assert_eq!(crds.len(), 7, "{crds:?}");

    let account = r#"--set-json=karmadaAccounts=[{"kind":"User","name":"jane"}]"#;
    let key = ("ClusterRoleBinding", "", "muster-admission-bypass-karmada");
    let key = (key.0.into(), key.1.into(), key.2.into());
    let binding = &rendered(&[account])?[&key];
    assert_eq!(
        binding["subjects"],
        json!([{"kind": "User", "name": "jane"}])
    );
    for (value, wanted) in [
        ("crd.enabled=false", "crd"),
        ("crds.enabled=no", "/crds/enabled"),
        ("karmadaAccounts[0].kind=User", "/karmadaAccounts/0"),
        (
            "karmadaAccounts[0].kind=Group,karmadaAccounts[0].name=system:authenticated",
            "/karmadaAccounts/0/name",
        ),
        (
            "karmadaAccounts[0].kind=ServiceAccount,karmadaAccounts[0].name=x",
            "namespace",
        ),
    ] {
        let output = render(&["--set", value])?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{value} is accepted");
        assert!(error.contains(wanted), "{value}: {error}");
    }
    Ok(())
}

#[test]
fn the_chart_has_no_findings_and_is_of_this_version() -> anyhow::Result<()> {
    text(helm()?.args(["lint", "--strict", CHART]).output()?)?;
    let chart = std::fs::read_to_string(Path::new(ROOT).join(CHART).join("Chart.yaml"))?;
    let chart: Value = serde_saphyr::from_str(&chart)?;
    for field in ["version", "appVersion"] {
        assert_eq!(chart[field], env!("CARGO_PKG_VERSION"), "{field}");
    }
    Ok(())
}

#[test]
fn the_chart_of_the_control_plane_and_muster_install_take_over_from_each_other() {
    managed_alone("chart-control-plane", async |case| {
        let guide = prepare(case)?;
        let outcome = taken_over(case, &guide).await;
        let unbound = json!({"spec": {"capability": null}});
        let karmada = &case.plane.karmada;
        karmada.merge(QUEUE, None, "default", &unbound).await?;
        // Helm forgets the release; what it applied is what the plane had before.
        let secrets = "kubectl --kubeconfig $KARMADA -n karmada-system delete secret -l owner=helm";
        guide.shell(secrets).await?;
        outcome
    });
}

/// Returns the guide on this plane, on which `muster install` ran already.
fn prepare(case: &Case) -> anyhow::Result<Guide> {
    let sets = [Toolset::Packaging, Toolset::Kubernetes];
    let tools = tools::ensure(&sets, &|line| eprintln!("{line}"))?;
    let programs = [
        ("helm", tools.program(Tool::Helm)?),
        ("kubectl", tools.program(Tool::Kubectl)?),
        ("muster", muster::program()?),
    ];
    let karmada = case.plane.testbed.karmada().kubeconfig;
    let env = [("KARMADA", karmada.display().to_string())];
    Guide::of("docs/how-to/install.md", &programs, env)
}

async fn taken_over(case: &Case, guide: &Guide) -> anyhow::Result<()> {
    let (plane, testbed) = (case.plane, &case.plane.testbed);
    // An operator's own bound of the queue stays through all of it.
    let bound = json!({"spec": {"capability": {"cpu": "1000"}}});
    plane.karmada.merge(QUEUE, None, "default", &bound).await?;
    let before = installed(guide).await?;

    let refused = guide.run(SECTION).await.unwrap_err();
    ensure!(
        format!("{refused:#}").contains("invalid ownership metadata"),
        "{refused:#}"
    );
    ensure!(installed(guide).await? == before, "helm changed something");

    let install = "helm install muster-control-plane";
    let guide_of_owner =
        prepare(case)?.with_words_replaced(install, &format!("{install} --take-ownership"));
    guide_of_owner.run(SECTION).await?;
    let adopted = installed(guide).await?;
    let owned = |object: &&Value| {
        object["metadata"]["annotations"]["meta.helm.sh/release-name"] == "muster-control-plane"
    };
    let strange: Vec<_> = adopted.values().filter(|object| !owned(object)).collect();
    ensure!(strange.is_empty(), "helm does not own {strange:?}");
    same(&before, &adopted)?;

    let karmada = testbed.karmada().kubeconfig;
    let (code, said) = plane.muster.check(&karmada).await?;
    ensure!(code == Some(0), "{code:?} {said}");
    plane.muster.install_again(testbed, &[]).await?;
    let again = installed(guide).await?;
    ensure!(again == adopted, "muster install changed something");

    // What outlives the release also stays when a value leaves it out.
    let upgrade = "helm upgrade muster-control-plane deploy/chart/muster-control-plane --kubeconfig $KARMADA \
                   -n karmada-system --set defaultQueue.enabled=false --set crds.enabled=false";
    guide.shell(upgrade).await?;
    same(&before, &installed(guide).await?)?;

    // The rights of Muster's accounts are what they were.
    a_gang_runs(case).await.map(drop)
}

/// Returns the objects of `muster install` as the control plane has them, without what each write changes.
async fn installed(guide: &Guide) -> anyhow::Result<Objects> {
    let get = "muster install --dry-run | kubectl --kubeconfig $KARMADA get -o json -f -";
    let list: Value = serde_json::from_str(&guide.shell(get).await?)?;
    let items = list["items"].as_array().context("no list")?;
    let mut objects = items.clone();
    for object in &mut objects {
        let metadata = object["metadata"].as_object_mut().context("no metadata")?;
        for volatile in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(volatile);
        }
        if let Some(object) = object.as_object_mut() {
            object.remove("status");
        }
    }
    by_name(objects)
}

/// Fails unless the objects differ in nothing but the marks of Helm's ownership.
fn same(before: &Objects, after: &Objects) -> anyhow::Result<()> {
    ensure!(before.len() == after.len(), "{} objects", after.len());
    let marks = [
        "meta.helm.sh/release-name",
        "meta.helm.sh/release-namespace",
        POLICY,
    ];
    let unmarked = |object: &Value| {
        let mut object = object.clone();
        without(&mut object, "annotations", &marks);
        without(&mut object, "labels", &["app.kubernetes.io/managed-by"]);
        object
    };
    for ((key, before), after) in before.iter().zip(after.values()) {
        let (before, after) = (unmarked(before), unmarked(after));
        ensure!(before == after, "{key:?}: {before} became {after}");
    }
    Ok(())
}
