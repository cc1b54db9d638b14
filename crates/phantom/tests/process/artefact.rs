//! Builds the libraries and programs for tests of phantom (the stand-in for a GPU), unless `cargo xtask test`
//! has built them.

use std::collections::BTreeSet;
use std::ffi::OsString;
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
            .args(["build", "--quiet", "--profile", "guard", "--package", "plimsoll-phantom"])
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

/// The program, linked with the runtime of a version.
pub(crate) fn backend(version: &str) -> PathBuf {
    once(&format!("backend-{version}"), |new| compile(new, version))
}

/// A program that is linked with nothing.
pub(crate) fn program(name: &str) -> PathBuf {
    once(name, |new| compile_source(new, name, Vec::new()))
}

/// The program that asks as ggml's HIP backend does, which needs a library of AMD's name.
pub(crate) fn hip() -> PathBuf {
    once("hip", |new| {
        let folder = tempfile::tempdir().unwrap();
        compile_source(new, "hip", empty_library(folder.path(), "libamdhip64.so.6"));
    })
}

/// A program, compiled once and put in its place whole.
fn once(name: &str, compile: impl FnOnce(&Path)) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let folder = target().join("phantom-tests");
    std::fs::create_dir_all(&folder).unwrap();
    let program = folder.join(name);
    let mut compiled = COMPILED.lock().unwrap();
    if compiled.insert(program.clone()) {
        let new = folder.join(format!("{name}.{}", std::process::id()));
        compile(&new);
        std::fs::rename(new, &program).unwrap();
    }
    program
}

/// `static` is linked with no runtime. The others need a library of the runtime's name, which is empty here:
/// the loader finds the stand-in under that name.
fn compile(program: &Path, version: &str) {
    let folder = tempfile::tempdir().unwrap();
    let mut linked = Vec::new();
    if version != "static" {
        linked = empty_library(folder.path(), &format!("libcudart.so.{version}"));
    }
    compile_source(program, "backend", linked);
}

/// Arguments that link a program with an empty library of this name.
fn empty_library(folder: &Path, soname: &str) -> Vec<OsString> {
    let library = folder.join(soname);
    let empty = Command::new("cc")
        .args(["-shared", "-xc", "/dev/null", "-o"])
        .arg(&library)
        .arg(format!("-Wl,-soname,{soname}"))
        .status();
    assert!(empty.unwrap().success());
    vec!["-Wl,--no-as-needed".into(), library.into_os_string()]
}

fn compile_source(program: &Path, name: &str, linked: Vec<OsString>) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-w", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(linked)
        .arg("-ldl")
        .status();
    assert!(compiled.unwrap().success());
}
