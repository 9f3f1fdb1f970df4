//! What a verdict on a waiting job rests on, fact by fact, for people.
//!
//! Each line is one fact that the deciding functions have read: what each queue above the job
//! holds of what it may have, what is kept for the job, how long it is expected to run. It
//! evaluates nothing itself.

use crate::amounts::resources::Resources;
use crate::api::ids::{JobKey, QueueName};
use crate::evaluation::prediction;
use crate::forecast::{Prediction, PredictionBasis};
use crate::pending::shapes::RequestShape;
use crate::state::Inputs;
use std::collections::BTreeMap;

/// The facts behind the verdict on a waiting job, those of its queues first.
pub(crate) fn evidence(
    inputs: Inputs<'_>,
    key: &JobKey,
    queue: &QueueName,
    shape: &RequestShape,
) -> Vec<String> {
    let mut lines: Vec<String> = inputs
        .quota
        .path(queue)
        .iter()
        .rev()
        .filter_map(|name| holds(inputs, name, &shape.total))
        .collect();
    lines.extend(kept_for(inputs, key));
    let job = inputs.jobs.get(key);
    lines.extend(job.and_then(|job| Some(expected(prediction::predict(inputs, job)?))));
    lines
}

/// What a queue holds of what it may have, of the resources that are asked for.
fn holds(inputs: Inputs<'_>, queue: &QueueName, asked: &Resources) -> Option<String> {
    let real = inputs.quota.real_capability(queue);
    let charged = inputs.quota.charged(queue);
    let parts: Vec<String> = real
        .iter()
        .filter(|(name, _)| asked.amount_of(name).0 > 0)
        .map(|(name, may)| {
            let held = charged.amount_of(name);
            format!("{name} {} of {}", name.format(held), name.format(may))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("queue {queue} holds {}", parts.join(", ")))
}

/// The nodes kept for a job, by cluster.
fn kept_for(inputs: Inputs<'_>, key: &JobKey) -> Option<String> {
    let kept = inputs.reservations.of(key)?;
    let mut nodes: BTreeMap<_, usize> = BTreeMap::new();
    for node in &kept.nodes {
        *nodes.entry((&node.cluster, &node.class)).or_default() += 1;
    }
    let nodes: Vec<String> = nodes
        .iter()
        .map(|((cluster, class), count)| format!("{count} of class {class} in {cluster}"))
        .collect();
    (!nodes.is_empty()).then(|| format!("nodes kept for it: {}", nodes.join(", ")))
}

fn expected(prediction: Prediction) -> String {
    let runs = |count: usize, whose: &str| format!("the mean of {count} runs {whose}");
    let basis = match prediction.basis {
        PredictionBasis::Declared => "as declared".to_owned(),
        PredictionBasis::OfUser(count) => runs(count, "of its user of this size"),
        PredictionBasis::OfQueue(count) => runs(count, "in its queue of this size"),
        PredictionBasis::OfShape(count) => runs(count, "of this size"),
        PredictionBasis::OfAll(count) => runs(count, "of any size"),
    };
    let seconds = prediction.millis / 1_000;
    format!("expected to run {seconds} s: {basis}")
}
