//! Starts Karmada's control plane.
//!
//! Only one order avoids waiting for its resyncs: API server, namespaces and every CRD, the
//! aggregated API server, the webhook and its registrations, and last the controllers, whose
//! detector looks for new kinds every 30 s.

use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kube::Client;
use serde_json::{Value, json};

use crate::Testbed;
use crate::error::{Error, Result};
use crate::manifests::{Manifests, unserved};
use crate::names::{
    KARMADA_AGGREGATED_APISERVER, KARMADA_APISERVER, KARMADA_CONTROLLER_MANAGER, KARMADA_SCHEDULER,
    KARMADA_WEBHOOK,
};
use crate::tools::{Tools, Toolset};
use crate::wait;

/// Volcano's PodGroup CRD, which Muster replaces by a superset.
const PODGROUP_CRD: &str = "podgroups.scheduling.volcano.sh";

/// The address of the webhook in Karmada's manifests.
const WEBHOOK_URL: &str = "https://karmada-webhook.karmada-system.svc:443";

impl Testbed {
    /// Turns a started API server process into a control plane that members can join.
    pub(super) async fn start_control_plane(&self) -> Result<()> {
        let karmada = self.karmada();
        let client = karmada.client().await?;
        let components = self.components();
        wait::api_ready(&self.supervisor, KARMADA_APISERVER, &client).await?;
        self.spawn(components.kube_controller_manager(&karmada)?)?;

        let namespaces = ["karmada-system", "karmada-cluster"].map(namespace);
        let namespaces = Manifests::literal("namespaces", namespaces.into())?;
        namespaces.apply(&client, &karmada.name).await?;
        let crds = self.control_plane_crds()?;
        self.install_crds(KARMADA_APISERVER, &client, &karmada.name, &crds)
            .await?;
        self.aggregated_roles()?
            .apply(&client, &karmada.name)
            .await?;

        self.spawn(components.karmada_aggregated_apiserver(&karmada)?)?;
        self.spawn(components.karmada_webhook(&karmada)?)?;
        self.register_aggregated_api(&client).await?;
        wait::serving(&self.supervisor, KARMADA_WEBHOOK).await?;
        self.register_webhook(&client).await?;

        let spec = &self.spec.karmada;
        self.spawn(components.karmada_controller_manager(&karmada, spec)?)?;
        self.spawn(components.karmada_scheduler(&karmada, spec)?)?;
        wait::serving(&self.supervisor, KARMADA_CONTROLLER_MANAGER).await?;
        wait::serving(&self.supervisor, KARMADA_SCHEDULER).await
    }

    /// Applies CRDs, and other objects of these files, and waits until the CRDs are served.
    pub(super) async fn install_crds(
        &self,
        apiserver: &str,
        client: &Client,
        cluster: &str,
        crds: &Manifests,
    ) -> Result<()> {
        crds.apply(client, cluster).await?;
        let names = crds.crd_names();
        let what = format!("all CRDs served in {cluster}");
        wait::until(&self.supervisor, apiserver, &what, || async {
            match unserved(client, &names).await?.as_slice() {
                [] => Ok(()),
                missing => Err(format!("not served: {}", missing.join(", "))),
            }
        })
        .await
    }

    fn control_plane_crds(&self) -> Result<Manifests> {
        let karmada = self
            .tools
            .module_dir(Toolset::Karmada)?
            .join("charts/karmada/_crds/bases");
        let volcano = volcano_crds(&self.tools)?;
        let own = Manifests::read(&self.spec.control_plane_crds)?;
        // Two CRDs cannot have the same name; the option decides which one is installed.
        let (volcano, own) = match self.spec.karmada.volcano_podgroup_crd_on_control_plane {
            true => (volcano, own.without(&[PODGROUP_CRD])),
            false => (volcano.without(&[PODGROUP_CRD]), own),
        };
        Ok(Manifests::read(&[karmada])?.and(&volcano).and(&own))
    }

