//! Builds the libraries and programs that guard's tests run, so that `cargo test -p plimsoll-guard` needs no
//! other command before it.
//!
//! `cargo xtask test` runs every test in its own process. It builds the libraries once, before the tests, and
//! tells them so with `PLIMSOLL_TESTS_ARE_BUILT`. Programs in C are kept in the target folder until a source
//! or this test binary is newer.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::SystemTime;

/// The workspace.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/guard lies in the workspace")
}

/// `libplimsoll_guard.so`, as it is shipped.
pub(crate) fn guard() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        build(&["--profile", "guard", "--package", "plimsoll-guard"]);
        target().join("guard/libplimsoll_guard.so")
    })
}

/// `libplimsoll_phantom.so`, a driver of Vulkan.
pub(crate) fn phantom() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        build(&["--profile", "guard", "--package", "plimsoll-phantom"]);
        target().join("guard/libplimsoll_phantom.so")
    })
}

/// A folder with `libcuda.so.1` in it, which is fake-cuda, for LD_LIBRARY_PATH.
pub(crate) fn cuda() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| library("fake-cuda", "libplimsoll_fake_cuda.so", "libcuda.so.1"))
}

/// The same, optimised: guard asks the driver itself, and a test that measures would measure the driver.
pub(crate) fn optimised_cuda() -> PathBuf {
    build(&["--profile", "guard", "--package", "fake-cuda"]);
    linked("fake-cuda-optimised", &target().join("guard/libplimsoll_fake_cuda.so"), "libcuda.so.1")
}

/// A folder with `libnvidia-ml.so.1` in it, which is fake-nvml.
pub(crate) fn nvml() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| library("fake-nvml", "libnvidia_ml.so", "libnvidia-ml.so.1"))
}

/// A folder with `libamdhip64.so.VERSION` in it, which is fake-hip.
pub(crate) fn hip(version: &str) -> PathBuf {
    let folder = target().join("guard-tests").join(format!("fake-hip-{version}"));
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let mut compiled = Compiled::at(folder.join(format!("libamdhip64.so.{version}")));
    if !compiled.is_fresh() {
        let mut build = Command::new(doubles().join("fake-hip/build.sh"));
        build.arg(version).arg(&compiled.draft);
        compiled.by(&mut build);
    }
    folder
}

fn doubles() -> PathBuf {
    root().join("doubles")
}

fn library(package: &str, file: &str, soname: &str) -> PathBuf {
    build(&["--package", package]);
    linked(package, &target().join("debug").join(file), soname)
}

/// A folder of this name in which the file is called by its soname.
fn linked(name: &str, file: &Path, soname: &str) -> PathBuf {
    let folder = target().join("guard-tests").join(name);
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let link = folder.join(soname);
    if std::fs::read_link(&link).is_ok_and(|to| to == file) {
        return folder;
    }
    // Renamed into its place, because a program of another test may be looking for it now.
    let draft = link.with_added_extension(std::process::id().to_string());
    let _ = std::fs::remove_file(&draft);
    std::os::unix::fs::symlink(file, &draft).expect("the folder is writable");
    std::fs::rename(&draft, &link).expect("the folder is writable");
    folder
}

/// Guard, and a folder with fake-cuda, for another architecture.
pub(crate) fn cross(triple: &str) -> (PathBuf, PathBuf) {
    build(&["--target", triple, "--profile", "guard", "--package", "plimsoll-guard"]);
    build(&["--target", triple, "--package", "fake-cuda"]);
    let built = target().join(triple);
    let cuda = built.join("debug/libplimsoll_fake_cuda.so");
    let guard = built.join("guard/libplimsoll_guard.so");
    (guard, linked(&format!("fake-cuda-{triple}"), &cuda, "libcuda.so.1"))
}

/// A program of `tests/programs`, in C or C++.
pub(crate) fn program(source: &str, flags: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".cpp") { "c++" } else { "cc" };
    compiled(compiler, source, flags)
}

/// The same with a compiler of this name.
pub(crate) fn compiled(compiler: &str, source: &str, flags: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let folder = target().join("guard-tests/programs").join(compiler);
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let stem = source.file_stem().expect("a program has a name").to_string_lossy();
    let name: String = std::iter::once(&*stem).chain(flags.iter().copied()).collect();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let mut compiled = Compiled::at(folder.join(name));
    if compiled.is_fresh() {
        return compiled.out;
    }
    let mut command = Command::new(compiler);
    command.args(["-O1", "-g", "-Wall", "-Werror"]).arg(&source).arg("-o").arg(&compiled.draft).args(flags);
    compiled.by(&mut command)
}

/// A compiler's output, written under another name first, because another test may be running the last one.
pub(crate) struct Compiled {
    pub(crate) draft: PathBuf,
    out: PathBuf,
    /// Held while it is compiled: the tests that wait for it find it fresh afterwards.
    turn: Option<File>,
}

impl Compiled {
    pub(crate) fn at(out: PathBuf) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Relaxed);
        let draft = out.with_added_extension(format!("{}.{count}", std::process::id()));
        Self { draft, out, turn: None }
    }

    /// False if the caller has to compile it, while other tests wait.
    pub(crate) fn is_fresh(&mut self) -> bool {
        if self.is_newest() {
            return true;
        }
        let turn = File::create(self.out.with_added_extension("lock")).expect("the folder is writable");
        turn.lock().expect("the file system has locks");
        self.turn = Some(turn);
        self.is_newest()
    }

    /// The output exists and is newer than all sources and than this test binary, which holds the compiler's
    /// flags.
    fn is_newest(&self) -> bool {
        let Some(built) = changed(&self.out) else {
            return false;
        };
        let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
        let test = std::env::current_exe().expect("the test runs");
        let mut paths = vec![test, programs, doubles().join("fake-hip")];
        while let Some(path) = paths.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).expect("the sources are readable");
                paths.extend(entries.map(|entry| entry.expect("the sources are readable").path()));
            } else if changed(&path).is_none_or(|source| source > built) {
                return false;
            }
        }
        true
    }

    pub(crate) fn by(self, command: &mut Command) -> PathBuf {
        let status = command.status().expect("a compiler is installed");
        assert!(status.success(), "{command:?}");
        std::fs::rename(&self.draft, &self.out).expect("the folder is writable");
        self.out
    }
}

/// A Rust program of `tests/programs`.
pub(crate) fn rust_program(source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let folder = target().join("guard-tests/programs");
    std::fs::create_dir_all(&folder).expect("the target folder is writable");
    let stem = source.file_stem().expect("a program has a name");
    let mut compiled = Compiled::at(folder.join(stem));
    if compiled.is_fresh() {
        return compiled.out;
    }
    let mut command = Command::new("rustc");
    command.args(["--edition", "2024", "-o"]).arg(&compiled.draft).arg(&source).current_dir(root());
    compiled.by(&mut command)
}

pub(crate) fn target() -> PathBuf {
    // target/debug/deps/process-…
    let test = std::env::current_exe().expect("the test runs");
    test.ancestors().nth(3).expect("a test lies in target/PROFILE/deps").to_path_buf()
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn build(arguments: &[&str]) {
    if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_some() {
        return;
    }
    let mut command = Command::new(env!("CARGO"));
    command
        .arg("build")
        .arg("--quiet")
        .args(arguments)
        .arg("--target-dir")
        .arg(target())
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
    let status = command.current_dir(root()).status().expect("cargo runs this test");
    assert!(status.success(), "{command:?}");
}
