//! Tests of spilling (host memory for what does not fit) for programs that map memory themselves, as ggml's
//! VMM pool does.

use super::run::{MIB, Run};

#[test]
fn memory_that_the_card_has_not_got_is_host_memory_and_the_program_sees_no_difference() {
    let options = format!("budget={} spill={}", 128 * MIB, 1024 * MIB);
    let ran = Run::steps("total=4G", &options).run(
        "reserve:p:1024 create:a:100 map:a:p0 create:b:100 map:b:p100 write:b check:b about:b:50 export:b release:a release:b \
         fill:b unmap:b unmap:a unreserve:p",
    );
    let stated = ran.stated();
    assert_eq!(stated[..5], ["0", "0", "map 0 access 0", "0", "map 0 access 0"], "{}", ran.errors);
    assert_eq!(stated[5..7], ["written", "right"]);
    assert!(stated[7].starts_with("many 0 type 2 managed 0 card 0 host none"), "{}", stated[7]);
    assert_eq!(stated[8], "801");
    // `a` and `p` name the same addresses by now, so the reservation is freed by its own name.
    assert_eq!(stated[9..], ["0", "0", "0", "0", "0", "0"]);
    assert_eq!((ran.card().allocated, ran.card().spilled), (0, 0));
    assert_eq!(ran.violations(), [""; 0]);
}

#[test]
fn memory_is_accounted_until_neither_handle_nor_mapping_is_left() {
    let options = format!("budget={} spill={}", 128 * MIB, 128 * MIB);
    let ran = Run::steps("total=4G", &options)
        .run("reserve:p:1024 create:a:100 create:b:100 create:c:100 map:b:p0 release:b create:c:100 unmap:b create:c:100");
    assert_eq!(ran.stated(), ["0", "0", "0", "2", "map 0 access 0", "0", "2", "0", "0"], "{}", ran.errors);
    assert_eq!(ran.card().spilled, 100 * MIB);
}

#[test]
fn addresses_that_are_refused_are_given_in_a_smaller_size() {
    let run = Run::steps("total=8G reserve=9G", &format!("chunk={}", 32 * MIB));
    let ran = run.run("reserve:p:32768 create:a:64 map:a:p0 create:b:64 map:b:p8192 create:c:64 map:c:p8128 unmap:a unmap:c unreserve:p");
    assert_eq!(
        ran.stated(),
        ["0", "0", "map 0 access 0", "0", "map 2", "0", "map 0 access 0", "0", "0", "0"],
        "{}",
        ran.errors
    );
    assert!(
        ran.errors.contains("refused to reserve 32768 MiB of address space; 8192 MiB were reserved instead")
    );
    assert_eq!(ran.violations(), [""; 0]);
    let without = Run::steps("total=8G reserve=9G", "").run("reserve:p:32768 reserve:q:8192");
    assert_eq!(without.stated(), ["2", "0"]);
}
