//! What a tenant may not do in any namespace, managed or not, because it reaches what is another's or every
//! member; and what it may not do in its own that takes more than an edit of a job. Part of the catalogue in
//! [`crate::tenants`].

use anyhow::{Context as _, ensure};
use e2e::harness::kinds::{
    BATCH_JOB, BINDING, CLUSTER_ROLE, CONFIG_MAP, NAMESPACE, OVERRIDE_POLICY, PROPAGATION_POLICY,
    ROLE_BINDING,
};
use e2e::harness::tenant::Tenant;
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::{A_WHILE, Case, SOON};
use crate::job::Job;
use crate::story::{managed, unmanaged};
use crate::tenants::{DOOR, Tries, Try};

/// The characters of a padding: each has six in the JSON of a review, so that an update has five million.
const PADDING: usize = 420_000;

impl Tries<'_> {
    /// Ensures that the tenant may not create this.
    async fn ensure_not_created(
        &self,
        what: &str,
        kind: e2e::harness::kinds::ObjectKind,
        object: Value,
        says: &str,
    ) -> anyhow::Result<()> {
        let outcome = self.create(kind, object).await;
        let says = &[DOOR, says];
        Try {
            what,
            outcome,
            says,
        }
        .ensure_refused()
    }

    /// Tries overrides that make another object of one that nobody charges.
    async fn identities(&self) -> anyhow::Result<()> {
        let plaintext = |path: &str| json!({"plaintext": [{"path": path, "operator": "replace", "value": "Pod"}]});
        let image = |path: &str| json!({"imageOverrider": [{"predicate": {"path": path}, "component": "Repository", "operator": "replace", "value": "Pod"}]});
        let field = |path: &str| json!({"fieldOverrider": [{"fieldPath": path, "yaml": [{"subPath": "/a", "operator": "replace", "value": "Pod"}]}]});
        let forms = [
            plaintext("/kind"),
            plaintext("/apiVersion"),
            plaintext("/metadata/name"),
            plaintext("/metadata/namespace"),
            plaintext("/metadata"),
            plaintext(""),
            plaintext("/"),
            plaintext("anything/kind"),
            image("/kind"),
            field("/kind"),
        ];
        let selectors = json!([{"apiVersion": "v1", "kind": "ConfigMap"}]);
        for overriders in forms {
            let what = format!("make another object of a ConfigMap by {overriders}");
            let spec = json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": overriders}]});
            let says = "may not be overridden in any object";
            self.ensure_not_created(&what, OVERRIDE_POLICY, self.named("own", spec), says)
                .await?;
        }
        let old = json!({"resourceSelectors": selectors, "overriders": plaintext("/kind")});
        self.ensure_not_created(
            "write an override as earlier versions of Karmada did",
            OVERRIDE_POLICY,
            self.named("own", old),
            "the path \"/kind\" may not be overridden",
        )
        .await?;
        let data = json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": plaintext("/data/kind")}]});
        self.create(OVERRIDE_POLICY, self.named("data", data))
            .await
            .context("the data of a ConfigMap may be overridden")
    }

    /// Tries to have an object claimed, or a binding there, that is another's.
    async fn claims(&self) -> anyhow::Result<()> {
        let config = |metadata: Value| {
            let mut object = json!({"metadata": metadata});
            object["metadata"]["name"] = json!("settings");
            object["metadata"]["namespace"] = json!(self.tenant.namespace);
            object
        };
        let says = "say which policy of Karmada's has claimed";
        let marks = [
            json!({"labels": {"clusterpropagationpolicy.karmada.io/permanent-id": "p"}}),
            json!({"labels": {"propagationpolicy.karmada.io/permanent-id": "p"}}),
            json!({"labels": {"resourcebinding.karmada.io/permanent-id": "p"}}),
            json!({"annotations": {"clusterpropagationpolicy.karmada.io/name": "all"}}),
            json!({"annotations": {"propagationpolicy.karmada.io/namespace": "other"}}),
        ];
        for metadata in &marks {
            let what = format!("have it claimed by {metadata}");
            self.ensure_not_created(&what, CONFIG_MAP, config(metadata.clone()), says)
                .await?;
        }
        let part = json!({"annotations": {"muster.io/part": "1/member1"}});
        self.ensure_not_created(
            "have it taken for a part",
            CONFIG_MAP,
            config(part),
            "are written by Muster only",
        )
        .await?;
        self.create(CONFIG_MAP, config(json!({}))).await?;
        for metadata in marks {
            let outcome = self.merge(CONFIG_MAP, "settings", json!({"metadata": metadata}));
            Try {
                what: "have it claimed later",
                outcome: outcome.await,
                says: &[DOOR, says],
            }
            .ensure_refused()?;
        }
        let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "settings", "namespace": self.tenant.namespace});
        let mut binding = self.named("settings-configmap", json!({"resource": resource}));
        binding["metadata"]["labels"] =
            json!({"resourcebinding.karmada.io/permanent-id": "another"});
        self.ensure_not_created(
            "make a binding with the id of another's",
            BINDING,
            binding,
            "ResourceBindings are made by Karmada",
        )
        .await?;
        let spec = json!({"resourceSelectors": [{"apiVersion": "v1", "kind": "ConfigMap"}], "placement": {}});
        self.ensure_not_created(
            "have Muster's policy there before Muster",
            PROPAGATION_POLICY,
            self.named("muster", spec),
            "kept by Muster in every managed namespace",
        )
        .await?;
        let spec = json!({"overrideRules": []});
        self.ensure_not_created(
            "have an override of Muster's there before Muster",
            OVERRIDE_POLICY,
            self.named("muster-settings", spec),
            "take another name",
        )
        .await
    }
}

