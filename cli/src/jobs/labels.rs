//! `-l`: jobs by the labels of what the user submitted. PodGroups do not have them, so the server is asked
//! for the workloads that the selector selects.

use super::ListedJob;
use crate::args::JobFilter;
use crate::connect::{LIMIT, plain};
use anyhow::Result;
use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use runtime::kinds::KindCache;
use runtime::pages;
use std::collections::{BTreeSet, HashMap, HashSet};

/// The workloads that a selector selects.
pub(crate) struct TemplateLabels {
    selector: String,
    everywhere: bool,
    kinds: KindCache,
    /// Whether workloads are selected, by UID, as far as they were asked for.
    known: HashMap<String, bool>,
}

impl TemplateLabels {
    /// Returns those of the selector of `filter`, if it has one.
    pub(crate) fn of(filter: &JobFilter, client: &Client) -> Option<Self> {
        Some(Self {
            selector: filter.selector.clone()?,
            everywhere: filter.all_namespaces,
            kinds: KindCache::new(client.clone()),
            known: HashMap::new(),
        })
    }

    /// Keeps the jobs whose workloads are selected.
    pub(super) async fn retain(&mut self, jobs: &mut Vec<ListedJob>) -> Result<()> {
        let params = ListParams::default().labels(&self.selector);
        self.ask(jobs, &params).await?;
        jobs.retain(|job| self.knows(job));
        Ok(())
    }

    /// Returns true if the workload of `job` is selected.
    pub(super) async fn selects(&mut self, job: &ListedJob) -> Result<bool> {
        let params = ListParams::default()
            .labels(&self.selector)
            .fields(&format!("metadata.name={}", job.name()));
        self.ask(std::slice::from_ref(job), &params).await?;
        Ok(self.knows(job))
    }

    /// Asks for the workloads of `jobs` that are not known; `params` selects all of them that are selected.
    async fn ask(&mut self, jobs: &[ListedJob], params: &ListParams) -> Result<()> {
        let unknown = jobs.iter().filter_map(ListedJob::template);
        let unknown = unknown.filter(|owner| !self.known.contains_key(&owner.uid));
        let kinds: BTreeSet<(String, String)> = unknown
            .map(|owner| (owner.api_version.clone(), owner.kind.clone()))
            .collect();
        let mut selected = HashSet::new();
        for (api_version, kind) in kinds {
            let api = self.api(&api_version, &kind).await?;
            let listed = pages::list_metadata(&api, params, LIMIT).await;
            let listed = listed.map_err(|error| plain(error, &kind))?;
            selected.extend(listed.iter().filter_map(ResourceExt::uid));
        }
        for owner in jobs.iter().filter_map(ListedJob::template) {
            let is_selected = selected.contains(&owner.uid);
            self.known.entry(owner.uid.clone()).or_insert(is_selected);
        }
        Ok(())
    }

    fn knows(&self, job: &ListedJob) -> bool {
        let owner = job.template();
        owner.is_some_and(|owner| self.known.get(&owner.uid) == Some(&true))
    }

    async fn api(&self, api_version: &str, kind: &str) -> Result<Api<DynamicObject>> {
        let namespace = self.kinds.client().default_namespace();
        let place = (!self.everywhere).then_some(namespace);
        Ok(self.kinds.api_in(api_version, kind, place).await?)
    }
}
