//! Writes the wheel for PyPI (PEP 427): the Python package, and program, libraries and documents as data.
//!
//! DECISION: one wheel for any Python 3, because the package reaches its library by `ctypes` and has no
//! extension module.
//!
//! DECISION: the distribution is `plimsoll-gpu`, because `plimsoll` on PyPI is another project's. The program
//! keeps its name.

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::VERSION;
use super::options::Architecture;
use super::tree::{FileTree, Node};
use super::zip;

const NAME: &str = "plimsoll_gpu";
/// Folders below `usr` that a Python environment gets, beside its own.
const DATA: [&str; 3] = ["lib/plimsoll/", "share/man/", "share/bash-completion/"];
/// Files of the documentation, and their places in the wheel's own metadata (PEP 639 and PEP 770).
const ABOUT: [(&str, &str); 3] = [
    ("share/doc/plimsoll/LICENSE-MIT", "licenses/LICENSE-MIT"),
    ("share/doc/plimsoll/LICENSE-APACHE", "licenses/LICENSE-APACHE"),
    ("share/doc/plimsoll/sbom.cdx.json", "sboms/plimsoll.cdx.json"),
];

/// The file's name. It states the oldest glibc that the program runs with (PEP 600).
pub(super) fn name(architecture: Architecture, floor: Option<(u32, u32)>) -> String {
    format!("{NAME}-{VERSION}-{}.whl", tag(architecture, floor))
}

fn tag(architecture: Architecture, floor: Option<(u32, u32)>) -> String {
    let platform =
        floor.map_or_else(|| "linux".to_owned(), |(major, minor)| format!("manylinux_{major}_{minor}"));
    format!("py3-none-{platform}_{}", architecture.wheel())
}

pub(super) fn package(
    root: &Path,
    (tree, python): (&FileTree, FileTree),
    architecture: Architecture,
    floor: Option<(u32, u32)>,
) -> io::Result<Vec<u8>> {
    let top = format!("{NAME}-{VERSION}");
    let about = format!("{top}.dist-info");
    let mut wheel = python;
    for (path, node) in tree.nodes().filter(|(_, node)| matches!(node, Node::File { .. })) {
        let Some(path) = path.strip_prefix("usr/") else { continue };
        if let Some(program) = path.strip_prefix("bin/") {
            wheel.insert(format!("{top}.data/scripts/{program}"), node.clone());
        } else if DATA.iter().any(|folder| path.starts_with(folder)) {
            wheel.insert(format!("{top}.data/data/{path}"), node.clone());
        } else if let Some((_, to)) = ABOUT.iter().find(|(from, _)| *from == path) {
            wheel.insert(format!("{about}/{to}"), node.clone());
        }
    }
    wheel.file(format!("{about}/METADATA"), 0o644, metadata(&fs::read_to_string(root.join("README.md"))?));
    let tag = tag(architecture, floor);
    let format = format!("Wheel-Version: 1.0\nGenerator: cargo-xtask\nRoot-Is-Purelib: false\nTag: {tag}\n");
    wheel.file(format!("{about}/WHEEL"), 0o644, format);
    let record = format!("{about}/RECORD");
    let list = format!("{}{record},,\n", wheel.files().map(row).collect::<String>());
    wheel.file(record, 0o644, list);
    zip::archive(&wheel)
}

/// A line of the list of files.
fn row((path, bytes): (&str, &[u8])) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    format!("{path},sha256={},{}\n", URL_SAFE_NO_PAD.encode(digest), bytes.len())
}

/// Metadata 2.4, with what the README says before its first heading of the second level; the picture is left
/// out, because PyPI resolves no relative address.
fn metadata(readme: &str) -> String {
    let about = readme.split("\n## ").next().unwrap_or_default();
    let about: String =
        about.lines().filter(|line| !line.starts_with("![")).map(|line| format!("{line}\n")).collect();
    format!(
        "Metadata-Version: 2.4\nName: {}\nVersion: {VERSION}\nSummary: The load line for GPU memory: plan, serve, \
         guard, doctor\nLicense-Expression: MIT OR Apache-2.0\nLicense-File: LICENSE-MIT\nLicense-File: \
         LICENSE-APACHE\nKeywords: gpu,llama.cpp,llm,memory,server\nRequires-Python: >=3.8\nDescription-Content-Type: \
         text/markdown\n\n{}\n",
        NAME.replace('_', "-"),
        about.trim_end()
    )
}
