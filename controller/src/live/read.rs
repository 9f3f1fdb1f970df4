//! Reads, once, what the controller watches, with the rights of the client.

use crate::effects::rights::ask;
use crate::facts::queue_rights::Pair;
use crate::ingest::watches::known_template_kinds;
use crate::live::{LiveChange, LiveObjects, LiveState, ROUNDS};
use crate::mirror::binding::is_workload;
use crate::mirror::seen_work::ReadWork;
use crate::mirror::template::{Template, TemplateKind};
use crate::mirror::template_key;
use crds::karmada::{ClusterOverridePolicy, OverridePolicy, Work};
use crds::podgroup::PodGroup;
use engine::{Event, JobKey, Time};
use futures::StreamExt as _;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::{Api, Client, Resource};
use members::{MemberEvent, Members, MembersOptions};
use runtime::client::CallError;
use runtime::rights::may_use;
use runtime::{Principal, pages};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Lists at a time.
const AT_A_TIME: usize = 8;
/// A member has sent all that it shows if nothing comes for so long.
const QUIET: Duration = Duration::from_millis(300);
/// For how long the owners of pods are waited for after that.
const OWNERS: Duration = Duration::from_secs(3);
/// Capacity of the channel of facts.
const FACTS: usize = 4_096;

/// Options of reading.
#[derive(Debug, Clone)]
pub struct LiveReadOptions {
    /// Deadline of each page of a list.
    pub timeout: Duration,
    /// For how long members are waited for.
    pub members_within: Duration,
    /// The user agent of requests to members.
    pub user_agent: String,
}

/// Why the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LiveReadError {
    /// A kind without which nothing can be said cannot be listed.
    #[error("{kinds} of all namespaces cannot be listed: {error}")]
    List {
        /// The kind, in the plural.
        kinds: &'static str,
        /// Why.
        error: String,
    },
}

/// Reads the state. Answers whether namespaces may use queues are asked for too, also for what `changes` add.
///
/// # Errors
/// Returns an error if a kind cannot be listed without which nothing can be said. What is missing otherwise is in
/// [`LiveObjects::notes`].
pub async fn read(
    client: &Client,
    options: &LiveReadOptions,
    changes: &[LiveChange],
    now: Time,
) -> Result<LiveObjects, LiveReadError> {
    let (lists, members) = tokio::join!(control_plane(client, options), members(client, options));
    let mut observed = lists?;
    let (events, notes) = members;
    observed.members = events;
    observed.notes.extend(notes);
    ask_rights(client, &mut observed, changes, now).await;
    Ok(observed)
}

struct Lists<'a> {
    client: &'a Client,
    timeout: Duration,
}

impl Lists<'_> {
    async fn call<K>(&self) -> Result<Vec<K>, CallError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let api = Api::<K>::all(self.client.clone());
        let listed = pages::list(&api, &ListParams::default(), self.timeout).await?;
        Ok(listed.items)
    }

    /// Lists a kind that is needed.
    async fn all<K>(&self, kinds: &'static str) -> Result<Vec<K>, LiveReadError>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let listed = self.call().await;
        listed.map_err(|error| LiveReadError::List {
            kinds,
            error: error.message(),
        })
    }

    /// Lists a kind that the control plane may not serve, or the user may not read.
    async fn some<K>(&self, kinds: &str) -> (Vec<K>, Option<String>)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        optional(self.call().await, kinds)
    }

    async fn templates(&self, kind: TemplateKind) -> (Vec<Template>, Option<String>) {
        let resource = kind.api_resource();
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let listed = pages::list(&api, &ListParams::default(), self.timeout).await;
        let name = format!("{}.{}", resource.plural, resource.group);
        let (objects, note) = optional(listed.map(|listed| listed.items), &name);
        let objects = objects.into_iter();
        let read = objects.map(|object| Template::read(&kind, object));
        (read.collect(), note)
    }
}

