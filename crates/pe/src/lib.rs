//! Reader of programs and libraries of Windows (PE32+), from their files or as the loader has mapped them.
//!
//! Every offset is checked against the bytes, so a damaged file is an error or has fewer imports, and never a
//! panic. Addresses are relative to the begin of the mapped image (RVA), in bytes.
//! Source of the layout: "PE Format", learn.microsoft.com/windows/win32/debug/pe-format.
#![forbid(unsafe_code)]

mod class;
mod imports;

pub use self::class::{ClassError, VirtualTable};
pub use self::imports::Import;

/// Error: the bytes are no image that this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    #[error("it does not begin with the headers of a program of Windows")]
    Header,
    #[error("it is not a 64-bit program of Windows")]
    Not64Bit,
    #[error("its table of sections is cut off")]
    Sections,
}

/// Where the sections lie in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As in the file.
    File,
    /// As the loader maps them, with the address of the first byte.
    Mapped { base: u64 },
}

/// A program or a library.
#[derive(Clone, Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    layout: Layout,
    /// The address that absolute pointers in the bytes count from.
    base: u64,
    optional: usize,
    sections: Vec<Section>,
}

#[derive(Clone, Copy, Debug)]
struct Section {
    name: [u8; 8],
    address: u32,
    /// Bytes in memory and in the file, and their offset in the file.
    size: u32,
    stored: u32,
    offset: u32,
}

/// Size of a header of a section.
const SECTION: usize = 40;
/// `Magic` of an optional header with 64-bit addresses.
const PE32_PLUS: u16 = 0x20b;
/// Longest name of a function or a library.
const LONGEST_NAME: usize = 4096;
/// Bytes between the signature and the optional header.
const FILE_HEADER: usize = 24;

impl<'a> Image<'a> {
    pub fn read(bytes: &'a [u8], layout: Layout) -> Result<Self, ImageError> {
        let start = number32(bytes, 0x3c).filter(|_| bytes.starts_with(b"MZ")).ok_or(ImageError::Header)?;
        let start = wide(start);
        if bytes.get(start..start.saturating_add(4)) != Some(b"PE\0\0") {
            return Err(ImageError::Header);
        }
        let optional = start + FILE_HEADER;
        if number16(bytes, optional) != Some(PE32_PLUS) {
            return Err(ImageError::Not64Bit);
        }
        let count = number16(bytes, start + 6).ok_or(ImageError::Sections)?;
        let size = number16(bytes, start + 20).ok_or(ImageError::Sections)?;
        let first = optional + usize::from(size);
        let sections = (0..usize::from(count)).map(|index| Section::read(bytes, first + index * SECTION));
        let sections: Option<Vec<Section>> = sections.collect();
        let base = match layout {
            Layout::File => number64(bytes, optional + 24).ok_or(ImageError::Header)?,
            Layout::Mapped { base } => base,
        };
        Ok(Self { bytes, layout, base, optional, sections: sections.ok_or(ImageError::Sections)? })
    }

    /// Bytes of the mapped image that begins with these bytes, at least 4 KiB of headers.
    pub fn mapped_size(headers: &[u8]) -> Option<usize> {
        let optional = wide(number32(headers, 0x3c)?).checked_add(FILE_HEADER)?;
        number32(headers, optional.checked_add(56)?).map(wide)
    }

    /// The bytes of a section, and their address.
    fn section(&self, name: &str) -> Option<(u32, &'a [u8])> {
        let is_named =
            |section: &&Section| section.name.split(|byte| *byte == 0).next() == Some(name.as_bytes());
        let section = self.sections.iter().find(is_named)?;
        Some((section.address, self.from(section.address)?))
    }

    /// The bytes from an address to the end of its section.
    fn from(&self, address: u32) -> Option<&'a [u8]> {
        let section = self.sections.iter().find(|section| section.has(address))?;
        let inner = address - section.address;
        let (start, size) = match self.layout {
            Layout::File => (section.offset.checked_add(inner)?, section.size.min(section.stored)),
            Layout::Mapped { .. } => (address, section.size),
        };
        let rest = self.bytes.get(wide(start)..)?;
        Some(&rest[..rest.len().min(wide(size.saturating_sub(inner)))])
    }

    /// The address that a pointer in the bytes has within the image.
    fn relative(&self, pointer: u64) -> Option<u32> {
        u32::try_from(pointer.checked_sub(self.base)?).ok()
    }

    /// Address of a table of the optional header's directory; `None` if there is none.
    fn directory(&self, index: usize) -> Option<u32> {
        let count = wide(number32(self.bytes, self.optional + 108)?);
        let address = number32(self.bytes, self.optional + 112 + index * 8)?;
        (index < count && address != 0).then_some(address)
    }

    /// The text at an address, up to its zero.
    fn text(&self, address: u32) -> Option<&'a str> {
        let bytes = self.from(address)?;
        let end = bytes.iter().take(LONGEST_NAME).position(|byte| *byte == 0)?;
        str::from_utf8(&bytes[..end]).ok()
    }
}

impl Section {
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        let name = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
        let field = |offset| number32(bytes, at + offset);
        Some(Self { name, size: field(8)?, address: field(12)?, stored: field(16)?, offset: field(20)? })
    }

    fn has(&self, address: u32) -> bool {
        address.checked_sub(self.address).is_some_and(|inner| inner < self.size)
    }
}

fn wide(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn number64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
