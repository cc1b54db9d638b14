//! Detects programs into which the loader cannot preload a library, such as static and setuid programs.
//!
//! Their child processes can still have the library, so the result is only a note.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::process::{getegid, geteuid};

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// e_phoff, e_phentsize and e_phnum of a 64-bit header; p_type of an interpreter.
const PROGRAM_HEADERS: usize = 32;
const ENTRY_SIZE: usize = 54;
const ENTRIES: usize = 56;
const INTERPRETER: u32 = 3;
const CLASS_64: u8 = 2;

/// Reason why guard cannot be preloaded into a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    Static,
    Privileged,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Static => "the program is linked statically, so no library can be preloaded into it",
            Self::Privileged => {
                "the program runs with another user's or group's rights, so the loader ignores LD_PRELOAD"
            }
        })
    }
}

/// Reason why nothing can be preloaded into `program`; `None` if something can, or if its file does not show
/// it.
pub fn unreachable(program: &Path) -> Option<Unreachable> {
    let file = plimsoll_file::open(program).ok()?;
    let about = file.metadata().ok()?;
    // A set-ID program of our own user changes no rights, so the kernel leaves AT_SECURE at 0 and the loader
    // preloads.
    let other_user = about.mode() & SETUID != 0 && about.uid() != geteuid().as_raw();
    let other_group = about.mode() & SETGID != 0 && about.gid() != getegid().as_raw();
    if other_user || other_group {
        return Some(Unreachable::Privileged);
    }
    (!has_interpreter(&file)?).then_some(Unreachable::Static)
}

/// True if the ELF file names an interpreter; `None` if it is not a 64-bit ELF file in this machine's byte
/// order.
fn has_interpreter(file: &File) -> Option<bool> {
    // The size of `Elf64_Ehdr` (elf(5)).
    let mut head = [0; 64];
    file.read_exact_at(&mut head, 0).ok()?;
    // e_ident[EI_DATA]: 1 is little-endian, 2 is big-endian.
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if !head.starts_with(b"\x7fELF") || head[4] != CLASS_64 || head[5] != order {
        return None;
    }
    let offset = u64::from_ne_bytes(part(&head, PROGRAM_HEADERS)?);
    let size = u16::from_ne_bytes(part(&head, ENTRY_SIZE)?);
    let count = u16::from_ne_bytes(part(&head, ENTRIES)?);
    for index in 0..count {
        // The offset is the file's claim and may lie close to 2^64.
        let at = offset.checked_add(u64::from(index) * u64::from(size))?;
        // p_type is the first word of `Elf64_Phdr`.
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_ne_bytes(kind) == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

fn part<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..offset + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A header with one program header of this type behind it.
    fn elf(kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[PROGRAM_HEADERS] = 64;
        bytes[ENTRY_SIZE] = 56;
        bytes[ENTRIES] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    #[test]
    fn a_static_program_is_known_by_its_file_and_nothing_else_is_taken_for_one() {
        assert_eq!(unreachable(&std::env::current_exe().unwrap()), None);
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, judged) in [
            (elf(1), Some(Unreachable::Static)),
            (elf(INTERPRETER), None),
            (b"#!/bin/sh\n".to_vec(), None),
            (elf(1)[..70].to_vec(), Some(Unreachable::Static)),
            (elf(1)[..66].to_vec(), None),
            (Vec::new(), None),
        ] {
            fs::write(file.path(), &bytes).unwrap();
            assert_eq!(unreachable(file.path()), judged, "{bytes:?}");
        }
    }
}