/// In a namespace that is not managed: nothing reaches further than the namespace, and no queue takes a job.
async fn elsewhere(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 1).await?;
    case.policy("own", BATCH_JOB, "muster", json!({})).await?;
    let tenant = case.tenant().await?;
    let mut forged = case.gang("forged", 1, 8).batch();
    forged["metadata"]["annotations"] = json!({"muster.io/user": "alice"});
    let outcome = tenant.objects.create(BATCH_JOB, &forged).await;
    Try {
        what: "submit a job as another user",
        outcome: outcome.map(drop),
        says: &[DOOR, "it says who submitted the job", &tenant.user],
    }
    .ensure_refused()?;

    let job = case.short_gang("train", 1, 8, 1).batch();
    let job = case.submit_by(&tenant.objects, &job).await?;
    let tries = Tries {
        tenant: &tenant,
        job: &job,
    };
    tries.identities().await?;
    tries.claims().await?;
    let renamed = json!({"metadata": {"annotations": {"muster.io/user": "alice"}}});
    Try {
        what: "give a job to another user",
        outcome: tries.merge(BATCH_JOB, &job.name, renamed).await,
        says: &[DOOR, "may not be changed"],
    }
    .ensure_refused()?;

    let message = case.waits(&job, &["QueueNotPermitted"]).await?;
    ensure!(message.contains("managed namespaces only"), "{message}");
    case.stays_unplaced(&job, A_WHILE).await?;
    let managed = json!({"metadata": {"labels": {"muster.io/managed": "true"}}});
    case.karmada()
        .merge(NAMESPACE, None, &case.name, &managed)
        .await?;
    case.finished(&job, "Succeeded").await
}

/// Grants the tenant a right in its namespace by a ClusterRole of its own.
async fn grant(case: &Case, tenant: &Tenant, name: &str, rules: Value) -> anyhow::Result<()> {
    let name = format!("{}-{name}", case.name);
    let role = json!({"metadata": {"name": name}, "rules": [rules]});
    case.cluster_object(CLUSTER_ROLE, &role).await?;
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": name, "namespace": case.name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": tenant.user}],
    });
    case.karmada().create(ROLE_BINDING, &binding).await?;
    Ok(())
}

