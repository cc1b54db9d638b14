//! Reads symbols from an ELF file on disk, for programs that hide ggml's pool class from the dynamic linker.
//!
//! Such programs contain ggml and were linked without `-rdynamic`, or they use libraries with hidden classes.

use alloc::vec;
use alloc::vec::Vec;

use super::symbols::{
    ByteSource, ClassPart, ClassSymbol, ENTRY, LONGEST, NAMES, SHARED, SymbolEntry, array, half, long, word,
};

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
/// Bounds on sections, and on bytes of one symbol or string table. libtorch's largest library stays within
/// them.
const SECTIONS: u16 = 4096;
const TABLE: u64 = 1 << 30;
const PIECE: usize = 1 << 16;
/// Bound on the occurrences of the names in a string table.
const SPELLINGS: usize = 32;

#[derive(Clone, Copy, Debug)]
struct ElfSection {
    kind: u32,
    link: u32,
    offset: u64,
    size: u64,
}

/// Passes every sought symbol that the file defines to `found`.
pub(super) fn search(file: &impl ByteSource, mut found: impl FnMut(ClassSymbol)) {
    // DECISION: the file is hostile input, read in bounded pieces with `pread`. A mapping would raise SIGBUS
    // if the file were truncated.

    // The full table first; the dynamic one repeats a part of it.
    for kind in [SYMTAB, DYNSYM] {
        let mut any = false;
        let _ = search_tables(file, kind, &mut |symbol| {
            any = true;
            found(symbol);
        });
        if any {
            break;
        }
    }
}

fn search_tables(file: &impl ByteSource, kind: u32, found: &mut dyn FnMut(ClassSymbol)) -> Option<()> {
    let sections = SectionTable::of(file)?;
    let tables = (0..sections.count).filter_map(|index| sections.get(file, u32::from(index)));
    for table in tables.filter(|section| section.kind == kind) {
        let strings = sections.get(file, table.link)?;
        let names = names(file, &strings)?;
        if !names.is_empty() {
            entries(file, &table, &names, found)?;
        }
    }
    Some(())
}

#[derive(Clone, Copy, Debug)]
struct SectionTable {
    offset: u64,
    count: u16,
}

impl SectionTable {
    fn of(file: &impl ByteSource) -> Option<Self> {
        // 64 bits, little-endian: all that CUDA runs on.
        (array::<6>(file, 0)? == *b"\x7fELF\x02\x01").then_some(())?;
        (half(file, 58)? == 64).then_some(())?;
        Some(Self { offset: long(file, 40)?, count: half(file, 60)?.min(SECTIONS) })
    }

    fn get(&self, file: &impl ByteSource, index: u32) -> Option<ElfSection> {
        let at = self.offset.checked_add(u64::from(index) * 64)?;
        (index < u32::from(self.count)).then_some(ElfSection {
            kind: word(file, at.checked_add(4)?)?,
            link: word(file, at.checked_add(40)?)?,
            offset: long(file, at.checked_add(24)?)?,
            size: long(file, at.checked_add(32)?)?.min(TABLE),
        })
    }
}

/// Offsets of the sought names in the string table. A name may be the tail of a longer one: linkers merge
/// tails.
fn names(file: &impl ByteSource, strings: &ElfSection) -> Option<Vec<(u32, ClassPart)>> {
    let mut names = Vec::new();
    pieces(file, strings, LONGEST, |at, piece| {
        for found in occurrences(piece, SHARED) {
            for (name, part) in NAMES {
                let name = name.to_bytes_with_nul();
                let before = occurrences(name, SHARED).next().unwrap_or(0);
                let Some(start) = found.checked_sub(before) else {
                    continue;
                };
                let text = piece.get(start..start + name.len());
                let offset = u32::try_from(at + widen(start)).ok();
                if let (Some(text), Some(offset)) = (text, offset)
                    && text == name
                    && names.len() < SPELLINGS
                    && !names.contains(&(offset, part))
                {
                    names.push((offset, part));
                }
            }
        }
    })?;
    Some(names)
}

fn entries(
    file: &impl ByteSource,
    table: &ElfSection,
    names: &[(u32, ClassPart)],
    found: &mut dyn FnMut(ClassSymbol),
) -> Option<()> {
    let whole = ElfSection { size: table.size / ENTRY * ENTRY, ..*table };
    pieces(file, &whole, 0, |_, piece| {
        for bytes in piece.chunks_exact(24) {
            let Ok(bytes) = bytes.try_into() else { continue };
            let entry = SymbolEntry::of(bytes);
            let parts = names.iter().filter(|(name, _)| *name == entry.name);
            for symbol in parts.filter_map(|(_, part)| entry.defines(*part)) {
                found(symbol);
            }
        }
    })
}

