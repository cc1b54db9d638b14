//! Tests of pinned host memory: it is counted in every way of pinning it, and never refused.

use plimsoll_wire::trace::TraceKind;

use crate::runner::client::{Client, DOORS, Run};

const START: [&str; 2] = ["init", "retain:0"];

fn run(words: &[&str]) -> Run {
    Client::new("dlsym", "budget=1000").run(&[&START, words].concat())
}

fn occupied(run: &Run) -> (u64, u64) {
    let page = run.page();
    (page.pinned, page.pinned_peak)
}

#[test]
fn pinned_memory_is_counted_through_every_entry_and_not_as_card_memory() {
    let words = ["host:8192", "host-v2:4096", "register:12288", "free-host:0", "unregister:2", "host:100"];
    let stated = ["host 0", "host-v2 0", "register 0", "free-host 0", "unregister 0", "host 0"];
    for door in DOORS {
        let run = Client::new(door, "budget=1000").run(&[&START, &words[..]].concat());
        assert_eq!(run.lines[2..], stated, "{door}: {}", run.stated);
        assert_eq!(occupied(&run), (4096 + 100, 8192 + 4096 + 12288), "{door}");
        let card = run.page().cards()[0];
        assert_eq!((card.allocated, card.allocations, card.ooms), (0, 0, 0), "{door}");
    }
}

#[test]
fn pinned_memory_the_driver_fails_to_free_stays_counted() {
    let twice = run(&["host:8192", "free-host:0", "free-host:0", "host:4096"]);
    assert_ne!(twice.lines[4], "free-host 0");
    assert_eq!(occupied(&twice), (4096, 8192));
    let wrong = run(&["register:8192", "free-host:0"]);
    assert_ne!(wrong.lines[3], "free-host 0");
    assert_eq!(occupied(&wrong), (8192, 8192));
}

#[test]
fn pinned_memory_of_a_context_ends_with_the_context() {
    let run = run(&["host:8192", "create:0", "host:4096", "destroy:1"]);
    assert_eq!(occupied(&run), (8192, 8192 + 4096));
}

#[test]
fn the_trace_reports_what_is_pinned_with_a_number_of_its_own() {
    let run = run(&["host:8192", "alloc:600", "register:4096", "free-host:0"]);
    let trace: Vec<_> = run
        .trace()
        .iter()
        .map(|record| (TraceKind::of(record.kind).unwrap(), record.id, record.size))
        .collect();
    let kinds: Vec<_> = trace.iter().map(|record| record.0).collect();
    assert_eq!(kinds, [TraceKind::Pin, TraceKind::Alloc, TraceKind::Pin, TraceKind::Unpin], "{trace:?}");
    assert_eq!((trace[0].1, trace[0].2), (trace[3].1, trace[3].2));
    assert_ne!(trace[0].1, trace[2].1);
}
