//! Each rung by itself, and the order in which they are climbed.

use plimsoll_wire::page::Refusal;

use super::run::{MIB, Run};

#[test]
fn without_a_rung_the_program_is_refused_and_the_reason_is_left() {
    let run = Run::steps("total=1G", &format!("budget={}", 512 * MIB));
    let ran = run.run("alloc:a:400 alloc:b:200 alloc:c:100 free:a alloc:b:200");
    assert_eq!(ran.said(), ["0", "2", "0", "0", "0"]);
    let ooms = ran.ooms();
    assert_eq!(ooms.len(), 1);
    assert_eq!((ooms[0].asked, ooms[0].allocated), (200 * MIB, 400 * MIB));
    assert_eq!(
        (ooms[0].budget, ooms[0].refusal),
        (Some(512 * MIB), Refusal::Budget)
    );
    let said =
        "card 0: 200 MiB refused, the budget does not have it: 400 MiB of a budget of 512 MiB allocated";
    assert!(ran.errors.contains(said), "{}", ran.errors);
}

#[test]
fn what_does_not_fit_is_spilled_and_only_that() {
    let run = Run::steps("total=4G", &format!("budget={} spill={}", 512 * MIB, 1024 * MIB));
    let ran = run.run("alloc:a:400 alloc:b:300 write:b check:b alloc:c:1 free:b alloc:d:100");
    assert_eq!(ran.said(), ["0", "0", "written", "right", "0", "0", "0"]);
    let said =
        "300 MiB did not fit; 104 MiB of it on the card, 196 MiB in host memory of the card's NUMA node";
    assert!(ran.errors.contains(said), "{}", ran.errors);
    assert_eq!(ran.violations(), [""; 0]);
    let card = ran.card();
    assert_eq!((card.allocated, card.spilled, card.ooms), (501 * MIB, 0, 0));
}
