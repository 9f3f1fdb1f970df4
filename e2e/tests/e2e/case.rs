//! A test's part of the shared plane: a namespace, a queue and a GPU class of its own.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::Context as _;
use e2e::harness::audit::{AuditReport, AuditSubject};
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{BINDING, NAMESPACE, ObjectKind, POD, POD_GROUP, PRIORITY_CLASS, QUEUE};
use e2e::harness::objects::Objects;
use e2e::harness::tenant::Tenant;
use e2e::harness::turns::Turn;
use e2e::harness::wait::{eventually, never_within};
use serde_json::{Value, json};
use testbed::{MemberSpec, NodeGroup, SyncMode};

use crate::audited::Audited;
use crate::job::{Job, clusters, condition, is_gated, is_placed, record};
use crate::plane::{MEMBERS, Plane};
use crate::story::Namespace;

/// The timeout of conditions that an idle machine meets within seconds; a busy machine took more
/// than a minute. A story continues as soon as the condition is met. At the end of the run the time
/// is compared with that on an idle machine (`harness::report`).
pub(crate) const SOON: Duration = Duration::from_secs(180);
/// The timeout until the first job of a plane runs; the plane has no other load then.
pub(crate) const FIRST: Duration = Duration::from_secs(90);
/// The time for which a test watches that something does not happen.
pub(crate) const A_WHILE: Duration = Duration::from_secs(4);

/// One test's part of the plane.
pub(crate) struct Case {
    pub(crate) plane: &'static Plane,
    /// The name of its namespace and its queue.
    pub(crate) name: String,
    /// The GPU product of its nodes.
    pub(crate) product: String,
    namespace: Namespace,
    /// Its turn on the plane; `None` for the story that proves the plane before all others.
    pub(crate) turn: Option<Turn<'static>>,
    made: Mutex<Made>,
    pub(crate) audited: Mutex<Audited>,
}

/// The names of new nodes.
type Names = anyhow::Result<Vec<String>>;

/// The objects to clean up besides the namespace.
#[derive(Default)]
struct Made {
    nodes: Vec<(String, Vec<String>)>,
    cluster_objects: Vec<(ObjectKind, String)>,
}

impl Case {
    /// Returns a story's part of the plane; `turn` is its turn, if other stories use the plane too.
    pub(crate) fn new(
        plane: &'static Plane,
        name: &str,
        namespace: Namespace,
        turn: Option<Turn<'static>>,
    ) -> Self {
        Self {
            plane,
            name: name.to_owned(),
            product: format!("E2E-{}", name.to_uppercase()),
            namespace,
            turn,
            made: Mutex::default(),
            audited: Mutex::default(),
        }
    }

