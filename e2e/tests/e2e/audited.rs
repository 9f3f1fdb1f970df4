//! The end of every test: an audit of the pods in its namespace and of all jobs that it submitted,
//! against the quotas of their queues in the API server.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use e2e::harness::audit::{AuditReport, AuditSubject};
use e2e::harness::health;
use e2e::harness::kinds::{NAMESPACE, ObjectKind, RESOURCE_CLAIM_TEMPLATE};
use e2e::harness::wait::eventually;
use serde_json::{Value, json};

use crate::case::Case;
use crate::job::Job;
use crate::plane::Plane;

/// The timeout until Muster reports what is charged.
const SETTLED: Duration = Duration::from_secs(15);

/// A test's declarations for its audit.
#[derive(Debug, Default)]
pub(crate) struct Audited {
    pub(crate) jobs: Vec<Job>,
    /// Findings that the test causes on purpose: the text of each after the job's name, and the
    /// reason.
    expected: Vec<Finding>,
    /// The reason why no job of the test ever holds a device.
    nothing_held: Option<&'static str>,
    /// A cluster that the test takes out of service.
    given_up: Option<&'static str>,
    /// The reason why queues of the test exceed their quota at its end.
    over: Option<&'static str>,
}

/// A finding that the audit may have.
#[derive(Debug)]
struct Finding {
    words: &'static str,
    why: &'static str,
    /// True if the test fails without this finding.
    surely: bool,
}

impl Case {
    /// Adds a job that was submitted in another way than by [`Case::submit`].
    pub(crate) fn submitted(&self, job: &Job) {
        self.audited.lock().unwrap().jobs.push(job.clone());
    }

    /// Declares a finding that the test causes on purpose, once or more often: it contains `words`.
    pub(crate) fn audit_finds(&self, words: &'static str, why: &'static str) {
        self.audit_expects(words, why, true);
    }

    /// Declares a finding that depends on timing, so that the audit may or may not have it.
    pub(crate) fn audit_may_find(&self, words: &'static str, why: &'static str) {
        self.audit_expects(words, why, false);
    }

    fn audit_expects(&self, words: &'static str, why: &'static str, surely: bool) {
        let expected = &mut self.audited.lock().unwrap().expected;
        expected.push(Finding { words, why, surely });
    }

    /// Declares that the test takes this cluster out of service: Works that are being deleted there
    /// count as gone.
    pub(crate) fn gives_up(&self, cluster: &'static str) {
        self.audited.lock().unwrap().given_up = Some(cluster);
    }

    /// Declares that queues of the test exceed their quota at its end: the test lowers a quota
    /// below the usage, raises a guarantee of other queues, or starts with usage beyond a quota.
    pub(crate) fn ends_over(&self, why: &'static str) {
        self.audited.lock().unwrap().over = Some(why);
    }

    /// Waits until Muster reports that this test's queue exceeds its quota by `more`.
    pub(crate) async fn tells_over(&self, resource: &str, more: f64) -> anyhow::Result<()> {
        let Plane {
            muster, testbed, ..
        } = self.plane;
        let label = format!("queue=\"{}\",resource=\"{resource}\"", self.name);
        eventually(SETTLED, &format!("{resource} over by {more}"), async || {
            let over = health::over_capability(muster, testbed, &self.name).await;
            let over = over.map_err(|error| format!("{error:#}"))?;
            let told = over.iter().find(|line| line.contains(&label));
            let told = told.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            match told == Some(more) {
                true => Ok(()),
                false => Err(over.join("; ")),
            }
        })
        .await
    }

    /// Ensures that no queue of the test exceeds its quota, unless the test declared it.
    pub(crate) async fn ensure_within(&self) -> anyhow::Result<()> {
        let why = self.audited.lock().unwrap().over;
        if let Some(why) = why {
            println!("OVER {}: allowed at the end, {why}", self.name);
            return Ok(());
        }
        let Plane {
            muster, testbed, ..
        } = self.plane;
        eventually(SETTLED, "no queue over its capability", async || {
            let over = health::over_capability(muster, testbed, &self.name).await;
            let over = over.map_err(|error| format!("{error:#}"))?;
            match over.is_empty() {
                true => Ok(()),
                false => Err(over.join("; ")),
            }
        })
        .await
    }

    /// Declares that no job of the test ever holds a device.
    pub(crate) fn holds_nothing(&self, why: &'static str) {
        self.audited.lock().unwrap().nothing_held = Some(why);
    }

