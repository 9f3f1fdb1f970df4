//! Evicts a placed job: in the engine, and by the write that removes its placement.

use crate::messages::job_event::JobEvent;
use crate::reconcile::JobPass;
use crate::reconcile::placed::avoids::{JobAvoids, job_avoids, record_avoids};
use crate::reconcile::placed::cluster_removed::end_of;
use crate::reconcile::placed::failures::is_excused;
use crate::reconcile::placed::parts::led;
use crate::reconcile::placed::retries::retries;
use binding_writer::Write;
use crds::record::{AdmissionRecord, RecordState};
use engine::{ClusterName, Event, JobState, Progress, Reason};

/// Gates a placed binding, which stays charged. A job that has ended by then counts as finished, whatever
/// it is evicted for; otherwise it would run once more.
pub(crate) fn evict(
    pass: &mut JobPass<'_>,
    record: &AdmissionRecord,
    reason: Reason,
    message: &str,
) {
    let led = led(pass.binding, record).map(|led| (led.reason, led.message));
    let end = end_of(pass.in_flight, record).filter(|_| !is_excused(pass, reason));
    let end = end.map(|(end, how)| (end, format!("{how}, and was evicted: {message}")));
    let over = led.or(end);
    let (reason, message) = over
        .as_ref()
        .map_or((reason, message), |(reason, how)| (*reason, how.as_str()));
    // All users who may read the namespace can read the record.
    let message = &pass.view().discreet(pass.key, message);
    let avoids = match over {
        Some(_) => JobAvoids::default(),
        None => job_avoids(pass, record),
    };
    let message = &format!("{message}{}", avoids.words());
    let for_job = pass.in_flight.end.preemptor_of(record.attempt);
    let restarts = u32::from(reason == Reason::GangRestarted);
    let mut record = AdmissionRecord {
        for_job: for_job.filter(|preemptor| preemptor.namespace == pass.key.namespace),
        evicted_at: Some(crds::record::timestamp(pass.now)),
        exceeds_since: None,
        retries: retries(pass.binding, record).saturating_add(restarts),
        ..record.in_state(RecordState::Ending, Some(reason), message)
    };
    let event = match reason {
        Reason::Succeeded => JobEvent::normal,
        _ => JobEvent::warning,
    };
    avoids.add_to(&mut record);
    pass.record_event(event(reason, "Evict", message.to_owned()));
    record_avoids(pass, avoids);
    pass.write(Write::Evict { record });
}

/// Evicts a job in the engine for a reason of the controller; its next attempts may avoid a cluster. A job that
/// had ended, or was aborted in its member, is charged again first: only a charged job can be evicted, and an
/// evicted job may still have pods.
pub(crate) fn apply_ending(
    pass: &mut JobPass<'_>,
    reason: Reason,
    message: &str,
    avoid: Option<ClusterName>,
) {
    let over = pass
        .engine
        .job(pass.key)
        .filter(|job| job.state == JobState::Finished)
        .and_then(|job| job.admission.map(|a| a.attempt));
    if let Some(attempt) = over {
        pass.apply(Event::JobProgressed {
            key: pass.key.clone(),
            attempt,
            progress: Progress::Placed,
            at: pass.now,
        });
    }
    pass.apply(Event::JobEnding {
        key: pass.key.clone(),
        reason,
        message: message.to_owned(),
        avoid,
        at: pass.now,
    });
}
