//! The pods of an admitted job that are not bound yet, and whether they fit now.

use crate::api::decision::Blocker;
use crate::capacity::Capacity;
use crate::capacity::pack::{Need, NodeView, leading, leading_amount, needs_of};
use crate::overlay::Overlay;
use facts::{ClusterName, Demand, JobKey, PodFact, Share};

impl Capacity {
    /// True if the pods of this share that are not bound yet fit on the cluster's nodes now.
    /// What is held for the job itself is not counted against it.
    ///
    /// # Errors
    /// What is short, where they do not fit.
    pub fn check(&self, key: &JobKey, demand: &Demand, share: &Share) -> Result<(), Blocker> {
        let unbound = self.unbound(key, demand, share);
        let overlay = self.own_assumed(key, &share.cluster);
        let standing = self.standing(key, &share.cluster, demand, false);
        let node_view = NodeView::of(&overlay).beside(&standing);
        let packing = self.pack(&share.cluster, &unbound, node_view);
        match packing.lack {
            None => Ok(()),
            Some(lack) => {
                let request = demand.roles[lack.role].request_in(&share.cluster);
                Err(Blocker {
                    scope: format!("cluster/{}", share.cluster),
                    resource: leading(request).map(ToString::to_string),
                    needs: Some(leading_amount(request) * i64::from(lack.wanted)),
                    free: Some(leading_amount(request) * i64::from(lack.placed)),
                })
            }
        }
    }

    /// The pods of a share that are not bound: its counts less the job's bound pods, each
    /// taken off the role of its request, or off any where none has it.
    pub(super) fn unbound<'a>(
        &self,
        key: &JobKey,
        demand: &'a Demand,
        share: &Share,
    ) -> Vec<Need<'a>> {
        let needs = needs_of(demand, &share.pods);
        self.without_pods(key, &share.cluster, needs, |pod| pod.node.is_some())
    }

    /// `needs` less the pods of the job in the cluster that `counts` holds for.
    pub(super) fn without_pods<'a>(
        &self,
        key: &JobKey,
        cluster: &ClusterName,
        mut needs: Vec<Need<'a>>,
        counts: impl Fn(&PodFact) -> bool,
    ) -> Vec<Need<'a>> {
        for pod in self.pods_in(key, cluster).filter(|pod| counts(pod)) {
            let open = |need: &&mut Need<'_>| need.count > 0;
            let same = |need: &&mut Need<'_>| {
                need.count > 0 && *need.role.request_in(cluster) == pod.request
            };
            if let Some(need) = needs.iter_mut().find(same) {
                need.count -= 1;
            } else if let Some(need) = needs.iter_mut().find(open) {
                need.count -= 1;
            }
        }
        needs.retain(|need| need.count > 0);
        needs
    }

    /// Returns what is held for a job on the nodes of a cluster, as an overlay that gives it back.
    pub(super) fn own_assumed(&self, key: &JobKey, cluster: &ClusterName) -> Overlay {
        let mut overlay = Overlay::default();
        if let Some(assumption) = self.assumed.get(key) {
            for assumed_pod in assumption.assumed.iter().filter(|s| s.cluster == *cluster) {
                if let Some(node) = &assumed_pod.node {
                    let request = assumption.request(assumed_pod);
                    let times = -i64::from(assumed_pod.count);
                    overlay.node_mut(cluster, node).add(request, times);
                }
            }
        }
        overlay
    }
}
