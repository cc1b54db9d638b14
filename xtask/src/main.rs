//! Development commands of the repository (`cargo xtask`). `cargo xtask test` is all of CI; the others are
//! its parts.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod artifacts;
mod cross;
mod docs;
mod drift;
mod engine;
mod entry_points;
mod gpu;
mod guard;
mod house;
mod package;
mod page;
mod pypi;
mod qemu;
mod release;
mod stamp;
mod supply;
mod test;
mod tidy;

const USAGE: &str = "\
usage: cargo xtask <chore>

  check-artifacts
          what guard and phantom need and export: libc of glibc 2.31 and the golden lists, nothing else
  cross   install what guard's aarch64 tests need, by name
  docs    write the documents that plimsoll prints about itself; with --check, fail where one is stale
  drift   what upstream's engines take and the planner's closed forms do not say; see drift --help
  engine  build a real llama.cpp without CUDA, b10605 or b8799, and print where its programs are
  entry-points
          functions of CUDA's driver that the newest headers in PyPI have and data/cuda has not; with --write, write them
  gpu bundle
          pack programs, engines and scripts into one archive for a GPU machine without network, where bench/gpu/run.py measures
  guard   build libplimsoll_guard.so and libplimsoll_phantom.so, where `plimsoll` finds them
  house   a measured table of the tree: size, import cycles, functions, comments, names; see house --help
  package the crates for other programs: cargo packages them offline, and a program outside of the workspace uses them
  page    the web page of serve: its committed build is that of its sources, and Chromium shows what it should
  qemu-reclaim
          `plimsoll reclaim` in a kernel with a contiguous pool, emulated: some minutes, and packages by name
  release [--out DIR] [--arch amd64|arm64] [--from DIR]
          packages: a .deb, an archive, an OCI image, an SBOM and checksums; two builds give the same bytes
  supply  licences, sources and known vulnerabilities of the dependencies, by cargo-deny and cargo-audit
  test    everything CI checks: format, lints, tidy, unit, process and real-engine tests; with --long, the tests
          that take longer than CI may; with the names of steps, these alone
  tidy    the rules that no compiler checks: file length, names, words, lock size";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["check-artifacts"] => artifacts::run(&root()),
        ["cross"] => cross::run(),
        ["docs"] => docs::run(&root(), false),
        ["docs", "--check"] => docs::run(&root(), true),
        ["drift", words @ ..] => drift::run(&root(), words),
        ["engine"] => engine::run("b10605"),
        ["engine", build] => engine::run(build),
        ["entry-points"] => entry_points::run(&root(), false),
        ["entry-points", "--write"] => entry_points::run(&root(), true),
        ["gpu", "bundle", words @ ..] => gpu::run(&root(), words),
        ["guard"] => guard::run(&root()),
        ["house", words @ ..] => house::run(&root(), words),
        ["package"] => package::run(&root()),
        ["page"] => page::run(&root()),
        ["qemu-reclaim"] => qemu::run(&root()),
        ["release", words @ ..] => release::run(&root(), words),
        ["supply"] => supply::run(&root()),
        ["test", filter @ ..] => test::run(&root(), filter),
        ["tidy"] => tidy::run(&root()),
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The workspace this binary was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}
