//! Exports spans of requests to an OpenTelemetry collector, in OTLP over HTTP as JSON.
//!
//! A finished request hands its times to a thread, which builds and sends the spans. No request waits for it.

// DECISION: the JSON form of OTLP, which each collector takes beside the binary one, is written here. The
// crates of OpenTelemetry bring a second HTTP client and protobuf into the program for the same five spans.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plimsoll_hub::{Address, post_json};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use plimsoll_route::{AnswerTokens, TraceParent};

/// Requests that wait for the thread; what exceeds them is not traced.
const WAITING: usize = 4096;
/// Requests of one document, and the time in which they are gathered.
const TOGETHER: usize = 512;
const GATHERED_WITHIN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(5);
/// `SPAN_KIND_INTERNAL` and `SPAN_KIND_SERVER`, `STATUS_CODE_ERROR` of `trace.proto`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const ERROR: u8 = 2;

/// A request that has ended, with the times of its phases.
#[derive(Debug)]
pub(super) struct TracedRequest {
    pub(super) parent: Option<TraceParent>,
    pub(super) model: String,
    pub(super) arrived: Instant,
    /// Start of the engine that it waited for.
    pub(super) loaded: Option<Instant>,
    pub(super) sent: Option<Instant>,
    /// The first piece of its event stream.
    pub(super) first: Option<Instant>,
    pub(super) ended: Instant,
    pub(super) waits_for: Option<&'static str>,
    pub(super) status: Option<u16>,
    pub(super) tokens: Option<AnswerTokens>,
    /// `None` after a complete answer.
    pub(super) fault: Option<&'static str>,
}

#[derive(Debug)]
pub(super) struct Traces(SyncSender<TracedRequest>);

impl Traces {
    pub(super) fn start(address: Address) -> io::Result<Self> {
        let (sender, requests) = sync_channel(WAITING);
        let export = move || export(&requests, |document| post_json(&address, document, PATIENCE));
        thread::Builder::new().name("traces".to_owned()).spawn(export)?;
        Ok(Self(sender))
    }

    /// Hands a request over without waiting.
    pub(super) fn send(&self, request: TracedRequest) {
        if let Err(TrySendError::Full(_)) = self.0.try_send(request) {
            tracing::debug!("a request is not traced: {WAITING} others are waiting for the collector");
        }
    }
}

/// Sends the requests in documents until the sender is gone. A document that is refused is lost; the first
/// one in a row is logged.
fn export<E: std::fmt::Display>(
    requests: &Receiver<TracedRequest>,
    mut post: impl FnMut(&str) -> Result<(), E>,
) {
    let mut is_reported = false;
    while let Ok(first) = requests.recv() {
        let until = Instant::now() + GATHERED_WITHIN;
        let mut gathered = vec![first];
        while gathered.len() < TOGETHER {
            let Ok(next) = requests.recv_timeout(until.saturating_duration_since(Instant::now())) else {
                break;
            };
            gathered.push(next);
        }
        let posted = post(&document(&gathered).to_string());
        if let Err(error) = &posted
            && !is_reported
        {
            tracing::warn!("the trace collector did not accept {} traces: {error}", gathered.len());
        }
        is_reported = posted.is_err();
    }
}

/// The requests as an `ExportTraceServiceRequest`.
fn document(requests: &[TracedRequest]) -> Value {
    let random = SystemRandom::new();
    let clock = (Instant::now(), SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
    let spans: Vec<Value> =
        requests.iter().filter_map(|request| request.spans(&random, clock)).flatten().collect();
    let version = env!("CARGO_PKG_VERSION");
    json!({ "resourceSpans": [{
        "resource": { "attributes": [text("service.name", "plimsoll"), text("service.version", version)] },
        "scopeSpans": [{ "scope": { "name": "plimsoll", "version": version }, "spans": spans }],
    }] })
}

impl TracedRequest {
    /// Each phase that the request reached, with its beginning and its end.
    fn phases(&self) -> impl Iterator<Item = (&'static str, Instant, Instant)> {
        let Self { arrived, loaded, sent, first, ended, .. } = *self;
        let until_sent = sent.unwrap_or(ended);
        let phases = [
            ("queue", Some(arrived), loaded.unwrap_or(until_sent)),
            ("load", loaded, until_sent),
            // An answer in one piece does not show where its prompt ended.
            (if first.is_some() { "prefill" } else { "answer" }, sent, first.unwrap_or(ended)),
            ("stream", first, ended),
        ];
        phases.into_iter().filter_map(|(name, begin, end)| Some((name, begin?, end)))
    }

    /// The span of the request and those of its phases; `None` without random numbers.
    fn spans(&self, random: &SystemRandom, clock: (Instant, Duration)) -> Option<Vec<Value>> {
        let mut bytes = [0; 56];
        random.fill(&mut bytes).ok()?;
        let (trace, ids) = bytes.split_first_chunk::<16>()?;
        let trace = self.parent.map_or(u128::from_be_bytes(*trace), |parent| parent.trace);
        let mut ids = ids.as_chunks::<8>().0.iter().map(|id| format!("{:016x}", u64::from_be_bytes(*id)));
        let root = ids.next()?;
        let mut spans = Vec::new();
        let mut span = |id: &str, name: &str, begin, end| {
            spans.push(json!({
                "traceId": format!("{trace:032x}"), "spanId": id, "name": name, "kind": INTERNAL, "parentSpanId": root,
                "startTimeUnixNano": nanoseconds(clock, begin), "endTimeUnixNano": nanoseconds(clock, end),
            }));
        };
        span(&root, &format!("request {}", self.model), self.arrived, self.ended);
        for ((name, begin, end), id) in self.phases().zip(ids) {
            span(&id, name, begin, end);
        }
        let whole = spans.first_mut()?;
        whole["kind"] = json!(SERVER);
        whole["parentSpanId"] =
            json!(self.parent.map_or(String::new(), |parent| format!("{:016x}", parent.span)));
        whole["attributes"] = self.attributes();
        if self.fault == Some("broken") || self.status.is_some_and(|status| status >= 500) {
            whole["status"] = json!({ "code": ERROR });
        }
        Some(spans)
    }

    /// Names of OpenTelemetry's conventions where they have one.
    fn attributes(&self) -> Value {
        let number =
            |key: &str, value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
        let created = self.tokens.and_then(|tokens| tokens.created);
        let read = self.tokens.and_then(|tokens| tokens.total.checked_sub(tokens.created?));
        let attributes = [
            Some(text("gen_ai.request.model", &self.model)),
            self.status.map(|status| number("http.response.status_code", status.into())),
            read.map(|tokens| number("gen_ai.usage.input_tokens", tokens)),
            created.map(|tokens| number("gen_ai.usage.output_tokens", tokens)),
            self.waits_for.map(|cause| text("plimsoll.waits_for", cause)),
            self.fault.map(|fault| text("error.type", fault)),
        ];
        attributes.into_iter().flatten().collect()
    }
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Nanoseconds since 1970, as text: JSON's numbers are too short for them.
fn nanoseconds((now, unix): (Instant, Duration), time: Instant) -> String {
    unix.saturating_sub(now.saturating_duration_since(time)).as_nanos().to_string()
}

#[cfg(test)]
mod tests;
