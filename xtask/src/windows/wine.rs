//! Runs Windows programs under Wine without a display, with Wine's files in a folder below `target`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::debian::run_to_end;

pub(super) const PROGRAM: &str = "wine";
pub(super) const LINKER: &str = "x86_64-w64-mingw32-gcc";

/// The prefix, made once, with the library that Wine 8 lacks.
pub(super) fn prefix(root: &Path) -> io::Result<PathBuf> {
    let folder = root.join("target/windows");
    let prefix = folder.join("prefix");
    let shim = prefix.join("drive_c/windows/system32/bcryptprimitives.dll");
    if shim.is_file() {
        return Ok(prefix);
    }
    fs::create_dir_all(&folder)?;
    let mut boot = Command::new(PROGRAM);
    set(&mut boot, &prefix);
    run_to_end(boot.args(["wineboot", "--init"]))?;
    let mut compiler = Command::new(LINKER);
    compiler.args(["-O2", "-shared", "-o"]).arg(&shim);
    run_to_end(compiler.arg(root.join("bench/windows/process_prng.c")).arg("-ladvapi32"))?;
    Ok(prefix)
}

/// Keeps Wine's server between programs: to start it takes longer than most of them.
pub(super) fn keep_server(prefix: &Path) -> io::Result<()> {
    let mut server = Command::new("wineserver");
    set(&mut server, prefix);
    run_to_end(server.arg("--persistent=60"))
}

/// No installer of .NET or Gecko, and Microsoft's C++ library where a program brings it.
const LIBRARIES: &str = "mscoree,mshtml=d;msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,vcruntime140,\
    vcruntime140_1=n,b";

/// The environment that Wine needs: no window, and no messages of its own.
pub(super) fn set(command: &mut Command, prefix: &Path) {
    command.env("WINEPREFIX", prefix).env("WINEDEBUG", "-all").env_remove("DISPLAY");
    command.env("WINEDLLOVERRIDES", LIBRARIES);
}
