//! A control plane and a member in the process, and controllers beside it.

use controller::{ControllerContext, ControllerOptions};
use crds::names;
use runtime::health::Health;
use runtime::lease::ledger::LedgerOptions;
use runtime::lease::{self, LeaseOptions};
use runtime::metrics::Registry;
use runtime::testing::{FakeApi, StoppableProcess};
use runtime::watch::WatchMetrics;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Number of jobs of one CPU that the queue admits.
pub(crate) const BOUND: usize = 4;
pub(crate) const BINDINGS: &str = "/apis/work.karmada.io/v1alpha2/namespaces/team/resourcebindings";
const CLUSTERS: &str = "/apis/cluster.karmada.io/v1alpha1/clusters";

pub(crate) struct Plane {
    pub(crate) api: FakeApi,
    pub(crate) member: FakeApi,
}

/// A control plane with a member of one node, queue `q` and the managed namespace `team`.
pub(crate) fn plane() -> Plane {
    let (api, member) = (FakeApi::new(), FakeApi::new());
    member.document("/readyz", json!("ok"));
    member.put(
        "/api/v1/nodes/n1",
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "64", "pods": "100"}, "conditions": [{"type": "Ready", "status": "True"}]},
        }),
    );
    api.pass_on(&format!("{CLUSTERS}/m1/proxy"), &member);
    api.put(
        &format!("{CLUSTERS}/m1"),
        json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": "m1"},
            "spec": {
                "syncMode": "Pull", "apiEndpoint": "https://m1",
                "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "m1-impersonator"},
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "ok", "message": ""}],
                "apiEnablements": [{"groupVersion": "batch/v1", "resources": [{"name": "jobs", "kind": "Job"}]}],
            },
        }),
    );
    api.put(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.volcano.sh",
        json!({
            "metadata": {"name": "podgroups.scheduling.volcano.sh"},
            "spec": {
                "group": "scheduling.volcano.sh", "scope": "Namespaced",
                "names": {"kind": "PodGroup", "plural": "podgroups"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true, "subresources": {"status": {}}}],
            },
        }),
    );
    api.put(
        "/api/v1/namespaces/team",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {names::MANAGED_LABEL: "true"}}}),
    );
    api.put(
        "/apis/scheduling.volcano.sh/v1beta1/queues/q",
        json!({
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue",
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"capability": {"cpu": BOUND.to_string()}},
        }),
    );
    Plane { api, member }
}

impl Plane {
    /// Creates a Job of one pod with its binding, as the webhook leaves it. Jobs of an earlier year go first.
    pub(crate) fn job(&self, name: &str, year: u32) {
        let created = format!("{year}-01-01T00:00:00Z");
        self.api.put(
            &format!("/apis/batch/v1/namespaces/team/jobs/{name}"),
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"uid": format!("{name}-uid"), "creationTimestamp": created, "labels": {"muster.io/queue": "q"}},
                "spec": {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": [
                    {"name": "main", "resources": {"requests": {"cpu": "1"}}},
                ]}}},
            }),
        );
        self.api.put(
            &format!("{BINDINGS}/{name}"),
            json!({
                "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {
                    "creationTimestamp": created,
                    "labels": {names::POLICY_PERMANENT_ID: "policy", names::BINDING_PERMANENT_ID: format!("{name}-id")},
                    "finalizers": [names::ACCOUNTING_FINALIZER],
                },
                "spec": {
                    "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": name, "uid": format!("{name}-uid")},
                    "replicas": 1, "schedulerName": "muster", "suspension": {"scheduling": true},
                },
            }),
        );
    }

    /// Starts a controller beside `process`.
    pub(crate) fn controller(
        &self,
        identity: &str,
        with_ledger: bool,
    ) -> (StoppableProcess, DropGuard) {
        let process = StoppableProcess::new(&self.api);
        let cancel = CancellationToken::new();
        let registry = Registry::new();
        let identity = lease::identity(identity);
        let ledger = LedgerOptions::beside(names::LEASE, &identity);
        let (leadership, _lease) = lease::spawn(
            process.client(),
            LeaseOptions::new(identity),
            &registry,
            cancel.clone(),
        );
        let context = ControllerContext {
            client: process.client(),
            health: Health::new(),
            watches: WatchMetrics::new(&registry),
            registry,
            leadership,
        };
        let options = ControllerOptions {
            ledger: with_ledger.then_some(ledger),
            // The fake API server has no admission, so the probe would never see a refusal.
            without_admission_policies: true,
            ..ControllerOptions::default()
        };
        tokio::spawn(controller::run(context, options, true, cancel.clone()));
        (process, cancel.drop_guard())
    }

    /// Returns the names of the placed jobs.
    pub(crate) fn placed(&self) -> Vec<String> {
        let names = [
            "a", "b", "c", "d", "e", "f", "first-a", "first-b", "first-c", "first-d",
        ];
        let placed = |name: &&str| {
            let binding = self.api.get(&format!("{BINDINGS}/{name}"))?;
            let clusters = binding["spec"]["clusters"].as_array()?;
            (!clusters.is_empty()).then(|| (*name).to_owned())
        };
        names.iter().filter_map(placed).collect()
    }

    /// Returns true if the leader found a job placed by a write that it did not know, and gated it again. This
    /// takes no virtual time, so counting placed jobs now and then may miss it.
    pub(crate) fn closed_one(&self) -> bool {
        let names = ["a", "b", "c", "d", "e", "f"];
        let is_closed = |name: &&str| {
            let binding = self.api.get(&format!("{BINDINGS}/{name}"));
            let binding = binding.unwrap_or_default();
            let record = binding["metadata"]["annotations"]["muster.io/admission"].as_str();
            record.is_some_and(|record| record.contains("OpenedByHand"))
        };
        names.iter().any(is_closed)
    }

    pub(crate) async fn until(&self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !done(self) {
            assert!(began.elapsed() < limit, "{what}: {:?}", self.placed());
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn holder(&self) -> Value {
        let lease = self
            .api
            .get("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster");
        lease.unwrap_or_default()["spec"]["holderIdentity"].clone()
    }
}