    /// Returns Karmada's additions to the ClusterRoles `view`, `edit` and `admin` of Kubernetes,
    /// and roles for kinds of jobs, which an operator of a federation lets its tenants edit.
    fn aggregated_roles(&self) -> Result<Manifests> {
        let module = self.tools.module_dir(Toolset::Karmada)?;
        let karmadas = module.join("artifacts/deploy/admin-clusterrole-aggregation.yaml");
        let rule = |group: &str, resources: &[&str]| {
            let verbs = "get list watch create update patch delete deletecollection";
            let verbs: Vec<&str> = verbs.split(' ').collect();
            json!({"apiGroups": [group], "resources": resources, "verbs": verbs})
        };
        let jobs = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {
                "name": "testbed-jobs-edit",
                "labels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"},
            },
            "rules": [
                rule("batch.volcano.sh", &["jobs", "cronjobs"]),
                rule("bus.volcano.sh", &["commands"]),
                rule("scheduling.volcano.sh", &["podgroups"]),
                rule(
                    "kubeflow.org",
                    &["pytorchjobs", "tfjobs", "mpijobs", "jaxjobs", "paddlejobs", "xgboostjobs", "notebooks"],
                ),
                rule("jobset.x-k8s.io", &["jobsets"]),
                rule(
                    "leaderworkerset.x-k8s.io",
                    &["leaderworkersets", "leaderworkersets/scale"],
                ),
                rule("ray.io", &["rayclusters", "rayjobs", "rayservices"]),
            ],
        });
        Ok(Manifests::read(&[karmadas])?.and(&Manifests::literal("roles for jobs", vec![jobs])?))
    }

    /// Makes the API server forward `cluster.karmada.io` to the aggregated API server. A Service of
    /// type ExternalName is dialled directly.
    async fn register_aggregated_api(&self, client: &Client) -> Result<()> {
        let name = KARMADA_AGGREGATED_APISERVER;
        let port = self.supervisor.port(name)?;
        let objects = Manifests::literal(
            "aggregated API",
            vec![
                json!({
                    "apiVersion": "v1",
                    "kind": "Service",
                    "metadata": {"name": name, "namespace": "karmada-system"},
                    "spec": {"type": "ExternalName", "externalName": "localhost"},
                }),
                json!({
                    "apiVersion": "apiregistration.k8s.io/v1",
                    "kind": "APIService",
                    "metadata": {"name": "v1alpha1.cluster.karmada.io"},
                    "spec": {
                        "group": "cluster.karmada.io",
                        "version": "v1alpha1",
                        "groupPriorityMinimum": 2000,
                        "versionPriority": 10,
                        "caBundle": self.ca_bundle(),
                        "service": {"name": name, "namespace": "karmada-system", "port": port},
                    },
                }),
            ],
        )?;
        objects.apply(client, "karmada").await?;
        let path = "/apis/cluster.karmada.io/v1alpha1/clusters";
        wait::until(&self.supervisor, name, "clusters served", || {
            wait::get(client, path)
        })
        .await
    }

    async fn register_webhook(&self, client: &Client) -> Result<()> {
        let module = self.tools.module_dir(Toolset::Karmada)?;
        let path = module.join("artifacts/deploy/webhook-configuration.yaml");
        let text = std::fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        let port = self.supervisor.port(KARMADA_WEBHOOK)?.unwrap_or_default();
        let text = text
            .replace(WEBHOOK_URL, &format!("https://127.0.0.1:{port}"))
            .replace("{{caBundle}}", &self.ca_bundle());
        Manifests::parse(&path, &text)?
            .apply(client, "karmada")
            .await
    }

    /// Returns the CA bundle in the encoding that webhooks, API services and members' secrets use.
    pub(super) fn ca_bundle(&self) -> String {
        BASE64_STANDARD.encode(&self.pki.ca_pem)
    }
}

/// Returns all of Volcano's CRDs; its controllers hang until those of jobflow exist too.
pub(super) fn volcano_crds(tools: &Tools) -> Result<Manifests> {
    let base = tools.module_dir(Toolset::Volcano)?.join("config/crd");
    Manifests::read(&["volcano/bases", "jobflow/bases"].map(|dir| base.join(Path::new(dir))))
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}
