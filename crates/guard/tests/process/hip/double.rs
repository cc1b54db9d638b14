//! Tests of fake-hip, the stand-in for AMD's HIP runtime, without guard.

use super::{DOORS, Hip, occupied};

#[test]
fn a_card_has_the_memory_that_it_was_given_through_every_door() {
    for version in ["6", "7"] {
        for door in DOORS {
            let hip = Hip { door, version, ..Hip::new("total=1G context=24M") };
            let run = hip.bare(&[
                "count",
                "info",
                "alloc:1048576001",
                "last",
                "last",
                "alloc:600",
                "free:1",
                "info",
            ]);
            let lines = [
                "count 0 1",
                "info 0 1048576000 1073741824",
                "alloc 2",
                "last 2",
                "last 0",
                "alloc 0",
                "free 0",
                "info 0 1048576000 1073741824",
            ];
            assert_eq!(run.lines, lines, "{door} {version}: {}", run.stated);
            let log = [
                "refused 1048576001 card 0: device 0 managed 0 host 0",
                "+ 600 card 0: device 600 managed 0 host 0",
            ];
            assert_eq!(run.calls()[..2], log, "{door} {version}");
        }
    }
}

#[test]
fn each_kind_of_memory_is_counted_where_it_lies() {
    let run = Hip::new("vmm=1 host_vmm=1 data=1").bare(&[
        "alloc:600",
        "managed:500",
        "host:700",
        "async:100",
        "free-async:3",
        "physical:8192",
        "physical:4096:2",
        "reserve:8192",
        "map:6:8192:4",
        "drop-physical:4",
        "fill:6:7:8192",
        "read:6:8191",
    ]);
    assert!(run.lines.iter().all(|line| line.ends_with(" 0") || line == "read 0 7"), "{:?}", run.lines);
    // A pool keeps what was freed into it, and a mapping its memory.
    assert_eq!(occupied(&run), [600 + 100 + 8192, 500, 700 + 4096]);
}

#[test]
fn a_card_refuses_functions_that_it_lacks() {
    let words = [
        "physical:4096",
        "reserve:4096",
        "managed:5",
        "async:5",
        "attribute:89",
        "attribute:9",
        "attribute:88",
    ];
    let run = Hip::new("managed=0 pools=0").bare(&words);
    let lines = [
        "physical 801",
        "reserve 801",
        "managed 801",
        "async 801",
        "attribute 0 0",
        "attribute 0 0",
        "attribute 0 0",
    ];
    assert_eq!(run.lines, lines, "{}", run.stated);
    assert_eq!(Hip::new("totl=1G").bare(&["alloc:5"]).lines, ["alloc 999"]);
}

#[test]
fn nothing_is_allocated_during_a_capture() {
    let run = Hip::new("").bare(&["stream", "capture:0", "alloc:5", "end-capture:0", "alloc:5"]);
    assert_eq!(run.lines, ["stream 0", "capture 0", "alloc 900", "end-capture 0", "alloc 0"]);
}
