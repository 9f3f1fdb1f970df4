//! `queue`: CapacityPolicies, with fields of their Queues.

mod detail;
mod edit;
mod list;
pub(crate) mod mine;
mod quota;
mod stop;
mod tree;

pub(crate) use detail::unadmitted;

use crate::args::{Format, QueueCommand};
use crate::connect::{self, LIMIT, plain};
use crate::output;
use anyhow::{Result, anyhow, bail};
use crds::capacity_policy::{CapacityPolicy, condition_type};
use crds::queue::Queue;
use jiff::Timestamp;
use kube::api::{Api, DynamicObject, ListParams, ObjectList};
use kube::{Client, ResourceExt};
use runtime::pages;
use std::collections::BTreeMap;
use stop::Stop;

/// A queue to show: its policy, and its Queue if that could be read.
pub(crate) struct Shown {
    policy: CapacityPolicy,
    queue: Option<Queue>,
}

/// Runs the command and returns its output.
pub(crate) async fn run(command: &QueueCommand, client: &Client) -> Result<String> {
    match command {
        QueueCommand::List {
            list,
            selector,
            mine: true,
        } => mine::list(list, selector.clone(), client).await,
        QueueCommand::List { list, selector, .. } => {
            let format = list.output.format;
            let params = ListParams {
                label_selector: selector.clone(),
                ..ListParams::default()
            };
            let policies = policies(client, &params).await?;
            match format {
                Format::Name => Ok(policies
                    .iter()
                    .map(output::name_line::<CapacityPolicy>)
                    .collect()),
                Format::Json | Format::Yaml => output::machine(&policies, format),
                Format::Table | Format::Wide => {
                    let shown = shown(client, policies).await?;
                    Ok(list::render(
                        &shown,
                        format == Format::Wide,
                        !list.no_headers,
                        Timestamp::now(),
                    ))
                }
            }
        }
        QueueCommand::Get { name, output } => {
            let params = ListParams::default().fields(&format!("metadata.name={name}"));
            let policies = policies(client, &params).await?;
            let Some(policy) = policies.items.first() else {
                bail!(missing(name, client).await);
            };
            match output.format {
                Format::Name => Ok(output::name_line::<CapacityPolicy>(policy)),
                Format::Json | Format::Yaml => output::machine(policy, output.format),
                Format::Table | Format::Wide => {
                    let shown = shown(client, policies).await?;
                    Ok(shown.iter().map(detail::render).collect())
                }
            }
        }
        QueueCommand::Tree { no_headers } => {
            let policies = policies(client, &ListParams::default()).await?;
            Ok(tree::render(&shown(client, policies).await?, !no_headers))
        }
        QueueCommand::Create(args) => edit::create(args, client).await,
        QueueCommand::Set {
            name,
            fields,
            write,
        } => edit::set(name, fields, write, client).await,
        QueueCommand::Stop { name, drain, write } => {
            let stop = if *drain { Stop::Drain } else { Stop::Hold };
            stop::set(stop, name, write, client).await
        }
        QueueCommand::Resume { name, write } => stop::set(Stop::No, name, write, client).await,
    }
}

/// Returns why there is no CapacityPolicy of a queue. Muster makes one for each Queue.
async fn missing(name: &str, client: &Client) -> String {
    let queue = connect::objects::<Queue>(client).get_opt(name).await;
    match queue {
        Ok(Some(_)) => format!(
            "Muster has not reported on queue {name:?} yet: there is a Queue and no CapacityPolicy of this name; try \
             again in some seconds. If that does not help, see `kubectl muster check`"
        ),
        _ => format!("queue {name:?} not found: there is no CapacityPolicy of this name"),
    }
}

async fn policies(client: &Client, params: &ListParams) -> Result<ObjectList<DynamicObject>> {
    let api = connect::objects::<CapacityPolicy>(client);
    let listed = connect::list(&api, params, "CapacityPolicies").await;
    listed.map_err(|error| match connect::is_forbidden(&error) {
        true => anyhow!(
            "{error}; `kubectl muster queue list --mine` shows the queues of your namespace"
        ),
        false => error,
    })
}

/// Adds the Queues, with what their policies state. A user who may not read them sees everything else.
async fn shown(client: &Client, policies: ObjectList<DynamicObject>) -> Result<Vec<Shown>> {
    let queues = Api::<Queue>::all(client.clone());
    let queues = pages::list(&queues, &ListParams::default(), LIMIT).await;
    let mut queues: BTreeMap<String, Queue> = match queues {
        Ok(list) => list
            .items
            .into_iter()
            .map(|queue| (queue.name_any(), queue))
            .collect(),
        Err(error) if error.code() == Some(403) => BTreeMap::new(),
        Err(error) => return Err(plain(error, "Queues")),
    };
    let shown = policies.items.into_iter().map(|policy| {
        let policy: CapacityPolicy = connect::typed(&policy)?;
        let queue = queues.remove(&policy.name_any());
        let queue = queue.and_then(|queue| Some(queue.with_policy(Some(&policy))?.queue));
        Ok(Shown { policy, queue })
    });
    shown.collect()
}

