//! The watches of what a member applies to pods before it stores them.
//!
//! A member in which Muster may not list them is usable nevertheless; the watches say that they may not, and try
//! again. Earlier installations lack the right.

use super::{CoordinatorMessage, Session};
use crate::Origin;
use crate::member_rules::RuleDelta;
use facts::ClusterName;
use kube::{Client, Resource};
use runtime::watch::{Delta, WatchOptions};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

impl Session {
    /// Reports RuntimeClasses, LimitRanges and ResourceQuotas.
    pub(super) fn watch_rules(&self, client: &Client, origin: &Origin, cancel: &CancellationToken) {
        self.watch_rule(
            client,
            "runtimeclasses",
            origin,
            RuleDelta::of_class,
            cancel,
        );
        self.watch_rule(
            client,
            "limitranges",
            origin,
            RuleDelta::of_limit_range,
            cancel,
        );
        self.watch_rule(
            client,
            "resourcequotas",
            origin,
            RuleDelta::of_quota,
            cancel,
        );
    }

    fn watch_rule<K>(
        &self,
        client: &Client,
        plural: &str,
        origin: &Origin,
        read: fn(&ClusterName, Delta<K>) -> RuleDelta,
        cancel: &CancellationToken,
    ) where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let denied = Arc::new(AtomicBool::new(false));
        let options = WatchOptions {
            absent_is_empty: true,
            denied_is_listed: true,
            denied: Some(denied.clone()),
            ..self.watch_options()
        };
        let name = format!("{plural}@{}", self.cluster);
        let message = move |origin: &Origin, delta| {
            let rule = read(&origin.cluster, delta);
            let rule = match denied.load(Ordering::Relaxed) {
                true => rule.denied(),
                false => rule,
            };
            CoordinatorMessage::Rule(origin.clone(), rule)
        };
        self.watch_kind(client, name, options, origin, message, cancel);
    }
}
