//! `events`: what happened to a job, on the control plane and to its pods in all of its clusters.

use crate::age::age;
use crate::args::{EventsCommand, Format};
use crate::connect::api_error;
use crate::pods::{self, FoundPods, JobPlace};
use crate::{connect, output};
use anyhow::{Result, anyhow};
use futures::future::join_all;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use runtime::client::CallError;
use runtime::pages;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

/// Deadline of asking one server.
const LIMIT: Duration = Duration::from_secs(15);
const COLUMNS: [&str; 6] = ["AGE", "CLUSTER", "OBJECT", "TYPE", "REASON", "MESSAGE"];
/// The cluster of events of the control plane.
const CONTROL_PLANE: &str = "<control plane>";
/// The annotation with the cluster of an event, in the output for programs.
const CLUSTER: &str = "muster.io/cluster";

/// An event and where it is.
struct PlacedEvent {
    cluster: String,
    event: Event,
}

/// Runs the command. It fails if a cluster does not show its events.
pub(crate) async fn run(command: &EventsCommand, client: &Client) -> Result<ExitCode> {
    let (events, refused) = all(&command.job, client).await?;
    for why in &refused {
        eprintln!("warning: {why}");
    }
    if events.is_empty() {
        eprintln!(
            "no events of {}: API servers keep them for an hour",
            command.job
        );
    } else {
        output::print(&text(events, command, Timestamp::now())?)?;
    }
    Ok(match refused.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns the events of a job by time, and why clusters do not show theirs.
async fn all(job: &str, client: &Client) -> Result<(Vec<PlacedEvent>, Vec<String>)> {
    let mut place = JobPlace::of(job, client).await?;
    let found = place.look(client).await;
    let mut events = on_control_plane(&place, client).await?;
    let mut refused = Vec::new();
    let namespace = place.namespace();
    let clusters = place.clusters();
    let asked = clusters
        .iter()
        .map(|cluster| in_member(cluster, &namespace, client));
    for (cluster, answer) in clusters.iter().zip(join_all(asked).await) {
        match answer {
            Ok(all) => events.extend(of_job(cluster, all, &place, &found)),
            Err(why) => refused.push(why),
        }
    }
    events.sort_by_cached_key(|event| time(&event.event).map(|time| time.0));
    Ok((events, refused))
}

/// Returns the events of the workload, its PodGroup and its binding.
async fn on_control_plane(place: &JobPlace, client: &Client) -> Result<Vec<PlacedEvent>> {
    let namespace = place.namespace();
    let api = Api::<Event>::namespaced(client.clone(), &namespace);
    let listed = pages::list(&api, &ListParams::default(), LIMIT).await;
    let listed = listed.map_err(|error| match error {
        CallError::Kube(error) => api_error(error),
        late @ CallError::Timeout(_) => anyhow!(late),
    })?;
    let job = &place.job;
    let group = job.object.name_any();
    let owner = job
        .template()
        .map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    let is_of = |event: &Event| {
        let about = &event.involved_object;
        let named = (
            about.kind.as_deref().unwrap_or_default(),
            about.name.as_deref().unwrap_or_default(),
        );
        // Karmada names the binding of a job as Muster names its PodGroup.
        owner == Some(named)
            || named == ("PodGroup", &group)
            || named == ("ResourceBinding", &group)
    };
    let own = listed.items.into_iter().filter(is_of);
    let with_place = own.map(|event| PlacedEvent {
        cluster: CONTROL_PLANE.to_owned(),
        event,
    });
    Ok(with_place.collect())
}

async fn in_member(cluster: &str, namespace: &str, client: &Client) -> Result<Vec<Event>, String> {
    let member = connect::member(cluster, client).map_err(|error| format!("{error:#}"))?;
    let api = Api::<Event>::namespaced(member, namespace);
    let params = ListParams::default();
    let listed = tokio::time::timeout(LIMIT, pages::list(&api, &params, LIMIT)).await;
    let listed = listed.unwrap_or(Err(CallError::Timeout(LIMIT)));
    let listed = listed.map_err(|error| pods::reason(&error, "list events", cluster, namespace))?;
    Ok(listed.items)
}

/// Returns the events of the workload in its cluster, and of its pods that are there. Those of a pod that is gone are
/// left out: nothing says whose it was.
fn of_job<'a>(
    cluster: &'a str,
    events: Vec<Event>,
    place: &'a JobPlace,
    found: &FoundPods,
) -> impl Iterator<Item = PlacedEvent> + use<'a> {
    let there = found.pods.iter().filter(|pod| pod.cluster == cluster);
    let pods: BTreeSet<String> = there.map(|pod| pod.uid()).collect();
    let owner = place.job.template();
    let own = events.into_iter().filter(move |event| {
        let about = &event.involved_object;
        let is_pod = about.uid.as_ref().is_some_and(|uid| pods.contains(uid));
        let is_owner = owner.is_some_and(|owner| {
            about.kind.as_ref() == Some(&owner.kind) && about.name.as_ref() == Some(&owner.name)
        });
        is_pod || is_owner
    });
    own.map(move |event| PlacedEvent {
        cluster: cluster.to_owned(),
        event,
    })
}

/// Returns when an event happened last.
fn time(event: &Event) -> Option<Time> {
    let series = event
        .series
        .as_ref()
        .and_then(|series| series.last_observed_time.as_ref());
    let precise = series
        .or(event.event_time.as_ref())
        .map(|time| Time(time.0));
    let last = event
        .last_timestamp
        .clone()
        .or_else(|| event.first_timestamp.clone());
    last.or(precise)
        .or_else(|| event.metadata.creation_timestamp.clone())
}

fn text(events: Vec<PlacedEvent>, command: &EventsCommand, now: Timestamp) -> Result<String> {
    Ok(match command.output.format {
        Format::Name => events
            .iter()
            .map(|event| format!("{}/{}\n", event.cluster, event.event.name_any()))
            .collect(),
        format @ (Format::Json | Format::Yaml) => {
            let items = events
                .into_iter()
                .map(object)
                .collect::<Result<Vec<Value>>>()?;
            output::machine(
                &json!({"apiVersion": "v1", "kind": "List", "items": items}),
                format,
            )?
        }
        Format::Table | Format::Wide => {
            let header = (!command.no_headers).then_some(COLUMNS);
            output::columns(header, events.iter().map(|event| row(event, now)))
        }
    })
}

fn object(event: PlacedEvent) -> Result<Value> {
    let mut object = serde_json::to_value(&event.event)?;
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("Event");
    object["metadata"]["managedFields"] = Value::Null;
    object["metadata"]["annotations"][CLUSTER] = json!(event.cluster);
    Ok(object)
}

fn row(event: &PlacedEvent, now: Timestamp) -> [String; 6] {
    let (cluster, event) = (&event.cluster, &event.event);
    let about = &event.involved_object;
    let kind = about.kind.clone().unwrap_or_default().to_lowercase();
    let count = event.count.filter(|count| *count > 1);
    let count = count
        .map(|count| format!(" (x{count})"))
        .unwrap_or_default();
    let message = event.message.clone().unwrap_or_default();
    [
        age(time(event).as_ref(), now),
        cluster.clone(),
        format!("{kind}/{}", about.name.clone().unwrap_or_default()),
        event.type_.clone().unwrap_or_default(),
        event.reason.clone().unwrap_or_default(),
        format!(
            "{}{count}",
            message.split_whitespace().collect::<Vec<_>>().join(" ")
        ),
    ]
}

#[cfg(test)]
mod tests;
