//! Writes a zip archive (PKWARE's APPNOTE 4.3) of a file tree, with sorted entries and a single date.
//!
//! DECISION: own lines over `flate2`, because the crate `zip` adds six packages to the lock file for the two
//! headers below.

use std::io::{self, Write};

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use super::tree::{FileTree, Node};

/// 2.0: the first version that can deflate.
const VERSION: u16 = 20;
/// With Unix modes, so that they are kept.
const MADE_BY_UNIX: u16 = 3 << 8 | VERSION;
const DEFLATE: u16 = 8;
/// The earliest date that the format knows, 1980-01-01.
const DATE: u16 = 0x21;
const REGULAR: u32 = 0o100_000;

/// The archive of a tree's regular files; folders and links are left out.
pub(super) fn archive(tree: &FileTree) -> io::Result<Vec<u8>> {
    let mut archive = Vec::new();
    let mut directory = Vec::new();
    let mut count = 0_u16;
    for (path, node) in tree.nodes() {
        let Node::File { mode, bytes } = node else { continue };
        let packed = deflated(bytes)?;
        let start = number(archive.len())?;
        let entry = entry(path, bytes, &packed)?;
        archive.extend(b"PK\x03\x04");
        archive.extend(VERSION.to_le_bytes());
        archive.extend(&entry);
        archive.extend(path.as_bytes());
        archive.extend(packed);
        directory.extend(b"PK\x01\x02");
        for word in [MADE_BY_UNIX, VERSION] {
            directory.extend(word.to_le_bytes());
        }
        directory.extend(&entry);
        // No comment, on the first disk, no attributes of MS-DOS.
        directory.extend([0; 6]);
        directory.extend(((REGULAR | mode) << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(path.as_bytes());
        count += 1;
    }
    let (start, length) = (number(archive.len())?, number(directory.len())?);
    archive.extend(directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([count.to_le_bytes(); 2].concat());
    archive.extend([length.to_le_bytes(), start.to_le_bytes()].concat());
    archive.extend([0; 2]);
    Ok(archive)
}

/// What both headers of a file have in common.
fn entry(path: &str, bytes: &[u8], packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut sum = Crc::new();
    sum.update(bytes);
    let mut entry = Vec::new();
    for word in [0, DEFLATE, 0, DATE] {
        entry.extend(word.to_le_bytes());
    }
    for word in [sum.sum(), number(packed.len())?, number(bytes.len())?] {
        entry.extend(word.to_le_bytes());
    }
    let length = u16::try_from(path.len()).map_err(io::Error::other)?;
    entry.extend([length.to_le_bytes(), [0; 2]].concat());
    Ok(entry)
}

fn deflated(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut writer = DeflateEncoder::new(Vec::new(), Compression::best());
    writer.write_all(bytes)?;
    writer.finish()
}

fn number(length: usize) -> io::Result<u32> {
    u32::try_from(length).map_err(io::Error::other)
}
