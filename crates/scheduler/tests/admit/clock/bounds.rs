//! What clients may rely on at real sizes; the best that can be had is in [`super::table`].

use super::machine::Machine;
use super::rows::*;

#[test]
fn forty_requests_of_one_key_leave_another_its_turn() {
    let tally = Machine::run(&forty_of_one_key(Some(4)));
    assert!(tally.slowest(1) <= 1.6 * 11.0, "{}", tally.by_key());
}

#[test]
fn a_shutdown_takes_30_s_whatever_an_engine_ignores() {
    let tally = Machine::run(&shutdown());
    assert!(tally.shutdown <= 30.1, "{}", tally.line());
}
