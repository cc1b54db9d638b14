//! Checks the built libraries guard and phantom, which must load in every program on every supported system.
//!
//! If a needed library is missing, every exec in the process tree fails with status 127. If the machine's
//! glibc lacks a symbol version, it fails with status 1. So the libraries may need only libc and the loader,
//! and no symbol version newer than glibc 2.31 (JetPack 5). They may contain no path of the build machine.
//! They must export exactly the functions of a stored list, without versions.
//!
//! The libraries stay within these limits by what their code imports, not by options of the linker. So cargo
//! on any machine builds a library that loads everywhere, and this check finds violations.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

/// The libraries, and the lists of what each exports: one symbol a line, sorted.
const ARTEFACTS: &[(&str, &str)] = &[
    ("libplimsoll_guard.so", "crates/guard/exports.txt"),
    ("libplimsoll_phantom.so", "crates/phantom/exports.txt"),
];
const NEEDED: &[&str] = &["libc.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];
const FLOOR: (u32, u32) = (2, 31);

/// Checks the artefacts that are built; the one of another architecture only if somebody built it.
pub(crate) fn run(root: &Path) -> ExitCode {
    let mut findings = Vec::new();
    let mut checked = 0;
    for (library, list) in ARTEFACTS {
        for folder in ["guard", "aarch64-unknown-linux-gnu/guard"] {
            let artefact = crate::guard::target(root).join(folder).join(library);
            if !artefact.exists() {
                continue;
            }
            checked += 1;
            let golden = std::fs::read_to_string(root.join(list)).unwrap_or_default();
            match readelf(&artefact) {
                Ok(text) => findings.extend(
                    check(&text, &golden, list).into_iter().map(|what| format!("{folder}/{library}: {what}")),
                ),
                Err(error) => {
                    findings.push(format!("{library}: readelf (of binutils) does not run: {error}"))
                }
            }
        }
        if !crate::guard::target(root).join("guard").join(library).exists() {
            findings.push(format!("no {library}; `cargo xtask guard` builds it"));
        }
    }
    for finding in &findings {
        eprintln!("{finding}");
    }
    eprintln!("check-artifacts: {checked} artefacts, {} findings", findings.len());
    ExitCode::from(u8::from(!findings.is_empty()))
}

/// The newest glibc that an artefact asks for; `None` where it asks for none or is none.
pub(crate) fn newest_glibc(artefact: &Path) -> Option<(u32, u32)> {
    let text = readelf(artefact).ok()?;
    let named = text.lines().filter_map(|line| line.split("Name: GLIBC_").nth(1));
    named.filter_map(number).max()
}

/// Names of the libraries that the output of readelf says are needed.
pub(crate) fn needed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.contains("(NEEDED)")).map(|line| between(line, "[", "]"))
}

/// Dynamic section, symbols and versions.
pub(crate) fn readelf(artefact: &Path) -> std::io::Result<String> {
    let output = Command::new("readelf")
        .args(["--dynamic", "--dyn-syms", "--version-info", "--wide"])
        .arg(artefact)
        .output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check(text: &str, golden: &str, list: &str) -> Vec<String> {
    let beyond_libc = needed(text).filter(|library| !NEEDED.contains(library));
    let mut findings: Vec<String> =
        beyond_libc.map(|library| format!("needs {library}; only libc may be needed")).collect();
    for line in text.lines() {
        if line.contains("(RPATH)") || line.contains("(RUNPATH)") {
            findings.push(format!("has a path of this machine: {}", between(line, "[", "]")));
        }
        if line.contains("(VERDEF)") {
            findings.push("gives its symbols versions; an unversioned symbol stands for all".to_owned());
        }
        if let Some(version) = line.split("Name: GLIBC_").nth(1).and_then(number)
            && version > FLOOR
        {
            findings.push(format!(
                "needs glibc {}.{}; {}.{} is the oldest that must do",
                version.0, version.1, FLOOR.0, FLOOR.1
            ));
        }
    }
    findings.extend(unbound(text).map(|name| format!("needs {name}, which no library that it names has")));
    let (exports, golden): (BTreeSet<&str>, BTreeSet<&str>) =
        (exports(text).collect(), golden.lines().collect());
    findings.extend(
        exports.difference(&golden).map(|name| format!("exports {name}, which {list} does not list")),
    );
    findings.extend(
        golden.difference(&exports).map(|name| format!("does not export {name}, which {list} lists")),
    );
    findings
}

/// `2.17  Flags: …` as numbers.
fn number(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split_whitespace().next()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> &'a str {
    line.split(start).nth(1).and_then(|rest| rest.split(end).next()).unwrap_or("")
}

/// Names of defined global symbols: `Num: Value Size Type Bind Vis Ndx Name`.
fn exports(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, _, _, "FUNC" | "OBJECT", "GLOBAL" | "WEAK", _, index, name, ..] if *index != "UND" => {
                Some(*name)
            }
            _ => None,
        }
    })
}

/// Names of undefined symbols that have no version: nothing that is needed defines them.
fn unbound(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [_, _, _, _, "GLOBAL", _, "UND", name, ..] if !name.contains('@') => Some(*name),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
    12: 0000000000006980   122 FUNC    GLOBAL DEFAULT   12 cuInit
    13: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND malloc@GLIBC_2.2.5 (2)
  0x0010:   Name: GLIBC_2.31  Flags: none  Version: 4
";

    #[test]
    fn an_artefact_that_loads_everywhere_passes() {
        assert_eq!(check(GOOD, "cuInit\n", "exports.txt"), Vec::<String>::new());
    }

    #[test]
    fn foreign_symbols_and_libraries_in_an_artifact_are_found() {
        let bad = "\
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x000000000000001d (RUNPATH)            Library runpath: [/home/me]
  0x0010:   Name: GLIBC_2.34  Flags: none  Version: 4
    12: 0000000000006980   122 FUNC    GLOBAL DEFAULT   12 malloc
    13: 0000000000000000     0 NOTYPE  GLOBAL DEFAULT  UND rust_eh_personality
";
        let findings = check(bad, "cuInit\n", "exports.txt");
        assert_eq!(findings.len(), 6, "{findings:?}");
        assert!(findings[2].contains("needs glibc 2.34"));
        assert!(
            findings[3].starts_with("needs rust_eh_personality")
                && findings[4].starts_with("exports malloc")
                && findings[5].starts_with("does not export cuInit")
        );
    }
}
