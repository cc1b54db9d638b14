//! `cargo xtask site`: builds the page that plans in the browser, as one file, and checks it.
//!
//! The planner is built for WebAssembly. Its standard library is the toolchain's own, or one built from
//! Debian's sources.

mod assembly;
mod hub;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::debian::run_to_end;
use crate::standard_library::StandardLibrary;
use crate::{cross, page};

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
const PACKAGE: &str = "plimsoll-site";
/// The package whose tests compare its answers.
const TESTS: &str = "plimsoll-cli";
/// The page is loaded over slow links too: its bytes, compressed as servers do.
const MOST: usize = 1_000_000;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder of the page
    #[arg(value_name = "DIR", default_value = "target/site")]
    folder: PathBuf,
    /// Check the page: all parts, or those that are named
    #[arg(long, value_name = "PART", num_args = 0.., value_enum)]
    check: Option<Vec<Part>>,
}

/// What is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The planner's answers are the native ones, byte for byte
    Answers,
    /// The page does in Chromium what it should
    Browser,
}

pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    match built(root, options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("site: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True where everything that was asked for succeeded.
fn built(root: &Path, options: &Options) -> io::Result<bool> {
    let module = module(root)?;
    let folder = std::path::absolute(&options.folder)?;
    fs::create_dir_all(&folder)?;
    let page = assembly::page(&fs::read(&module)?)?;
    fs::write(folder.join("index.html"), &page)?;
    let size = assembly::compressed(page.as_bytes())?;
    println!("site: {} bytes in {}, {size} compressed, of at most {MOST}", page.len(), folder.display());
    let fits = size <= MOST;
    let is_asked =
        |part| options.check.as_ref().is_some_and(|parts| parts.is_empty() || parts.contains(&part));
    Ok(fits
        && (!is_asked(Part::Answers) || answers_are_equal(root, &module)?)
        && (!is_asked(Part::Browser) || works(root, &folder)?))
}

/// Builds the planner, and returns its module.
fn module(root: &Path) -> io::Result<PathBuf> {
    let library = StandardLibrary::find_or_build(root, TARGET)?;
    let mut cargo = Command::new("cargo");
    cargo.args(["rustc", "--release", "--lib", "--crate-type", "cdylib", "--target", TARGET]);
    cargo.args(["--package", PACKAGE]).current_dir(root);
    if let Some(flags) = library.flags() {
        cargo.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS", flags);
    }
    run_to_end(&mut cargo)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join(TARGET).join("release/plimsoll_site.wasm"))
}

/// Compares the answers of the module with native ones: all recorded rows, and 10 000 damaged headers.
fn answers_are_equal(root: &Path, module: &Path) -> io::Result<bool> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--quiet", "--package", TESTS, "--lib", "site::wasm::", "--", "--nocapture"]);
    Ok(cargo.current_dir(root).env("PLIMSOLL_SITE_WASM", module).status()?.success())
}

/// Tests the page in Chromium, beside a stand-in of a hub.
fn works(root: &Path, folder: &Path) -> io::Result<bool> {
    // An older program would plan with other formulas than the page.
    run_to_end(Command::new("cargo").args(["build", "--package", "plimsoll"]).current_dir(root))?;
    let hub = hub::start()?;
    let model = root.join("target/site-model.gguf");
    hub::write_model(&model)?;
    let variables = [
        ("PLIMSOLL_SITE", folder.as_os_str().to_owned()),
        ("PLIMSOLL_HUB", hub.address.clone().into()),
        ("PLIMSOLL_MODEL", model.into_os_string()),
    ];
    let is_ready = cross::browser() == ExitCode::SUCCESS;
    Ok(is_ready && page::tested_with(root, "test:site", &variables))
}
