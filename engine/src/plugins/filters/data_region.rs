//! `DataRegion`: the cluster is in a region of the job's data, which must stay there.

use crate::plugins::filter::{Filter, Question};

/// See the module.
pub(crate) struct DataRegion;

impl Filter for DataRegion {
    fn refuses(&self, question: &Question<'_>) -> Option<String> {
        let data = &question.placement.data_clusters;
        let cluster = question.cluster;
        let with_data = data.iter().filter_map(|name| question.fleet.get(name));
        let near = |holder: &facts::ClusterFact| {
            holder.name == cluster.name
                || (!holder.region.is_empty() && holder.region == cluster.region)
        };
        if data.is_empty() || with_data.clone().any(near) {
            return None;
        }
        let regions: Vec<&str> = with_data
            .map(|holder| holder.region.as_str())
            .filter(|region| !region.is_empty())
            .collect();
        Some(if regions.is_empty() {
            "no cluster that holds the job's data is known with its region".to_owned()
        } else {
            format!(
                "it is in region {:?}, and the job's data in {}",
                cluster.region,
                regions.join(", ")
            )
        })
    }
}
