//! Tests of the guard library for aarch64 (Jetson, Grace), run by an emulator, because its `dlsym` is
//! separate assembly.
//!
//! `cargo xtask cross` installs the compiler and the emulator that these tests need.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::runner::artefact;
use crate::runner::dialogue::Dialogue;

const COMPILER: &str = "aarch64-linux-gnu-gcc";
/// Debian's libraries for the cross compiler.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

struct Parts {
    guard: PathBuf,
    cuda: PathBuf,
    client: PathBuf,
    linked: PathBuf,
    next: PathBuf,
}

fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let (guard, cuda) = artefact::cross("aarch64-unknown-linux-gnu");
        let folder = format!("-L{}", cuda.display());
        let flags = ["-pthread", "-DLINK", &folder, "-l:libcuda.so.1", "-ldl"];
        Parts {
            client: artefact::compiled(COMPILER, "client.c", &["-pthread", "-ldl"]),
            linked: artefact::compiled(COMPILER, "client.c", &flags),
            next: artefact::compiled(COMPILER, "next.c", &["-ldl"]),
            guard,
            cuda,
        }
    })
}

/// A program under guard, with its pages in a folder if one is named.
fn command(program: &Path, options: &str, pages: Option<&Path>, words: &[&str]) -> Command {
    let parts = parts();
    let mut command = Command::new("qemu-aarch64");
    let environment = [
        ("LD_LIBRARY_PATH", parts.cuda.display().to_string()),
        ("LD_PRELOAD", parts.guard.display().to_string()),
        ("PLIMSOLL_GUARD", options.to_owned()),
        ("PLIMSOLL_FAKE_CUDA", "cards=1 total=1G".to_owned()),
    ];
    command.args(["-L", LIBRARIES]).env_clear();
    let pages = pages.map(|pages| ("PLIMSOLL_GUARD_PAGES", pages.display().to_string()));
    for (key, value) in environment.into_iter().chain(pages) {
        command.arg("-E").arg(format!("{key}={value}"));
    }
    command.arg(program).args(words);
    command
}

/// What a program says under guard.
fn run(program: &Path, options: &str, words: &[&str]) -> Vec<String> {
    lines(&mut command(program, options, None, words))
}

fn lines(command: &mut Command) -> Vec<String> {
    let output = command.output();
    let output = output.expect("qemu-aarch64 is installed; `cargo xtask cross` does that");
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn long_every_door_leads_through_guard_on_aarch64() {
    let words = ["init", "retain:0", "alloc:600", "alloc:600", "free:0", "alloc:600", "info"];
    for door in crate::runner::client::DOORS {
        let program = if door == "link" { &parts().linked } else { &parts().client };
        let lines = run(program, "budget=1000", &[&[door], &words[..]].concat());
        let wanted = ["init 0", "retain 0", "alloc 0", "alloc 2", "free 0", "alloc 0", "info 0 400 1000"];
        assert_eq!(lines, wanted, "{door}");
    }
}

#[test]
fn long_names_that_are_not_ours_mean_what_they_always_meant_on_aarch64() {
    let lines = run(&parts().next, "", &[]);
    assert_eq!(
        lines,
        [
            "malloc 1",
            "no such function: absent, said",
            "cuInit: absent, said",
            "cuMemAlloc_v2: absent, said",
            "library 1"
        ]
    );
}

#[test]
fn long_threads_share_a_budget_and_a_forked_child_is_left_alone_on_aarch64() {
    let words = ["dlsym", "init", "retain:0", "fork", "alloc:90000", "join", "race:4:100"];
    let lines = run(&parts().client, "budget=100000", &words);
    assert_eq!(lines.last().unwrap(), "race 0 1000", "{lines:?}");
}

#[test]
fn long_two_processes_share_a_budget_and_the_dead_hold_nothing_on_aarch64() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["dlsym", "init", "retain:0", "alloc:600", "wait"];
    let client = |words: &[&str]| command(&parts().client, "budget=1000", Some(folder.path()), words);
    let mut first = Dialogue::start(&mut client(&words), folder.path());
    assert_eq!(first.hear("alloc"), "0");
    let second = ["dlsym", "init", "retain:0", "alloc:600", "alloc:400", "info"];
    let stated = lines(&mut client(&second));
    assert_eq!(stated[2..], ["alloc 2", "alloc 0", "info 0 0 1000"], "{stated:?}");
    first.kill();
    let stated = lines(&mut client(&second));
    assert_eq!(stated[2..], ["alloc 0", "alloc 0", "info 0 0 1000"], "{stated:?}");
}
