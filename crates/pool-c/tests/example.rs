//! The example in C, compiled against the header and both libraries as an engine would, and run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Builds both libraries and returns where cargo puts them: above the folder of this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    run(Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "plimsoll-pool-c", "--target-dir"])
        .arg(target)
        .current_dir(root()));
    target.join("debug")
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {errors}");
    output
}

/// Compiles the example against a library and returns what it prints.
fn example(libraries: &Path, library: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pool");
    run(Command::new("cc")
        .args(["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(root().join("include"))
        .arg(root().join("examples/pool.c"))
        .arg("-L")
        .arg(libraries)
        .args([&format!("-l:{library}"), "-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program));
    let output = run(Command::new(&program).env("LD_LIBRARY_PATH", libraries));
    String::from_utf8(output.stdout).unwrap()
}

const EXPECTED: &str = "\
peak live 400 MiB, peak reserved 408 MiB, 66 maps
600 MiB within a budget of 512: the card, or the budget, has not got that much; plimsoll_pool_stats says what is held
with a graph alive 100 MiB stay, without it 0
";

#[test]
fn the_example_runs_over_either_library() {
    let libraries = libraries();
    for library in ["libplimsoll_pool_c.a", "libplimsoll_pool_c.so"] {
        let printed = example(&libraries, library);
        assert_eq!(printed, EXPECTED, "{library}");
    }
}

#[test]
fn the_header_is_one_for_cpp_too() {
    let header = root().join("include/plimsoll_pool.h");
    run(Command::new("cc")
        .args(["-x", "c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only"])
        .arg(header));
}
