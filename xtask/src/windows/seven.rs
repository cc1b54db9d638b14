//! Checks the build for Windows 7: that system has each function that it imports, and it runs under Wine.
//!
//! Wine has functions that Windows 7 lacks, whichever Windows it is set to. So each import is looked up in
//! `data/windows-7.txt`, where each function stands with the document that it was looked up in.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use plimsoll_pe::{Image, Layout};

use super::parts::Shown;
use super::toolchain::{Edition, Toolchain};
use super::{guard, program, programs};

const KNOWN: &str = "data/windows-7.txt";

pub(super) fn run(root: &Path) -> io::Result<Shown> {
    let toolchain = Toolchain::prepare(root, Edition::Seven)?;
    let program = program(&toolchain)?;
    let mut outcome = programs::run(&toolchain, &program)?;
    outcome.add(guard::run(&toolchain, &program)?);
    let known = known(&fs::read_to_string(root.join(KNOWN))?);
    let mut imports = BTreeSet::new();
    for file in [&program, &toolchain.built().join("guard/plimsoll_guard.dll")] {
        imports.extend(imports_of(&fs::read(file)?)?);
    }
    let lacking: Vec<&String> = imports.difference(&known).collect();
    for import in &lacking {
        eprintln!("windows: is `{import}` in Windows 7? look it up, and add it to {KNOWN} if it is");
    }
    outcome.succeeded = outcome.failed == 0 && lacking.is_empty();
    let figure = format!(
        "{} tests passed, {} failed; of {} imports, {} are not known to be in Windows 7",
        outcome.passed,
        outcome.failed,
        imports.len(),
        lacking.len()
    );
    outcome.failed += lacking.len();
    Ok(Shown { outcome, figure })
}

/// Library and function of each import, the library in lower case: the loader takes either.
fn imports_of(bytes: &[u8]) -> io::Result<BTreeSet<String>> {
    let image = Image::read(bytes, Layout::File).map_err(io::Error::other)?;
    let imports = image.imports();
    Ok(imports.iter().map(|import| format!("{} {}", import.library.to_lowercase(), import.name)).collect())
}

/// A library at the begin of a line is that of the functions behind it, and of those in lines that are
/// indented.
fn known(text: &str) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let mut library = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let (false, Some(name)) = (line.starts_with(' '), line.split_whitespace().next()) {
            library = name;
        }
        let functions = line.split_whitespace().skip(usize::from(!line.starts_with(' ')));
        known.extend(functions.map(|function| format!("{library} {function}")));
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_belong_to_the_library_before_them() {
        let known =
            known("# source\nkernel32.dll CloseHandle\n    HeapFree HeapSize\nntdll.dll NtOpenFile\n");
        let expected = [
            "kernel32.dll CloseHandle",
            "kernel32.dll HeapFree",
            "kernel32.dll HeapSize",
            "ntdll.dll NtOpenFile",
        ];
        assert_eq!(known, expected.map(str::to_owned).into());
    }

    #[test]
    fn no_function_of_a_later_windows_is_kept() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let known = known(&fs::read_to_string(root.join(KNOWN)).unwrap());
        for later in [
            "api-ms-win-core-synch-l1-2-0.dll WaitOnAddress",
            "bcryptprimitives.dll ProcessPrng",
            "kernel32.dll GetSystemTimePreciseAsFileTime",
            "ws2_32.dll GetHostNameW",
        ] {
            assert!(!known.contains(later), "{later}");
        }
        assert!(known.contains("kernel32.dll CreateProcessW"));
    }
}
