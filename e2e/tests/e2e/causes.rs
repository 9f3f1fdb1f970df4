//! Jobs that wait for many different causes at once: `kubectl muster explain` names each, and each
//! job runs after the change that the explanation asks for, and not before.

mod limits;

use anyhow::{Context as _, ensure};
use e2e::harness::jobs::{self, TestGang};
use e2e::harness::kinds::{DEPLOYMENT, JOB_SET, ObjectKind, POD, PROPAGATION_POLICY, QUEUE};
use futures::future::join_all;
use serde_json::{Value, json};
use testbed::NodeGroup;

use crate::case::Case;
use crate::cli::MusterCli;
use crate::job::Job;
use crate::steered::{follow, kubectl};
use crate::story::managed_long;

/// The reasons of a job for which its queue has no quota left.
const NO_QUOTA: &[&str] = &["WaitingForQuota", "NextInLine"];

/// A job that waits.
struct Cause {
    template: Value,
    /// The reasons of which it reports one.
    reasons: &'static [&'static str],
    /// What `explain` prints besides the reason.
    words: String,
    remedy: Remedy,
}

/// What its explanation asks for.
enum Remedy {
    /// The kubectl command at the end of its message.
    AsTold,
    /// This kubectl command.
    Kubectl(String),
    /// One more node of this GPU product.
    Node(String),
    /// The end of this job.
    End(Job),
}

/// Builds the causes; each has a queue of its own where the queue is the cause.
struct Causes<'a> {
    case: &'a Case,
    all: Vec<Cause>,
}

