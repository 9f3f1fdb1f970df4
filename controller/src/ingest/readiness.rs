//! Tracks whether every source that a decision depends on has listed once.
//!
//! A template kind that cannot be listed delays all jobs for a limited time, and after that only its own
//! jobs: placed jobs are charged by their records, and pending jobs are held until their templates are
//! seen.

use crate::messages::input::Input;
use crate::mirror::template::TemplateKind;
use engine::Time;
use members::MemberEvent;
use runtime::watch::Delta;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

/// Milliseconds for which decisions wait for the templates of a kind.
const TEMPLATES_WITHIN_MS: i64 = 30_000;

/// A source that has to list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ListSource {
    Bindings,
    Works,
    Namespaces,
    Queues,
    Policies,
    Configs,
    FaultPolicies,
    PriorityClasses,
    ClaimTemplates,
    Overrides,
    ClusterOverrides,
    PodGroups,
    Members,
    Templates(TemplateKind),
}

/// Tracks which sources have listed.
#[derive(Debug)]
pub(crate) struct Readiness {
    missing: BTreeSet<ListSource>,
    began_with_templates: bool,
    /// Since when only templates are missing.
    only_templates_since: Option<Time>,
    ready: bool,
}

impl Readiness {
    pub(crate) fn new() -> Self {
        use ListSource::{
            Bindings, ClaimTemplates, ClusterOverrides, Configs, FaultPolicies, Members,
            Namespaces, Overrides, PodGroups, Policies, PriorityClasses, Queues, Works,
        };
        let missing = BTreeSet::from([
            Bindings,
            Works,
            Namespaces,
            Queues,
            Policies,
            Configs,
            FaultPolicies,
            PriorityClasses,
            ClaimTemplates,
            Overrides,
            ClusterOverrides,
            PodGroups,
            Members,
        ]);
        Self {
            missing,
            began_with_templates: false,
            only_templates_since: None,
            ready: false,
        }
    }

    /// Makes decisions wait for a template kind that a binding names.
    pub(crate) fn expect_template(&mut self, kind: TemplateKind) {
        self.missing.insert(ListSource::Templates(kind));
    }

    /// Records a source that an input shows to have listed.
    pub(crate) fn note(&mut self, input: &Input) {
        let listed = match input {
            Input::Binding(Delta::Listed) => ListSource::Bindings,
            Input::Work(Delta::Listed) => ListSource::Works,
            Input::Namespace(Delta::Listed) => ListSource::Namespaces,
            Input::Queue(Delta::Listed) => ListSource::Queues,
            Input::Policy(Delta::Listed) => ListSource::Policies,
            Input::Config(Delta::Listed) => ListSource::Configs,
            Input::FaultPolicy(Delta::Listed) => ListSource::FaultPolicies,
            Input::PriorityClass(Delta::Listed) => ListSource::PriorityClasses,
            Input::ClaimTemplate(Delta::Listed) => ListSource::ClaimTemplates,
            Input::Override(Delta::Listed) => ListSource::Overrides,
            Input::ClusterOverride(Delta::Listed) => ListSource::ClusterOverrides,
            Input::PodGroup(Delta::Listed) => ListSource::PodGroups,
            Input::Member(MemberEvent::Ready) => ListSource::Members,
            Input::Template(kind, Delta::Listed) => ListSource::Templates(kind.clone()),
            _ => return,
        };
        self.missing.remove(&listed);
    }

    /// Returns true once, when bindings have listed and the kinds of their templates are known.
    pub(crate) fn begin_with_templates(&mut self) -> bool {
        let listed = !self.missing.contains(&ListSource::Bindings);
        listed && !std::mem::replace(&mut self.began_with_templates, true)
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns true once every required source has listed; it stays true.
    pub(crate) fn became_ready(&mut self, now: Time) -> bool {
        self.ready = self.missing.is_empty() || self.waited_for_templates(now);
        if self.ready && !self.missing.is_empty() {
            tracing::error!(
                missing = self.missing(),
                "templates cannot be listed; jobs of these kinds are held, and the others go on"
            );
        }
        self.ready
    }

    fn waited_for_templates(&mut self, now: Time) -> bool {
        let is_template = |source: &ListSource| matches!(source, ListSource::Templates(_));
        if !self.missing.iter().all(is_template) {
            return false;
        }
        let since = *self.only_templates_since.get_or_insert(now);
        now.millis_since(since) >= TEMPLATES_WITHIN_MS
    }

    /// Names the sources that have not listed yet, for `/readyz` and logs.
    pub(crate) fn missing(&self) -> String {
        let names: Vec<String> = self
            .missing
            .iter()
            .map(|source| format!("{source:?}"))
            .collect();
        names.join(", ")
    }
}
