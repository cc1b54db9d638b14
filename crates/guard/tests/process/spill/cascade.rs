//! Tests of the kind of host memory that guard uses for what does not fit on the card, when it must try
//! several kinds.

use super::run::{MIB, Ran, Run};

/// 300 MiB on a card with a budget of 128, and that the content is kept.
fn spill(fake: &str) -> Ran {
    let options = format!("budget={} spill={}", 128 * MIB, 1024 * MIB);
    let ran = Run::steps(&format!("total=4G {fake}"), &options)
        .run("alloc:a:300 write:a check:a fill:a about:a:299 alloc:b:300 free:a free:b alloc:c:100 free:c");
    assert_eq!(ran.violations(), [""; 0]);
    let card = ran.card();
    assert_eq!((card.allocated, card.spilled), (0, 0));
    ran
}

/// All went well, and what was said of where it went.
fn went_to(fake: &str, place: &str) {
    let ran = spill(fake);
    let stated = ran.stated();
    assert_eq!(stated[..4], ["0", "written", "right", "0"], "{}", ran.errors);
    assert!(stated[4].starts_with("many 0 type 2 managed 0 card 0 host none"), "{}", stated[4]);
    assert_eq!(stated[5..], ["0", "0", "0", "0", "0"], "{}", ran.errors);
    let once = format!("card 0: allocations that do not fit are placed in {place}\n");
    assert_eq!(ran.errors.matches(&once).count(), 1, "{}", ran.errors);
}

#[test]
fn the_cards_own_node_comes_first() {
    went_to("", "host memory of the card's NUMA node");
}

#[test]
fn any_node_will_do_where_the_card_has_none_or_it_is_refused() {
    went_to("numa=-1", "host memory");
    went_to("refuse=host_numa", "host memory");
}

#[test]
fn managed_memory_serves_where_nothing_can_be_mapped() {
    went_to("refuse=host_numa,host", "managed memory that prefers the host");
    went_to("vmm=0", "managed memory that prefers the host");
}

#[test]
fn a_place_that_the_card_cannot_touch_is_left_after_the_probe() {
    went_to("host_touch=0", "managed memory that prefers the host");
}

#[test]
fn a_driver_that_copies_across_no_border_gets_memory_of_one_kind() {
    went_to("across=0", "managed memory that prefers the host");
}

#[test]
fn without_a_compiler_in_the_driver_the_probe_does_without_its_kernel() {
    went_to("fail=cuModuleLoadData:*:221", "host memory of the card's NUMA node");
    went_to("fail=cuModuleLoadData:*:221 host_touch=0", "managed memory that prefers the host");
}

#[test]
fn a_place_that_kernels_cannot_reach_is_left_too() {
    went_to("fail=cuLaunchKernel:*:400", "managed memory that prefers the host");
}

#[test]
fn pinned_memory_is_the_last_place() {
    went_to("refuse=host_numa,host concurrent_managed=0", "pinned host memory");
    went_to("vmm=0 concurrent_managed=0", "pinned host memory");
}

#[test]
fn managed_memory_is_never_more_than_the_card_has_free() {
    let options = format!("budget={} spill={}", 128 * MIB, 8192 * MIB);
    let ran = Run::steps("total=1G vmm=0", &options).run("alloc:a:700 alloc:b:700 free:a alloc:c:700");
    assert_eq!(ran.stated(), ["0", "0", "0", "0"]);
    let managed: Vec<&str> =
        ran.calls("cuMemAllocManaged").into_iter().filter(|call| call.ends_with("= 0")).collect();
    assert_eq!(managed.len(), 2, "{}", ran.log);
    assert_eq!(ran.calls("cuMemHostAlloc").len(), 1, "{}", ran.log);
}

#[test]
fn request_refused_by_every_tier_fails_in_the_program() {
    let fake = "refuse=host_numa,host concurrent_managed=0 fail=cuMemHostAlloc:*";
    let options = format!("budget={} spill={}", 128 * MIB, 1024 * MIB);
    let ran = Run::steps(fake, &options).run("alloc:a:300 alloc:b:100 free:b");
    assert_eq!(ran.stated(), ["2", "0", "0"]);
    assert!(
        ran.errors.contains("neither the card nor the spill limit has room for the request"),
        "{}",
        ran.errors
    );
}

#[test]
fn the_probe_runs_once_and_leaves_nothing() {
    let ran = spill("");
    let probes = ran.calls("cuStreamCreate").len();
    assert_eq!((probes, ran.calls("cuStreamDestroy_v2").len()), (1, 1));
    assert_eq!(ran.calls("cuLaunchKernel").len(), 1);
    assert_eq!(ran.calls("cuModuleLoadData").len(), ran.calls("cuModuleUnload").len());
    assert_eq!(ran.calls("cuMemAddressReserve").len(), ran.calls("cuMemAddressFree").len());
    assert_eq!(ran.calls("cuMemMap").len(), ran.calls("cuMemUnmap").len());
    assert_eq!(ran.calls("cuMemCreate").len(), ran.calls("cuMemRelease").len());
}