/// What gives rights in members needs a right of its own, and so does what their namespace is.
async fn inside(case: &Case) -> anyhow::Result<()> {
    case.queue(8).await?;
    case.nodes("member1", 2).await?;
    let tenant = case.tenant().await?;
    let job = case.gang("served", 1, 2).deployment();
    let job = case.submit_by(&tenant.objects, &job).await?;
    case.running(&job).await?;
    let tries = Tries {
        tenant: &tenant,
        job: &job,
    };
    rights(case, &tries).await?;
    critical(case, &tenant).await?;
    padded(case, &tries).await?;

    Try {
        what: "delete the namespace's policy",
        outcome: tries.delete(PROPAGATION_POLICY, "muster").await,
        says: &[DOOR, "may not be deleted"],
    }
    .ensure_refused()?;
    let rule = json!({"apiGroups": [""], "resources": ["namespaces"], "verbs": ["patch"]});
    grant(case, &tenant, "namespaces", rule).await?;
    for (metadata, says) in [
        (
            json!({"labels": {"muster.io/managed": null}}),
            "by operators only",
        ),
        (
            json!({"annotations": {"muster.io/adopted-at": null}}),
            "by Muster only",
        ),
    ] {
        let patch = json!({"metadata": metadata});
        let message = eventually(SOON, "the policies refuse it, not RBAC", async || {
            let objects = &tenant.objects;
            match objects.merge(NAMESPACE, None, &case.name, &patch).await {
                Err(error) if error.to_string().contains(DOOR) => Ok(error.to_string()),
                Err(error) => Err(error.to_string()),
                Ok(_) => Err("a tenant could".to_owned()),
            }
        });
        let message = message.await?;
        ensure!(message.contains(says), "{message}");
    }
    Ok(())
}

/// Tries to give the pods of the namespace rights in its members.
async fn rights(case: &Case, tries: &Tries<'_>) -> anyhow::Result<()> {
    let policy = |name: &str, kinds: &[&str]| {
        let selectors: Vec<Value> = kinds
            .iter()
            .map(|kind| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind}))
            .collect();
        tries.named(
            name,
            json!({"resourceSelectors": selectors, "placement": {}}),
        )
    };
    let right = "kinds.muster.io Role.rbac.authorization.k8s.io";
    tries
        .ensure_not_created(
            "give rights in members",
            PROPAGATION_POLICY,
            policy("rights", &["Role"]),
            right,
        )
        .await?;
    tries
        .ensure_not_created(
            "give rights in members, both objects at once",
            PROPAGATION_POLICY,
            policy("rights", &["Role", "RoleBinding"]),
            "in policies of their own",
        )
        .await?;
    let rules =
        json!({"plaintext": [{"path": "/rules/0/verbs", "operator": "replace", "value": ["*"]}]});
    let selectors = json!([{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}]);
    let spec = json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": rules}]});
    tries
        .ensure_not_created(
            "raise rights in members",
            OVERRIDE_POLICY,
            tries.named("rights", spec),
            "/rules/0/verbs may not be overridden",
        )
        .await?;
    let bounds = json!({"plaintext": [{"path": "/spec/limits/0/defaultRequest/cpu", "operator": "replace", "value": "6"}]});
    for kind in ["LimitRange", "ResourceQuota"] {
        let selectors = json!([{"apiVersion": "v1", "kind": kind}]);
        let spec =
            json!({"resourceSelectors": selectors, "overrideRules": [{"overriders": bounds}]});
        tries
            .ensure_not_created(
                &format!("raise what pods ask for by a {kind} of an operator"),
                OVERRIDE_POLICY,
                tries.named("bounds", spec),
                "/spec/limits/0/defaultRequest/cpu may not be overridden",
            )
            .await?;
    }
    let rule = json!({
        "apiGroups": ["muster.io"], "resources": ["kinds"], "verbs": ["propagate"],
        "resourceNames": ["Role.rbac.authorization.k8s.io"],
    });
    grant(case, tries.tenant, "propagate", rule).await?;
    eventually(SOON, "who has the right propagates it", async || {
        let made = tries.create(PROPAGATION_POLICY, policy("rights", &["Role"]));
        made.await.map_err(|error| error.to_string())
    })
    .await
}

