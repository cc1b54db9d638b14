//! Installer of the CPU engine: xllamacpp from PyPI in a Python venv, with an adapter called `llama-server`.
//!
//! A lock file prevents two installations at once. The folder is renamed into place at the end, so an
//! installed engine is complete.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plimsoll_base::{Bytes, indented};

use super::{EngineHome, EngineOrigin, EngineProgram, LLAMA_SERVER};
use plimsoll_process::own_command::own_command;
use plimsoll_process::{ProgramEnded, run};

// DECISION: one release of xllamacpp is pinned, and its wheels are checked by hash. An adapter of an older
// Plimsoll is replaced without a download.
/// The release of xllamacpp that the adapter drives: YEAR.MONTH.BUILD, BUILD being llama.cpp's.
pub const RELEASE: &str = "2026.10.11549";
/// Folder for the settings of a rustup, removed with the rest of the scratch.
const RUSTUP: &str = "rustup";
/// SHA-256 of the release's Linux wheels on PyPI: x86-64, aarch64.
const WHEELS: [&str; 2] = [
    "c54e7d13520ecc989c63dc99d55de3065e2f343a91f43f053d16b5e62077c261",
    "e2a3e79e775515de4ad197e667f874070446ef9ac9cf2044bc9866bc4c72289e",
];
const ADAPTER: &str = include_str!("xllamacpp_server.py");
/// The kernel cuts a `#!` line off here (`linux/binfmts.h: BINPRM_BUF_SIZE`).
const SHEBANG_LIMIT: usize = 255;
const VENV_LIMIT: Duration = Duration::from_secs(120);
const LOAD_LIMIT: Duration = Duration::from_secs(30);
// The wheel comes over the user's own line, and pip retries by itself.
const FETCH_LIMIT: Duration = Duration::from_secs(900);

/// A step of an installation, for progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStep {
    /// Another installation holds the lock.
    WaitForOther,
    MakeVenv,
    FetchWheel,
    WriteAdapter,
    AlreadyThere,
}

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    #[error(
        "python3 is not installed, and the CPU engine needs it\nhint: sudo apt-get install python3 python3-venv"
    )]
    FindPython,
    #[error(
        "python3 cannot make a virtual environment: its ensurepip is missing\nhint: sudo apt-get install python3-venv"
    )]
    FindEnsurepip,
    #[error("python3 -m venv failed:{}", indented(.stated))]
    MakeVenv { stated: String },
    #[error(
        "cannot fetch xllamacpp {RELEASE} from the package index:{}\nhint: the installation needs \
        Python 3.10 or later on x86-64 or aarch64 with glibc, and access to PyPI (pip's own proxy and index \
        settings apply)",
        indented(.stated)
    )]
    FetchWheel { stated: String },
    #[error("xllamacpp {RELEASE} does not load on this machine:{}{}", indented(.stated), missing_library(.stated))]
    LoadWheel { stated: String },
    #[error("the path of the engine, {}, cannot be written in the `#!` line of a script\nhint: set \
        PLIMSOLL_HOME to a shorter path without spaces", .0.display())]
    WriteShebang(PathBuf),
    #[error("cannot {act} {}: {source}", path.display())]
    Disk { act: &'static str, path: PathBuf, source: io::Error },
}

/// A system without a compiler may lack the library of OpenMP, which the wheel does not bring.
fn missing_library(stated: &str) -> &'static str {
    if stated.contains("libgomp.so.1") { "\nhint: sudo apt-get install libgomp1" } else { "" }
}

/// Returns the installed CPU engine, if there is one.
pub fn installed(home: &EngineHome) -> Option<EngineProgram> {
    let path = place(home).join(LLAMA_SERVER);
    path.is_file().then_some(EngineProgram { path, origin: EngineOrigin::Installed })
}

/// Installs the CPU engine, or updates an installed one.
pub fn install(
    home: &EngineHome,
    mut progress: impl FnMut(InstallStep),
) -> Result<EngineProgram, InstallError> {
    let place = place(home);
    let adapter = adapter(&place)?;
    fs::create_dir_all(home.engines()).map_err(disk("make", &home.engines()))?;
    // Held to the end of the function: two installers would remove each other's folders.
    let _lock = lock(&home.engines(), &mut progress)?;
    let program = place.join(LLAMA_SERVER);
    // A Python that the system has replaced since cannot load the module any more: then all is built anew.
    if !loads(&place) {
        build(&place, &adapter, &mut progress)?;
    } else if holds(&program, &adapter) {
        progress(InstallStep::AlreadyThere);
    } else {
        progress(InstallStep::WriteAdapter);
        write_program(&program, &adapter)?;
    }
    Ok(EngineProgram { path: program, origin: EngineOrigin::Installed })
}

