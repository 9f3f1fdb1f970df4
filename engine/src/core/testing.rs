//! An engine in a known state, for tests of what is private to it.

#![allow(clippy::unwrap_used)]

use super::Engine;
use super::config::EngineConfig;
use crate::event::{Event, Progress};
use crate::facts::{Admission, RolePods, Share};
use crate::ids::{Attempt, ClusterName, JobKey, PoolClass, QueueName, Time, Uid};
use crate::resources::Resources;
use std::collections::BTreeMap;

/// One job that runs with these pods in cluster `a`, and is charged one GPU.
pub(crate) fn running(key: &JobKey, pods: Vec<RolePods>) -> Engine {
    let mut engine = Engine::new(EngineConfig::default());
    let charge = Resources::parse([("nvidia.com/gpu", "1")]).unwrap();
    engine.apply(Event::JobAdmitted {
        key: key.clone(),
        admission: Admission {
            uid: Uid::from("uid"),
            attempt: Attempt(1),
            queue: QueueName::from("q"),
            admitted_at: Time(0),
            shares: vec![Share {
                cluster: ClusterName::from("a"),
                pods,
                charge: BTreeMap::from([(PoolClass::from("gpu"), charge)]),
                slots: Vec::new(),
            }],
        },
        progress: Progress::Running,
    });
    engine.decide(Time(1));
    engine
}
