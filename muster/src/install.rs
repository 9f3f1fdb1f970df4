//! `muster install`: the objects that Muster needs on a Karmada control plane, and in a member that it reaches
//! through Karmada's cluster proxy.
//!
//! It uses server-side apply, so it is safe to repeat. Existing CRDs of Volcano and existing queues do not
//! change. Stored objects of an earlier version of the API are converted.

pub(crate) mod accounts;
mod admission;
mod convert;

use crate::args::{ConnectionArgs, Install, TenancyArg};
use checks::{INTERPRETERS, PODGROUPS, has_volcanos_podgroups};
use crds::capacity_policy::{CapacityPolicy, Tenancy};
use crds::muster_config::{self, MusterConfig};
use kube::{Api, Client};
use runtime::apply;

/// Field manager of installed objects.
const MANAGER: &str = "muster-install";
/// The manifests besides the CRDs and the interpreters, in this order.
const MANIFESTS: &[&str] = &[
    include_str!("../../deploy/namespace.yaml"),
    include_str!("../../deploy/accounts.yaml"),
    include_str!("../../deploy/rbac-controller.yaml"),
    include_str!("../../deploy/rbac-scheduler.yaml"),
    include_str!("../../deploy/rbac-webhook.yaml"),
    include_str!("../../deploy/rbac-workloads.yaml"),
    include_str!("../../deploy/rbac-lease.yaml"),
    include_str!("../../deploy/rbac-token.yaml"),
    include_str!("../../deploy/rbac-members.yaml"),
    include_str!("../../deploy/rbac-metrics.yaml"),
    include_str!("../../deploy/rbac-users.yaml"),
    include_str!("../../deploy/rbac-admission.yaml"),
    include_str!("../../deploy/admission-permitted-queue.yaml"),
];

/// The manifests for a member that is reached through Karmada's cluster proxy.
pub(crate) const IN_MEMBERS: &[&str] = &[
    include_str!("../../deploy/rbac-in-members.yaml"),
    include_str!("../../deploy/rbac-workloads.yaml"),
];

/// Returns the manifests besides the CRDs, in the order in which they are applied.
pub(crate) fn manifests() -> impl DoubleEndedIterator<Item = &'static str> {
    MANIFESTS.iter().chain(INTERPRETERS).copied()
}

/// The queue of jobs that name none: created if it is missing, never changed.
const DEFAULT_QUEUE: &str = include_str!("../../deploy/queue-default.yaml");

/// Installs or updates Muster.
pub(crate) async fn install(connection: &ConnectionArgs, options: &Install) -> anyhow::Result<()> {
    if options.dry_run {
        print!("{}", manifests_of(options));
        return Ok(());
    }
    let client = connect(connection).await?;
    if options.member {
        return apply_all(&client, IN_MEMBERS.iter().copied()).await;
    }
    if !options.skip_check {
        crate::check::before_install(&client).await?;
    }
    for (name, yaml) in crds::yaml::manifests() {
        if name == PODGROUPS && has_volcanos_podgroups(&client).await? {
            println!(
                "crd/{PODGROUPS} unchanged: it is Volcano's own; Muster shows less in `kubectl get podgroups`"
            );
            continue;
        }
        convert::stored_objects(&client, name, yaml).await?;
        show(&apply::apply_yaml(&client, yaml, MANAGER).await?);
    }
    apply_all(&client, manifests()).await?;
    make_default_queue(&client).await?;
    match options.tenancy {
        Some(tenancy) => show(&apply::apply_yaml(&client, &config(tenancy), MANAGER).await?),
        None => take_over_tenancy(&client).await?,
    }
    match options.without_admission_policies {
        true => admission::remove(&client).await,
        false => admission::install(&client, &options.karmada_accounts).await,
    }
}

/// Creates the MusterConfig with the tenancy of the CapacityPolicy `root`, where an earlier version kept it. That
/// stays: processes of the earlier version read it until they are replaced.
async fn take_over_tenancy(client: &Client) -> anyhow::Result<()> {
    let configs: Api<MusterConfig> = Api::all(client.clone());
    if configs.get_opt(muster_config::NAME).await?.is_some() {
        return Ok(());
    }
    let policies: Api<CapacityPolicy> = Api::all(client.clone());
    let root = policies.get_opt(crds::queue::ROOT).await?;
    let Some(tenancy) = root.and_then(|root| root.tenancy()) else {
        return Ok(());
    };
    let tenancy = match tenancy {
        Tenancy::Open => TenancyArg::Open,
        Tenancy::Closed => TenancyArg::Closed,
    };
    show(&apply::apply_yaml(client, &config(tenancy), MANAGER).await?);
    println!("spec.tenancy of CapacityPolicy root holds for queue root only from now on");
    Ok(())
}

fn config(tenancy: TenancyArg) -> String {
    let name = muster_config::NAME;
    format!(
        "apiVersion: muster.io/v1alpha2\nkind: MusterConfig\nmetadata:\n  name: {name}\nspec:\n  tenancy: {tenancy:?}\n"
    )
}

/// Returns the manifest of the binding of Karmada's accounts, without its subjects.
pub(crate) fn bypass_binding() -> &'static str {
    admission::BINDING_MANIFEST
}