    /// Returns the members that this story uses: the shared ones and its spare one.
    pub(crate) fn members(&self) -> Vec<&'static str> {
        let spare = self.turn.as_ref().and_then(|turn| turn.needs().spare);
        MEMBERS.into_iter().chain(spare).collect()
    }

    pub(crate) fn karmada(&self) -> &Objects {
        &self.plane.karmada
    }

    /// Marks the middle of a story. In a run that proves that a kill of Muster makes no difference,
    /// Muster is killed here, once for all stories of the batch, and leads again when this returns.
    pub(crate) async fn midway(&self) -> anyhow::Result<()> {
        match &self.turn {
            Some(turn) => turn.meet(async || self.plane.kill_muster().await).await,
            None => Ok(()),
        }
    }

    pub(crate) async fn make_namespace(&self) -> anyhow::Result<()> {
        let mut object = json!({"metadata": {"name": self.name}});
        if self.namespace == Namespace::Managed {
            object["metadata"]["labels"] = json!({"muster.io/managed": "true"});
        }
        self.karmada().create(NAMESPACE, &object).await?;
        Ok(())
    }

    /// Creates the queue of this test, with a quota of `gpus` GPUs.
    pub(crate) async fn queue(&self, gpus: u32) -> anyhow::Result<()> {
        self.cluster_object(QUEUE, &jobs::queue(&self.name, gpus))
            .await
    }

    /// Creates a cluster-scoped object, which is deleted when the test ends.
    pub(crate) async fn cluster_object(
        &self,
        kind: ObjectKind,
        object: &Value,
    ) -> anyhow::Result<()> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let made = (kind, name.to_owned());
        self.made.lock().unwrap().cluster_objects.push(made);
        self.karmada()
            .create(kind, object)
            .await
            .with_context(|| format!("create {} {name}", kind.name))?;
        Ok(())
    }

    /// Creates a PriorityClass named `<test>-<word>`, and returns its name.
    pub(crate) async fn priority_class(&self, word: &str, value: i32) -> anyhow::Result<String> {
        let name = format!("{}-{word}", self.name);
        self.cluster_object(PRIORITY_CLASS, &jobs::priority_class(&name, value))
            .await?;
        Ok(name)
    }

    /// Adds `count` nodes with eight GPUs of this test's class.
    pub(crate) async fn nodes(&self, member: &str, count: u32) -> Names {
        self.node_group(member, "n", count).await
    }

    /// Adds `count` such nodes with a word in their names that distinguishes them from others of
    /// this test.
    pub(crate) async fn node_group(&self, member: &str, word: &str, count: u32) -> Names {
        let group = NodeGroup {
            count,
            prefix: Some(format!("{}-{word}", self.name)),
            product: Some(self.product.clone()),
            ..NodeGroup::default()
        };
        self.nodes_like(member, &group).await
    }

    /// Adds nodes to a member, which are deleted when the test ends.
    pub(crate) async fn nodes_like(&self, member: &str, like: &NodeGroup) -> Names {
        let names = self.plane.testbed.add_nodes(member, like).await?;
        let made = (member.to_owned(), names.clone());
        self.made.lock().unwrap().nodes.push(made);
        Ok(names)
    }

    /// Returns a member with one node of the test's class, for a test that joins and removes it.
    pub(crate) fn own_member(&self, name: &str, sync: SyncMode) -> MemberSpec {
        MemberSpec {
            name: name.to_owned(),
            sync,
            volcano: true,
            without_crds: true,
            labels: [("case".to_owned(), self.name.clone())].into(),
            nodes: vec![NodeGroup {
                product: Some(self.product.clone()),
                ..NodeGroup::default()
            }],
            ..MemberSpec::default()
        }
    }

    /// Returns a job of this test: `pods` pods with `gpus` GPUs each that never end.
    pub(crate) fn gang(&self, name: &str, pods: u32, gpus: u32) -> TestGang {
        TestGang {
            namespace: self.name.clone(),
            name: name.to_owned(),
            queue: Some(self.name.clone()),
            pods,
            gpus,
            product: Some(self.product.clone()),
            run_for: None,
            fail: false,
            priority_class: None,
        }
    }

    /// Returns a job of this test whose pods succeed after some seconds.
    pub(crate) fn short_gang(&self, name: &str, pods: u32, gpus: u32, seconds: u32) -> TestGang {
        TestGang {
            run_for: Some(format!("{seconds}s")),
            ..self.gang(name, pods, gpus)
        }
    }

    /// Returns a user with the right to edit this test's namespace.
    pub(crate) async fn tenant(&self) -> anyhow::Result<Tenant> {
        self.plane.tenant(&self.name).await
    }

    /// Returns a user `<word>-<test>` with that right, beside the tenant.
    pub(crate) async fn tenant_named(&self, word: &str) -> anyhow::Result<Tenant> {
        let user = format!("{word}-{}", self.name);
        Tenant::named(&self.plane.testbed, &self.name, user).await
    }

    /// Submits a template.
    pub(crate) async fn submit(&self, template: &Value) -> anyhow::Result<Job> {
        self.submit_by(self.karmada(), template).await
    }

    /// Submits a template with the rights of `objects`, such as [`Tenant::objects`].
    pub(crate) async fn submit_by(
        &self,
        objects: &Objects,
        template: &Value,
    ) -> anyhow::Result<Job> {
        let api_version = template["apiVersion"].as_str().unwrap_or_default();
        let name = template["kind"].as_str().unwrap_or_default();
        let kind = ObjectKind::of_template(api_version, name)
            .with_context(|| format!("{api_version} {name} is not a kind of the tests"))?;
        let created = objects.create(kind, template).await?;
        let job = Job::of(kind, created);
        self.submitted(&job);
        Ok(job)
    }

    /// Creates a PropagationPolicy of the user for all objects of a kind.
    pub(crate) async fn policy(
        &self,
        name: &str,
        kind: ObjectKind,
        scheduler: &str,
        spec: Value,
    ) -> anyhow::Result<()> {
        let mut object = json!({
            "apiVersion": "policy.karmada.io/v1alpha1",
            "kind": "PropagationPolicy",
            "metadata": {"name": name, "namespace": self.name},
            "spec": spec,
        });
        object["spec"]["schedulerName"] = json!(scheduler);
        object["spec"]["resourceSelectors"] =
            json!([{"apiVersion": kind.api_version(), "kind": kind.name}]);
        let policies = e2e::harness::kinds::PROPAGATION_POLICY;
        self.karmada().create(policies, &object).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, job: &Job) -> anyhow::Result<()> {
        let namespace = Some(job.namespace.as_str());
        self.karmada()
            .delete(job.kind, namespace, &job.name)
            .await?;
        Ok(())
    }

    /// Returns the job's binding.
    pub(crate) async fn binding(&self, job: &Job) -> Result<Option<Value>, String> {
        self.get(BINDING, job, &job.binding()).await
    }

    /// Returns the job's PodGroup on the control plane.
    pub(crate) async fn pod_group(&self, job: &Job) -> Result<Option<Value>, String> {
        self.get(POD_GROUP, job, &job.binding()).await
    }

    /// Returns the job's template.
    pub(crate) async fn template(&self, job: &Job) -> Result<Option<Value>, String> {
        self.get(job.kind, job, &job.name).await
    }

    async fn get(&self, kind: ObjectKind, job: &Job, name: &str) -> Result<Option<Value>, String> {
        let found = self.karmada().get(kind, Some(&job.namespace), name).await;
        found.map_err(|error| error.to_string())
    }

    /// Waits until the job's binding exists and passes `check`.
    pub(crate) async fn binding_when(
        &self,
        job: &Job,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(SOON, &format!("{} {what}", job.name), async || {
            match self.binding(job).await? {
                Some(binding) if check(&binding) => Ok(binding),
                Some(binding) => Err(format!(
                    "spec {} record {}",
                    brief(&binding["spec"]),
                    record(&binding)
                )),
                None => Err("no binding".to_owned()),
            }
        })
        .await
    }

    pub(crate) async fn gated(&self, job: &Job) -> anyhow::Result<Value> {
        self.binding_when(job, "gated", is_gated).await
    }

    /// Waits until the job is placed, and returns its clusters.
    pub(crate) async fn placed(&self, job: &Job) -> anyhow::Result<Vec<String>> {
        let binding = self.binding_when(job, "placed", is_placed).await?;
        Ok(clusters(&binding))
    }

    /// Waits until the job's PodGroup exists and passes `check`.
    pub(crate) async fn pod_group_when(
        &self,
        job: &Job,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        self.pod_group_within(SOON, job, what, check).await
    }

    pub(crate) async fn pod_group_within(
        &self,
        time: Duration,
        job: &Job,
        what: &str,
        check: impl Fn(&Value) -> bool,
    ) -> anyhow::Result<Value> {
        eventually(time, &format!("{} {what}", job.name), async || {
            match self.pod_group(job).await? {
                Some(group) if check(&group) => Ok(group),
                Some(group) => Err(brief(&group["status"])),
                None => Err("no PodGroup".to_owned()),
            }
        })
        .await
    }

    /// Waits until the job reports one of these reasons for waiting, and returns its message.
    pub(crate) async fn waits(&self, job: &Job, reasons: &[&str]) -> anyhow::Result<String> {
        let says = |group: &Value| {
            let reason = group["status"]["federation"]["reason"].as_str();
            let not_admitted = condition(group, "Admitted")["status"] == "False";
            not_admitted && reason.is_some_and(|reason| reasons.contains(&reason))
        };
        let what = format!("waits with {}", reasons.join(" or "));
        let group = self.pod_group_when(job, &what, says).await?;
        let message = group["status"]["federation"]["message"].as_str();
        Ok(message.unwrap_or_default().to_owned())
    }

    /// Waits until the job reports that its minimum runs.
    pub(crate) async fn running(&self, job: &Job) -> anyhow::Result<Value> {
        self.running_within(job, SOON).await
    }

    /// Waits until the job reports that its minimum runs, with another timeout. A report of an attempt before
    /// the one that its record names does not count: its status is written after the record.
    pub(crate) async fn running_within(&self, job: &Job, time: Duration) -> anyhow::Result<Value> {
        eventually(time, &format!("{} running", job.name), async || {
            let binding = self.binding(job).await?.unwrap_or_default();
            let attempt = &record(&binding)["attempt"];
            match self.pod_group(job).await? {
                Some(group)
                    if condition(&group, "Ready")["status"] == "True"
                        && (attempt.is_null()
                            || group["status"]["federation"]["attempt"] == *attempt) =>
                {
                    Ok(group)
                }
                Some(group) => Err(format!("attempt {attempt}: {}", brief(&group["status"]))),
                None => Err("no PodGroup".to_owned()),
            }
        })
        .await
    }

    /// Waits until the job reports that it ended, with this reason.
    pub(crate) async fn finished(&self, job: &Job, reason: &str) -> anyhow::Result<()> {
        let ended = |group: &Value| {
            let finished = condition(group, "Finished");
            finished["status"] == "True" && finished["reason"] == reason
        };
        self.pod_group_when(job, &format!("finished as {reason}"), ended)
            .await
            .map(drop)
    }

    /// Waits until the job's binding and PodGroup are gone from the control plane.
    pub(crate) async fn gone(&self, job: &Job) -> anyhow::Result<()> {
        eventually(
            SOON,
            &format!("binding of {} gone", job.name),
            async || match self.binding(job).await? {
                None => Ok(()),
                Some(binding) if binding["spec"]["resource"]["uid"] != job.uid() => Ok(()),
                Some(binding) => Err(brief(&binding["metadata"])),
            },
        )
        .await
    }

    /// Watches for `time` that the job is not placed.
    pub(crate) async fn stays_unplaced(&self, job: &Job, time: Duration) -> anyhow::Result<()> {
        never_within(
            time,
            &format!("placement of {}", job.name),
            async || match self.binding(job).await? {
                Some(binding) if !clusters(&binding).is_empty() => Err(brief(&binding["spec"])),
                _ => Ok(()),
            },
        )
        .await
    }

    /// Returns this test's pods in a member.
    pub(crate) async fn pods(&self, member: &str) -> anyhow::Result<Vec<Value>> {
        let member = self.plane.member(member).await?;
        Ok(member.list(POD, Some(&self.name)).await?)
    }

    /// Makes the running pods of a job succeed now.
    pub(crate) async fn end(&self, job: &Job) -> anyhow::Result<()> {
        self.play(job, &json!({"muster.io/run-for": "1ms"})).await
    }

    /// Makes the running pods of a job fail now.
    pub(crate) async fn fail(&self, job: &Job) -> anyhow::Result<()> {
        self.play(job, &json!({"muster.io/fail": "true"})).await
    }

    /// Annotates the job's pods in the members, which makes the testbed end or fail them.
    async fn play(&self, job: &Job, annotations: &Value) -> anyhow::Result<()> {
        let binding = self.binding(job).await.map_err(anyhow::Error::msg)?;
        let patch = json!({"metadata": {"annotations": annotations}});
        let namespace = Some(self.name.as_str());
        let mut simulated = 0;
        for cluster in clusters(&binding.unwrap_or_default()) {
            let member = self.plane.member(&cluster).await?;
            for pod in member.list(POD, namespace).await? {
                if job.owns(&pod) {
                    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
                    member.merge(POD, namespace, name, &patch).await?;
                    simulated += 1;
                }
            }
        }
        anyhow::ensure!(simulated > 0, "{} has no pods to annotate", job.name);
        Ok(())
    }

    /// Audits jobs against the capability of this test's queue.
    pub(crate) fn audit<'a>(
        &self,
        capability: u64,
        jobs: impl IntoIterator<Item = &'a Job>,
    ) -> anyhow::Result<AuditReport> {
        let mut subject = self.subject(jobs)?;
        subject.capability(&self.name, capability);
        subject.audit(self.plane.audit_log()?)
    }

    /// Returns the jobs to audit.
    pub(crate) fn subject<'a>(
        &self,
        jobs: impl IntoIterator<Item = &'a Job>,
    ) -> anyhow::Result<AuditSubject> {
        let mut subject = AuditSubject::default();
        for job in jobs {
            subject.job(&job.template)?;
        }
        Ok(subject)
    }

    /// Deletes the objects that would burden later tests, and does not wait for it.
    pub(crate) async fn clean_up(&self) {
        let made = std::mem::take(&mut *self.made.lock().unwrap());
        let mut failures = Vec::new();
        let namespace = self.karmada().delete(NAMESPACE, None, &self.name).await;
        failures.extend(namespace.err().map(|error| error.to_string()));
        for (kind, name) in made.cluster_objects {
            let deleted = self.karmada().delete(kind, None, &name).await;
            failures.extend(deleted.err().map(|error| error.to_string()));
        }
        for (member, names) in made.nodes {
            let deleted = self.plane.testbed.delete_nodes(&member, &names).await;
            failures.extend(deleted.err().map(|error| error.to_string()));
        }
        if !failures.is_empty() {
            println!("{}: not all was cleaned up: {failures:?}", self.name);
        }
    }
}

/// Returns the first characters of an object as JSON.
pub(crate) fn brief(value: &Value) -> String {
    value.to_string().chars().take(700).collect()
}
