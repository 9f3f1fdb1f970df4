//! `APIEnablement`: the cluster serves the job's kind (Karmada's plugin of that name).

use crate::plugins::Plugin;
use crate::plugins::filter::{Filter, Holds, Question};

/// See the module.
pub(crate) struct ApiEnablementFilter;

impl Filter for ApiEnablementFilter {
    fn plugin(&self) -> Plugin<Holds> {
        Plugin {
            name: "APIEnablement",
            about: "clusters of which Karmada has seen that they serve the job's kind; to be \
                    left out where it cannot see all that they serve",
            unset: Holds::Unset,
        }
    }

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
