//! What the tests preload, built by the tests themselves, so that `cargo test -p plimsoll-guard` needs nothing before it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/guard lies in the workspace")
}

/// `libplimsoll_guard.so`, as it is shipped.
pub(crate) fn guard() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        build(&["--profile", "guard", "--package", "plimsoll-guard"]);
        target().join("guard/libplimsoll_guard.so")
    })
}

/// A folder with `libcuda.so.1` in it, which is fake-cuda, for LD_LIBRARY_PATH.
pub(crate) fn cuda() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| library("fake-cuda", "libplimsoll_fake_cuda.so", "libcuda.so.1"))
}

/// A folder with `libnvidia-ml.so.1` in it, which is fake-nvml.
pub(crate) fn nvml() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| library("fake-nvml", "libnvidia_ml.so", "libnvidia-ml.so.1"))
}

fn library(package: &str, file: &str, soname: &str) -> PathBuf {
    build(&["--package", package]);
    let folder = target().join("guard-tests").join(package);
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let link = folder.join(soname);
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(target().join("debug").join(file), &link).expect("the folder is new");
    folder
}

/// A program of `tests/programs`, compiled once for each set of flags.
pub(crate) fn program(source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(source);
    let folder = target().join("guard-tests/programs");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let stem = source
        .file_stem()
        .expect("a program has a name")
        .to_string_lossy();
    let name: String = std::iter::once(&*stem).chain(flags.iter().copied()).collect();
    let name: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .collect();
    let out = folder.join(format!("{name}.{}", std::process::id()));
    let compiler = if source.extension().is_some_and(|kind| kind == "cpp") {
        "c++"
    } else {
        "cc"
    };
    let mut command = Command::new(compiler);
    command
        .arg("-O1")
        .arg("-g")
        .arg("-Wall")
        .arg("-Werror")
        .arg(&source)
        .arg("-o")
        .arg(&out)
        .args(flags);
    let status = command.status().expect("a C compiler is installed");
    assert!(status.success(), "{command:?}");
    out
}

pub(crate) fn target() -> PathBuf {
    // target/debug/deps/process-…
    let test = std::env::current_exe().expect("the test runs");
    test.ancestors()
        .nth(3)
        .expect("a test lies in target/PROFILE/deps")
        .to_path_buf()
}

fn build(arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO"));
    command
        .arg("build")
        .arg("--quiet")
        .args(arguments)
        .arg("--target-dir")
        .arg(target());
    let status = command
        .current_dir(root())
        .status()
        .expect("cargo runs this test");
    assert!(status.success(), "{command:?}");
}
