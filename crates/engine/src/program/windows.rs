//! Windows' half: the names of an engine's libraries. Plimsoll installs no engine there.

use std::ffi::OsStr;

use super::{EngineProgram, HomeError};

/// Advice for a machine without an engine.
pub(super) const INSTALLS: &str = "give the path of a llama-server.exe";
/// Name prefixes of the libraries that belong to an engine.
pub(super) const FAMILY: [&str; 4] = ["ggml", "llama", "mtmd", "common"];
/// What stands before the name of a backend (`ggml-cuda.dll`).
pub(super) const BACKEND: &str = "ggml-";
/// The folder of the program, which the loader searches first.
pub(super) const FOLDERS: &[&str] = &[""];

pub(super) fn is_library(name: &OsStr) -> bool {
    name.as_encoded_bytes().to_ascii_lowercase().ends_with(b".dll")
}

pub(super) fn installed_here() -> Result<Option<EngineProgram>, HomeError> {
    Ok(None)
}
