//! Jobs that a member refuses, as a whole or a part of it: its name is taken there, its namespace is missing, a
//! ResourceQuota or a webhook denies it. Waiting changes nothing, so the job is evicted once the refusal has
//! lasted, and its next attempts avoid the member for a while.
//!
//! It never evicts a job of which anything has started: an update that a running job refuses is no reason to end it.

use crate::reconcile::JobPass;
use crate::reconcile::check_result::{CheckResult, EvictionCause};
use crate::reconcile::placed::Placed;
use crds::record::AdmissionRecord;
use engine::{ClusterName, JobState, Reason};

/// Milliseconds for which the refusal has to last: Karmada also reports a call that only timed out as refused.
const REFUSED_FOR_MS: i64 = 3_000;
/// Words of messages about calls that the member has not answered, or that met another writer. Karmada sends such a
/// call again.
const NO_ANSWER: [&str; 10] = [
    "Operation cannot be fulfilled",
    "connection refused",
    "connection reset",
    "context deadline exceeded",
    "EOF",
    "etcdserver",
    "no route to host",
    "no such host",
    "imeout",
    "timed out",
];

/// Evicts a job that a member of its placement refuses.
pub(crate) fn check_member_refused(pass: &mut JobPass<'_>, placed: &Placed) -> CheckResult {
    let Some((cluster, message)) = refusal_of_member(pass, &placed.record) else {
        pass.in_flight.timers.refused_since = None;
        return CheckResult::Continue;
    };
    let since = &mut pass.in_flight.timers.refused_since;
    let until = since.get_or_insert(pass.now).after(REFUSED_FOR_MS);
    if pass.now < until {
        pass.out.work_queue.add_at(pass.key, until);
        return CheckResult::Continue;
    }
    let cause = EvictionCause::new(Reason::MemberRefused, message);
    cause.avoiding(cluster).into()
}

/// Returns the member that refuses the job, of which nothing has started, and what it said.
fn refusal_of_member(
    pass: &JobPass<'_>,
    record: &AdmissionRecord,
) -> Option<(ClusterName, String)> {
    let job = pass.engine.job(pass.key)?;
    if job.state != JobState::Placed || pass.namespace().terminating {
        return None;
    }
    let what = match record.is_split() {
        true => "its part",
        false => "it",
    };
    let shares = &record.clusters;
    let is_placed = |cluster: &str| shares.iter().any(|share| share.name.as_str() == cluster);
    let mut works = pass.mirror.works.of(pass.binding);
    works.find_map(|work| {
        let name = &pass.binding.spec.resource.name;
        let said = work.refused.as_ref();
        let said = said.filter(|said| is_answer(said) && !is_absent(said, name))?;
        let cluster = ClusterName::new(&work.cluster);
        let counts = is_placed(&work.cluster) && !work.deleting;
        counts.then(|| (cluster, format!("{} refused {what}: {said}", work.cluster)))
    })
}

/// Returns true if the member itself has said this. Otherwise it may only be out of reach for a moment, and could not
/// remove the job either.
fn is_answer(said: &str) -> bool {
    !NO_ANSWER.iter().any(|words| said.contains(words))
}

/// Returns true if the object itself is missing: Karmada updated it while an earlier attempt was being removed, and
/// makes it again.
fn is_absent(said: &str, name: &str) -> bool {
    let missing = format!("\"{name}\" not found");
    said.contains(&missing) && !said.contains(&format!("namespaces {missing}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_an_answer_is_no_refusal() {
        for (said, answer) in [
            ("jobs.batch \"a\" already exists", true),
            ("namespaces \"team\" not found", true),
            ("jobs.batch \"a\" is forbidden: exceeded quota: small", true),
            ("admission webhook \"x.y\" denied the request: no", true),
            ("dial tcp 10.0.0.1:6443: connect: connection refused", false),
            ("net/http: TLS handshake timeout", false),
            (
                "Timeout: request did not complete within requested timeout",
                false,
            ),
            ("Post \"https://m1\": context deadline exceeded", false),
            ("unexpected EOF", false),
            (
                "Operation cannot be fulfilled on jobs.batch \"a\": the object has been modified",
                false,
            ),
        ] {
            assert_eq!(is_answer(said), answer, "{said}");
        }
    }

    #[test]
    fn an_object_that_is_made_again_is_not_refused() {
        for (said, absent) in [
            (
                "Failed to apply all manifests (0/1): jobs.batch \"a\" not found",
                true,
            ),
            ("namespaces \"a\" not found", false),
            ("namespaces \"team\" not found", false),
            (
                "failed calling webhook \"x.y\": service \"x\" not found",
                false,
            ),
        ] {
            assert_eq!(is_absent(said, "a"), absent, "{said}");
        }
    }
}
