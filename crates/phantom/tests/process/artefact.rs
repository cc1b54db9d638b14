//! Libraries and programs that the tests load, built by the tests themselves unless `cargo xtask test` has built them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

/// `libplimsoll_phantom.so`, as it is shipped.
pub(crate) fn phantom() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let library = target().join("guard/libplimsoll_phantom.so");
        // Set by `cargo xtask test`, which builds the library before the tests.
        if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_some() {
            return library;
        }
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
        library
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
    if compiled.insert(program.clone()) && !is_fresh(&program) {
        let new = program.with_extension(std::process::id().to_string());
        compile(&new, slots, version, shows);
        std::fs::rename(new, &program).unwrap();
    }
    program
}

/// The program is newer than its source and than this test binary, which holds the compiler's flags.
fn is_fresh(program: &Path) -> bool {
    let changed = |path: &Path| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let test = std::env::current_exe().unwrap();
    changed(program).is_some_and(|built| {
        let sources = [source(), test];
        sources
            .iter()
            .all(|source| changed(source).is_some_and(|source| source <= built))
    })
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/host.c")
}

fn compile(program: &Path, slots: u32, version: u32, shows: bool) {
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-w", "-o"])
        .arg(program)
        .arg(source())
        .args([format!("-DSLOTS={slots}"), format!("-DVERSION={version}")])
        .args(shows.then_some("-rdynamic"))
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
}
