//! Development commands of the repository (`cargo xtask`). `cargo xtask test` is all of CI; the others are
//! its parts.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod artifacts;
mod book;
mod cross;
mod debian;
mod docs;
mod drift;
mod engine;
mod entry_points;
mod gpu;
mod guard;
mod house;
mod macos;
mod package;
mod page;
mod pypi;
mod python;
mod qemu;
mod release;
mod site;
mod source;
mod stamp;
mod standard_library;
mod supply;
mod test;
mod tidy;
mod windows;

/// Chores of the repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct CommandLine {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// The documentation as a site with search, by mdBook
    Book(book::Options),
    /// What guard and phantom need and export: libc of glibc 2.31 and the golden lists, nothing else
    CheckArtifacts,
    /// Install what guard's aarch64 tests need, by name
    Cross,
    /// Write the documents that plimsoll prints about itself
    Docs {
        /// Write nothing, and fail where one is stale
        #[arg(long)]
        check: bool,
    },
    /// Compare memory and flags of upstream's engines with the planner's closed forms
    Drift(drift::Options),
    /// Build a real llama.cpp without CUDA, and print where its programs are
    Engine {
        #[arg(default_value = "b10605", value_parser = ["b10605", "b8799"])]
        build: String,
    },
    /// Compare functions of CUDA's driver in the newest headers of PyPI with data/cuda
    EntryPoints {
        /// Record them
        #[arg(long)]
        write: bool,
    },
    /// Files for a GPU machine without network
    #[command(subcommand)]
    Gpu(Gpu),
    /// Build libplimsoll_guard.so and libplimsoll_phantom.so, where `plimsoll` finds them
    Guard,
    /// Figures of the source tree, each with its bound
    House(house::Options),
    /// The crates for other programs: cargo packages them offline, and a program outside of the workspace
    /// uses them
    Package,
    /// The web page of serve: its committed build is that of its sources, and Chromium shows what it should
    Page,
    /// The Python package: installed from its wheel and tested with each CPython of this machine
    Python(python::Options),
    /// `plimsoll reclaim` in an emulated kernel with a contiguous pool: some minutes, and packages by name
    QemuReclaim,
    /// Packages: a .deb, an archive, an OCI image, an SBOM and checksums; two builds give the same bytes
    Release(release::Options),
    /// The page that plans in the browser: one file, with the planner in WebAssembly
    Site(site::Options),
    /// Licences, sources and known vulnerabilities of the dependencies, by cargo-deny and cargo-audit
    Supply,
    /// Everything that CI checks, or the named steps of it
    Test(test::Options),
    /// Rules that hold invariants and that no compiler checks
    Tidy,
    /// The crates that plan and diagnose, compiled for macOS without being linked
    Macos,
    /// The program for Windows: its parts are tested under Wine
    Windows(windows::Options),
}

#[derive(Debug, Subcommand)]
enum Gpu {
    /// Pack programs, engines and scripts into one archive, where bench/gpu/run.py measures
    Bundle(gpu::Options),
}

fn main() -> ExitCode {
    let root = root();
    match CommandLine::parse().chore {
        Chore::Book(options) => book::run(&root, &options),
        Chore::CheckArtifacts => artifacts::run(&root),
        Chore::Cross => cross::run(),
        Chore::Docs { check } => docs::run(&root, check),
        Chore::Drift(options) => drift::run(&root, &options),
        Chore::Engine { build } => engine::run(&build),
        Chore::EntryPoints { write } => entry_points::run(&root, write),
        Chore::Gpu(Gpu::Bundle(options)) => gpu::run(&root, options),
        Chore::Guard => guard::run(&root),
        Chore::House(options) => house::run(&root, &options),
        Chore::Package => package::run(&root),
        Chore::Page => page::run(&root),
        Chore::Python(options) => python::run(&root, &options),
        Chore::QemuReclaim => qemu::run(&root),
        Chore::Release(options) => release::run(&root, &options),
        Chore::Site(options) => site::run(&root, &options),
        Chore::Supply => supply::run(&root),
        Chore::Test(options) => test::run(&root, &options),
        Chore::Tidy => tidy::run(&root),
        Chore::Macos => macos::run(&root),
        Chore::Windows(options) => windows::run(&root, &options),
    }
}

/// The workspace this binary was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf()
}

/// The user's folder for what takes long to make.
fn cache() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(base?.join("plimsoll"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::CommandLine::command().debug_assert();
    }
}
