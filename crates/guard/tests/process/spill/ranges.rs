//! Tests of CUDA operations on a spilled range (partly on the card, the rest in host memory), and of its
//! release.

use super::run::{MIB, Run};

fn options() -> String {
    format!("budget={} spill={}", 128 * MIB, 1024 * MIB)
}

#[test]
fn a_spilled_address_is_device_memory_from_end_to_end() {
    let ran = Run::steps("total=4G", &options()).run("alloc:a:300 about:a:0 about:a:200 about:a:299");
    for stated in &ran.stated()[1..] {
        assert_eq!(
            *stated,
            "many 0 type 2 managed 0 card 0 host none context some start base size 314572800 self yes; one 0 type 2 host 1; \
             range 0 base 314572800"
        );
    }
}

#[test]
fn sharing_is_refused_and_advice_is_taken_as_given() {
    let ran = Run::steps("total=4G", &options()).run("alloc:a:300 ipc:a advise:a prefetch:a alloc:b:1 ipc:b");
    assert_eq!(ran.stated(), ["0", "801", "0", "0", "0", "0"]);
    assert!(ran.errors.contains("memory that was spilled to the host cannot be shared with another process"));
    assert_eq!(ran.calls("cuMemAdvise").len() + ran.calls("cuMemPrefetchAsync").len(), 0);
}

