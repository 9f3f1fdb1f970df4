//! Evicts a placed job: in the engine, and by the write that removes its placement.

use crate::messages::job_event::JobEvent;
use crate::reconcile::placed::avoids::JobAvoids;
use crate::reconcile::placed::parts::led;
use crate::reconcile::placed::retries::retries;
use crate::reconcile::{ReconcileCtx, Reconciler};
use binding_writer::Write;
use crds::record::{AdmissionRecord, RecordState};
use engine::{ClusterName, Event, JobState, Progress, Reason};

impl Reconciler {
    /// Gates a placed binding, which stays charged. A job that has ended by then counts as finished, whatever
    /// it is evicted for; otherwise it would run once more.
    pub(crate) fn evict(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        record: &AdmissionRecord,
        reason: Reason,
        message: &str,
    ) {
        let led = led(&ctx.binding, record).map(|led| (led.reason, led.message));
        let end = self
            .end_of(ctx, record)
            .filter(|_| !self.is_excused(ctx, reason));
        let end = end.map(|(end, how)| (end, format!("{how}, and was evicted: {message}")));
        let over = led.or(end);
        let (reason, message) = over
            .as_ref()
            .map_or((reason, message), |(reason, how)| (*reason, how.as_str()));
        // All users who may read the namespace can read the record.
        let message = &self.discreet(ctx.key, message);
        let avoids = match over {
            Some(_) => JobAvoids::default(),
            None => self.job_avoids(ctx, record),
        };
        let message = &format!("{message}{}", avoids.words());
        let for_job = self.in_flight_of(ctx.key).end.preemptor_of(record.attempt);
        let restarts = u32::from(reason == Reason::GangRestarted);
        let mut record = AdmissionRecord {
            for_job: for_job.filter(|preemptor| preemptor.namespace == ctx.key.namespace),
            evicted_at: Some(crds::record::timestamp(ctx.now)),
            exceeds_since: None,
            retries: retries(&ctx.binding, record).saturating_add(restarts),
            ..record.in_state(RecordState::Ending, Some(reason), message)
        };
        let event = match reason {
            Reason::Succeeded => JobEvent::normal,
            _ => JobEvent::warning,
        };
        avoids.add_to(&mut record);
        self.record_event(ctx, event(reason, "Evict", message.to_owned()));
        self.record_avoids(ctx, avoids);
        self.write(ctx.key, &ctx.binding, Write::Evict { record });
    }

    /// Evicts a job in the engine for a reason of the controller; its next attempts may avoid a cluster. A job that
    /// had ended, or was aborted in its member, is charged again first: only a charged job can be evicted, and an
    /// evicted job may still have pods.
    pub(crate) fn apply_ending(
        &mut self,
        ctx: &ReconcileCtx<'_>,
        reason: Reason,
        message: &str,
        avoid: Option<ClusterName>,
    ) {
        let over = self
            .engine
            .job(ctx.key)
            .filter(|job| job.state == JobState::Finished)
            .and_then(|job| job.admission.map(|a| a.attempt));
        if let Some(attempt) = over {
            self.apply(Event::JobProgressed {
                key: ctx.key.clone(),
                attempt,
                progress: Progress::Placed,
                at: ctx.now,
            });
        }
        self.apply(Event::JobEnding {
            key: ctx.key.clone(),
            reason,
            message: message.to_owned(),
            avoid,
            at: ctx.now,
        });
    }
}