    /// Declares that a job's requests cannot be read: it is not audited, and must never be placed.
    pub(crate) fn cannot_be_read(&self, job: &Job) {
        let jobs = &mut self.audited.lock().unwrap().jobs;
        jobs.retain(|other| other.uid() != job.uid());
    }

    /// Audits all jobs of the test.
    pub(crate) async fn audit_all(&self) -> anyhow::Result<()> {
        let audited = std::mem::take(&mut *self.audited.lock().unwrap());
        let mut subject = subject(self.plane, &self.name, &audited.jobs).await?;
        subject.whole_namespace(&self.name);
        if let Some(cluster) = audited.given_up {
            subject.out_of_service(cluster);
        }
        if audited.jobs.is_empty() || audited.nothing_held.is_some() {
            subject.nothing_held();
        }
        let report = subject.audit(self.plane.audit_log()?);
        let report = report.with_context(|| format!("audit of {}", self.name))?;
        verify(self.plane, &self.name, &subject, &report, &audited.expected)?;
        if let Some(why) = audited.nothing_held {
            println!("AUDIT {}: nothing was held, {why}", self.name);
        }
        Ok(())
    }
}

/// Audits jobs of one namespace on a plane of their own.
pub(crate) async fn audit(plane: &Plane, namespace: &str, jobs: &[Job]) -> anyhow::Result<()> {
    let mut subject = subject(plane, namespace, jobs).await?;
    subject.whole_namespace(namespace);
    let report = subject.audit(plane.audit_log()?)?;
    verify(plane, namespace, &subject, &report, &[])
}

/// Prints the report, and fails on a finding that is not declared.
fn verify(
    plane: &Plane,
    name: &str,
    subject: &AuditSubject,
    report: &AuditReport,
    expected: &[Finding],
) -> anyhow::Result<()> {
    let in_members = subject.in_members(&plane.pods, report)?;
    println!("PODS {name}: {in_members}");
    println!("AUDIT {name}: {report}");
    let mut found = in_members.violations;
    found.extend(report.violations.iter().cloned());
    found.extend(subject.twice(&plane.pods, report));
    for Finding { words, why, surely } in expected {
        let before = found.len();
        found.retain(|what| !what.contains(words));
        ensure!(
            found.len() < before || !surely,
            "the audit does not find {words:?}, which is expected since {why}: {found:?}"
        );
    }
    ensure!(
        found.is_empty(),
        "the audit of {name} finds: {}",
        found.join("\n  ")
    );
    Ok(())
}

/// Returns all jobs, each in the queue that it names now, which may have changed while it was
/// pending.
async fn subject(plane: &Plane, namespace: &str, jobs: &[Job]) -> anyhow::Result<AuditSubject> {
    let mut subject = AuditSubject::default();
    let own = plane.karmada.get(NAMESPACE, None, namespace).await?;
    let gone = own.is_none();
    let metadata = &own.unwrap_or_default()["metadata"];
    if !gone && metadata["labels"]["muster.io/managed"] != "true" {
        subject.unmanaged_namespace(namespace);
    }
    for of in ["annotations", "labels"] {
        if let Some(queue) = metadata[of]["muster.io/default-queue"].as_str() {
            subject.default_queue(namespace, queue);
        }
    }
    let claims = RESOURCE_CLAIM_TEMPLATE;
    for template in plane.karmada.list(claims, Some(namespace)).await? {
        subject.claim_template(&template)?;
    }
    let mut now: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
    for job in jobs {
        let of = (kind_of(job.kind), job.namespace.clone());
        if !now.contains_key(&of) {
            let listed = plane.karmada.list(job.kind, Some(&job.namespace)).await?;
            now.insert(of.clone(), listed);
        }
        let mut own = now[&of].iter();
        let own = own.find(|object| object["metadata"]["uid"] == job.uid());
        subject.job(&with_queue_of(&job.template, own))?;
    }
    Ok(subject)
}

fn kind_of(kind: ObjectKind) -> String {
    format!("{} {}", kind.api_version(), kind.name)
}

/// Returns the template as it was submitted, with the queue of the current one.
fn with_queue_of(template: &Value, now: Option<&Value>) -> Value {
    let mut template = template.clone();
    let Some(now) = now else { return template };
    for of in ["labels", "annotations"] {
        template["metadata"][of] = now["metadata"][of].clone();
    }
    if now["spec"]["queue"].is_string() {
        template["spec"]["queue"] = json!(now["spec"]["queue"]);
    }
    template
}