async fn apply_all(client: &Client, manifests: impl Iterator<Item = &str>) -> anyhow::Result<()> {
    for yaml in manifests {
        show(&apply::apply_yaml(client, yaml, MANAGER).await?);
    }
    Ok(())
}

pub(crate) async fn connect(connection: &ConnectionArgs) -> anyhow::Result<Client> {
    let agent = concat!("muster-install/", env!("CARGO_PKG_VERSION"));
    runtime::connect(
        connection.kubeconfig.as_deref(),
        connection.context.as_deref(),
        agent,
    )
    .await
}

/// Returns what would be applied, as YAML. The chart of the control plane has it, with no flags, in a file.
fn manifests_of(options: &Install) -> String {
    let crds = crds::yaml::manifests();
    let config = options.tenancy.map(config);
    let policies = (!options.without_admission_policies).then_some(admission::MANIFEST);
    let all: Vec<&str> = match options.member {
        true => IN_MEMBERS.to_vec(),
        false => {
            let crds = crds.iter().map(|(_, yaml)| *yaml);
            let chosen = [DEFAULT_QUEUE].into_iter().chain(config.as_deref());
            crds.chain(manifests().map(|yaml| yaml as &str))
                .chain(chosen)
                .chain(policies)
                .collect()
        }
    };
    let documents = all.iter().map(|yaml| {
        let document = yaml.trim_start_matches("---\n").trim_end();
        format!("---\n{document}\n")
    });
    documents.collect()
}

fn show(applied: &[apply::Applied]) {
    for object in applied {
        println!("{} {} applied", object.kind, object.name);
    }
}

async fn make_default_queue(client: &Client) -> anyhow::Result<()> {
    let queues: Api<crds::queue::Queue> = Api::all(client.clone());
    if queues.get_opt(crds::names::DEFAULT_QUEUE).await?.is_some() {
        println!("Queue {} unchanged", crds::names::DEFAULT_QUEUE);
        return Ok(());
    }
    show(&apply::apply_yaml(client, DEFAULT_QUEUE, MANAGER).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    /// Returns the text after the first lines, which name the kind.
    fn script(yaml: &str) -> &str {
        yaml.split_once("luaScript")
            .map_or("", |(_, script)| script)
    }

    #[test]
    fn the_chart_of_the_control_plane_has_what_is_applied() {
        let options = super::Install {
            dry_run: true,
            member: false,
            tenancy: None,
            karmada_accounts: Vec::new(),
            without_admission_policies: false,
            skip_check: false,
        };
        let chart = include_str!("../../deploy/chart/muster-control-plane/files/install.yaml");
        assert!(
            super::manifests_of(&options) == chart,
            "the chart is not what `muster install` applies: run `make manifests`"
        );
    }

    /// The control plane owns the rules of such a role: to state them is a conflict for `kubectl apply --server-side`,
    /// and by force it empties the role until they are filled again.
    #[test]
    fn no_rules_are_stated_of_an_aggregated_role() {
        let all = super::manifests().chain(super::IN_MEMBERS.iter().copied());
        let objects = all.flat_map(|yaml| runtime::apply::parse(yaml).unwrap());
        let aggregated = objects.filter(|object| !object["aggregationRule"].is_null());
        let stated: Vec<_> = aggregated.map(|object| object["rules"].clone()).collect();
        assert!(!stated.is_empty());
        assert!(stated.iter().all(serde_json::Value::is_null), "{stated:?}");
    }

    #[test]
    fn the_tenancies_of_the_flag_and_the_config_agree() {
        use crate::args::TenancyArg;
        use crds::capacity_policy::closed_to;
        for (tenancy, open) in [(TenancyArg::Open, true), (TenancyArg::Closed, false)] {
            let mut object = runtime::apply::parse(&super::config(tenancy)).unwrap();
            let config = serde_json::from_value(object.remove(0)).unwrap();
            let labels = std::collections::BTreeMap::new();
            let why = closed_to("q", None, Some(&config), "team-a", &labels);
            assert_eq!(why.is_none(), open, "{tenancy:?}: {why:?}");
        }
    }

    #[test]
    fn the_statuses_of_kubeflows_jobs_are_made_by_one_rule() {
        let torch = include_str!("../../deploy/interpreter-pytorchjob.yaml");
        assert!(script(torch).contains("AggregateStatus"));
        for (kind, other) in [
            ("TFJob", include_str!("../../deploy/interpreter-tfjob.yaml")),
            (
                "MPIJob",
                include_str!("../../deploy/interpreter-mpijob.yaml"),
            ),
            (
                "JAXJob",
                include_str!("../../deploy/interpreter-jaxjob.yaml"),
            ),
            (
                "PaddleJob",
                include_str!("../../deploy/interpreter-paddlejob.yaml"),
            ),
            (
                "XGBoostJob",
                include_str!("../../deploy/interpreter-xgboostjob.yaml"),
            ),
        ] {
            assert!(other.contains(&format!("    kind: {kind}\n")), "{kind}");
            assert_eq!(script(torch), script(other), "{kind}");
        }
    }
}
