//! Reader of machine code in a fat binary, the compiler's container for several generations of cards.
//!
//! The format is not published; this reader handles the output of CUDA 11.8 to 13.0.

use alloc::borrow::Cow;
use alloc::vec;
use alloc::vec::Vec;
use core::slice;

use super::{Code, machine_code};

const MAGIC: u32 = 0xba55_ed50;
const MACHINE_CODE: u16 = 2;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// Bounds against a damaged container: no file of kernels is as large.
const LARGEST: usize = 256 << 20;

/// The code of these kernels for the card, by their mangled names.
pub(super) fn codes(address: usize, capability: (u32, u32), names: &[&str]) -> Vec<Option<Code>> {
    let read = container(address).and_then(|container| read(container, capability, names));
    read.unwrap_or_else(|| vec![None; names.len()])
}

fn read(container: &[u8], capability: (u32, u32), names: &[&str]) -> Option<Vec<Option<Code>>> {
    let (entry, own) = best(container, capability)?;
    let file = unpacked(entry)?;
    let kernels = machine_code::kernels(&file)?;
    let code = |name: &&str| {
        let &(registers, shared) = kernels.get(name.as_bytes())?;
        Some(Code { registers, shared, own })
    };
    Some(names.iter().map(code).collect())
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

/// The code that a driver takes for the card, of its own generation; else, and false, the nearest.
fn best(container: &[u8], (major, minor): (u32, u32)) -> Option<(Entry<'_>, bool)> {
    let capability = major * 10 + minor;
    let of_machine = entries(container).filter_map(|entry| {
        let arch = word(entry.header, 28)?;
        (half(entry.header, 0)? == MACHINE_CODE).then_some((arch, entry))
    });
    let fits = |arch: u32| arch / 10 == major && arch <= capability;
    // An older generation before a newer one: kernels are cut for the oldest card that they serve.
    let rank = |arch: u32| (fits(arch), arch <= capability, u32::MAX - arch.abs_diff(capability));
    let (arch, entry) = of_machine.max_by_key(|(arch, _)| rank(*arch))?;
    Some((entry, fits(arch)))
}

fn unpacked(entry: Entry<'_>) -> Option<Cow<'_, [u8]>> {
    let flags = long(entry.header, 40)?;
    if flags & (LZ4 | ZSTD) == 0 {
        return Some(Cow::Borrowed(entry.payload));
    }
    let packed = entry.payload.get(..usize::try_from(word(entry.header, 16)?).ok()?)?;
    let size = usize::try_from(long(entry.header, 56)?).ok().filter(|size| *size <= LARGEST)?;
    if flags & LZ4 != 0 {
        return lz4_flex::block::decompress(packed, size).ok().map(Cow::Owned);
    }
    let mut file = Vec::with_capacity(size);
    let mut decoder = ruzstd::decoding::FrameDecoder::new();
    decoder.decode_all_to_vec(packed, &mut file).ok()?;
    Some(Cow::Owned(file))
}

pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use plimsoll_fuzz::mutants;

    use super::super::machine_code::file_of;
    use super::*;

    /// A container of entries: kind, architecture, flags, and the file as it is packed by hand.
    fn binary(entries: &[(u16, u32, u64, u32)]) -> Vec<u8> {
        let mut container = vec![0; 16];
        container[..4].copy_from_slice(&MAGIC.to_le_bytes());
        container[6] = 16;
        for &(kind, arch, flags, registers) in entries {
            let file = file_of(registers, arch);
            let size = u64::try_from(file.len()).unwrap();
            let mut packed = match flags {
                // One run of literals; one raw block.
                LZ4 => {
                    let rest = file.len() - 15;
                    let length = [vec![255; rest / 255], vec![u8::try_from(rest % 255).unwrap()]].concat();
                    [&[0xf0][..], &length, &file].concat()
                }
                ZSTD => [&[0x28, 0xb5, 0x2f, 0xfd, 0x60, 0, 0, 0, 0, 0][..], &file].concat(),
                _ => file,
            };
            if flags == ZSTD {
                let header = u32::try_from(size).unwrap() << 3 | 1;
                packed[5..7].copy_from_slice(&u16::try_from(size - 256).unwrap().to_le_bytes());
                packed[7..10].copy_from_slice(&header.to_le_bytes()[..3]);
            }
            let length = u32::try_from(packed.len()).unwrap();
            packed.resize(packed.len().next_multiple_of(8), 0);
            let mut header = vec![0; 64];
            header[..2].copy_from_slice(&kind.to_le_bytes());
            header[4] = 64;
            header[8..16].copy_from_slice(&u64::try_from(packed.len()).unwrap().to_le_bytes());
            header[16..20].copy_from_slice(&length.to_le_bytes());
            header[28..32].copy_from_slice(&arch.to_le_bytes());
            header[40..48].copy_from_slice(&flags.to_le_bytes());
            header[56..64].copy_from_slice(&size.to_le_bytes());
            container.extend(header);
            container.extend(packed);
        }
        let size = u64::try_from(container.len() - 16).unwrap();
        container[8..16].copy_from_slice(&size.to_le_bytes());
        container
    }

    fn code(entries: &[(u16, u32, u64, u32)], capability: (u32, u32)) -> Option<Code> {
        read(&binary(entries), capability, &["_Z1kv"])?[0]
    }

    #[test]
    fn a_kernel_is_read_however_it_is_packed() {
        for flags in [0, LZ4, ZSTD] {
            let expected = Code { registers: 40, shared: 512, own: true };
            assert_eq!(code(&[(1, 75, 0, 9), (2, 89, flags, 40)], (8, 9)), Some(expected), "{flags:#x}");
        }
    }

    #[test]
    fn the_code_is_that_which_a_driver_takes_or_the_nearest_and_said_so() {
        let entries = [(2, 80, 0, 80), (2, 86, 0, 86), (2, 120, 0, 120), (1, 90, 0, 90)];
        let of = |capability| code(&entries, capability).map(|code| (code.registers, code.own));
        assert_eq!(of((8, 9)), Some((86, true)));
        assert_eq!(of((8, 0)), Some((80, true)));
        assert_eq!(of((12, 1)), Some((120, true)));
        assert_eq!(of((9, 0)), Some((86, false)));
        assert_eq!(of((7, 5)), Some((80, false)));
        assert_eq!(code(&[(1, 90, 0, 9)], (9, 0)), None);
    }

    #[test]
    fn million_fat_binaries() {
        let names = ["_Z1kv", ""];
        let seeds = [(89, 0), (90, 0), (89, LZ4), (120, ZSTD)];
        let seeds = seeds.map(|(arch, flags)| binary(&[(1, arch, 0, 9), (2, arch, flags, 40)]));
        let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
        let tokens: [&[u8]; 5] =
            [&MAGIC.to_le_bytes(), b".nv.info", b".symtab", &[4, 0x2f, 8, 0], &[0xff; 4]];
        mutants(&seeds, &tokens, |container| {
            let codes = read(container, (9, 0), &names);
            assert!(codes.is_none_or(|codes| codes.len() == names.len()));
        });
        for address in [0, 1, 17] {
            assert_eq!(codes(address, (9, 0), &names), [None; 2]);
        }
    }

    #[test]
    fn a_container_that_is_cut_or_damaged_anywhere_does_no_harm() {
        let whole = binary(&[(2, 89, 0, 40), (2, 89, LZ4, 40), (2, 89, ZSTD, 40)]);
        for end in 0..whole.len() {
            let _ = read(&whole[..end], (8, 9), &["_Z1kv"]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = whole.clone();
                damaged[end] = value;
                let _ = read(&damaged, (8, 9), &["_Z1kv"]);
            }
        }
    }
}
