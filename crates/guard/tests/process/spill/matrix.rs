//! Tests of guard's option `on-oom=managed`: a refused buffer becomes managed memory, as in llama.cpp PR
//! 22158. They compare it with spilling.
//!
//! Without it, nothing changes. It changes only the result of a refusal: memory that fits stays on the card.

use super::run::{MIB, Ran, Run};

/// A card with 1 GiB of which 900 MiB are budget, and buffers as llama.cpp allocates them: weights, KV cache,
/// scratch.
const BUFFERS: &str = "alloc:w:600 write:w alloc:k:500 alloc:s:50 check:w free:s";

fn row(options: &str) -> Ran {
    Run::steps("total=1G", &format!("budget={} {options}", 900 * MIB)).run(BUFFERS)
}

#[test]
fn without_the_switch_the_buffer_is_refused_and_no_managed_memory_is_asked_for() {
    let ran = row("");
    assert_eq!(ran.stated(), ["0", "written", "2", "0", "right", "0"]);
    assert_eq!(ran.calls("cuMemAllocManaged").len(), 0);
}

#[test]
fn with_the_switch_the_refused_buffer_is_managed_and_what_fits_is_not() {
    let ran = row("on-oom=managed");
    // 424 MiB are free: the whole of the buffer would be more managed memory than the card has.
    assert_eq!(ran.stated(), ["0", "written", "2", "0", "right", "0"]);
    let roomy = Run::steps("total=4G", &format!("budget={} on-oom=managed", 900 * MIB)).run(BUFFERS);
    assert_eq!(roomy.stated(), ["0", "written", "0", "0", "right", "0"]);
    assert_eq!(roomy.calls("cuMemAllocManaged").len(), 1);
    assert_eq!(roomy.calls("cuMemAdvise").len(), 2);
    assert_eq!(roomy.card().spilled, 500 * MIB, "the whole of it");
}

#[test]
fn spill_beats_the_matrix_only_what_overflows_leaves_the_card() {
    let ran = row(&format!("spill={}", 1024 * MIB));
    assert_eq!(ran.stated(), ["0", "written", "0", "0", "right", "0"]);
    assert!(ran.card().spilled < 300 * MIB, "{}", ran.errors);
    assert_eq!(ran.calls("cuMemAllocManaged").len(), 0);
}
