//! Where the plugin cannot be sure, it says so in one line and the host goes on without it.

use crate::host::Host;

fn declined(host: Host, why: &str) {
    let said = host.run();
    assert_eq!(said.out, "not supported on this system\n");
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines.len(), 1, "{}", said.err);
    assert!(
        lines[0].starts_with("plimsoll phantom: declined: ") && lines[0].contains(why),
        "{}",
        lines[0]
    );
}

#[test]
fn an_interface_that_nobody_knows_is_declined_by_what_was_measured() {
    declined(Host::new(4), "the slot of get_alignment is 4 and not 2 or 3");
}

#[test]
fn a_loader_of_another_version_ignores_it_by_its_own_check() {
    let said = Host::new(2).accepting(7).run();
    assert_eq!(said.out, "incompatible API version (backend: 2, current: 7)\n");
    assert_eq!(said.err, "");
}

#[test]
fn an_engine_that_hides_its_functions_is_told_what_to_build() {
    declined(Host::new(2).hiding(), "cmake -DBUILD_SHARED_LIBS=ON");
}

#[test]
fn without_cards_or_with_cards_that_cannot_be_read_there_is_no_card() {
    declined(
        Host::new(3).with_cards(None),
        "PLIMSOLL_PHANTOM_CARDS names no card",
    );
    declined(Host::new(3).with_cards(Some("total=7")), "card 0: cc= is missing");
    declined(
        Host::new(2).of_build("new"),
        "PLIMSOLL_PHANTOM_BUILD: `new` is not a number",
    );
}
