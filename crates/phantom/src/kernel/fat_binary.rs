//! Machine code in a fat binary: the compiler's container of one program for several cards.
//!
//! Its format is not published. What is read here was seen in the output of CUDA 11.8 to 13.0: a header, entries
//! of code (2) and text (1) by architecture, packed by LZ4 or zstd, and ELF files with a section for each kernel.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::slice;

use super::Code;

const MAGIC: u32 = 0xba55_ed50;
const MACHINE_CODE: u16 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// Bounds against a damaged container: no file of kernels is as large.
const LARGEST: usize = 256 << 20;

/// Registers and shared memory of every kernel with code for the card, by its mangled name.
pub(super) fn kernels(address: usize, capability: (u32, u32)) -> BTreeMap<Vec<u8>, Code> {
    let Some(container) = container(address) else {
        return BTreeMap::new();
    };
    let Some((entry, own)) = best(container, capability) else {
        return BTreeMap::new();
    };
    let file = unpacked(entry);
    file.and_then(|file| sections(&file, own)).unwrap_or_default()
}

/// The bytes of a container.
fn container(address: usize) -> Option<&'static [u8]> {
    // The compiler aligns a container to eight bytes; 1 stands for none.
    if address < 4096 || !address.is_multiple_of(8) {
        return None;
    }
    let start = core::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: a fat binary that its library registered: at least a header, and the library stays.
    let header = unsafe { slice::from_raw_parts(start, 16) };
    let size = 16_usize.checked_add(usize::try_from(long(header, 8)?).ok()?)?;
    let whole = word(header, 0)? == MAGIC && size <= LARGEST;
    // SAFETY: the header says how much follows it.
    whole.then(|| unsafe { slice::from_raw_parts(start, size) })
}

/// An entry: its header and what follows.
#[derive(Clone, Copy)]
struct Entry<'a> {
    header: &'a [u8],
    payload: &'a [u8],
}

fn entries(container: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    let first = half(container, 6).map_or(container.len(), usize::from);
    let mut rest = container.get(first..).unwrap_or_default();
    core::iter::from_fn(move || {
        let header = usize::try_from(word(rest, 4)?).ok()?;
        let payload = usize::try_from(long(rest, 8)?).ok()?;
        // An entry of no length would be found for ever.
        let (header, after) = rest.split_at_checked(header.max(64))?;
        let (payload, next) = after.split_at_checked(payload)?;
        rest = next;
        Some(Entry { header, payload })
    })
}

/// The code that a driver takes for the card: of its own generation, and no newer. Without any, and false: that of
/// the nearest generation.
fn best(container: &[u8], (major, minor): (u32, u32)) -> Option<(Entry<'_>, bool)> {
    let capability = major * 10 + minor;
    let of_machine = entries(container).filter_map(|entry| {
        let arch = word(entry.header, 28)?;
        (half(entry.header, 0)? == MACHINE_CODE).then_some((arch, entry))
    });
    let fits = |arch: u32| arch / 10 == major && arch <= capability;
    // An older generation before a newer one: kernels are cut for the oldest card that they serve.
    let rank = |arch: u32| {
        (
            fits(arch),
            arch <= capability,
            u32::MAX - arch.abs_diff(capability),
        )
    };
    let (arch, entry) = of_machine.max_by_key(|(arch, _)| rank(*arch))?;
    Some((entry, fits(arch)))
}

fn unpacked(entry: Entry<'_>) -> Option<Vec<u8>> {
    let flags = long(entry.header, 40)?;
    if flags & (LZ4 | ZSTD) == 0 {
        return Some(entry.payload.to_vec());
    }
    let packed = entry
        .payload
        .get(..usize::try_from(word(entry.header, 16)?).ok()?)?;
    let size = usize::try_from(long(entry.header, 56)?)
        .ok()
        .filter(|size| *size <= LARGEST)?;
    if flags & LZ4 != 0 {
        return lz4_flex::block::decompress(packed, size).ok();
    }
    let mut file = Vec::with_capacity(size);
    let mut decoder = ruzstd::decoding::FrameDecoder::new();
    decoder.decode_all_to_vec(packed, &mut file).ok()?;
    Some(file)
}

/// A section of an ELF file.
struct Section {
    name: u32,
    info: u32,
    offset: usize,
    size: u64,
}

/// Registers are the upper byte of `sh_info` of `.text.KERNEL`, static shared memory is the size of
/// `.nv.shared.KERNEL`.
fn sections(file: &[u8], own: bool) -> Option<BTreeMap<Vec<u8>, Code>> {
    let table = usize::try_from(long(file, 40)?).ok()?;
    let (count, names) = (usize::from(half(file, 60)?), usize::from(half(file, 62)?));
    let section = |index: usize| {
        let at = file.get(table.checked_add(index * 64)?..)?;
        Some(Section {
            name: word(at, 0)?,
            info: word(at, 44)?,
            offset: usize::try_from(long(at, 24)?).ok()?,
            size: long(at, 32)?,
        })
    };
    let names = section(names)?.offset;
    let none = Code {
        registers: 0,
        shared: 0,
        own,
    };
    let mut kernels: BTreeMap<Vec<u8>, Code> = BTreeMap::new();
    for section in (0..count).filter_map(section) {
        let Some(name) = cut(file, names, section.name) else {
            continue;
        };
        if let Some(kernel) = name.strip_prefix(b".text.") {
            kernels.entry(kernel.to_vec()).or_insert(none).registers = section.info >> 24;
        } else if let Some(kernel) = name.strip_prefix(b".nv.shared.") {
            kernels.entry(kernel.to_vec()).or_insert(none).shared =
                u32::try_from(section.size).unwrap_or(u32::MAX);
        }
    }
    Some(kernels)
}

/// A name of the table of names, without its zero.
fn cut(file: &[u8], names: usize, at: u32) -> Option<&[u8]> {
    let name = file.get(names.checked_add(usize::try_from(at).ok()?)?..)?;
    name.split(|byte| *byte == 0).next()
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
