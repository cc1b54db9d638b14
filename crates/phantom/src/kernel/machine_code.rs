//! Reader of cubins (ELF files with machine code of one GPU): registers and shared memory of each kernel.

use alloc::collections::BTreeMap;

use elf::ElfBytes;
use elf::endian::LittleEndian;

use super::fat_binary::{half, word};
use crate::cards::Card;

/// Registers and static shared memory of each kernel, by its mangled name.
///
/// Registers are an attribute of a symbol in `.nv.info`; static shared memory is the size of
/// `.nv.shared.KERNEL`. From compute capability 9.0 on, that size includes the driver's reserve, which a
/// section of its own states. Seen in libraries of CUDA 12.9 and 13.0: the same kernel is 1024 bytes larger
/// there.
pub(super) fn kernels(file: &[u8]) -> Option<BTreeMap<&[u8], (u32, u32)>> {
    let file = ElfBytes::<LittleEndian>::minimal_parse(file).ok()?;
    let (Some(sections), Some(names)) = file.section_headers_with_strtab().ok()? else { return None };
    let all = || {
        let named = |at: usize| names.get_raw(at).ok();
        sections
            .iter()
            .filter_map(move |section| Some((named(usize::try_from(section.sh_name).ok()?)?, section)))
    };
    let (symbols, texts) = file.symbol_table().ok()??;
    let kernel = |index: u32| {
        let symbol = symbols.get(usize::try_from(index).ok()?).ok()?;
        texts.get_raw(usize::try_from(symbol.st_name).ok()?).ok()
    };
    let (_, info) = all().find(|(name, _)| *name == b".nv.info")?;
    let (info, _) = file.section_data(&info).ok()?;
    let found = registers(info).filter_map(|(index, registers)| Some((kernel(index)?, (registers, 0))));
    let mut kernels: BTreeMap<&[u8], (u32, u32)> = found.collect();
    let reserves = all().any(|(name, _)| name.starts_with(b".nv.shared.reserved."));
    let reserved = if reserves { u64::from(Card::RESERVED) } else { 0 };
    for (name, section) in all() {
        if let Some((_, shared)) = name.strip_prefix(b".nv.shared.").and_then(|name| kernels.get_mut(name)) {
            *shared = u32::try_from(section.sh_size.saturating_sub(reserved)).unwrap_or(u32::MAX);
        }
    }
    Some(kernels)
}

/// Symbols and their registers: the attributes `EIATTR_REGCOUNT` of the list.
fn registers(mut attributes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    /// Form of an attribute whose value has a length; the other forms have one of two bytes.
    const WITH_LENGTH: u8 = 4;
    const REGISTERS: u8 = 0x2f;
    core::iter::from_fn(move || {
        loop {
            let (&[form, kind, ..], length) = (attributes.get(..4)?, half(attributes, 2)?) else {
                return None;
            };
            let length = if form == WITH_LENGTH { usize::from(length) } else { 0 };
            let (value, rest) = attributes.get(4..)?.split_at_checked(length)?;
            attributes = rest;
            if (form, kind) == (WITH_LENGTH, REGISTERS) {
                return Some((word(value, 0)?, word(value, 4)?));
            }
        }
    })
}

#[cfg(test)]
pub(super) use tests::file_of;

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of one kernel with 512 bytes of shared memory, as CUDA 12.9 and 13.0 lay it out from 9.0
    /// on, or before.
    pub(in crate::kernel) fn file_of(registers: u32, arch: u32) -> Vec<u8> {
        let names = b"\0.symtab\0.nv.info\0.nv.shared._Z1kv\0.nv.shared.reserved.0\0";
        let reserves = arch >= 90;
        // Two attributes of another kind and form go before; the second symbol is the kernel.
        let mut info = vec![3, 0x5f, 1, 1, 4, 0x12, 8, 0, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0x2f, 8, 0, 1, 0, 0, 0];
        info.extend(registers.to_le_bytes());
        let mut symbols = [0; 48];
        symbols[24] = 29;
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[20] = 1;
        let offsets = [&names[..], &symbols, &info].map(|part| {
            file.extend(part);
            file.len() - part.len()
        });
        let table = file.len();
        file[40..48].copy_from_slice(&u64::try_from(table).unwrap().to_le_bytes());
        file[58..64].copy_from_slice(&[64, 0, 5 + u8::from(reserves), 0, 1, 0]);
        let shared = if reserves { 512 + 1024 } else { 512 };
        // Name, type, place and size of each section.
        let sections = [
            (0, 0, 0, 0),
            (0, 3, 0, names.len()),
            (1, 2, 1, 48),
            (9, 1, 2, info.len()),
            (18, 8, 0, shared),
            (35, 8, 0, 0),
        ];
        for (name, kind, part, size) in sections {
            let mut section = [0_u64; 8];
            section[0] = kind << 32 | name;
            section[3] = u64::try_from(offsets[part]).unwrap();
            section[4] = u64::try_from(size).unwrap();
            // A table of symbols names the section of its texts, and the size of a symbol.
            (section[5], section[7]) = if kind == 2 { (1, 24) } else { (0, 0) };
            file.extend(section.into_iter().flat_map(u64::to_le_bytes));
        }
        file
    }

    #[test]
    fn shared_memory_is_without_what_the_driver_reserves() {
        for arch in [75, 89, 90, 120] {
            assert_eq!(kernels(&file_of(40, arch)).unwrap()[b"_Z1kv".as_slice()], (40, 512), "{arch}");
        }
    }
}