/// Removes the installed engines and the models of the tour; returns the folders that were there. A tour in
/// another folder is its user's.
pub fn uninstall(home: &EngineHome) -> Result<Vec<PathBuf>, InstallError> {
    let _lock = if home.engines().is_dir() { Some(lock(&home.engines(), &mut |_| {})?) } else { None };
    let folders = [home.engines(), home.quickstart()].into_iter().filter(|folder| folder.is_dir());
    let folders: Vec<PathBuf> = folders.collect();
    folders.iter().try_for_each(|folder| remove(folder))?;
    // The folder of both, unless it holds files of the user's own.
    let _ = home.engines().parent().map(fs::remove_dir);
    Ok(folders)
}

fn place(home: &EngineHome) -> PathBuf {
    home.engines().join(format!("xllamacpp-{RELEASE}"))
}

fn python_of(place: &Path) -> PathBuf {
    place.join("venv/bin/python")
}

/// Returns the program text: the adapter behind a line that names the venv's own Python (`-I`: and no other's
/// modules).
fn adapter(place: &Path) -> Result<Vec<u8>, InstallError> {
    let python = python_of(place);
    let first = [b"#!", python.as_os_str().as_bytes(), b" -I\n"].concat();
    // The kernel cuts a longer first line off and splits it at blanks (`binfmt_script.c`).
    let starts =
        first.len() <= SHEBANG_LIMIT && !python.as_os_str().as_bytes().iter().any(u8::is_ascii_whitespace);
    if !starts {
        return Err(InstallError::WriteShebang(python));
    }
    Ok([&first, ADAPTER.as_bytes()].concat())
}

fn lock(engines: &Path, progress: &mut impl FnMut(InstallStep)) -> Result<File, InstallError> {
    let path = engines.join("install.lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(disk("open", &path))?;
    // The kernel lets go of it with the process, however that ends.
    if file.try_lock().is_err() {
        progress(InstallStep::WaitForOther);
        file.lock().map_err(disk("lock", &path))?;
    }
    Ok(file)
}

/// Builds the whole engine in a temporary folder and renames it to its final place.
fn build(place: &Path, adapter: &[u8], progress: &mut impl FnMut(InstallStep)) -> Result<(), InstallError> {
    let scratch = alongside(place, ".partial");
    // Remains of an interrupted installation.
    remove(&scratch)?;
    remove(place)?;
    fs::create_dir(&scratch).map_err(disk("make", &scratch))?;
    progress(InstallStep::MakeVenv);
    make_venv(&scratch)?;
    progress(InstallStep::FetchWheel);
    fetch_wheel(&scratch)?;
    progress(InstallStep::WriteAdapter);
    write_program(&scratch.join(LLAMA_SERVER), adapter)?;
    // Whole or not at all: a folder that is there is an engine that works.
    fs::rename(&scratch, place).map_err(disk("rename", &scratch))
}

fn remove(directory: &Path) -> Result<(), InstallError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(disk("remove", directory)(error)),
        _ => Ok(()),
    }
}

/// A Python that imports nothing from the caller's folder or environment (`-I`).
fn isolated_python(python: &Path, scratch: &Path) -> io::Result<Command> {
    let mut command = own_command(python)?;
    // pip asks `rustc` for its version, also while a venv is made, and a rustup writes settings into the home
    // for that.
    command.arg("-I").env("RUSTUP_HOME", scratch.join(RUSTUP));
    Ok(command)
}

fn make_venv(scratch: &Path) -> Result<(), InstallError> {
    let python = isolated_python(Path::new("python3"), scratch);
    let venv = |mut python: Command| run(python.args(["-m", "venv"]).arg(scratch.join("venv")), VENV_LIMIT);
    let ended = match python.and_then(venv) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(InstallError::FindPython),
        ended => ended.map_err(disk("run", Path::new("python3")))?,
    };
    if ended.succeeded() {
        return Ok(());
    }
    // Debian and Ubuntu ship ensurepip in a package of its own (python3-venv), and name it in this output.
    if ended.stated.contains("ensurepip") || ended.stated.contains("No module named venv") {
        return Err(InstallError::FindEnsurepip);
    }
    Err(InstallError::MakeVenv { stated: stated(&ended) })
}

/// Puts the pinned wheel into the venv, and sees that it loads on this machine.
fn fetch_wheel(scratch: &Path) -> Result<(), InstallError> {
    let requirements = scratch.join("requirements.txt");
    let hashes: String = WHEELS.iter().map(|hash| format!(" --hash=sha256:{hash}")).collect();
    // pip takes hashes from a requirements file only, not from its command line.
    fs::write(&requirements, format!("xllamacpp=={RELEASE}{hashes}\n"))
        .map_err(disk("write", &requirements))?;
    let flags = ["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"];
    // No source package: building one needs a compiler and takes minutes.
    let pinned = ["--no-deps", "--only-binary=:all:", "--require-hashes", "-r"];
    let fetched = isolated_python(&python_of(scratch), scratch)
        .and_then(|mut pip| run(pip.args(flags).args(pinned).arg(&requirements), FETCH_LIMIT));
    remove(&scratch.join(RUSTUP))?;
    let fetched = fetched.map_err(disk("run", &python_of(scratch)))?;
    if !fetched.succeeded() {
        return Err(InstallError::FetchWheel { stated: stated(&fetched) });
    }
    let loaded = load(scratch).map_err(disk("run", &python_of(scratch)))?;
    if loaded.succeeded() { Ok(()) } else { Err(InstallError::LoadWheel { stated: stated(&loaded) }) }
}