impl Causes<'_> {
    fn gang(&self, name: &str) -> TestGang {
        self.case.gang(name, 1, 1)
    }

    /// A job with this label instead of its own value, in the queue of the case.
    fn labelled(&self, name: &str, label: &str, value: &str) -> Value {
        let mut template = self.gang(name).batch();
        template["metadata"]["labels"][label] = json!(value);
        template
    }

    fn queue_of(&self, word: &str) -> String {
        format!("{}-{word}", self.case.name)
    }

    /// Creates a queue, and returns a job in it.
    async fn in_queue(
        &self,
        word: &str,
        spec: Value,
        policy: Option<Value>,
    ) -> anyhow::Result<TestGang> {
        let name = self.queue_of(word);
        let mut queue = jobs::queue(&name, 1);
        for (field, value) in spec.as_object().into_iter().flatten() {
            queue["spec"][field] = value.clone();
        }
        self.case.cluster_object(QUEUE, &queue).await?;
        if let Some(policy) = policy {
            let patch = json!({"spec": policy});
            self.case.capacity_policy_of(&name, patch).await?;
        }
        Ok(TestGang {
            queue: Some(name),
            ..self.gang(word)
        })
    }

    /// Submits a job like this one that runs before the others are submitted.
    async fn holder(&self, like: &TestGang) -> anyhow::Result<Job> {
        let gang = TestGang {
            name: format!("{}-holder", like.name),
            ..like.clone()
        };
        let job = self.case.submit(&gang.volcano()).await?;
        self.case.running(&job).await?;
        Ok(job)
    }

    fn add(
        &mut self,
        template: Value,
        reasons: &'static [&'static str],
        words: impl Into<String>,
        remedy: Remedy,
    ) {
        let words = words.into();
        self.all.push(Cause {
            template,
            reasons,
            words,
            remedy,
        });
    }

    /// What the job's own fields say.
    fn of_jobs(&mut self) {
        let [missing, own] = ["missing", ""].map(|word| self.queue_of(word));
        let own = own.trim_end_matches('-');
        self.add(
            self.labelled("held", "muster.io/hold", "true"),
            &["OnHold"],
            "muster.io/hold",
            Remedy::AsTold,
        );
        let mut suspended = self.gang("suspended").batch();
        suspended["spec"]["suspend"] = json!(true);
        let resume = "patch job suspended --type merge -p '{\"spec\":{\"suspend\":false}}'";
        self.add(suspended, &["Suspended"], "suspend", of_kubectl(resume));
        self.add(
            self.labelled("lost", "muster.io/queue", &missing),
            &["QueueNotFound"],
            format!("queue {missing} does not exist"),
            of_kubectl(&format!("label job lost --overwrite muster.io/queue={own}")),
        );
        self.add(
            self.labelled("nobility", "muster.io/priority-class", &missing),
            &["PriorityClassNotFound"],
            missing,
            of_kubectl("label job nobility muster.io/priority-class-"),
        );
    }

    /// What the queue's state says.
    async fn of_queues(&mut self) -> anyhow::Result<()> {
        let closed = self.in_queue("closed", json!({}), None).await?;
        let name = self.queue_of("closed");
        let state = |state: &str| {
            format!(
                "patch queue {name} --subresource status --type merge -p '{{\"status\":{{\"state\":\"{state}\"}}}}'"
            )
        };
        kubectl(self.case, &state("Closed")).await?;
        let open = of_kubectl(&state("Open"));
        self.add(closed.volcano(), &["QueueClosed"], &name, open);

        let stopped = json!({"stopPolicy": "Hold"});
        let stopped = self.in_queue("stopped", json!({}), Some(stopped)).await?;
        let words = "spec.stopPolicy";
        self.add(stopped.batch(), &["QueueStopped"], words, Remedy::AsTold);

        let parent = self.in_queue("parent", json!({}), None).await?;
        let under = json!({"parent": self.queue_of("parent")});
        self.in_queue("child", under, None).await?;
        let child = self.queue_of("child");
        let into = format!("label job parent --overwrite muster.io/queue={child}");
        self.add(parent.batch(), &["QueueNotLeaf"], child, of_kubectl(&into));

        let more = json!({"guarantee": {"resource": {"nvidia.com/gpu": 4}}});
        let invalid = self.in_queue("invalid", more, None).await?;
        let raise = self.capability("invalid", 4);
        self.add(invalid.volcano(), &["QueueInvalid"], "guarantee", raise);

        // It has no quota at first, since the webhook refuses what its queue does not take already.
        let none = json!({"capability": {"nvidia.com/gpu": 0}});
        let classes = self.in_queue("classes", none, None).await?;
        let [high, low] = ["high", "low"].map(|word| self.queue_of(word));
        let mut template = classes.batch();
        template["metadata"]["labels"]["muster.io/priority-class"] = json!(high);
        let change = format!("label job classes --overwrite muster.io/priority-class={low}");
        let reasons = &["PriorityClassNotPermitted"];
        self.add(template, reasons, high, of_kubectl(&change));
        Ok(())
    }

    /// Raises the capability of a queue.
    fn capability(&self, word: &str, gpus: u32) -> Remedy {
        let name = self.queue_of(word);
        of_kubectl(&format!(
            "patch queue {name} --type merge -p '{{\"spec\":{{\"capability\":{{\"nvidia.com/gpu\":{gpus}}}}}}}'"
        ))
    }

    /// Changes the limits of a queue.
    fn limit(&self, word: &str, limits: &Value) -> Remedy {
        let name = self.queue_of(word);
        let patch = json!({"spec": {"limits": limits}});
        of_kubectl(&format!(
            "patch capacitypolicy {name} --type merge -p '{patch}'"
        ))
    }

    /// What bounds say.
    async fn of_bounds(&mut self) -> anyhow::Result<()> {
        let large = self.in_queue("large", json!({}), None).await?;
        let large = TestGang { gpus: 2, ..large };
        let raise = self.capability("large", 2);
        let words = format!("queue {}", self.queue_of("large"));
        self.add(large.batch(), &["ExceedsCapability"], words, raise);

        let quota = self.in_queue("quota", json!({}), None).await?;
        self.holder(&quota).await?;
        let raise = self.capability("quota", 2);
        self.add(quota.volcano(), NO_QUOTA, self.queue_of("quota"), raise);

        let class = self.case.product.to_lowercase();
        let pools = |gpus: u32| {
            let resources = json!([{"name": "nvidia.com/gpu", "capability": gpus}]);
            json!([{"name": "gpus", "class": class, "resources": resources}])
        };
        let pool = json!({"pools": pools(1)});
        let two = json!({"capability": {"nvidia.com/gpu": 2}});
        let pool = self.in_queue("pool", two, Some(pool)).await?;
        self.holder(&pool).await?;
        let more = json!({"spec": {"pools": pools(2)}});
        let name = self.queue_of("pool");
        let more = format!("patch capacitypolicy {name} --type merge -p '{more}'");
        self.add(pool.batch(), NO_QUOTA, &class, of_kubectl(&more));
        Ok(())
    }

    /// What the jobs ahead say. The remedy of the first lets both run.
    async fn of_order(&mut self) -> anyhow::Result<()> {
        let limits = json!({"limits": {"pending": 1}});
        let first = self.in_queue("pending", json!({}), Some(limits)).await?;
        self.holder(&first).await?;
        let second = TestGang {
            name: "pending-next".to_owned(),
            ..first.clone()
        };
        let name = self.queue_of("pending");
        self.add(
            first.volcano(),
            NO_QUOTA,
            &name,
            self.capability("pending", 3),
        );
        let limit = self.limit("pending", &json!({"pending": 2}));
        self.add(second.volcano(), &["PendingLimitReached"], &name, limit);

        let two = json!({"capability": {"nvidia.com/gpu": 2}});
        let strict = json!({"ordering": "StrictFIFO"});
        let first = self.in_queue("strict", two, Some(strict)).await?;
        self.holder(&first).await?;
        let large = TestGang {
            gpus: 2,
            ..first.clone()
        };
        let small = TestGang {
            name: "strict-next".to_owned(),
            ..first
        };
        let name = self.queue_of("strict");
        self.add(
            large.volcano(),
            NO_QUOTA,
            &name,
            self.capability("strict", 4),
        );
        let again = self.capability("strict", 4);
        self.add(small.volcano(), &["BehindHead"], "strict", again);
        Ok(())
    }

    /// What the user's own propagation policies say; each selects a kind that no other job has.
    async fn of_policies(&mut self) -> anyhow::Result<()> {
        let there =
            |cluster: &str| json!({"placement": {"clusterAffinity": {"clusterNames": [cluster]}}});
        let own: [(&str, ObjectKind, &str, Value); 3] = [
            ("nowhere", DEPLOYMENT, "muster", there("nowhere")),
            ("scheduled", JOB_SET, "default-scheduler", json!({})),
            (
                "preserved",
                POD,
                "muster",
                json!({"placement": {}, "preserveResourcesOnDeletion": true}),
            ),
        ];
        for (name, kind, scheduler, spec) in own {
            self.case.policy(name, kind, scheduler, spec).await?;
        }
        let change = |name: &str, spec: &Value| {
            let patch = json!({ "spec": spec });
            of_kubectl(&format!(
                "patch propagationpolicy {name} --type merge -p '{patch}'"
            ))
        };
        let nowhere = self.gang("nowhere").deployment();
        let remedy = change("nowhere", &there("member1"));
        self.add(nowhere, &["NoEligibleCluster"], "nowhere", remedy);
        let kind = PROPAGATION_POLICY.name.to_lowercase();
        let delete = of_kubectl(&format!("delete {kind} scheduled"));
        let words = "default-scheduler";
        self.add(
            self.gang("scheduled").job_set(),
            &["WrongScheduler"],
            words,
            delete,
        );
        let remedy = change("preserved", &json!({"preserveResourcesOnDeletion": false}));
        let words = "preserveResourcesOnDeletion";
        self.add(
            self.gang("preserved").pod(),
            &["ResourcesPreserved"],
            words,
            remedy,
        );
        Ok(())
    }

    /// What the nodes say.
    async fn of_room(&mut self) -> anyhow::Result<()> {
        let [fleet, room] = ["FLEET", "ROOM"].map(|word| format!("{}-{word}", self.case.product));
        for product in [&fleet, &room] {
            nodes(self.case, product).await?;
        }
        let fleet_gang = TestGang {
            pods: 2,
            gpus: 8,
            product: Some(fleet.clone()),
            ..self.gang("fleet")
        };
        let words = "member1 has room for 1 of 2";
        self.add(
            fleet_gang.volcano(),
            &["ExceedsFleet"],
            words,
            Remedy::Node(fleet),
        );
        let gang = TestGang {
            gpus: 8,
            product: Some(room.clone()),
            ..self.gang("room")
        };
        let holder = self.holder(&gang).await?;
        let words = "member1 has room for 0 of 1";
        let reasons = &["WaitingForRoom", "NextInLine"];
        self.add(gang.batch(), reasons, words, Remedy::End(holder));
        Ok(())
    }
}

