//! Tests of memory budgets in a program on HIP: counted allocations, refusals, and memory queries.

use plimsoll_wire::page::{PageState, Refusal};

use super::{DOORS, Hip, occupied};
use crate::runner::artefact;
use crate::runner::client::Run;

fn run(options: &str, words: &[&str]) -> Run {
    Hip::new("total=1G").guarded(options, words)
}

/// The codes of the words.
fn codes(run: &Run) -> Vec<i32> {
    run.lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

fn allocated(run: &Run) -> u64 {
    run.page().cards()[0].allocated
}

#[test]
fn a_budget_binds_through_every_door_of_both_runtimes() {
    for version in ["6", "7"] {
        for door in DOORS {
            let hip = Hip { door, version, ..Hip::new("total=1G") };
            let run = hip.guarded("budget=1000", &["alloc:600", "alloc:600", "free:0", "alloc:600"]);
            assert_eq!(
                run.lines,
                ["alloc 0", "alloc 2", "free 0", "alloc 0"],
                "{door} {version}: {}",
                run.stated
            );
            let page = run.page();
            assert_eq!((page.cards()[0].allocated, page.state), (600, PageState::Armed), "{door} {version}");
            let oom = page.ooms().next().unwrap();
            assert_eq!((oom.requested, oom.allocated, oom.budget), (600, 600, Some(1000)));
            assert_eq!(oom.refusal, Refusal::Budget);
            assert!(run.stated.contains("card 0: a request for 600 B was refused"), "{}", run.stated);
        }
    }
}

#[test]
fn memory_of_every_kind_is_counted_and_given_back() {
    let words =
        ["alloc:1000", "ext:300", "pitch:1000:4", "alloc:50", "free:0", "free-unknown:77", "alloc-null:5"];
    let run = run("", &words);
    assert_eq!(codes(&run), [0, 0, 0, 0, 0, 1, 1]);
    assert_eq!(allocated(&run), 300 + 1024 * 4 + 50);
    assert_eq!(allocated(&run), occupied(&run)[0]);
    assert_eq!(run.page().cards()[0].peak, 1000 + 300 + 1024 * 4 + 50);
}

#[test]
fn pinned_memory_is_the_hosts_and_managed_memory_is_counted_where_it_cannot_move() {
    let words = ["host:700", "host:300", "host-free:0", "managed:5000"];
    let run = Hip::new("total=1G").guarded("budget=4000", &words);
    assert_eq!((codes(&run), allocated(&run)), (vec![0; 4], 0));
    assert_eq!(run.page().pinned, 300);
}

#[test]
fn pools_are_counted_by_what_they_have_reserved() {
    let words = ["async:4096", "free-async:0", "async:4000", "pool:0", "from-pool:512:2", "free-async:3"];
    let full = run("budget=8000", &words);
    assert_eq!(codes(&full), [0; 6], "{}", full.stated);
    assert_eq!(allocated(&full), 4096 + 512);
    assert_eq!(allocated(&full), occupied(&full)[0]);
    let dropped = run("budget=8000", &[&words[..], &["drop-pool:2"]].concat());
    assert_eq!(allocated(&dropped), 4096);
    assert_eq!(codes(&run("budget=4000", &words[..1])), [2]);
}

#[test]
fn physical_memory_is_given_back_when_nobody_holds_it_any_more() {
    let after = |words: &[&str]| {
        let run = Hip::new("total=1G vmm=1").guarded("budget=1000000", words);
        assert!(codes(&run).iter().all(|code| *code == 0), "{:?} {}", run.lines, run.stated);
        assert_eq!(allocated(&run), occupied(&run)[0]);
        allocated(&run)
    };
    let words = ["physical:8192", "reserve:8192", "map:1:8192:0", "drop-physical:0"];
    assert_eq!(after(&words), 8192);
    assert_eq!(after(&[&words[..], &["unmap:1:8192"]].concat()), 0);
    let refused = Hip::new("total=1G vmm=1").guarded("budget=8191", &words[..1]);
    assert_eq!(codes(&refused), [2]);
}

#[test]
fn a_program_is_shown_its_budget_as_its_memory() {
    let words = ["alloc:300000", "info", "total:0", "properties:0", "old-properties:0"];
    let told = [
        "alloc 0",
        "info 0 700000 1000000",
        "total 0 1000000",
        "properties 0 1000000",
        "old-properties 0 1000000",
    ];
    assert_eq!(run("budget=1000000", &words).lines, told);
    let bare = Hip::new("total=1G").bare(&words);
    assert_eq!(
        run("budget=99999999999", &words).lines,
        bare.lines,
        "a budget above what there is promises nothing"
    );
    let vmm = |options| Hip::new("vmm=1").guarded(options, &["attribute:89", "attribute:9"]).lines;
    assert_eq!(vmm(""), ["attribute 0 1", "attribute 0 1"]);
    assert_eq!(vmm("hide-vmm"), ["attribute 0 0", "attribute 0 1"]);
}

#[test]
fn each_card_has_its_own_budget() {
    // The identity of a card is the text of AMD's unique_id, so it is read as bytes of letters.
    let second = "GPU-00000000-0400-0000-0000-000000000000";
    let words = ["alloc:900", "device:1", "alloc:400", "alloc:200", "total:0", "total:1"];
    let hip = Hip::new("total=1G cards=2");
    let run = hip.guarded(&format!("card={second}:500 budget=1000"), &words);
    assert_eq!(run.lines, ["alloc 0", "device 0", "alloc 0", "alloc 2", "total 0 1000", "total 0 500"]);
    let page = run.page();
    assert_eq!(page.cards().iter().map(|card| card.allocated).collect::<Vec<u64>>(), [900, 400]);
}

#[test]
fn a_reset_gives_back_all_memory_of_the_device() {
    let words = ["alloc:100", "device:1", "alloc:200", "host:50", "reset"];
    let page = Hip::new("total=1G cards=2").guarded("", &words).page();
    assert_eq!(page.cards().iter().map(|card| card.allocated).collect::<Vec<u64>>(), [100, 0]);
    assert_eq!(page.pinned, 0);
}

#[test]
fn with_no_option_set_a_program_makes_the_same_calls_and_gets_the_same_results() {
    let words = [
        "count",
        "info",
        "alloc:1000",
        "pitch:1000:4",
        "managed:5000",
        "host:70",
        "async:300",
        "free-async:4",
        "physical:8192",
        "reserve:8192",
        "map:6:8192:5",
        "unmap:6:8192",
        "drop-physical:5",
        "properties:0",
        "old-properties:0",
        "total:0",
        "attribute:89",
        "free:0",
        "alloc:0x80000000",
        "last",
        "last",
        "stream",
        "capture:8",
        "end-capture:8",
        "sync",
        "host-free:3",
        "reset",
        "info",
    ];
    for door in DOORS {
        let hip = Hip { door, ..Hip::new("total=1G vmm=1 calls=1") };
        let (guarded, bare) = (hip.guarded("", &words), hip.bare(&words));
        assert_eq!(guarded.lines, bare.lines, "{door}: {}", guarded.stated);
        assert_eq!(acts(&guarded), acts(&bare), "{door}");
    }
}

/// The calls that change anything; guard asks questions of its own.
fn acts(run: &Run) -> Vec<String> {
    let asks = |call: &&String| ["Get", "TotalMem"].iter().any(|question| call.contains(question));
    run.calls().iter().filter(|call| !asks(call)).cloned().collect()
}

#[test]
fn without_its_variable_guard_does_nothing() {
    let hip = Hip::new("total=1G calls=1");
    let words = ["alloc:600", "info", "free:0"];
    let (with, without) =
        (hip.run(hip.client().preload(artefact::guard().to_owned()), &words), hip.bare(&words));
    assert_eq!((with.calls(), &with.lines), (without.calls(), &without.lines));
    assert_eq!(with.page_count(), 0);
}

#[test]
fn options_that_make_no_sense_are_said_once_and_the_program_runs_unguarded() {
    let run = run("budget=lots", &["alloc:5000000", "free:0", "alloc:5000000"]);
    assert_eq!(codes(&run), [0; 3]);
    assert_eq!(run.stated.matches("runs unguarded").count(), 1, "{}", run.stated);
}

#[test]
fn a_program_on_two_interfaces_is_guarded_on_the_first_and_says_so() {
    let hip = Hip::new("total=1G");
    let both = |words: &[&str]| {
        let folders = [artefact::hip("6"), artefact::cuda().to_owned()];
        let folders = std::env::join_paths(folders).unwrap();
        hip.run(hip.client().env("LD_LIBRARY_PATH", folders).guarded("budget=1000"), words)
    };
    let run = both(&["cuda", "alloc:6000", "alloc:6000"]);
    assert_eq!(run.lines, ["cuda 0", "alloc 0", "alloc 0"]);
    assert_eq!(
        run.stated,
        "plimsoll guard: the program uses CUDA and HIP; memory that it takes by HIP is not guarded\n"
    );
    let run = both(&["alloc:600", "cuda", "alloc:600"]);
    assert_eq!(run.lines, ["alloc 0", "cuda 0", "alloc 2"]);
    assert!(
        run.stated.contains("uses HIP and CUDA; memory that it takes by CUDA is not guarded"),
        "{}",
        run.stated
    );
}
