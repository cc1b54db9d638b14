//! Builds the stand-in for CUDA on Windows, and the libraries with NVIDIA's names that forward to it.
//!
//! DECISION: one library holds the state of a process, and each name is a file of its own, because the loader
//! of Windows knows a library by its name. A forwarder has no code: each of its exports names the function of
//! `plimsoll_phantom.dll`, which the loader then takes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Toolchain, wine};
use crate::debian::run_to_end;

/// Names that ggml's CUDA backends were linked with (CUDA 11 to 13).
const NAMES: [&str; 7] =
    ["nvcuda", "cudart64_110", "cudart64_12", "cudart64_13", "cublas64_11", "cublas64_12", "cublas64_13"];

/// The folder of `plimsoll_phantom.dll`, where the program for Windows finds it, with the forwarders below.
pub(super) fn build(toolchain: &Toolchain) -> io::Result<PathBuf> {
    let mut cargo = toolchain.cargo("build");
    run_to_end(cargo.args(["--profile", "guard", "--package", "plimsoll-phantom"]))?;
    let folder = toolchain.built().join("guard");
    let forwarders = folder.join("stand-ins");
    fs::create_dir_all(&forwarders)?;
    let exports = fs::read_to_string(toolchain.root.join("crates/phantom/exports.txt"))?;
    let definition = toolchain.root.join("target/windows/stand-ins.def");
    fs::write(&definition, definitions(&exports))?;
    for name in NAMES {
        link(&definition, &forwarders.join(format!("{name}.dll")))?;
    }
    Ok(folder)
}

/// A module definition whose exports are those of CUDA, in the stand-in.
fn definitions(exports: &str) -> String {
    let is_of_cuda = |name: &&str| name.starts_with("cu") || name.starts_with("__cuda");
    let lines = exports.lines().filter(is_of_cuda).map(|name| format!("{name} = plimsoll_phantom.{name}\n"));
    ["EXPORTS\n".to_owned()].into_iter().chain(lines).collect()
}

/// A library of exports alone: it has no entry point, and nothing is linked with it.
fn link(definition: &Path, library: &Path) -> io::Result<()> {
    let mut linker = Command::new(wine::LINKER);
    linker.args(["-shared", "-nostdlib", "-s", "-Wl,--entry=0", "-o"]).arg(library);
    // The definition stands for an object, without which the linker does nothing.
    run_to_end(linker.arg(definition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarder_exports_what_is_of_cuda() {
        let written = definitions("__cudaLaunchKernel\ncuInit\nggml_backend_buffer_clear\nhipMalloc\nmmap\n");
        assert_eq!(
            written,
            "EXPORTS\n__cudaLaunchKernel = plimsoll_phantom.__cudaLaunchKernel\ncuInit = plimsoll_phantom.cuInit\n"
        );
    }
}