fn of_kubectl(arguments: &str) -> Remedy {
    Remedy::Kubectl(arguments.to_owned())
}

/// Adds a node of eight GPUs of a product.
async fn nodes(case: &Case, product: &str) -> anyhow::Result<()> {
    let group = NodeGroup {
        count: 1,
        prefix: Some(format!("{}-{}", case.name, product.to_lowercase())),
        product: Some(product.to_owned()),
        ..NodeGroup::default()
    };
    case.nodes_like("member1", &group).await.map(drop)
}

async fn apply(case: &Case, job: &Job, message: &str, remedy: &Remedy) -> anyhow::Result<()> {
    match remedy {
        Remedy::AsTold => follow(case, message).await,
        Remedy::Kubectl(arguments) => {
            let namespace = &case.name;
            kubectl(case, &format!("-n {namespace} {arguments}")).await
        }
        Remedy::Node(product) => {
            let group = NodeGroup {
                count: 1,
                prefix: Some(format!("{}-more", case.name)),
                product: Some(product.clone()),
                ..NodeGroup::default()
            };
            case.nodes_like("member1", &group).await.map(drop)
        }
        Remedy::End(holder) => case.end(holder).await,
    }
    .with_context(|| format!("follow what is said of {}", job.name))
}

async fn causes(case: &Case) -> anyhow::Result<()> {
    case.queue(64).await?;
    case.nodes("member1", 5).await?;
    for (word, value) in [("low", 10), ("high", 20)] {
        case.priority_class(word, value).await?;
    }
    let mut causes = Causes {
        case,
        all: Vec::new(),
    };
    causes.of_jobs();
    causes.of_queues().await?;
    causes.of_bounds().await?;
    causes.of_limits().await?;
    causes.of_order().await?;
    causes.of_policies().await?;
    causes.of_room().await?;
    let all = causes.all;
    ensure!(all.len() >= 20, "only {} causes", all.len());

    let mut jobs = Vec::new();
    for cause in &all {
        let job = case.submit(&cause.template).await?;
        // The next job in its queue is behind it. Karmada may create the bindings of both in another order.
        if ["pending", "strict"].contains(&job.name.as_str()) {
            case.waits(&job, cause.reasons).await?;
        }
        jobs.push(job);
    }
    let low = format!("{}-low", case.name);
    let classes = json!({"spec": {"priorityClasses": [low]}});
    let queue = format!("{}-classes", case.name);
    let only = format!("patch capacitypolicy {queue} --type merge -p '{classes}'");
    kubectl(case, &only).await?;
    let pairs = || jobs.iter().zip(&all);
    let messages = whole(pairs().map(|(job, cause)| explained(case, job, cause))).await?;
    for job in &jobs {
        assert_eq!(case.placements(job)?, 0, "{}", job.name);
    }
    for ((job, cause), message) in pairs().zip(&messages) {
        apply(case, job, message, &cause.remedy).await?;
    }
    let gpu = json!({"capability": {"nvidia.com/gpu": 1}});
    case.change_queue(&queue, gpu).await?;
    whole(jobs.iter().map(|job| case.running(job))).await?;
    Ok(())
}

/// Waits for all, and returns all errors as one.
async fn whole<T>(
    all: impl Iterator<Item = impl Future<Output = anyhow::Result<T>>>,
) -> anyhow::Result<Vec<T>> {
    let (mut done, mut failed) = (Vec::new(), Vec::new());
    for outcome in join_all(all).await {
        match outcome {
            Ok(outcome) => done.push(outcome),
            Err(error) => failed.push(format!("{error:#}")),
        }
    }
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(done)
}

/// Waits until a job reports its reason, and checks what `explain` prints. Returns the job's message.
async fn explained(case: &Case, job: &Job, cause: &Cause) -> anyhow::Result<String> {
    let message = case.waits(job, cause.reasons).await?;
    let cli = MusterCli::of_admin(case);
    let explained = cli.done(&format!("explain {}", job.name)).await?;
    println!("{explained}");
    let named = cause
        .reasons
        .iter()
        .any(|reason| explained.contains(reason));
    ensure!(
        named && explained.contains(&cause.words),
        "{:?} and {:?} in: {explained}",
        cause.reasons,
        cause.words
    );
    Ok(message)
}

#[test]
fn twenty_causes_are_explained_and_what_is_advised_works() {
    managed_long("causes", causes);
}