fn loads(place: &Path) -> bool {
    load(place).is_ok_and(|ended| ended.succeeded())
}

fn load(place: &Path) -> io::Result<ProgramEnded> {
    run(isolated_python(&python_of(place), place)?.args(["-c", "import xllamacpp"]), LOAD_LIMIT)
}

fn stated(ended: &ProgramEnded) -> String {
    if ended.status.is_none() { "the command did not end in time".to_owned() } else { ended.tail(4) }
}

/// Writes an executable file so that a reader sees the old or the new one, never a part.
fn write_program(path: &Path, text: &[u8]) -> Result<(), InstallError> {
    let scratch = alongside(path, ".new");
    fs::write(&scratch, text).map_err(disk("write", &scratch))?;
    // Executable before the rename, so that the program can be started as soon as it has its name.
    fs::set_permissions(&scratch, Permissions::from_mode(0o755))
        .map_err(disk("make executable", &scratch))?;
    fs::rename(&scratch, path).map_err(disk("rename", &scratch))
}

fn holds(path: &Path, text: &[u8]) -> bool {
    let length = Bytes::new(u64::try_from(text.len()).unwrap_or(u64::MAX));
    plimsoll_file::read(path, length).is_ok_and(|found| found == text)
}

fn alongside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn disk(act: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    move |source| InstallError::Disk { act, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A home whose venv has a Python that can load anything, so that nothing is fetched.
    fn home_with_venv(directory: &Path) -> EngineHome {
        let home = EngineHome::at(directory);
        let python = python_of(&place(&home));
        fs::create_dir_all(python.parent().unwrap()).unwrap();
        write_program(&python, b"#!/bin/sh\n").unwrap();
        home
    }

    fn steps(home: &EngineHome) -> Vec<InstallStep> {
        let mut steps = Vec::new();
        install(home, |step| steps.push(step)).unwrap();
        steps
    }

    #[test]
    fn an_older_adapter_is_replaced_without_fetching_anything_and_a_current_one_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let home = home_with_venv(directory.path());
        assert_eq!(installed(&home), None);
        assert_eq!(steps(&home), [InstallStep::WriteAdapter]);
        assert_eq!(steps(&home), [InstallStep::AlreadyThere]);
        let program = installed(&home).unwrap().path;
        fs::write(&program, "older").unwrap();
        assert_eq!(steps(&home), [InstallStep::WriteAdapter]);
        assert!(fs::read_to_string(&program).unwrap().ends_with(ADAPTER));
        assert_eq!(fs::metadata(&program).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn a_machine_without_the_library_of_openmp_is_shown_its_package() {
        let stated = "ImportError: libgomp.so.1: cannot open shared object file: No such file".to_owned();
        let text = InstallError::LoadWheel { stated }.to_string();
        assert!(text.ends_with("\nhint: sudo apt-get install libgomp1"), "{text}");
        let other = InstallError::LoadWheel { stated: "ImportError: x".to_owned() }.to_string();
        assert!(!other.contains("hint"), "{other}");
    }

    #[test]
    fn a_second_installation_waits_for_the_first() {
        let directory = tempfile::tempdir().unwrap();
        let home = home_with_venv(directory.path());
        let occupied = lock(&home.engines(), &mut |_| {}).unwrap();
        let waiting = std::thread::spawn({
            let home = home.clone();
            move || steps(&home)
        });
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(installed(&home), None, "the second one went ahead");
        drop(occupied);
        assert_eq!(waiting.join().unwrap(), [InstallStep::WaitForOther, InstallStep::WriteAdapter]);
    }

    #[test]
    fn a_place_that_a_shebang_cannot_name_is_refused_before_anything_is_made() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["with blank".to_owned(), "x".repeat(250)] {
            let home = EngineHome::at(&directory.path().join(name));
            assert!(matches!(install(&home, |_| {}), Err(InstallError::WriteShebang(_))));
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_adapter_drives_the_release_that_is_installed() {
        assert!(ADAPTER.contains(&format!("RELEASE = \"{RELEASE}\"\n")));
    }

    #[test]
    fn no_engine_is_installed_in_an_empty_home() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(installed(&EngineHome::at(directory.path())), None);
    }
}
