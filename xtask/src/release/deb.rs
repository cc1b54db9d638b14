//! Writes the Debian package (deb(5)): an `ar` archive of the format version, the control files and the
//! installed files.

use std::fs;
use std::io;
use std::path::Path;

use super::VERSION;
use super::contents::CONFIGURATION;
use super::options::Architecture;
use super::tree::FileTree;

const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// The package; `floor` is the oldest glibc that the program runs with.
pub(super) fn package(
    root: &Path,
    tree: &FileTree,
    architecture: Architecture,
    floor: Option<(u32, u32)>,
    date: u64,
) -> io::Result<Vec<u8>> {
    let mut control = FileTree::default();
    control.file("control", 0o644, paragraph(tree, architecture, floor));
    control.file("conffiles", 0o644, format!("/{CONFIGURATION}\n"));
    control.file("md5sums", 0o644, sums(tree));
    for script in SCRIPTS {
        control.file(script, 0o755, fs::read(root.join("packaging/deb").join(script))?);
    }
    let mut package = ar::Builder::new(Vec::new());
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", control.compressed(date)?),
        ("data.tar.gz", tree.compressed(date)?),
    ];
    for (name, bytes) in members {
        let length = u64::try_from(bytes.len()).map_err(io::Error::other)?;
        let mut header = ar::Header::new(name.into(), length);
        header.set_mtime(date);
        header.set_mode(0o100_644);
        package.append(&header, bytes.as_slice())?;
    }
    package.into_inner()
}

/// The binary package's control paragraph.
fn paragraph(tree: &FileTree, architecture: Architecture, floor: Option<(u32, u32)>) -> String {
    // Kibibytes of the files, each rounded up, and one for each other entry (deb-substvars(5)).
    let files: usize = tree.files().map(|(_, bytes)| bytes.len().div_ceil(1024)).sum();
    let size = files + tree.nodes().count() - tree.files().count();
    let libc =
        floor.map_or_else(|| "libc6".to_owned(), |(major, minor)| format!("libc6 (>= {major}.{minor})"));
    format!(
        "Package: plimsoll\n\
         Version: {VERSION}\n\
         Architecture: {architecture}\n\
         Maintainer: The Plimsoll authors <plimsoll@localhost>\n\
         Installed-Size: {size}\n\
         Depends: {libc}, libgcc-s1\n\
         Recommends: systemd, ca-certificates\n\
         Suggests: python3-venv, libgomp1\n\
         Section: utils\n\
         Priority: optional\n\
         Description: planner and server for models on shared GPU memory\n \
         Plimsoll computes what a model takes on each card before it starts, serves\n \
         several models from cards that cannot hold all of them, keeps CUDA programs\n \
         to a budget, and explains failed allocations.\n"
    )
}

/// Checksums of the files, for `dpkg --verify`; configuration is the user's, and not among them.
fn sums(tree: &FileTree) -> String {
    let files = tree.files().filter(|(path, _)| *path != CONFIGURATION);
    files.map(|(path, bytes)| format!("{:x}  {path}\n", md5::compute(bytes))).collect()
}