/// Tries the classes of the system, for which a member's scheduler evicts others' pods.
async fn critical(case: &Case, tenant: &Tenant) -> anyhow::Result<()> {
    let class = "system-node-critical";
    let mut own = case.gang("critical", 1, 1);
    own.priority_class = Some(class.to_owned());
    let mut labelled = case.gang("labelled", 1, 1).batch();
    labelled["metadata"]["labels"]["muster.io/priority-class"] = json!(class);
    for template in [own.batch(), own.volcano(), labelled] {
        let Err(error) = case.submit_by(&tenant.objects, &template).await else {
            anyhow::bail!("a tenant's job has the class {class}");
        };
        let message = format!("{error:#}");
        ensure!(message.contains("which leaves out"), "{message}");
    }
    Ok(())
}

/// Tries to grow the job until the growth is refused. A loaded API server waits 3 s for the webhook and then lets a
/// template through, so the growth is undone and tried again; that it gets nothing by then is for the caller to check.
async fn ensure_growth_refused(tries: &Tries<'_>) -> anyhow::Result<()> {
    let Job { kind, name, .. } = tries.job;
    let containers = &tries.job.template["spec"]["template"]["spec"]["containers"];
    let mut larger = containers.clone();
    for amounts in ["requests", "limits"] {
        larger[0]["resources"][amounts]["nvidia.com/gpu"] = json!("8");
    }
    let of =
        |containers: &Value| json!({"spec": {"template": {"spec": {"containers": containers}}}});
    eventually(SOON, "the growth of a padded job is refused", async || {
        let outcome = tries.merge(*kind, name, of(&larger)).await;
        if outcome.is_ok() {
            let undone = tries.merge(*kind, name, of(containers)).await;
            return Err(format!("a tenant could, and undid it: {:?}", undone.err()));
        }
        let refused = Try {
            what: "grow a job that is padded",
            outcome,
            says: &["cannot grow"],
        };
        refused.ensure_refused().map_err(|error| error.to_string())
    })
    .await
}

/// Pads a running job, so that reviews of it are large, and tries to grow it and to give it to another user.
async fn padded(case: &Case, tries: &Tries<'_>) -> anyhow::Result<()> {
    let Job { kind, name, .. } = tries.job;
    // Karmada leaves out owners where it writes Works, and the garbage collector does not know this kind.
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Nothing", "name": "<".repeat(PADDING), "uid": "u"});
    let patch = json!({"metadata": {"ownerReferences": [owner]}});
    tries.merge(*kind, name, patch).await.context("pad it")?;
    ensure_growth_refused(tries).await?;
    // The webhook puts it back, or a policy refuses it.
    let renamed = json!({"metadata": {"annotations": {"muster.io/user": "alice"}}});
    let outcome = tries.merge(*kind, name, renamed).await;
    println!("RENAMED {:?}", outcome.map_err(|error| error.to_string()));
    let template = case.template(tries.job).await.map_err(anyhow::Error::msg)?;
    let user = template.unwrap_or_default()["metadata"]["annotations"]["muster.io/user"].clone();
    ensure!(user == *tries.tenant.user, "{user}");
    case.never_holds_more(8, A_WHILE).await
}

#[test]
fn what_a_tenant_writes_elsewhere_reaches_no_member_and_no_queue() {
    unmanaged("elsewhere", elsewhere);
}

#[test]
fn a_tenant_gives_no_rights_takes_no_class_of_the_system_and_pads_nothing_past_the_webhook() {
    managed("inside", inside);
}
