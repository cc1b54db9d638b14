//! Tests of the spans, and of the exporter with a trace collector that misbehaves.

use std::cell::Cell;

use super::*;

fn request(sent: Option<u64>, first: Option<u64>) -> TracedRequest {
    let arrived = Instant::now();
    let after = |ms| arrived + Duration::from_millis(ms);
    TracedRequest {
        parent: None,
        model: "alpha".to_owned(),
        arrived,
        loaded: None,
        sent: sent.map(after),
        first: first.map(after),
        ended: after(100),
        waits_for: None,
        status: Some(200),
        tokens: Some(AnswerTokens { total: 30, created: Some(20) }),
        fault: None,
    }
}

fn phases(request: &TracedRequest) -> Vec<(&'static str, u128, u128)> {
    let since = |time: Instant| (time - request.arrived).as_millis();
    request.phases().map(|(name, begin, end)| (name, since(begin), since(end))).collect()
}

#[test]
fn phases_follow_each_other_from_arrival_to_end() {
    let streamed = request(Some(10), Some(40));
    assert_eq!(phases(&streamed), [("queue", 0, 10), ("prefill", 10, 40), ("stream", 40, 100)]);
    assert_eq!(phases(&request(Some(10), None)), [("queue", 0, 10), ("answer", 10, 100)]);
    assert_eq!(phases(&request(None, None)), [("queue", 0, 100)], "refused or abandoned while it waited");
    let mut loads = request(Some(90), Some(95));
    loads.loaded = Some(loads.arrived + Duration::from_millis(5));
    assert_eq!(phases(&loads)[..2], [("queue", 0, 5), ("load", 5, 90)]);
}

#[test]
fn a_document_has_the_fields_of_the_protocol_and_the_trace_of_the_client() {
    let mut traced = request(Some(10), Some(40));
    traced.parent = Some(TraceParent { trace: 0xabc, span: 0x12, is_sampled: true });
    (traced.status, traced.fault) = (Some(502), Some("broken"));
    let document = document(&[traced, request(Some(1), None)]);
    let spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    assert_eq!(spans.len(), 4 + 3);
    let whole = &spans[0];
    assert_eq!(whole["traceId"], format!("{:032x}", 0xabc));
    assert_eq!((&whole["parentSpanId"], &whole["kind"]), (&json!("0000000000000012"), &json!(2)));
    assert_eq!(whole["status"]["code"], 2);
    assert!(spans[1..4].iter().all(|span| span["parentSpanId"] == whole["spanId"] && span["kind"] == 1));
    let begin = |span: &Value| span["startTimeUnixNano"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(begin(whole) > 1_700_000_000_000_000_000 && begin(whole) <= begin(&spans[1]), "{document}");
    let attributes = whole["attributes"].as_array().unwrap();
    let of = |key: &str| &attributes.iter().find(|one| one["key"] == key).unwrap()["value"];
    assert_eq!(of("gen_ai.usage.input_tokens")["intValue"], "10");
    assert_eq!(of("error.type")["stringValue"], "broken");
    let other = &spans[4];
    assert_eq!((&other["parentSpanId"], &other["status"]), (&json!(""), &Value::Null));
    assert!(other["traceId"].as_str().unwrap().len() == 32 && other["traceId"] != whole["traceId"]);
}

#[test]
fn requests_are_gathered_and_a_collector_that_refuses_stops_nothing() {
    let (sender, requests) = sync_channel(2000);
    (0..1100).for_each(|_| sender.send(request(Some(1), None)).unwrap());
    drop(sender);
    let (posts, spans) = (Cell::new(0), Cell::new(0));
    export(&requests, |document| {
        posts.set(posts.get() + 1);
        spans.set(spans.get() + document.matches("spanId").count());
        if posts.get() == 2 { Ok(()) } else { Err("refused") }
    });
    assert_eq!((posts.get(), spans.get()), (3, 3 * 1100));
}

#[test]
fn a_collector_that_takes_nothing_makes_no_request_wait() {
    let (sender, _kept) = sync_channel(WAITING);
    let traces = Traces(sender);
    (0..2 * WAITING).for_each(|_| traces.send(request(None, None)));
}