#[test]
fn a_free_waits_for_work_in_flight_as_the_drivers_does() {
    let run = Run::steps("total=4G delay=30000", &options());
    let ran = run.run("stream:s alloc:a:300 work:a:s free:a alloc:b:300 work:b:s free:b");
    assert_eq!(ran.stated(), ["0"; 7]);
    assert_eq!(ran.violations(), [""; 0]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
}

#[test]
fn a_stream_ordered_free_waits_for_its_stream_and_not_for_the_program() {
    let run = Run::steps("total=4G clock=queries delay=40", &options());
    let ran =
        run.run("stream:s alloc:a:300 work:a:s freeasync:a:s alloc:b:200 wait:s alloc:c:200 free:b free:c");
    assert_eq!(ran.stated(), ["0"; 9]);
    assert_eq!(ran.violations(), [""; 0]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
}

#[test]
fn events_of_a_destroyed_context_are_not_used_again() {
    let run = Run::steps("total=4G clock=queries delay=40", &options());
    let ran = run.run("stream:s alloc:a:300 work:a:s freeasync:a:s reset alloc:b:300 free:b");
    assert_eq!(ran.stated(), ["0"; 7], "{}", ran.errors);
    let (_, after) = ran.log.split_once("cuDevicePrimaryCtxReset").expect("the context was reset");
    let events =
        after.lines().filter(|line| line.contains("cuEventQuery") || line.contains("cuEventDestroy"));
    assert_eq!(events.collect::<Vec<_>>(), [""; 0]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
}

#[test]
fn stream_ordered_requests_are_spilled_too() {
    let ran = Run::steps("total=4G", &options())
        .run("stream:a async:x:300 write:x check:x freeasync:x:a async:y:300 freeasync:y:a wait:a alloc:z:300 free:z");
    assert_eq!(ran.stated(), ["0", "0", "written", "right", "0", "0", "0", "0", "0", "0"], "{}", ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
    assert_eq!(ran.card().spilled, 0);
}

#[test]
fn a_free_of_the_middle_or_a_second_free_is_the_drivers_to_refuse() {
    let ran = Run::steps("total=4G", &options()).run("alloc:a:300 free:a free:a");
    assert_eq!(ran.stated(), ["0", "0", "1"]);
}

#[test]
fn nothing_is_spilled_while_a_stream_captures_and_frees_wait_for_its_end() {
    let run = Run::steps("total=4G", &options());
    let ran = run.run("stream:s alloc:a:300 begin:s:r alloc:b:300 free:a end:s alloc:b:300 check:b free:b");
    assert_eq!(
        ran.stated()[..6],
        ["0", "0", "0", "2", "0", "0 graph"],
        "{}\n{}",
        ran.errors,
        ran.lines.join("\n")
    );
    assert_eq!(ran.stated()[6], "0");
    assert_eq!(ran.violations(), [""; 0]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
}

#[test]
fn threads_share_one_limit_and_nobody_sees_anothers_bytes() {
    let options = format!("budget={} spill={}", 64 * MIB, 96 * MIB);
    let ran = Run::of("threads.c", "total=1G delay=200", &options).run("8 25 24");
    assert_eq!(ran.code, Some(0), "{}", ran.lines.join("\n"));
    let line = &ran.lines[0];
    assert!(line.ends_with("wrong 0"), "{line}");
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn last_allocation_overflows_unless_room_is_reserved_for_it() {
    let budget = 1000 * MIB;
    let last = Run::steps("total=4G", &format!("budget={budget} spill={}", 2048 * MIB));
    let ran = last.run("alloc:a:900 alloc:b:300");
    assert!(
        ran.errors.contains("an allocation of 300 MiB did not fit: 84 MiB of it is on the card"),
        "{}",
        ran.errors
    );
    let kept = Run::steps("total=4G", &format!("budget={budget} spill={} keep={}", 2048 * MIB, 300 * MIB));
    let ran = kept.run("alloc:a:900 alloc:b:300 alloc:c:1");
    assert_eq!(ran.stated(), ["0"; 3]);
    assert!(
        ran.errors.contains("an allocation of 900 MiB did not fit: 700 MiB of it is on the card"),
        "{}",
        ran.errors
    );
    // The scratch has all of the room that was kept, so the one MiB has a granule of host memory.
    assert_eq!(ran.card().spilled, 202 * MIB, "{}", ran.errors);
}

#[test]
fn room_is_not_kept_at_the_price_of_a_refusal() {
    let options = format!("budget={} spill={} keep={}", 1000 * MIB, 100 * MIB, 300 * MIB);
    let ran = Run::steps("total=4G", &options).run("alloc:a:900 free:a");
    assert_eq!(ran.stated(), ["0"; 2]);
    assert_eq!(
        (ran.card().spilled, ran.card().allocated, ran.card().peak),
        (0, 0, 800 * MIB),
        "host memory takes what it may"
    );
}

#[test]
fn a_budget_below_need_is_enough_for_the_program_to_end() {
    // Weights, KV cache, scratch: 800 MiB in all.
    let program = "alloc:w:500 write:w alloc:k:200 write:k alloc:s:100 write:s check:w check:k check:s free:s free:k free:w";
    for percent in [5, 12, 25] {
        let budget = 800 * MIB * (100 - percent) / 100;
        let ran = Run::steps("total=4G", &format!("budget={budget} spill={}", 400 * MIB)).run(program);
        assert_eq!(ran.stated()[6..9], ["right"; 3], "{percent} % below: {}", ran.errors);
        assert!(ran.card().peak <= budget);
        assert_eq!(ran.violations(), [""; 0]);
        let bare = Run::steps("total=4G", &format!("budget={budget}")).run(program);
        assert!(bare.stated().contains(&"2"), "{percent} % below without spill");
    }
}

#[test]
fn a_peer_may_use_what_is_spilled_before_and_after() {
    let ran = Run::of("peers.c", "cards=2 total=4G", &options()).run("300");
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.lines.join("\n"), ran.errors);
    assert_eq!(ran.lines, ["stranger 1", "before 0", "after 0"]);
}

#[test]
fn a_context_takes_what_was_spilled_in_it_along() {
    let ran = Run::steps("total=4G", &options()).run("alloc:a:300 reset alloc:b:300 free:b");
    assert_eq!(ran.stated(), ["0", "0", "0", "0"], "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
    assert_eq!(ran.calls("cuMemMap").len(), ran.calls("cuMemUnmap").len());
}

#[test]
fn rows_are_spilled_with_the_pitch_that_the_driver_would_give_them() {
    let ran = Run::steps("total=4G", &options()).run("pitch:a:100 free:a pitch:a:300 write:a check:a free:a");
    assert_eq!(ran.stated(), ["0 1024", "0", "0 1024", "written", "right", "0"], "{}", ran.errors);
    assert!(ran.errors.contains("an allocation of 300 MiB did not fit: "));
}
