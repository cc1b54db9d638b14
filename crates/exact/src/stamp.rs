//! Identity of an engine: stamps of its program and libraries.
//!
//! A file is the same while its path, size, time of change and inode are. An engine is its program and the
//! libraries of its family, beside it or where installations put them; the user's `LD_LIBRARY_PATH` comes
//! first, as for the loader.

use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name prefixes of the family's libraries.
const FAMILY: [&str; 4] = ["libggml", "libllama", "libmtmd", "libcommon"];
/// Seen from the folder of the program.
const FOLDERS: [&str; 4] = ["", "../lib", "../lib64", "../lib/x86_64-linux-gnu"];

pub(super) fn of_file(path: &Path) -> String {
    match fs::metadata(path) {
        Ok(about) => format!(
            "{} {} {}.{:09} {}",
            path.display(),
            about.size(),
            about.mtime(),
            about.mtime_nsec(),
            about.ino()
        ),
        Err(_) => format!("{} none", path.display()),
    }
}

pub(super) fn of_engine(program: &Path) -> String {
    // Links such as `llama-server -> versions/b10605/…` are resolved, so an update changes the stamp.
    let program = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    let beside = program.parent().unwrap_or(Path::new("/"));
    let searched = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = env::split_paths(&searched).chain(FOLDERS.iter().map(|folder| beside.join(folder)));
    let mut files: Vec<PathBuf> = folders.flat_map(|folder| family(&folder)).collect();
    files.sort();
    files.dedup();
    let stamps = [program].into_iter().chain(files).map(|path| of_file(&path));
    stamps.collect::<Vec<_>>().join("; ")
}

fn family(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.contains(".so") && FAMILY.iter().any(|start| name.starts_with(start))
    });
    named
        .filter_map(|entry| entry.path().canonicalize().ok())
        .collect()
}