/// Returns what was listed; nothing, and why, if it could not be. A kind that is not served has no objects.
fn optional<K>(listed: Result<Vec<K>, CallError>, kinds: &str) -> (Vec<K>, Option<String>) {
    match listed {
        Ok(objects) => (objects, None),
        Err(error) if error.code() == Some(404) => (Vec::new(), None),
        Err(error) => {
            let note = format!("{kinds} cannot be listed: {}", error.message());
            (Vec::new(), Some(note))
        }
    }
}

async fn control_plane(
    client: &Client,
    options: &LiveReadOptions,
) -> Result<LiveObjects, LiveReadError> {
    let lists = Lists {
        client,
        timeout: options.timeout,
    };
    let (namespaces, queues, capacity_policies, priority_classes) = tokio::try_join!(
        lists.all("Namespaces"),
        lists.all("Queues"),
        lists.all("CapacityPolicies"),
        lists.all("PriorityClasses"),
    )?;
    let (configs, fault_policies, claim_templates, overrides, cluster_overrides) = tokio::join!(
        lists.some("MusterConfigs"),
        lists.some("FaultPolicies"),
        lists.some("ResourceClaimTemplates"),
        lists.some::<OverridePolicy>("OverridePolicies"),
        lists.some::<ClusterOverridePolicy>("ClusterOverridePolicies"),
    );
    let (works, podgroups) = tokio::try_join!(
        lists.all::<Work>("Works"),
        lists.all::<PodGroup>("PodGroups"),
    )?;
    // After the Works, of which a binding that is newer would seem to have none left.
    let bindings = lists.all("ResourceBindings").await?;
    let mut observed = LiveObjects {
        namespaces,
        queues,
        capacity_policies,
        priority_classes,
        bindings,
        works: works.into_iter().map(ReadWork::of).collect(),
        podgroups: podgroups.into_iter().map(shown).collect(),
        ..LiveObjects::default()
    };
    let policies = overrides.0.into_iter().map(|policy| policy.metadata);
    let wide = cluster_overrides.0.into_iter();
    observed.overrides = policies.chain(wide.map(|policy| policy.metadata)).collect();
    observed.configs = configs.0;
    observed.fault_policies = fault_policies.0;
    observed.claim_templates = claim_templates.0;
    let notes = [
        configs.1,
        fault_policies.1,
        claim_templates.1,
        overrides.1,
        cluster_overrides.1,
    ];
    observed.notes.extend(notes.into_iter().flatten());
    read_templates(&lists, &mut observed).await;
    Ok(observed)
}

async fn read_templates(lists: &Lists<'_>, observed: &mut LiveObjects) {
    let bound = observed.bindings.iter();
    let bound = bound.filter(|binding| is_workload(binding));
    let bound = bound.map(|binding| template_key(binding).kind);
    let kinds: BTreeSet<TemplateKind> = known_template_kinds().chain(bound).collect();
    let mut read = futures::stream::iter(kinds)
        .map(|kind| lists.templates(kind))
        .buffer_unordered(AT_A_TIME);
    while let Some((templates, note)) = read.next().await {
        observed.templates.extend(templates);
        observed.notes.extend(note);
    }
}

fn shown(mut podgroup: PodGroup) -> (JobKey, PodGroup) {
    podgroup.metadata.managed_fields = None;
    let podgroup = podgroup.with_annotated_federation();
    let of = &podgroup.metadata;
    let namespace = of.namespace.as_deref().unwrap_or_default();
    let key = JobKey::new(namespace, of.name.as_deref().unwrap_or_default());
    (key, podgroup)
}

