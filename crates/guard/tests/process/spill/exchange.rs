//! Tests of the exchange: guard moves used parts of a KV cache to the card, and weights to host memory in
//! return, as conversations grow.

mod faults;

use plimsoll_wire::page::{Page, PageSnapshot};

use super::run::{MIB, Ran, Run};

/// The sizes that `conversations.c` requests: weights, cache, scratch.
const WEIGHTS: u64 = 60 * MIB + 1000;
const CACHE: u64 = 128 * MIB;
const SCRATCH: u64 = 8 * MIB;
const UUID: &str = "GPU-fa4ecada-0000-4000-8000-000000000000";
const LAYOUT: &str = "4:16384:2x512/33554432,512/33554432";

fn options(budget: u64) -> String {
    let need = WEIGHTS + CACHE + SCRATCH;
    let spill = 1024 * MIB;
    format!(
        "cache={UUID}:{LAYOUT} weights={UUID}:{WEIGHTS} budget={} spill={spill} need={need}",
        budget * MIB
    )
}

fn run(fake: &str, options: &str, conversations: u32, more: &str) -> Ran {
    Run::of("conversations.c", &format!("total=4G {fake}"), options).run(&arguments(conversations, more))
}

fn arguments(conversations: u32, more: &str) -> String {
    let (depths, reports) = (Page::DEPTHS_OFFSET, Page::DEPTH_REPORTS_OFFSET);
    format!("{depths} {reports} {conversations} 7 {more}")
}

fn page(ran: &Ran) -> &PageSnapshot {
    ran.page.as_ref().expect("guard wrote a page")
}

/// Every byte was right all the time, no rule of the driver was broken, and nothing is left.
fn is_right(ran: &Ran) {
    assert_eq!(ran.lines, ["all right"], "{}", ran.errors);
    assert_eq!(ran.code, Some(0), "{}", ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0), "{}", ran.errors);
    assert!(ran.card().peak <= 120 * MIB, "{}", ran.card().peak);
}

#[test]
fn conversations_of_any_length_find_every_byte_while_memory_is_exchanged() {
    // Work takes time, so a granule that is unmapped under it would be a violation.
    let ran = run("delay=200", &options(120), 60, "");
    is_right(&ran);
    let moved = page(&ran).exchanged / (2 * MIB);
    assert!(moved > 100, "{moved} granules: {}", ran.errors);
    let (longest, all) = (page(&ran).longest_exchange, page(&ran).exchange_time);
    assert!(longest > 0 && all >= longest, "{longest} of {all} ns");
}

#[test]
fn a_wait_of_the_program_is_not_used_for_more_pairs_than_there_is_time_for() {
    // Every call takes so long that one pair takes all the time of a wait.
    let ran = run("latency=3000", &options(120), 3, "");
    is_right(&ran);
    let calls = ran.log.lines().filter_map(|line| line.split_once(" call ")?.1.split_once('('));
    let names: Vec<&str> = calls.map(|(name, _)| name).collect();
    // A pair retains two granules. Each chance begins with a wait for the context.
    let chances = names.split(|name| *name == "cuCtxSynchronize");
    let pairs = |calls: &[&str]| calls.iter().filter(|name| **name == "cuMemRetainAllocationHandle").count();
    let pairs: Vec<usize> = chances.map(pairs).collect();
    assert!(pairs.iter().filter(|pairs| **pairs == 2).count() >= 2, "{pairs:?}");
    assert!(pairs.iter().all(|pairs| *pairs <= 2), "{pairs:?}");
}

#[test]
fn a_granule_that_changes_its_place_again_is_only_unmapped_and_mapped() {
    let ran = run("", &options(120), 20, "");
    is_right(&ran);
    let calls: Vec<&str> = ran.log.lines().filter(|line| line.contains(" call ")).collect();
    let first =
        calls.iter().position(|call| call.contains("cuCtxSynchronize(")).expect("memory was exchanged");
    // The program compares all bytes, and then frees them.
    let last = calls.iter().rposition(|call| call.contains("cuMemcpyDtoH_v2(")).expect("bytes were compared");
    let count = |function: &str| calls[first..last].iter().filter(|call| call.contains(function)).count();
    let (maps, unmaps) = (count(" cuMemMap("), count(" cuMemUnmap("));
    let (granules, new) = (count(" cuMemSetAccess("), count(" cuMemRetainAllocationHandle("));
    assert_eq!(u64::try_from(unmaps).unwrap(), 2 * page(&ran).exchanged / (2 * MIB));
    // Memory that was never exchanged before gets an address of guard's, where it waits as a spare.
    assert_eq!((maps, granules), (unmaps + new, unmaps + new));
    assert!(new < unmaps, "{new} of {unmaps}");
    assert_eq!(count(" cuMemRelease("), 0);
}

#[test]
fn nothing_is_exchanged_while_several_threads_use_the_card() {
    let ran = run("", &options(120), 8, "second");
    is_right(&ran);
    assert_eq!(page(&ran).exchanged, 0);
    assert!(ran.errors.contains("several threads use the card"), "{}", ran.errors);
}

#[test]
fn weights_that_fit_beside_the_whole_cache_are_one_allocation_of_the_driver() {
    let ran = run("", &options(400), 2, "");
    assert_eq!(ran.lines, ["all right"], "{}", ran.errors);
    assert_eq!(ran.calls("cuMemCreate").len(), 0);
    assert_eq!((page(&ran).waits, page(&ran).exchanged), (0, 0));
}

#[test]
fn a_cache_without_the_size_of_the_weights_keeps_its_placement() {
    let without = options(120).replace(&format!("weights={UUID}:{WEIGHTS} "), "");
    let other = options(120).replace(&WEIGHTS.to_string(), "4096");
    for options in [without, other] {
        let ran = run("", &options, 4, "");
        is_right(&ran);
        assert_eq!((page(&ran).waits, page(&ran).exchanged), (0, 0));
    }
}
