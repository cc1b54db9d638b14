//! Detects changes of an engine's files: its program, and the libraries of llama.cpp and ggml.
//!
//! A file counts as unchanged while its path, size, modification time and inode stay the same.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_base::Order;

/// Name prefixes of the libraries that belong to an engine.
const FAMILY: [&str; 4] = ["libggml", "libllama", "libmtmd", "libcommon"];
/// Library folders of an installation, relative to the folder of the program.
const FOLDERS: [&str; 4] = ["", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];

pub fn of_file(path: &Path) -> String {
    // Hashing the content instead would read hundreds of MiB of CUDA kernels on each run.
    let of = |about: fs::Metadata| {
        format!("{} {}.{:09} {}", about.size(), about.mtime(), about.mtime_nsec(), about.ino())
    };
    // A missing file is part of the key too: its later appearance must change the key.
    format!("{} {}", path.display(), fs::metadata(path).map_or("none".to_owned(), of))
}

/// `searched` is the loader's own list of folders, `LD_LIBRARY_PATH`.
pub fn of_engine(program: &Path, searched: &OsStr) -> String {
    let program = real(program);
    let files = libraries(&program, searched);
    let stamps = [program].into_iter().chain(files).map(|path| of_file(&path));
    stamps.collect::<Vec<_>>().join("; ")
}

/// Backends whose libraries (`libggml-cuda.so`) an engine can load; empty if they are inside of its program.
pub fn backends(program: &Path, searched: &OsStr) -> BTreeSet<String> {
    let of_file = |path: PathBuf| {
        let rest = path.file_name()?.to_str()?.strip_prefix("libggml-")?;
        // One for each kind of processor (`libggml-cpu-haswell.so`) is one backend.
        let name = rest.split(['-', '.']).next()?;
        (name != "base").then(|| name.to_owned())
    };
    libraries(program, searched).into_iter().filter_map(of_file).collect()
}

/// Distributions link `/usr/bin/llama-server` elsewhere; the libraries lie beside the real file.
fn real(program: &Path) -> PathBuf {
    program.canonicalize().unwrap_or_else(|_| program.to_owned())
}

fn libraries(program: &Path, searched: &OsStr) -> Vec<PathBuf> {
    let program = real(program);
    let alongside = program.parent().unwrap_or(Path::new("/"));
    let folders = env::split_paths(searched).chain(FOLDERS.iter().map(|folder| alongside.join(folder)));
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| family(&folder)).collect();
    // Versioned links all resolve to one file, which `dedup` then counts once.
    files.order();
    files.dedup();
    files
}

fn family(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        // Bytes, because the folder of a program may hold thousands of others.
        let name = entry.file_name();
        let name = name.as_encoded_bytes();
        FAMILY.iter().any(|start| name.starts_with(start.as_bytes()))
            && name.windows(3).any(|part| part == b".so")
    });
    named.filter_map(|entry| entry.path().canonicalize().ok()).collect()
}
