//! Prepares a test folder for the fake CUDA driver: the library under the driver's name, programs built
//! against it, and a log.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

#[derive(Debug)]
pub(crate) struct Stage {
    folder: TempDir,
}

/// The library, built here: cargo builds no cdylib for the tests of its own package.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let library = test.ancestors().nth(2).unwrap().join("libplimsoll_fake_cuda.so");
        // Set by `cargo xtask test`, which builds the library before the tests.
        if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_some() {
            return library;
        }
        let status = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--package", "fake-cuda", "--lib"])
            .status()
            .unwrap();
        assert!(status.success());
        library
    })
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        symlink(library(), folder.path().join("libcuda.so.1")).unwrap();
        symlink("libcuda.so.1", folder.path().join("libcuda.so")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a program of `programs/`.
    pub(crate) fn build(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let program = self.path(name);
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-o"]);
        compiler.arg(&program).arg(source);
        match name {
            "runtime_like" => compiler.arg("-ldl"),
            _ => compiler.arg("-L").arg(self.folder.path()).arg("-lcuda"),
        };
        assert!(compiler.status().unwrap().success(), "cc cannot build {name}.c");
        program
    }

    /// A command with the fake driver in its library path and the log at [`Self::log`].
    pub(crate) fn command(&self, program: &Path, settings: &str) -> Command {
        let mut command = Command::new(program);
        let log = self.path("log");
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("PLIMSOLL_FAKE_CUDA", format!("log={} {settings}", log.display()))
            .env_remove("CUDA_VISIBLE_DEVICES");
        command
    }

    /// Runs to success, and gives what was printed.
    pub(crate) fn run(&self, program: &Path, words: &[&str], settings: &str) -> String {
        let Output { status, stdout, stderr } = self.command(program, settings).args(words).output().unwrap();
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{status}: {stderr}");
        String::from_utf8(stdout).unwrap()
    }

    /// The log since the last look, without the process and thread.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("log")).unwrap_or_default();
        let _ = fs::remove_file(self.path("log"));
        let body = |line: &str| line.split_once(' ').map(|(_, body)| body.to_owned());
        text.lines().filter_map(body).collect()
    }
}

/// The lines that tell of a broken rule.
pub(crate) fn violations(log: &[String]) -> Vec<&String> {
    log.iter().filter(|line| line.starts_with("violation ")).collect()
}