/// Follows the members until all have shown what they have, and returns it, with a note for each that jobs cannot
/// be placed in.
async fn members(client: &Client, options: &LiveReadOptions) -> (Vec<MemberEvent>, Vec<String>) {
    let cancel = CancellationToken::new();
    let _guard = cancel.clone().drop_guard();
    let (sink, mut events) = mpsc::channel(FACTS);
    let of_members = MembersOptions {
        first_list: options.members_within,
        user_agent: options.user_agent.clone(),
        through_proxy: true,
        ..MembersOptions::default()
    };
    let _members = Members::spawn(client.clone(), of_members, vec![sink], cancel);
    let mut seen = Vec::new();
    // A control plane that serves no Clusters never gets ready.
    let limit = options.members_within + OWNERS;
    let ready = async {
        while let Some(event) = events.recv().await {
            if event == MemberEvent::Ready {
                return;
            }
            seen.push(event);
        }
    };
    let was_ready = tokio::time::timeout(limit, ready).await.is_ok();
    let quiet = async {
        // Which job a pod is of may be known only when its owners are.
        while let Ok(Some(event)) = tokio::time::timeout(QUIET, events.recv()).await {
            seen.push(event);
        }
    };
    let _ = tokio::time::timeout(OWNERS, quiet).await;
    let mut notes = unusable(&seen);
    if !was_ready {
        notes.push("not all clusters could be read in time".to_owned());
    }
    (seen, notes)
}

/// Returns a note for each cluster that takes no jobs.
fn unusable(events: &[MemberEvent]) -> Vec<String> {
    let mut last = BTreeMap::new();
    for event in events {
        if let MemberEvent::Fact(Event::ClusterUpserted(fact)) = event {
            last.insert(fact.name.clone(), fact.clone());
        }
    }
    let unusable = last.into_values().filter(|fact| !fact.usable);
    let notes = unusable.map(|fact| {
        format!(
            "cluster {} counts as one that takes no new jobs: {}",
            fact.name, fact.unusable_because
        )
    });
    notes.collect()
}

/// Asks which namespaces may use which queues, as long as reconciling raises new questions.
async fn ask_rights(
    client: &Client,
    observed: &mut LiveObjects,
    changes: &[LiveChange],
    now: Time,
) {
    for _ in 0..ROUNDS {
        let (mut live, mut asked) = LiveState::begun(observed, now);
        let mut for_changes = BTreeSet::new();
        for change in changes {
            // What is wrong with a change is said when it is made.
            for_changes.extend(live.make(change).unwrap_or_default());
        }
        asked.extend(for_changes.iter().cloned());
        let known: BTreeSet<_> = observed
            .rights
            .iter()
            .map(|(pair, _)| pair.clone())
            .collect();
        asked.retain(|pair| !known.contains(pair));
        if asked.is_empty() {
            return;
        }
        for_changes.retain(|pair| asked.contains(pair));
        ask_own_rights(client, observed, for_changes).await;
        let mut answers = futures::stream::iter(asked)
            .map(|pair| ask(client, pair))
            .buffer_unordered(AT_A_TIME);
        while let Some(((namespace, queue), answer)) = answers.next().await {
            if answer.is_none() {
                observed.notes.push(format!(
                    "whether namespace {namespace} may use queue {queue} cannot be asked: it counts as no"
                ));
            }
            let allowed = answer.unwrap_or(false);
            observed.rights.push(((namespace, queue), allowed));
        }
    }
}

/// Asks which queues the user may use, who submits the jobs of changes.
async fn ask_own_rights(client: &Client, observed: &mut LiveObjects, pairs: BTreeSet<Pair>) {
    if pairs.is_empty() {
        return;
    }
    let api = Api::<SelfSubjectReview>::all(client.clone());
    let review = SelfSubjectReview::default();
    let reviewed = api.create(&PostParams::default(), &review).await;
    let user = reviewed.ok().and_then(|review| review.status?.user_info);
    let Some(user) = user else {
        return;
    };
    let user = Principal {
        user: user.username.unwrap_or_default(),
        uid: user.uid.unwrap_or_default(),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    };
    for (namespace, queue) in pairs {
        let answer = may_use(client, &user, &namespace, queue.as_str()).await;
        if answer.unwrap_or(false) {
            observed.own_rights.insert((namespace, queue));
        }
    }
}
