//! Tests of splitting a KV cache by token position: the first positions of every layer are on the card, the
//! rest in host memory.

use super::run::{MIB, Ran, Run};

/// Weights, KV cache, scratch.
const ASKS: &str = "alloc:w:600 write:w alloc:k:200 write:k alloc:s:50 write:s check:w check:k check:s";
const SERVED: [&str; 9] = ["0", "written", "0", "written", "0", "written", "right", "right", "right"];

/// Ten tensors of 20 MiB, one MiB for 512 positions.
const CACHE: &str = "cache=GPU-fa4ecada-0000-4000-8000-000000000000:1:10240:5x2048/20971520,2048/20971520";

fn run(budget: u64, cache: &str, steps: &str) -> Ran {
    let options = format!("{cache} budget={} spill={} need={}", budget * MIB, 1024 * MIB, 850 * MIB);
    Run::steps("total=4G", &options).run(steps)
}

#[test]
fn the_end_of_each_layer_overflows_and_no_weight() {
    let ran = run(750, CACHE, ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert!(
        ran.errors.contains("an allocation of 200 MiB did not fit: 88 MiB of it is on the card"),
        "{}",
        ran.errors
    );
    let stated = "card 0: of the KV cache's 10240 positions, the first 4096 are on the card";
    assert!(ran.errors.contains(stated), "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (738 * MIB, 112 * MIB));
    // A part on the card and one in host memory for each tensor.
    let maps = ran.calls("cuMemMap").len();
    assert!(maps >= 20, "{maps}");
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn weights_overflow_before_the_first_thousands_of_positions_do() {
    let ran = run(650, CACHE, ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert!(ran.errors.contains("an allocation of 600 MiB did not fit"), "{}", ran.errors);
    assert!(ran.errors.contains("positions, the first 4096 are on the card"), "{}", ran.errors);
}

#[test]
fn a_layout_that_no_request_has_to_the_byte_changes_nothing_but_the_order() {
    let other = CACHE.replace("5x", "4x");
    let ran = run(750, &other, ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert!(!ran.errors.contains("positions"), "{}", ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn a_cache_that_is_freed_and_requested_again_is_divided_again() {
    let ran = run(
        750,
        CACHE,
        "alloc:w:600 alloc:k:200 alloc:s:50 free:k alloc:k:200 write:k check:k free:k free:w free:s",
    );
    assert_eq!(ran.stated(), ["0", "0", "0", "0", "0", "written", "right", "0", "0", "0"], "{}", ran.errors);
    assert_eq!(ran.errors.matches("are on the card; answers that go beyond").count(), 2, "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn a_cache_that_fits_is_one_allocation_of_the_driver() {
    let ran = run(1000, CACHE, ASKS);
    assert_eq!(ran.stated(), SERVED, "{}", ran.errors);
    assert_eq!((ran.card().allocated, ran.card().spilled), (850 * MIB, 0));
    assert_eq!(ran.calls("cuMemCreate").len(), 0);
}
