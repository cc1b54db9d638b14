//! Finds out which GPU interfaces (CUDA, HIP, Vulkan) an engine program can compute with.
//!
//! The libraries beside its program tell it (`libggml-hip.so`). A program that has its backends inside is run
//! with `--list-devices`.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use plimsoll_base::{Backend, Backends, Order};
use plimsoll_process::Environment;
use plimsoll_wire::env as names;

use super::identity::{Answers, is_shell_script, remembered};
use super::system::{BACKEND, FAMILY, FOLDERS, is_library};
use super::vulkan::listed_devices;
use crate::environment::EVERY_CARD_BUT_CUDAS;

/// The loader's own list of folders.
const SEARCHED: &str = "LD_LIBRARY_PATH";

/// The backends for cards of a program with llama-server's command line, in this environment.
///
/// DECISION: libraries are asked first, because they tell of a backend also where its card is missing. The
/// list of devices is that of this machine: a backend that lists none may be there. It is asked with
/// CUDA's cards hidden, because each of them would get a context.
pub fn backends(program: &Path, environment: &Environment) -> Backends {
    let named = environment.get(names::GGML_BACKEND_PATH).filter(|path| !path.is_empty());
    let searched = environment.get(SEARCHED).unwrap_or_default();
    let of_libraries = backend_names(program, searched);
    match named.map(|path| backend_name(Path::new(path))) {
        // A library of the user's own name.
        Some(None) => return Backends::Unsure,
        Some(Some(name)) => return known(of_libraries.into_iter().chain([name])),
        None if !of_libraries.is_empty() => return known(of_libraries),
        None if is_shell_script(program) => return Backends::Unsure,
        None => {}
    }
    static KNOWN: Answers<Vec<Backend>> = Mutex::new(Vec::new());
    let listed = remembered(&KNOWN, program, |program| {
        let devices = listed_devices(program, environment, &EVERY_CARD_BUT_CUDAS)?;
        Ok(devices.iter().filter_map(|(device, _)| Backend::of_device(device)).collect())
    });
    match listed {
        Ok(listed) if !listed.is_empty() => Backends::Known(listed),
        _ => Backends::Unsure,
    }
}

/// The backends of the engine for models that give none, in the environment of this process.
pub fn usual_backends(configured: Option<&Path>) -> Backends {
    let program = super::find(configured);
    program.map_or(Backends::Unsure, |program| backends(&program.path, &env::vars_os().collect()))
}

fn known(names: impl IntoIterator<Item = String>) -> Backends {
    Backends::Known(names.into_iter().filter_map(|name| Backend::of_library(&name)).collect())
}

/// Names of the backends whose libraries (`libggml-cuda.so`) an engine can load, that for the processor
/// among them; empty if they are inside of its program. `searched` is the loader's own list of folders.
pub fn backend_names(program: &Path, searched: &OsStr) -> BTreeSet<String> {
    libraries(program, searched).iter().filter_map(|path| backend_name(path)).collect()
}

fn backend_name(path: &Path) -> Option<String> {
    let rest = path.file_name()?.to_str()?.strip_prefix(BACKEND)?;
    // One for each kind of processor (`libggml-cpu-haswell.so`) is one backend.
    let name = rest.split(['-', '.']).next()?;
    (name != "base").then(|| name.to_owned())
}

/// Distributions link `/usr/bin/llama-server` elsewhere; the libraries lie beside the real file.
pub fn real_program(program: &Path) -> PathBuf {
    program.canonicalize().unwrap_or_else(|_| program.to_owned())
}

/// The libraries of llama.cpp and ggml that a program can load.
pub fn libraries(program: &Path, searched: &OsStr) -> Vec<PathBuf> {
    let program = real_program(program);
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
    let named = entries.filter(|entry| is_of_family(&entry.file_name()));
    named.filter_map(|entry| entry.path().canonicalize().ok()).collect()
}

fn is_of_family(name: &OsString) -> bool {
    // Bytes, because the folder of a program may hold thousands of others.
    let bytes = name.as_encoded_bytes();
    FAMILY.iter().any(|start| bytes.starts_with(start.as_bytes())) && is_library(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An engine of this text in a folder with these libraries.
    fn engine(text: &str, libraries: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        for library in libraries {
            fs::write(folder.path().join(library), "").unwrap();
        }
        let program = folder.path().join("llama-server");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        (folder, program)
    }

    fn of(program: &Path, variables: &[(&str, &str)]) -> Backends {
        let mut environment: Environment = std::env::vars_os().collect();
        environment.remove(SEARCHED);
        variables.iter().for_each(|(name, value)| environment.set(*name, value));
        backends(program, &environment)
    }

    #[test]
    fn libraries_beside_the_program_are_its_backends() {
        let (folder, program) = engine(
            "#!/bin/sh\nexit 1\n",
            &["libggml.so", "libggml-base.so.0", "libggml-hip.so.0", "libggml-cpu-haswell.so", "libggml-"],
        );
        let hip = vec![Backend::Hip];
        assert!(backend_names(&program, OsStr::new("")).iter().eq(["cpu", "hip"]));
        assert_eq!(of(&program, &[]), Backends::Known(hip.clone()));
        let named = |path: &str| of(&program, &[("GGML_BACKEND_PATH", path)]);
        assert_eq!(named("/opt/libggml-vulkan.so"), Backends::Known([hip, vec![Backend::Vulkan]].concat()));
        assert_eq!(named("/opt/mine.so"), Backends::Unsure);
        drop(folder);
        let (_folder, cpu) = engine("", &["libggml-cpu.so"]);
        assert_eq!(of(&cpu, &[]), Backends::Known(Vec::new()), "it computes on the processor");
    }

    #[test]
    fn a_program_with_its_backends_inside_lists_its_devices_without_cudas() {
        let text = "#!/usr/bin/perl\nexit 1 if $ENV{CUDA_VISIBLE_DEVICES} ne '';\nprint \"Available devices:\\n  \
            ROCm0: AMD Radeon (1 MiB, 1 MiB free)\\n  BLAS0: x (1 MiB, 1 MiB free)\\n\";\n";
        let (_folder, program) = engine(text, &[]);
        assert_eq!(
            of(&program, &[("CUDA_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "")]),
            Backends::Known(vec![Backend::Hip])
        );
    }

    #[test]
    fn a_program_that_reports_nothing_is_unsure() {
        for text in ["#!/usr/bin/perl\nexit 1;\n", "#!/bin/sh\necho '  ROCm0: x (1 MiB, 1 MiB free)'\n"] {
            let (_folder, program) = engine(text, &[]);
            assert_eq!(of(&program, &[]), Backends::Unsure, "{text}");
        }
        assert_eq!(of(Path::new("/nowhere/llama-server"), &[]), Backends::Unsure);
    }
}
