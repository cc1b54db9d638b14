//! Test setup with the real guard library, a fake driver with limited memory, and a program that allocates
//! from it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The real library, built once.
pub(crate) fn guard() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let debug = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().expect("a folder");
        let library = debug.with_file_name("guard").join("libplimsoll_guard.so");
        // Set by `cargo xtask test`, which builds the library before the tests.
        if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_some() {
            return library;
        }
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--profile", "guard", "--package", "plimsoll-guard"])
            .status();
        assert!(built.is_ok_and(|status| status.success()), "cargo build --profile guard");
        library
    })
}

/// A folder with fake-cuda under the driver's name, and the file through which engines share its card.
pub(crate) fn driver(library: &Path) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::os::unix::fs::symlink(library, folder.path().join("libcuda.so.1")).expect("a link");
    folder
}

/// The program that takes memory, compiled once.
pub(crate) fn take() -> &'static str {
    static BUILT: OnceLock<(TempDir, String)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/programs/take.c");
        let path = folder.path().join("take").to_str().expect("text").to_owned();
        let built = Command::new("cc").args(["-o", &path, source, "-ldl"]).status();
        assert!(built.is_ok_and(|status| status.success()), "cc");
        (folder, path)
    });
    path
}
