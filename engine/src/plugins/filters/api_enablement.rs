//! `APIEnablement`: the cluster serves the job's kind (as Karmada's plugin of that name).

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct ApiEnablementFilter;

impl Filter for ApiEnablementFilter {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let api = &question.placement.api;
        if api.is_empty() {
            return None;
        }
        match &question.cluster.apis {
            None => Some("what it serves is not known yet".to_owned()),
            Some(apis) if apis.contains(api) => None,
            Some(_) => Some(format!("it does not serve {api}")),
        }
    }
}
