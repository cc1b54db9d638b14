//! Tests of the scripts of `cargo xtask gpu bundle` without a GPU: their order, and the files that they
//! write.
//!
//! The engine is a double that prints llama.cpp's buffer lines and does not listen; the plans are real. The
//! parts that need guard and a driver are tested by hand (`bench/gpu/README.md`), because they take a minute.

use std::path::Path;
use std::process::Command;

use crate::built::built;

#[test]
fn the_measurement_on_a_lent_card_goes_on_where_it_was_cut_off_and_writes_what_tests_read() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gpu/dry_run.py");
    // The scripts take `specimen` from the folder of the program.
    built("specimen", "plimsoll-specimens");
    let output = Command::new("python3")
        .arg(script)
        .args(["--plimsoll", env!("CARGO_BIN_EXE_plimsoll")])
        .output()
        .expect("python3 runs");
    let (stated, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stated}{complained}");
    assert!(stated.contains("matrix-b10605: 4 configurations"), "{stated}");
    assert!(stated.ends_with("the dry run is as it should be\n"), "{stated}");
}
