//! Tests of memory budgets: allocations that are counted, refusals, and memory queries.

use std::io::Write;
use std::process::Stdio;

use plimsoll_wire::page::{PageState, Refusal};
use plimsoll_wire::trace::TraceKind;

use crate::runner::artefact;
use crate::runner::client::{Client, Run, pages, set_budget};

const MIB: u64 = 1 << 20;
const START: [&str; 2] = ["init", "retain:0"];

fn run(options: &str, words: &[&str]) -> Run {
    Client::new("dlsym", options).run(&[&START, words].concat())
}

/// The codes of the words after the first two.
fn codes(run: &Run) -> Vec<i32> {
    let code = |line: &String| line.split(' ').nth(1).unwrap().parse().unwrap();
    run.lines.iter().skip(START.len()).map(code).collect()
}

#[test]
fn linear_memory_of_every_kind_is_counted_and_given_back() {
    let run =
        run("", &["alloc:1000", "pitch:1000:4", "alloc:50", "free:0", "free-unknown:77", "alloc-null:5"]);
    assert_eq!(codes(&run), [0, 0, 0, 0, 1, 1]);
    let card = run.page().cards()[0];
    assert_eq!(card.allocated, 1024 * 4 + 50);
    assert_eq!(card.peak, 1000 + 1024 * 4 + 50);
    assert_eq!(card.allocations, 3);
    assert_eq!(run.tree().budget, None);
    assert_eq!(run.page().state, PageState::Armed);
}

#[test]
fn managed_memory_is_counted_only_where_it_cannot_move() {
    let words = ["init", "retain:0", "managed:5000", "managed:3000"];
    let run = Client::new("dlsym", "budget=4000").run(&words);
    assert_eq!((codes(&run), run.page().cards()[0].allocated), (vec![0, 0], 0));
    let fixed = "cards=1 total=1G concurrent_managed=0";
    let run = Client::new("dlsym", "budget=4000").driver(fixed).run(&words);
    assert_eq!((codes(&run), run.page().cards()[0].allocated), (vec![2, 0], 3000));
}

#[test]
fn a_refusal_is_exactly_out_of_memory_and_leaves_its_reason() {
    let run = run("budget=1000", &["alloc:400", "alloc:601", "alloc:600"]);
    assert_eq!(codes(&run), [0, 2, 0]);
    let page = run.page();
    let oom = page.ooms().next().unwrap();
    assert_eq!(
        (oom.requested, oom.allocated, oom.budget, oom.refusal),
        (601, 400, Some(1000), Refusal::Budget)
    );
    assert!(run.stated.contains("refused"), "{}", run.stated);
    let driver = Client::new("dlsym", "").run(&["init", "retain:0", "alloc:0x80000000"]);
    assert_eq!(codes(&driver), [2]);
    assert_eq!(driver.page().ooms().next().unwrap().refusal, Refusal::Driver);
}

#[test]
fn physical_memory_is_given_back_when_nobody_holds_it_any_more() {
    let size = (4 * MIB).to_string();
    let physical = format!("physical:{size}");
    let (reserve, map, unmap) =
        (format!("reserve:{size}"), format!("map:1:{size}:0:0"), format!("unmap:1:{size}"));
    let after = |words: &[&str]| {
        let run = run("budget=5000000", words);
        assert!(codes(&run).iter().all(|code| *code == 0), "{:?} {}", run.lines, run.stated);
        run.page().cards()[0].allocated
    };
    assert_eq!(after(&[&physical]), 4 * MIB);
    assert_eq!(after(&[&physical, "drop-physical:0"]), 0);
    assert_eq!(after(&[&physical, &reserve, &map, "drop-physical:0"]), 4 * MIB);
    assert_eq!(after(&[&physical, &reserve, &map, "drop-physical:0", &unmap]), 0);
    assert_eq!(after(&[&physical, &reserve, &map, &unmap]), 4 * MIB);
    // A handle retained from an address holds the memory as the first one did.
    assert_eq!(after(&[&physical, &reserve, &map, "keep:1", "drop-physical:0", &unmap]), 4 * MIB);
    assert_eq!(
        after(&[&physical, &reserve, &map, "keep:1", "drop-physical:0", &unmap, "drop-physical:2"]),
        0
    );
}

#[test]
fn physical_memory_of_the_host_is_no_cards_memory() {
    const HOST: u32 = 2;
    const HOST_NUMA: u32 = 3;
    let words = [format!("physical:{}:{HOST}", 4 * MIB), format!("physical:{}:{HOST_NUMA}", 4 * MIB)];
    let run = run("budget=1000", &[&words[0], &words[1]]);
    assert_eq!((codes(&run), run.page().cards()[0].allocated), (vec![0, 0], 0));
}

