//! Tests of each remedy that guard tries for a refused allocation (rung of the ladder), and of their order.

use plimsoll_wire::page::Refusal;

use super::run::{MIB, Run};

#[test]
fn without_a_rung_the_program_is_refused_and_the_reason_is_left() {
    let run = Run::steps("total=1G", &format!("budget={}", 512 * MIB));
    let ran = run.run("alloc:a:400 alloc:b:200 alloc:c:100 free:a alloc:b:200");
    assert_eq!(ran.stated(), ["0", "2", "0", "0", "0"]);
    let ooms = ran.ooms();
    assert_eq!(ooms.len(), 1);
    assert_eq!((ooms[0].requested, ooms[0].allocated), (200 * MIB, 400 * MIB));
    assert_eq!((ooms[0].budget, ooms[0].refusal), (Some(512 * MIB), Refusal::Budget));
    let stated = "card 0: a request for 200 MiB was refused because the request exceeds the budget; 400 MiB of a budget of 512 MiB allocated";
    assert!(ran.errors.contains(stated), "{}", ran.errors);
}

#[test]
fn only_the_overflow_of_a_request_is_spilled() {
    let run = Run::steps("total=4G", &format!("budget={} spill={}", 512 * MIB, 1024 * MIB));
    let ran = run.run("alloc:a:400 alloc:b:300 write:b check:b alloc:c:1 free:b alloc:d:100");
    assert_eq!(ran.stated(), ["0", "0", "written", "right", "0", "0", "0"]);
    let stated = "an allocation of 300 MiB did not fit: 104 MiB of it is on the card, 196 MiB in host memory of the card's NUMA node";
    assert!(ran.errors.contains(stated), "{}", ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
    let card = ran.card();
    assert_eq!((card.allocated, card.spilled, card.ooms), (501 * MIB, 0, 0));
}

#[test]
fn small_requests_have_the_room_that_large_ones_leave_and_then_a_granule_each() {
    let options = format!("budget={} spill={}", 128 * MIB, 1024 * MIB);
    let ran = Run::steps("total=4G", &options)
        .run("alloc:a:200 alloc:b:1 alloc:c:1 alloc:d:1 alloc:e:400B write:e check:e");
    assert_eq!(ran.stated(), ["0", "0", "0", "0", "0", "written", "right"]);
    // Of 128 MiB one 64th is left: two of the small ones have it, the others have a granule each.
    assert_eq!((ran.card().allocated, ran.card().spilled), (128 * MIB, 74 * MIB + 4 * MIB));
}

#[test]
fn no_more_is_spilled_than_may_be() {
    let options = format!("budget={} spill={}", 64 * MIB, 100 * MIB);
    let ran = Run::steps("total=4G", &options).run("alloc:a:100 alloc:b:100 free:a alloc:b:100");
    assert_eq!(ran.stated(), ["0", "2", "0", "0"]);
    assert_eq!(ran.ooms()[0].refusal, Refusal::Spill);
    assert!(ran.card().spilled <= 100 * MIB);
}

#[test]
fn a_full_card_spills_as_a_full_budget_does() {
    let ran = Run::steps("total=1G", &format!("spill={}", 1024 * MIB))
        .run("alloc:a:800 alloc:b:400 write:b check:b check:a");
    assert_eq!(ran.stated()[..4], ["0", "0", "written", "right"], "{}", ran.errors);
    // 224 MiB are free, 16 of which are left to the driver.
    assert_eq!(ran.card().spilled, 192 * MIB, "{}", ran.errors);
}

#[test]
fn a_request_that_is_too_large_as_one_is_made_of_chunks() {
    let run = Run::steps("total=4G largest=100M", &format!("chunk={}", 16 * MIB));
    let ran = run.run("alloc:a:300 write:a check:a about:a:250 free:a");
    assert_eq!(ran.stated()[..3], ["0", "written", "right"], "{}", ran.errors);
    assert!(ran.stated()[3].ends_with("range 0 base 314572800"));
    assert_eq!((ran.card().allocated, ran.card().spilled, ran.card().peak), (0, 0, 300 * MIB));
    assert_eq!(ran.violations(), [""; 0]);
    let without = Run::steps("total=4G largest=100M", "").run("alloc:a:300");
    assert_eq!(without.stated(), ["2"]);
}

#[test]
fn chunks_are_not_smaller_than_they_may_be_nor_more_than_is_free() {
    let run = Run::steps("total=4G largest=8M", &format!("chunk={}", 16 * MIB));
    let ran = run.run("alloc:a:300");
    assert_eq!(ran.stated(), ["2"]);
    assert_eq!(ran.card().allocated, 0);
    let run = Run::steps("total=256M largest=100M", &format!("chunk={}", 16 * MIB));
    let ran = run.run("alloc:a:300");
    assert_eq!(ran.stated(), ["2"]);
    assert_eq!(ran.calls("cuMemCreate").len(), 0);
}

#[test]
fn idle_memory_of_driver_pools_is_reused() {
    let steps = "stream:a async:x:300 freeasync:x:a wait:a alloc:b:300";
    let kept = Run::steps("total=512M", "reuse").run(steps);
    assert_eq!(kept.stated(), ["0"; 5], "{}\n{}", kept.errors, kept.log);
}

#[test]
fn the_cheapest_rung_that_helps_is_taken() {
    let options = format!("reuse chunk={} wait=1 spill={}", 16 * MIB, 1024 * MIB);
    let ran = Run::steps("total=4G largest=100M", &options).run("alloc:a:300");
    assert_eq!(ran.stated(), ["0"]);
    assert_eq!((ran.card().spilled, ran.card().allocated), (0, 300 * MIB), "{}", ran.errors);
}

#[test]
fn with_no_option_the_driver_sees_the_calls_that_the_program_makes() {
    let steps = "alloc:a:100 write:a check:a about:a:50 alloc:b:5000 stream:s work:a:s free:a";
    let bare = Run::steps("total=1G", "").bare().run(steps);
    let guarded = Run::steps("total=1G", "").run(steps);
    assert_eq!(bare.lines, guarded.lines);
    let calls = |log: &str| -> Vec<String> {
        let calls = log.lines().filter_map(|line| line.split_once(" call "));
        let memory = calls.filter(|(_, call)| call.starts_with("cuMem") || call.starts_with("cuPointer"));
        memory.map(|(_, call)| call.to_owned()).filter(|call| !call.starts_with("cuMemGetInfo")).collect()
    };
    assert_eq!(calls(&bare.log), calls(&guarded.log));
}
