//! Tests of allocations on HIP that do not fit on the card: only the overflow leaves it.

use super::{Hip, occupied};
use crate::runner::client::Run;

const MIB: u64 = 1 << 20;
const UNIFIED: &str = "GGML_CUDA_ENABLE_UNIFIED_MEMORY";

/// Device and host bytes that the words leave behind; all of them succeed.
fn left(card: &str, options: &str, words: &[&str]) -> (Run, u64, u64) {
    let run = Hip::new(&format!("total=64M {card}")).guarded(options, words);
    assert!(run.lines.iter().all(|line| line.ends_with(" 0")), "{:?} {}", run.lines, run.stated);
    let [device, _, host] = occupied(&run);
    assert_eq!(run.page().cards()[0].spilled, host, "{}", run.stated);
    (run, device, host)
}

#[test]
fn mapped_memory_is_divided_at_the_border() {
    let words = ["alloc:0x2800000", "alloc:0x2800000", "last"];
    let (run, device, host) = left("vmm=1 host_vmm=1", "spill=1073741824", &words);
    assert_eq!(device + host, 80 * MIB);
    // The driver keeps a 64th of the card, and a granule is 2 MiB.
    assert_eq!(device, 62 * MIB, "{}", run.stated);
    assert!(run.stated.contains("22 MiB of it is on the card, 18 MiB in host memory"), "{}", run.stated);
    assert!(run.stated.contains("takes 1 ms longer on PCIe 4.0 x16"), "{}", run.stated);
    let (_, device, host) =
        left("vmm=1 host_vmm=1", "spill=1073741824", &[&words[..], &["free:0", "free:1"]].concat());
    assert_eq!((device, host), (0, 0));
}

#[test]
fn a_runtime_that_maps_no_host_memory_gets_pinned_memory_for_the_block_that_does_not_fit() {
    for card in ["vmm=0", "vmm=1"] {
        let words = ["alloc:0x2800000", "alloc:0x2800000", "last"];
        let (run, device, host) = left(card, "spill=1073741824", &words);
        assert_eq!((device, host), (40 * MIB, 40 * MIB), "{card}");
        assert!(run.stated.contains("40 MiB in pinned host memory"), "{}", run.stated);
        let (_, device, host) = left(card, "spill=1073741824", &[&words[..], &["free:1"]].concat());
        assert_eq!((device, host), (40 * MIB, 0), "{card}");
    }
}

#[test]
fn a_block_that_cannot_be_divided_lies_where_its_larger_part_would() {
    // Of 80 MiB that are planned the card has room for 62: the first block stays, the second does not.
    let words = ["alloc:0x2800000", "alloc:0x2800000"];
    let (_, device, host) = left("vmm=0", "spill=1073741824 need=83886080", &words);
    assert_eq!((device, host), (40 * MIB, 40 * MIB));
    let (_, device, host) = left("vmm=1 host_vmm=1", "spill=1073741824 need=83886080", &words);
    assert_eq!((device, host), (62 * MIB, 18 * MIB));
}

#[test]
fn the_limit_of_spilling_and_its_absence_refuse_as_the_runtime_does() {
    for options in ["spill=1048576", ""] {
        let hip = Hip::new("total=64M");
        let run = hip.guarded(options, &["alloc:0x2800000", "alloc:0x2800000", "last"]);
        assert_eq!(run.lines, ["alloc 0", "alloc 2", "last 2"], "{options}");
        assert_eq!(occupied(&run), [40 * MIB, 0, 0]);
        assert_eq!(run.page().ooms().count(), 1);
    }
}

#[test]
fn of_ggmls_unified_memory_only_the_overflow_leaves_the_card() {
    let hip = Hip::new("total=64M");
    let words = ["managed:0x2800000", "advise:0", "managed:0x2800000", "advise:1", "last"];
    let run = |options: &str, more: &[&str]| {
        let client = hip.client().env(UNIFIED, "1").guarded(options);
        let run = hip.run(client, &[&words[..], more].concat());
        assert!(run.lines.iter().all(|line| line.ends_with(" 0")), "{:?} {}", run.lines, run.stated);
        run
    };
    let spilled = run("spill=1073741824", &[]);
    assert_eq!(occupied(&spilled), [40 * MIB, 0, 40 * MIB]);
    assert!(spilled.stated.contains("buffers are placed on the card"), "{}", spilled.stated);
    assert_eq!(occupied(&run("spill=1073741824", &["free:0", "free:1"])), [0; 3]);
    let budget = run("budget=1000", &[]);
    assert_eq!(occupied(&budget), [0, 80 * MIB, 0]);
    assert!(budget.stated.contains("which the budget does not count"), "{}", budget.stated);
    assert_eq!(run("", &[]).stated, "");
}