/// Passes a section to `show` piece by piece, each with the last `overlap` bytes of the one before it and its
/// offset.
fn pieces(
    file: &impl ByteSource,
    section: &ElfSection,
    overlap: usize,
    mut show: impl FnMut(u64, &[u8]),
) -> Option<()> {
    // A multiple of an entry's size, so that no entry is cut in two.
    let step = PIECE / 24 * 24;
    let mut buffer = vec![0; step + overlap];
    let (mut at, mut kept) = (0, 0);
    while at < section.size {
        let length = step.min(usize::try_from(section.size - at).unwrap_or(step));
        let fresh = buffer.get_mut(kept..kept + length)?;
        file.read(section.offset.checked_add(at)?, fresh).then_some(())?;
        let filled = kept + length;
        show(at - widen(kept), &buffer[..filled]);
        at += widen(length);
        let keep = overlap.min(filled);
        buffer.copy_within(filled - keep..filled, 0);
        kept = keep;
    }
    Some(())
}

fn occurrences<'a>(bytes: &'a [u8], sought: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = sought.first();
    let windows = bytes.windows(sought.len()).enumerate();
    // The first byte by itself first: it decides nearly always, and a comparison of slices is a call.
    windows.filter_map(move |(at, window)| (window.first() == first && window == sought).then_some(at))
}

fn widen(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct FileInMemory(Vec<u8>);

    impl ByteSource for FileInMemory {
        fn read(&self, at: u64, into: &mut [u8]) -> bool {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let bytes = at.checked_add(into.len()).and_then(|end| self.0.get(at..end));
            bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
        }
    }

    /// An ELF file with one symbol table: a string table of `strings`, and an entry for each `(name, value)`.
    fn elf(strings: &[u8], symbols: &[(u32, u64)]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let names = file.len();
        file.extend(strings);
        let table = file.len();
        for (name, value) in symbols {
            file.extend(name.to_le_bytes());
            file.extend([0x12, 0, 1, 0]);
            file.extend(value.to_le_bytes());
            file.extend(48_u64.to_le_bytes());
        }
        let sections = file.len();
        for (kind, link, offset, size) in
            [(SYMTAB, 1, table, symbols.len() * 24), (3, 0, names, strings.len())]
        {
            let start = file.len();
            file.resize(start + 64, 0);
            file[start + 4..start + 8].copy_from_slice(&kind.to_le_bytes());
            file[start + 24..start + 32].copy_from_slice(&widen(offset).to_le_bytes());
            file[start + 32..start + 40].copy_from_slice(&widen(size).to_le_bytes());
            file[start + 40..start + 44].copy_from_slice(&u32::to_le_bytes(link));
        }
        file[40..48].copy_from_slice(&widen(sections).to_le_bytes());
        file[58] = 64;
        file[60] = 2;
        file
    }

    fn found(file: Vec<u8>) -> Vec<(ClassPart, u64)> {
        let mut found = Vec::new();
        search(&FileInMemory(file), |symbol| found.push((symbol.part, symbol.value)));
        found
    }

    const STRINGS: &[u8] = b"\0main\0_ZTV18ggml_cuda_pool_leg\0x_ZN18ggml_cuda_pool_leg4freeEPvm\0_ZN18ggml_cuda_pool_leg4freeEi\0";

    #[test]
    fn the_class_is_found_by_the_names_of_its_parts_and_nothing_else_is() {
        // The third name is the tail of a longer one, as linkers merge them; the fourth is of another method.
        let symbols = [(1, 0x10), (6, 0x20), (32, 0x30), (31, 0x40), (65, 0x50)];
        assert_eq!(found(elf(STRINGS, &symbols)), [(ClassPart::Vtable, 0x20), (ClassPart::Free, 0x30)]);
    }

    #[test]
    fn a_name_across_two_pieces_is_found() {
        for shift in 0..64 {
            let mut strings = vec![b'.'; PIECE / 24 * 24 - shift];
            let at = u32::try_from(strings.len()).unwrap();
            strings.extend(b"_ZTV18ggml_cuda_pool_leg\0");
            assert_eq!(found(elf(&strings, &[(at, 7)])), [(ClassPart::Vtable, 7)], "{shift}");
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_lies_is_no_danger() {
        let whole = elf(STRINGS, &[(6, 0x20)]);
        // Of the last section header the last 20 bytes are never looked at.
        for length in 0..whole.len() - 20 {
            assert_eq!(found(whole[..length].to_vec()), [], "{length}");
        }
        let at = whole.len() - 128;
        for place in (0..64).chain(at..whole.len()) {
            for byte in [0, 0x7f, 0xff] {
                let mut file = whole.clone();
                file[place] = byte;
                assert!(found(file).len() <= 1);
            }
        }
    }
}
