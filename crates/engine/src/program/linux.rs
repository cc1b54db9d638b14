//! Linux' half: the names of an engine's libraries, and the engine that Plimsoll installs.

use std::ffi::OsStr;

use super::{EngineHome, EngineProgram, HomeError, installed};

/// Advice for a machine without an engine.
pub(super) const INSTALLS: &str =
    "`plimsoll engine install` installs a CPU engine; a llama-server on PATH is preferred";
/// Name prefixes of the libraries that belong to an engine.
pub(super) const FAMILY: [&str; 4] = ["libggml", "libllama", "libmtmd", "libcommon"];
/// What stands before the name of a backend (`libggml-cuda.so`).
pub(super) const BACKEND: &str = "libggml-";
/// Library folders of an installation, relative to the folder of the program; the last is Debian's for
/// backends.
pub(super) const FOLDERS: &[&str] =
    &["", "../lib", "../lib64", "../lib/x86_64-linux-gnu", "../lib/x86_64-linux-gnu/ggml/backends0"];

/// A version may stand behind the ending.
pub(super) fn is_library(name: &OsStr) -> bool {
    name.as_encoded_bytes().windows(3).any(|part| part == b".so")
}

pub(super) fn installed_here() -> Result<Option<EngineProgram>, HomeError> {
    EngineHome::from_environment().map(|home| installed(&home))
}
