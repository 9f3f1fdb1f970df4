//! Traces of objects that live longer than a process: one trace for each, whose spans different processes send.
//!
//! Usual tracing keeps a span open in memory until it ends. Here a span is sent when it has ended, with its times
//! as they were recorded, and its id follows from the object and the span's own key. So any process gives a span
//! the same id, and a span that is sent twice is the same span. Nothing here decides what is sent.

use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{
    BatchConfig, BatchSpanProcessor, SpanData, SpanEvents, SpanExporter, SpanLinks, SpanProcessor,
};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::time::SystemTime;

/// The trace of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectTrace {
    uid: String,
    id: TraceId,
    /// The span of another program of which the whole object is a part.
    parent: Option<SpanId>,
    sampled: bool,
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedSpan {
    /// What the object did.
    pub name: &'static str,
    /// Distinguishes it from the other spans of its trace; `None`: the span of the object's whole life, of which the
    /// others are parts.
    pub key: Option<String>,
    /// When it began.
    pub start: jiff::Timestamp,
    /// When it ended.
    pub end: jiff::Timestamp,
    /// Names and values.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it did not end as it should, if so.
    pub error: Option<String>,
}

/// Where spans are sent, if anywhere. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct TraceSink(Option<Arc<BatchSpanProcessor>>);

impl ObjectTrace {
    /// Returns the trace of the object with this UID. `traceparent` is what its author gives as the parent, in the
    /// format of W3C Trace Context; a value that is not valid counts as none.
    #[must_use]
    pub fn new(uid: &str, traceparent: Option<&str>) -> Self {
        let digest = Sha256::digest(uid);
        let (id, parent, sampled) = match traceparent.and_then(parse) {
            Some((id, parent, sampled)) => (id, Some(parent), sampled),
            None => (TraceId::from_bytes(first(&digest)), None, true),
        };
        Self {
            uid: uid.to_owned(),
            id,
            parent,
            sampled,
        }
    }

    /// The id of a span of this trace.
    fn span(&self, key: Option<&str>) -> SpanId {
        let digest = Sha256::digest(format!("{}/{}", self.uid, key.unwrap_or_default()));
        SpanId::from_bytes(first(&digest))
    }

    fn data(&self, span: EndedSpan) -> SpanData {
        let parent = match span.key {
            Some(_) => Some(self.span(None)),
            None => self.parent,
        };
        let context = |id| {
            let flags = TraceFlags::SAMPLED;
            SpanContext::new(self.id, id, flags, false, TraceState::NONE)
        };
        let attributes = span.attributes.into_iter();
        SpanData {
            span_context: context(self.span(span.key.as_deref())),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: span.key.is_none() && parent.is_some(),
            span_kind: SpanKind::Internal,
            name: span.name.into(),
            start_time: SystemTime::from(span.start),
            end_time: SystemTime::from(span.end.max(span.start)),
            attributes: attributes
                .map(|(name, value)| KeyValue::new(name, value))
                .collect(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: span.error.map_or(Status::Unset, Status::error),
            instrumentation_scope: InstrumentationScope::builder("muster").build(),
        }
    }
}

impl TraceSink {
    /// Sends spans to `exporter`, which describes them as those of `resource`. Call it within the tokio runtime.
    pub fn to(exporter: impl SpanExporter + 'static, resource: &Resource) -> Self {
        let mut processor = BatchSpanProcessor::new(exporter, BatchConfig::default());
        processor.set_resource(resource);
        Self(Some(Arc::new(processor)))
    }

    /// Returns true if spans are sent anywhere.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Sends a span of `trace` soon, unless its author wants none. It never waits: where the collector is too slow,
    /// spans are lost.
    pub fn send(&self, trace: &ObjectTrace, span: EndedSpan) {
        if let Some(processor) = self.0.as_ref().filter(|_| trace.sampled) {
            processor.on_end(trace.data(span));
        }
    }

    /// Sends what is left, and waits up to five seconds for that.
    pub(crate) fn close(&self) {
        let closed = self.0.as_ref().map(|processor| processor.shutdown());
        if let Some(Err(error)) = closed {
            tracing::warn!(%error, "the last traces could not be sent");
        }
    }
}

/// Spans that were sent, for tests.
#[cfg(any(test, feature = "testing"))]
#[derive(Debug, Clone, Default)]
pub struct CollectedSpans(Arc<parking_lot::Mutex<Vec<SpanData>>>);

#[cfg(any(test, feature = "testing"))]
impl CollectedSpans {
    /// Returns a sink whose spans are collected here.
    #[must_use]
    pub fn sink(&self) -> TraceSink {
        TraceSink::to(self.clone(), &Resource::builder_empty().build())
    }

