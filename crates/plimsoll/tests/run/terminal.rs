//! Tests of Ctrl-C in `plimsoll run` on a terminal.

use std::process::Output;

use super::rig::{library, stated, with_default_signals};

/// `plimsoll run -- COMMAND` on a terminal of its own, on which Ctrl-C is typed once it says "up".
fn interrupted(command: &[&str]) -> Output {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/programs/terminal.py");
    with_default_signals("python3")
        .args([program, env!("CARGO_BIN_EXE_plimsoll"), "run", "--"])
        .args(command)
        .env("PLIMSOLL_GUARD_LIBRARY", library())
        .env("PLIMSOLL_NVML", "")
        .output()
        .expect("python3 runs")
}

#[test]
fn the_program_gets_an_interrupt_once_and_may_live_on() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/programs/interrupts.py");
    let output = interrupted(&["python3", program]);
    let (stdout, stderr) = stated(&output);
    assert!(stdout.contains("interrupts 1\r\n"), "{stdout}{stderr}");
    assert!(stdout.ends_with("status 0\n"), "{stdout}");
}

#[test]
fn an_interrupt_that_ends_the_program_ends_us_by_the_same_signal() {
    let output = interrupted(&["sh", "-c", "echo up; exec sleep 60"]);
    assert!(stated(&output).0.ends_with("status -2\n"), "{}", stated(&output).0);
}
