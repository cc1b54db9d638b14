//! Detects changes of an engine's files: its program, and the libraries of llama.cpp and ggml.
//!
//! A file counts as unchanged while its path, size, modification time and inode stay the same.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use plimsoll_engine::program::{libraries, real_program};

use super::system::version;

pub fn of_file(path: &Path) -> String {
    // Hashing the content instead would read hundreds of MiB of CUDA kernels on each run.
    let of = |about: fs::Metadata| version(&about);
    // A missing file is part of the key too: its later appearance must change the key.
    format!("{} {}", path.display(), fs::metadata(path).map_or("none".to_owned(), of))
}

/// `searched` is the loader's own list of folders, `LD_LIBRARY_PATH`.
pub fn of_engine(program: &Path, searched: &OsStr) -> String {
    let program = real_program(program);
    let files = libraries(&program, searched);
    let stamps = [program].into_iter().chain(files).map(|path| of_file(&path));
    stamps.collect::<Vec<_>>().join("; ")
}
