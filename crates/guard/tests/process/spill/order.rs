//! Tests of spilling (host memory for what does not fit) when the program's total need is known: its first
//! requests go to host memory.

use super::run::{MIB, Run};

/// Weights, KV cache, scratch.
const ASKS: &str = "alloc:w:600 write:w alloc:k:200 write:k alloc:s:50 write:s check:w check:k check:s";
const SERVED: [&str; 9] = ["0", "written", "0", "written", "0", "written", "right", "right", "right"];

fn overflows(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| line.contains(" did not fit: ")).collect()
}

#[test]
fn weights_overflow_in_the_stead_of_what_comes_later() {
    let options = format!("budget={} spill={} need={}", 700 * MIB, 1024 * MIB, 850 * MIB);
    let ran = Run::steps("total=4G", &options).run(ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert_eq!(overflows(&ran.errors).len(), 1, "{}", ran.errors);
    let stated = "card 0: an allocation of 600 MiB did not fit: 438 MiB of it is on the card, 162 MiB in";
    assert!(ran.errors.contains(stated), "{}", ran.errors);
    // A 64th of the budget is left for small requests, and less than a granule.
    assert_eq!((ran.card().allocated, ran.card().spilled), (688 * MIB, 162 * MIB));
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn without_a_need_the_last_comer_overflows() {
    let options = format!("budget={} spill={}", 700 * MIB, 1024 * MIB);
    let ran = Run::steps("total=4G", &options).run(ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert!(ran.errors.contains("card 0: an allocation of 200 MiB did not fit"), "{}", ran.errors);
}

#[test]
fn free_memory_of_the_driver_limits_like_a_budget() {
    let options = format!("spill={} need={}", 1024 * MIB, 1150 * MIB);
    let ran = Run::steps("total=1G", &options).run("alloc:w:900 alloc:k:200 alloc:s:50");
    assert_eq!(ran.stated(), ["0", "0", "0"], "{}", ran.errors);
    assert_eq!(overflows(&ran.errors).len(), 1, "{}", ran.errors);
    assert!(ran.errors.contains("card 0: an allocation of 900 MiB did not fit: 758 MiB"), "{}", ran.errors);
}

#[test]
fn fitting_requests_are_not_split() {
    let options = format!("budget={} spill={} need={}", 1000 * MIB, 1024 * MIB, 850 * MIB);
    let ran = Run::steps("total=4G", &options).run(ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (850 * MIB, 0));
    assert_eq!(ran.calls("cuMemCreate").len(), 0);
}

#[test]
fn host_memory_shortage_is_covered_from_the_card_reserve() {
    let options = format!("budget={} spill={} need={}", 700 * MIB, 154 * MIB, 850 * MIB);
    let ran = Run::steps("total=4G", &options).run(ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert_eq!(ran.card().spilled, 154 * MIB);
}

#[test]
fn a_need_that_was_far_too_large_keeps_nothing_from_anybody_where_nothing_may_be_mapped() {
    let options = format!("budget={} spill={} need={}", 700 * MIB, 1024 * MIB, 5000 * MIB);
    let ran = Run::steps("total=4G", &options).run("stream:a begin:a:r alloc:k:200 end:a alloc:l:200");
    let stated = ran.stated();
    assert_eq!(stated[..3], ["0", "0", "0"], "{}", ran.errors);
    assert_eq!(ran.ooms().len(), 0);
    assert_eq!(ran.card().allocated, 200 * MIB, "the second one is all in host memory");
}

#[test]
fn of_memory_that_the_program_maps_itself_the_first_pieces_are_host_memory() {
    let options = format!("budget={} spill={} need={}", 100 * MIB, 1024 * MIB, 160 * MIB);
    let creates: Vec<String> = ('a'..'i').map(|name| format!("create:{name}:20")).collect();
    let ran = Run::steps("total=4G", &options).run(&creates.join(" "));
    assert_eq!(ran.stated(), ["0"; 8], "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (100 * MIB, 60 * MIB));
    let places: Vec<bool> = ran
        .calls("cuMemCreate")
        .iter()
        .filter(|call| call.contains("size=20971520"))
        .map(|call| call.contains("prop={1 0 {1 0}"))
        .collect();
    assert_eq!(places, [false, false, false, true, true, true, true, true]);
}
