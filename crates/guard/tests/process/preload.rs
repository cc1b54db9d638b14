//! Test that preloading guard changes nothing for a program without CUDA.

use std::process::Command;

use crate::runner::artefact;

#[test]
fn a_program_without_cuda_runs_as_if_nothing_were_there() {
    let output = Command::new("/bin/sh")
        .args(["-c", "echo $((6 * 7)); exit 3"])
        .env("LD_PRELOAD", artefact::guard())
        .env("PLIMSOLL_GUARD", "")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(3));
}