#[test]
fn pools_are_counted_by_what_they_have_reserved() {
    let size = 4 * MIB;
    let requested = format!("from-pool:{size}:0:1");
    let words = ["pool:0", "stream", &requested, "free-async:2:1", "sync:1"];
    let full = run("", &words);
    assert!(codes(&full).iter().all(|code| *code == 0), "{:?}", full.lines);
    assert!(full.page().cards()[0].allocated >= size, "the pool keeps what was freed into it");
    let trimmed = run("", &[&words[..], &["trim:0:0"]].concat());
    assert_eq!(trimmed.page().cards()[0].allocated, 0);
    let dropped = run("", &[&words[..], &["drop-pool:0"]].concat());
    assert_eq!(dropped.page().cards()[0].allocated, 0);
    // What lies idle in the pool is not asked of the budget again.
    let budget = format!("budget={}", full.page().cards()[0].allocated);
    let again = run(&budget, &[&words[..], &[&requested]].concat());
    assert_eq!(codes(&again), [0; 6], "{}", again.stated);
    let refused = run("budget=1000", &words[..3]);
    assert_eq!(codes(&refused), [0, 0, 2]);
}

#[test]
fn any_number_of_pools_stays_within_the_budget() {
    // Pool k is slot 1 + 2k, and its block the slot behind it. Of 40 blocks of 32 MiB the budget has room for
    // 32.
    let mut words = vec!["stream".to_owned()];
    for pool in 0..40 {
        words.push("pool:0".to_owned());
        words.push(format!("from-pool:{}:{}:0", 32 * MIB, 1 + 2 * pool));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let budget = 1024 * MIB;
    let run = Client::new("dlsym", &format!("budget={budget}"))
        .driver("cards=1 total=4G context=0")
        .run(&[&START, &words[..]].concat());
    let given = run.lines.iter().filter(|line| *line == "from-pool 0").count();
    assert_eq!(given, 32, "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, budget);
    assert!(run.tree().peak <= budget);
}

#[test]
fn the_default_pool_gives_back_unseen_and_is_looked_at_before_a_refusal() {
    let requested = format!("async:{}:0", 64 * MIB);
    let linear = format!("alloc:{}", 64 * MIB);
    let budget = format!("budget={}", 100 * MIB);
    let run = run(&budget, &["stream", &requested, &linear, "free-async:1:0", "sync:0", &linear]);
    assert_eq!(codes(&run), [0, 0, 2, 0, 0, 0], "{}", run.stated);
}

#[test]
fn memory_of_a_graph_is_the_graphs() {
    let requested = format!("async:{}:0", 64 * MIB);
    let run = run("budget=1000", &["stream", "capture:0", &requested, "free-async:1:0", "end-capture:0"]);
    assert_eq!(codes(&run), [0; 5], "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, 0);
}

#[test]
fn arrays_are_counted_as_the_driver_sizes_them() {
    let run = run("", &["array:64:64", "mipmap:64:64:3", "drop-array:0"]);
    assert_eq!(codes(&run), [0; 3]);
    let mipmap = run.page().cards()[0].allocated;
    assert!(mipmap >= (64 * 64 + 32 * 32 + 16 * 16) * 16, "{mipmap}");
    // This driver gives an array whole granules of 2 MiB, whatever its elements sum up to.
    let run = self::run("budget=3000000", &["array:64:64", "array:32:32", "drop-array:0", "array:32:32"]);
    assert_eq!(codes(&run), [0, 2, 0, 0], "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, 2 * MIB);
}

#[test]
fn a_program_is_shown_its_budget_as_its_memory() {
    let run = run("budget=1000000", &["alloc:300000", "info", "total:0", "info-null"]);
    assert_eq!(run.lines[3], "info 0 700000 1000000");
    assert_eq!(run.lines[4], "total 0 1000000");
    let huge = Client::new("dlsym", "budget=99999999999").run(&["init", "retain:0", "info", "total:0"]);
    let bare = Client::bare("dlsym").run(&["init", "retain:0", "info", "total:0"]);
    assert_eq!(huge.lines, bare.lines, "a budget above what there is promises nothing");
}

#[test]
fn virtual_memory_management_is_hidden_on_request() {
    assert_eq!(
        run("hide-vmm", &["attribute:102", "attribute:89"]).lines[2..],
        ["attribute 0 0", "attribute 0 1"]
    );
    assert_eq!(run("", &["attribute:102"]).lines[2..], ["attribute 0 1"]);
}

#[test]
fn threads_that_start_cuda_together_are_all_counted() {
    // Each call takes a while, so all are in their first `cuInit` when one of them begins to arm guard.
    let run = Client::new("dlsym", "budget=500")
        .driver("cards=1 total=1G context=0 latency=2000")
        .run(&["begin:8:100"]);
    assert_eq!(run.lines, ["begin 0 5"], "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, 500);
}

#[test]
fn threads_that_race_for_the_budget_never_pass_it_together() {
    let run = run("budget=100000", &["race:8:100"]);
    assert_eq!(run.lines[2], "race 0 1000");
    let card = run.page().cards()[0];
    assert_eq!((card.allocated, card.peak, card.ooms), (100_000, 100_000, 8 * 2000 - 1000));
    let run = self::run("budget=100000", &["churn:8:4096"]);
    assert_eq!(run.page().cards()[0].allocated, 0, "{}", run.stated);
}

#[test]
fn a_budget_that_the_daemon_changes_is_obeyed_at_once() {
    let mut client = Client::new("dlsym", "budget=1000");
    let folder = client.folder().to_owned();
    let words = ["init", "retain:0", "alloc:900", "wait", "alloc:900", "wait", "alloc:1"];
    let mut child = client.command(&words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let set = |budget| set_budget(&folder, budget);
    let wait = || {
        while pages(&folder).first().is_none_or(|page| page.cards()[0].allocated < 900) {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    wait();
    set(2000);
    input.write_all(b"x").unwrap();
    while pages(&folder)[0].cards()[0].allocated < 1800 {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    set(1000);
    input.write_all(b"x").unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.ends_with("alloc 0\nwait 0\nalloc 0\nwait 0\nalloc 2\n"), "{text}");
}

#[test]
fn each_card_has_its_own_budget() {
    let uuids = "GPU-00000000-0000-0000-0000-00000000000a,GPU-00000000-0000-0000-0000-00000000000b";
    let options = "card=GPU-00000000-0000-0000-0000-00000000000b:500 budget=1000";
    let words = ["init", "retain:0", "alloc:900", "retain:1", "alloc:400", "alloc:200", "total:0", "total:1"];
    let run = Client::new("link", options).driver(&format!("cards=2 total=1G uuids={uuids}")).run(&words);
    assert_eq!(run.lines[2..], ["alloc 0", "retain 0", "alloc 0", "alloc 2", "total 0 1000", "total 0 500"]);
    let page = run.page();
    let cards: Vec<_> = page.cards().iter().map(|card| card.allocated).collect();
    assert_eq!(cards, [900, 400]);
}

#[test]
fn context_allocations_end_with_the_context() {
    let words = ["alloc:100", "create:0", "alloc:200", "array:64:64", "destroy:1"];
    assert_eq!(run("", &words).page().cards()[0].allocated, 100);
    let reset = run("", &[&words[..], &["current:0", "reset:0"]].concat());
    assert_eq!(reset.page().cards()[0].allocated, 0, "{:?}", reset.lines);
    assert_eq!(run("", &["alloc:100", "release:0"]).page().cards()[0].allocated, 0);
}

#[test]
fn the_trace_reports_each_block_once_with_its_own_number() {
    let run =
        run("budget=1000", &["alloc:600", "alloc:700", "free:0", "stream", "async:300:2", "free-async:3:2"]);
    let trace: Vec<_> = run
        .trace()
        .iter()
        .map(|record| (TraceKind::of(record.kind).unwrap(), record.id, record.size))
        .collect();
    let kinds: Vec<_> = trace.iter().map(|record| record.0).collect();
    assert_eq!(kinds[..3], [TraceKind::Alloc, TraceKind::Oom, TraceKind::Free], "{trace:?}");
    assert_eq!((trace[0].1, trace[0].2), (trace[2].1, trace[2].2));
    let times: Vec<_> = run.trace().iter().map(|record| record.time).collect();
    assert!(times.is_sorted());
}

#[test]
fn options_that_make_no_sense_are_said_and_the_program_runs_unguarded() {
    let run = run("budget=lots", &["alloc:5000000"]);
    assert_eq!(codes(&run), [0]);
    assert_eq!(
        run.stated,
        "plimsoll guard: the option `budget=lots` in PLIMSOLL_GUARD needs a whole number as its value; this process runs unguarded\n"
    );
}

#[test]
fn with_no_option_set_a_program_makes_the_same_calls_and_gets_the_same_results() {
    let words = [
        "init",
        "retain:0",
        "alloc:1000",
        "pitch:1000:4",
        "managed:5000",
        "stream",
        "async:300:3",
        "free-async:4:3",
        "physical:4194304",
        "reserve:4194304",
        "map:6:4194304:5:0",
        "unmap:6:4194304",
        "drop-physical:5",
        "array:64:64",
        "drop-array:7",
        "info",
        "total:0",
        "attribute:102",
        "free:0",
        "free:1",
        "alloc:0x80000000",
        "create:0",
        "destroy:1",
        "reset:0",
    ];
    for door in crate::runner::client::DOORS {
        let (guarded, bare) = (Client::new(door, "").run(&words), Client::bare(door).run(&words));
        assert_eq!(guarded.lines, bare.lines, "{door}: {}", guarded.stated);
        assert_eq!(acts(&guarded), acts(&bare), "{door}");
    }
    assert!(artefact::guard().exists());
}

/// The calls that change anything; guard asks questions of its own.
fn acts(run: &Run) -> Vec<String> {
    let asks = |call: &&String| {
        ["Get", "IsCapturing", "TotalMem", "ExchangeStreamCaptureMode"]
            .iter()
            .any(|question| call.split('(').next().unwrap().contains(question))
    };
    run.calls().iter().filter(|call| !asks(call)).cloned().collect()
}
