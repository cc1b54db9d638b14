//! Tests the Python package: its wheel is installed into a fresh environment of each CPython of this
//! machine, and mypy checks a program that uses it.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::{guard, pypi, release};

/// The oldest CPython that the package runs on.
const OLDEST: (u32, u32) = (3, 8);
/// Newer than any CPython.
const NEWEST: u32 = 30;
/// The checker of types.
const CHECKER: &str = "mypy==2.4.1";
/// The end of a line in which mypy must find a mistake.
const MISTAKE: &str = "# mistake";

#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(crate) struct Options {
    /// Folder of a program and libraries that are built already, by default those of the tests
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum PythonError {
    #[error("{} is not here; `cargo xtask test build guard` builds what the package needs", .0.display())]
    NotBuilt(PathBuf),
    #[error("no CPython of 3.8 or newer is here, or none with `venv` (python3-venv)")]
    NoPython,
    #[error("failed: {0}")]
    Failed(String),
    #[error("mypy found mistakes in lines {found:?} and not in {stated:?}")]
    Mistakes { found: Vec<usize>, stated: Vec<usize> },
    #[error("{CHECKER} cannot be installed")]
    NoChecker,
}

/// Tests with every CPython.
pub(crate) fn run(root: &Path, options: &Options) -> ExitCode {
    status(tested(root, options, |pythons| pythons))
}

/// Tests with the oldest and the newest CPython.
pub(crate) fn run_ends(root: &Path) -> ExitCode {
    let ends = |mut pythons: Vec<Python>| {
        pythons.drain(1..pythons.len().max(2) - 1);
        pythons
    };
    status(tested(root, &Options { from: None }, ends))
}

fn status(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("python: {error}");
            ExitCode::FAILURE
        }
    }
}

/// An interpreter of this machine.
#[derive(Debug, Clone)]
struct Python {
    version: (u32, u32),
    path: PathBuf,
}

fn tested(
    root: &Path,
    options: &Options,
    choose: impl FnOnce(Vec<Python>) -> Vec<Python>,
) -> Result<(), Box<dyn Error>> {
    let target = guard::target(root);
    let built = target.join("debug");
    let (program, libraries) = match &options.from {
        Some(folder) => (folder.clone(), folder.clone()),
        None => (built.clone(), target.join("guard")),
    };
    for file in [program.join("libplimsoll_abi.so"), built.join("plimsoll"), built.join("specimen")] {
        if !file.exists() {
            return Err(PythonError::NotBuilt(file).into());
        }
    }
    let folder = target.join("python");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let wheel = release::wheel(root, (&program, &libraries), &folder)?;
    let pythons = choose(pythons());
    let newest = pythons.last().ok_or(PythonError::NoPython)?.clone();
    for python in &pythons {
        let (major, minor) = python.version;
        eprintln!("python {major}.{minor}: {}", python.path.display());
        let environment = environment(python, &wheel, &folder)?;
        let mut tests = Command::new(&environment);
        tests.arg(root.join("python/tests/test_plimsoll.py")).env("PLIMSOLL_BUILT", &built);
        succeed(&mut tests)?;
    }
    check_types(root, &environment_of(&newest, &folder))
}

/// Every CPython that the search path or pyenv has, one for each version, the oldest first.
fn pythons() -> Vec<Python> {
    let names = (OLDEST.1..NEWEST).map(|minor| PathBuf::from(format!("python3.{minor}")));
    let versions = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let versions = versions.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let versions = versions.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let of_pyenv = versions.into_iter().flatten().flatten().map(|entry| entry.path().join("bin/python3"));
    let found = [PathBuf::from("python3")].into_iter().chain(names).chain(of_pyenv);
    let found: BTreeMap<(u32, u32), PathBuf> =
        found.filter_map(|path| Some((version(&path)?, path))).collect();
    let found = found.into_iter().filter(|(version, _)| *version >= OLDEST);
    found.map(|(version, path)| Python { version, path }).collect()
}

/// The version of a CPython that runs and has `venv`.
fn version(python: &Path) -> Option<(u32, u32)> {
    let asked = "import ensurepip, sys, venv; assert sys.implementation.name == 'cpython'; print(*sys.version_info[:2])";
    let output = Command::new(python).args(["-c", asked]).stdin(Stdio::null()).output().ok()?;
    let stated = String::from_utf8(output.stdout).ok()?;
    let (major, minor) = stated.trim().split_once(' ').filter(|_| output.status.success())?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn environment_of(python: &Python, folder: &Path) -> PathBuf {
    let (major, minor) = python.version;
    folder.join(format!("{major}.{minor}")).join("bin/python")
}

/// The interpreter of a fresh environment in which pip has installed the wheel.
fn environment(python: &Python, wheel: &Path, folder: &Path) -> Result<PathBuf, PythonError> {
    let own = environment_of(python, folder);
    let place = own.ancestors().nth(2).unwrap_or(folder);
    succeed(Command::new(&python.path).args(["-m", "venv"]).arg(place))?;
    let pip = ["-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check"];
    succeed(Command::new(&own).args(pip).arg(wheel))?;
    Ok(own)
}

/// mypy accepts a right program, and finds each mistake of a wrong one.
fn check_types(root: &Path, python: &Path) -> Result<(), Box<dyn Error>> {
    let tools = pypi::folder(root, &["mypy"], &[CHECKER]).ok_or(PythonError::NoChecker)?;
    let tests = root.join("python/tests");
    let mypy = |file: &str| {
        let mut mypy = Command::new(tools.join("mypy"));
        mypy.args(["--strict", "--no-incremental", "--python-executable"]).arg(python);
        mypy.arg(file).current_dir(&tests);
        mypy
    };
    succeed(&mut mypy("example.py"))?;
    let output = mypy("mistakes.py").stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    let place = |line: &str| line.strip_prefix("mistakes.py:")?.split(':').next()?.parse().ok();
    let mut found: Vec<usize> = text.lines().filter_map(place).collect();
    // mypy may have more than one thing to say of a line.
    found.dedup();
    let source = fs::read_to_string(tests.join("mistakes.py"))?;
    let stated = source.lines().enumerate().filter(|(_, line)| line.ends_with(MISTAKE));
    let stated: Vec<usize> = stated.map(|(at, _)| at + 1).collect();
    if found == stated { Ok(()) } else { Err(PythonError::Mistakes { found, stated }.into()) }
}

fn succeed(command: &mut Command) -> Result<(), PythonError> {
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        _ => Err(PythonError::Failed(format!("{command:?}"))),
    }
}
