//! What the tests load, built by the tests themselves.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// `libplimsoll_phantom.so`, as it is shipped.
pub(crate) fn phantom() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--quiet",
                "--profile",
                "guard",
                "--package",
                "plimsoll-phantom",
            ])
            .arg("--target-dir")
            .arg(target())
            .status();
        assert!(built.unwrap().success());
        target().join("guard/libplimsoll_phantom.so")
    })
}

/// The folder in which cargo builds: this test lies in `deps` of a profile in it.
fn target() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.ancestors().nth(3).unwrap().to_path_buf()
}

/// The host, compiled with an interface and a version.
pub(crate) fn host(slots: u32, version: u32, shows: bool) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("host-{slots}-{version}-{shows}-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-w", "-o"])
        .arg(&program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/host.c"))
        .args([format!("-DSLOTS={slots}"), format!("-DVERSION={version}")])
        .args(shows.then_some("-rdynamic"))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
    program
}