    /// Returns name and id of each span that was sent to `sink` so far.
    #[must_use]
    pub fn sent_to(&self, sink: &TraceSink) -> Vec<(String, String)> {
        if let Some(processor) = &sink.0 {
            let _ = processor.force_flush();
        }
        let spans = self.0.lock();
        let named = |span: &SpanData| {
            let id = span.span_context.span_id().to_string();
            (span.name.clone().into_owned(), id)
        };
        spans.iter().map(named).collect()
    }
}

#[cfg(any(test, feature = "testing"))]
impl SpanExporter for CollectedSpans {
    async fn export(&self, batch: Vec<SpanData>) -> opentelemetry_sdk::error::OTelSdkResult {
        self.0.lock().extend(batch);
        Ok(())
    }
}

fn first<const N: usize>(digest: &[u8]) -> [u8; N] {
    std::array::from_fn(|at| digest[at])
}

/// Returns trace, span, and whether its author samples it.
fn parse(text: &str) -> Option<(TraceId, SpanId, bool)> {
    let mut fields = text.trim().split('-');
    let [version, trace, span, flags] = std::array::from_fn(|_| fields.next().unwrap_or_default());
    let lower = |text: &str, length| {
        let digits = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        text.len() == length && digits
    };
    let well = lower(version, 2) && lower(trace, 32) && lower(span, 16) && lower(flags, 2);
    // Version 00 has four fields; later versions may have more.
    let whole = version != "ff" && (version != "00" || fields.next().is_none());
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let valid = well && whole && trace != TraceId::INVALID && span != SpanId::INVALID;
    valid.then_some((trace, span, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn span(key: Option<&str>) -> EndedSpan {
        EndedSpan {
            name: "queued",
            key: key.map(str::to_owned),
            start: jiff::Timestamp::from_second(100).unwrap(),
            end: jiff::Timestamp::from_second(160).unwrap(),
            attributes: vec![("muster.queue", "a".to_owned())],
            error: None,
        }
    }

    #[test]
    fn a_sink_sends_everything_before_it_closes_and_nothing_that_is_not_sampled() {
        let collected = CollectedSpans::default();
        let sink = collected.sink();
        let trace = ObjectTrace::new("uid-1", None);
        let quiet = ObjectTrace::new("uid-2", Some(&GIVEN.replace("-01", "-00")));
        sink.send(&quiet, span(None));
        sink.send(&trace, span(Some("1/queued")));
        sink.close();
        assert_eq!(*collected.0.lock(), [trace.data(span(Some("1/queued")))]);
        // Without a collector nothing happens.
        TraceSink::default().send(&trace, span(None));
        assert!(!TraceSink::default().is_open());
    }

    #[test]
    fn any_process_gives_a_span_the_same_ids() {
        let data = || ObjectTrace::new("uid-1", None).data(span(Some("1/queued")));
        assert_eq!(data(), data());
        let whole = ObjectTrace::new("uid-1", None).data(span(None));
        assert_eq!(
            data().span_context.trace_id(),
            whole.span_context.trace_id()
        );
        assert_eq!(data().parent_span_id, whole.span_context.span_id());
        assert_eq!(whole.parent_span_id, SpanId::INVALID);
        let other = ObjectTrace::new("uid-2", None).data(span(Some("1/queued")));
        assert_ne!(
            data().span_context.trace_id(),
            other.span_context.trace_id()
        );
        let second = ObjectTrace::new("uid-1", None).data(span(Some("2/queued")));
        assert_ne!(data().span_context.span_id(), second.span_context.span_id());
    }

    #[test]
    fn the_whole_object_is_a_part_of_what_its_author_names() {
        let trace = ObjectTrace::new("uid-1", Some(GIVEN));
        let whole = trace.data(span(None));
        assert_eq!(
            whole.span_context.trace_id().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        assert_eq!(whole.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert!(whole.parent_span_is_remote);
        let part = trace.data(span(Some("1/queued")));
        assert_eq!(part.parent_span_id, whole.span_context.span_id());
        assert!(!part.parent_span_is_remote);
    }

    #[test]
    fn what_is_not_valid_counts_as_none() {
        let own = ObjectTrace::new("uid-1", None);
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4bf92f3577b34da6a3ce929d0e0e47-00f067aa0ba902b7-01",
        ] {
            assert_eq!(ObjectTrace::new("uid-1", Some(text)), own, "{text}");
        }
        let later = format!("cc{}-more", &GIVEN[2..]);
        assert_ne!(ObjectTrace::new("uid-1", Some(&later)), own);
        assert!(!ObjectTrace::new("uid-1", Some(&GIVEN.replace("-01", "-00"))).sampled);
    }
}