impl Shown {
    fn parent(&self) -> String {
        let parent = |queue: &Queue| {
            queue
                .parent()
                .map_or_else(|| crds::queue::ROOT.to_owned(), |parent| parent.to_string())
        };
        self.queue.as_ref().map(parent).unwrap_or_default()
    }

    /// Returns whether the queue takes jobs, and if not, why in a word. Volcano leaves its state empty until its
    /// controller has seen the queue, which is then open.
    fn state(&self) -> String {
        let status = self.policy.status.iter();
        let mut said = status.flat_map(|status| &status.conditions);
        let closed = said.find(|said| said.type_ == condition_type::OPEN && said.status == "False");
        if let Some(closed) = closed {
            let why = closed.reason.as_str();
            return why.strip_prefix("Queue").unwrap_or(why).to_owned();
        }
        let state = |queue: &Queue| {
            queue
                .status
                .state
                .clone()
                .filter(|state| !state.is_empty())
                .unwrap_or_else(|| "Open".to_owned())
        };
        self.queue.as_ref().map(state).unwrap_or_default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::args::OutputArgs;
    use runtime::testing::FakeApi;
    use serde_json::json;

    #[tokio::test]
    async fn a_queue_that_is_not_reported_on_yet_is_not_missing() {
        let api = FakeApi::new();
        let get = || QueueCommand::Get {
            name: "new".to_owned(),
            output: OutputArgs {
                format: Format::Table,
            },
        };
        let said = async |api: &FakeApi| {
            let shown = run(&get(), &api.client()).await;
            shown.unwrap_or_else(|error| format!("error: {error:#}\n"))
        };
        let mut text = said(&api).await;
        let metadata = json!({"name": "new"});
        let path = "/apis/scheduling.volcano.sh/v1beta1/queues/new";
        api.put(path, json!({"metadata": metadata, "spec": {}}));
        text += &said(&api).await;
        let path = "/apis/muster.io/v1alpha2/capacitypolicies/new";
        api.put(path, json!({"metadata": metadata, "spec": {}}));
        text += &said(&api).await;
        insta::assert_snapshot!(text, @r#"
    error: queue "new" not found: there is no CapacityPolicy of this name
    error: Muster has not reported on queue "new" yet: there is a Queue and no CapacityPolicy of this name; try again in some seconds. If that does not help, see `kubectl muster check`
    Queue   new  (Open, parent root, weight 1)
    Note    Muster has not reported on it yet
    "#);
    }

    /// A queue with work in two clusters, and the reason why its head waits.
    pub(crate) fn vision() -> Shown {
        let policy = "
apiVersion: muster.io/v1alpha2
kind: CapacityPolicy
metadata: {name: vision, creationTimestamp: 2026-11-20T12:00:00Z}
spec:
  ordering: Backfill
  fairShare: {usageHalfLifeSeconds: 86400, within: User}
  limits: {resourcesPerUser: {cpu: '64', nvidia.com/gpu: '8'}, resourcesPerNamespace: {nvidia.com/gpu: '16'}}
status:
  conditions:
  - {type: Valid, status: 'True', reason: Valid, message: '', lastTransitionTime: 2026-11-20T12:00:00Z}
  - {type: Open, status: 'False', reason: QueueClosed, message: its state is Closing, lastTransitionTime: 2026-11-20T12:00:00Z}
  resources:
  - {name: cpu, allocated: '64', pending: '32'}
  - {name: nvidia.com/gpu, allocated: '24', pending: '16', deserved: '16', capability: '32', borrowed: '8', lent: '4'}
  clusters:
  - {name: gpu-a, jobs: 2, allocated: {cpu: '48', nvidia.com/gpu: '16'}}
  - {name: gpu-b, jobs: 1, allocated: {cpu: '16', nvidia.com/gpu: '8'}}
  pools:
  - {class: nvidia-h100-80gb, allocated: {nvidia.com/gpu: '16'}, deserved: {nvidia.com/gpu: '8'}, capability: {nvidia.com/gpu: '16'}}
  - {class: nvidia-l40s, clusters: [gpu-b, gpu-c], allocated: {}, capability: {nvidia.com/gpu: '8'}}
  counts: {pending: 2, admitted: 1, running: 2, ending: 0, finished: 5}
  head: {job: vision/resnet-job, reason: WaitingForQuota, message: 'needs nvidia.com/gpu 16; queue vision may use 32 and has 24 charged: short by 8'}
  summary: {gpus: 24/32, pendingGpus: '16', cpu: '64', jobs: 3R/2Q}
";
        let queue = "
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: vision}
spec: {weight: 2, parent: research, capability: {nvidia.com/gpu: 32}, guarantee: {resource: {nvidia.com/gpu: 4}}}
";
        Shown {
            policy: serde_saphyr::from_str(policy).unwrap(),
            queue: Some(serde_saphyr::from_str(queue).unwrap()),
        }
    }

    /// A new queue, read by a user who may not read Queues.
    pub(crate) fn fresh() -> Shown {
        let policy = "
apiVersion: muster.io/v1alpha2
kind: CapacityPolicy
metadata: {name: fresh}
spec: {}
";
        Shown {
            policy: serde_saphyr::from_str(policy).unwrap(),
            queue: None,
        }
    }
}
