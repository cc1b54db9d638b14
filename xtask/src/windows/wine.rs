//! Runs Windows programs under Wine without a display, with Wine's files in a folder below `target`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Edition;
use crate::debian::run_to_end;

/// Exit status of a server of Wine where the prefix has one (`server/request.c:acquire_lock` of Wine 8).
const ALREADY_RUNS: i32 = 2;

pub(super) const PROGRAM: &str = "wine";
pub(super) const LINKER: &str = "x86_64-w64-mingw32-gcc";
pub(super) const ARCHIVER: &str = "x86_64-w64-mingw32-ar";

/// The prefix of an edition, made once. It has the library that Wine 8 lacks, which Windows 7 lacks too.
pub(super) fn prefix(root: &Path, edition: Edition) -> io::Result<PathBuf> {
    let folder = root.join("target/windows");
    let (prefix, begun) = match edition {
        Edition::Seven => (folder.join("prefix-7"), folder.join("prefix-7.new")),
        Edition::Ten => (folder.join("prefix"), folder.join("prefix.new")),
    };
    if prefix.is_dir() {
        return Ok(prefix);
    }
    fs::create_dir_all(&folder)?;
    let wine = |words: &[&str]| {
        let mut wine = Command::new(PROGRAM);
        set(&mut wine, &begun);
        run_to_end(wine.args(words))
    };
    wine(&["wineboot", "--init"])?;
    match edition {
        Edition::Seven => wine(&["reg", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win7", "/f"])?,
        Edition::Ten => {
            let shim = begun.join("drive_c/windows/system32/bcryptprimitives.dll");
            let mut compiler = Command::new(LINKER);
            compiler.args(["-O2", "-shared", "-o"]).arg(shim);
            run_to_end(compiler.arg(root.join("bench/windows/process_prng.c")).arg("-ladvapi32"))?;
        }
    }
    // What it holds is written at its end, and a server knows its prefix by the folder.
    let mut server = Command::new("wineserver");
    set(&mut server, &begun);
    run_to_end(server.arg("--wait"))?;
    fs::rename(begun, &prefix)?;
    Ok(prefix)
}

/// Keeps Wine's server between programs: to start it takes longer than most of them.
pub(super) fn keep_server(prefix: &Path) -> io::Result<()> {
    let mut server = Command::new("wineserver");
    set(&mut server, prefix);
    match server.arg("--persistent=60").status()?.code() {
        Some(0 | ALREADY_RUNS) => Ok(()),
        code => Err(io::Error::other(format!("wineserver ended with {code:?}"))),
    }
}

/// No installer of .NET or Gecko, and Microsoft's C++ library where a program brings it.
const LIBRARIES: &str = "mscoree,mshtml=d;msvcp140,msvcp140_1,msvcp140_2,msvcp140_atomic_wait,vcruntime140,\
    vcruntime140_1=n,b";

/// The environment that Wine needs: no window, and no messages of its own.
pub(super) fn set(command: &mut Command, prefix: &Path) {
    command.env("WINEPREFIX", prefix).env("WINEDEBUG", "-all").env_remove("DISPLAY");
    command.env("WINEDLLOVERRIDES", LIBRARIES);
}
