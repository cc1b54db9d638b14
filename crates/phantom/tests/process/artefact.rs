//! What the tests load, built by the tests themselves.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

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

/// The host, compiled with an interface and a version: once for each, and put in its place whole.
pub(crate) fn host(slots: u32, version: u32, shows: bool) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("host-{slots}-{version}-{shows}"));
    let mut compiled = COMPILED.lock().unwrap();
    if compiled.insert(program.clone()) {
        let new = program.with_extension(std::process::id().to_string());
        compile(&new, slots, version, shows);
        std::fs::rename(new, &program).unwrap();
    }
    program
}

fn compile(program: &Path, slots: u32, version: u32, shows: bool) {
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-w", "-o"])
        .arg(program)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/host.c"))
        .args([format!("-DSLOTS={slots}"), format!("-DVERSION={version}")])
        .args(shows.then_some("-rdynamic"))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
}
