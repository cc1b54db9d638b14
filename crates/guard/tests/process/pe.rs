//! Tests of the reader of Windows' images: a small library with an import and a class, whole and damaged.

use plimsoll_pe::{ClassError, Image, ImageError, Layout, VirtualTable};
use proptest::prelude::*;

const BASE: u64 = 0x1_8000_0000;
/// Where the optional header begins.
const OPTIONAL: usize = 0x58;
const SECTIONS: usize = OPTIONAL + 240;
/// Address and offset of each section: `.text`, `.rdata` and `.data`.
const CODE: u32 = 0x1000;
const CONSTANTS: u32 = 0x2000;
const DATA: u32 = 0x3000;
const NAME: &str = ".?AUpool@@";

/// A library as its file, whose sections lie where they are mapped.
#[derive(Clone)]
struct Library(Vec<u8>);

impl Library {
    fn new() -> Self {
        let mut library = Self(vec![0; 0x4000]);
        library.put(0, b"MZ");
        library.put32(0x3c, 0x40);
        library.put(0x40, b"PE\0\0");
        library.put(0x46, &3_u16.to_le_bytes());
        library.put(0x54, &240_u16.to_le_bytes());
        library.put(OPTIONAL, &0x20b_u16.to_le_bytes());
        library.put(OPTIONAL + 24, &BASE.to_le_bytes());
        library.put32(OPTIONAL + 56, 0x4000);
        library.put32(OPTIONAL + 108, 16);
        for (index, (name, address)) in
            [(b".text\0\0\0", CODE), (b".rdata\0\0", CONSTANTS), (b".data\0\0\0", DATA)]
                .into_iter()
                .enumerate()
        {
            let at = SECTIONS + index * 40;
            library.put(at, name);
            for (field, value) in [(8, 0x1000), (12, address), (16, 0x1000), (20, address)] {
                library.put32(at + field, value);
            }
        }
        library
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn put32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_le_bytes());
    }

    /// Imports `cuMemCreate` of nvcuda.dll, by a descriptor at the begin of the constants.
    fn with_import(mut self) -> Self {
        self.put32(OPTIONAL + 112 + 8, CONSTANTS);
        let at = 0x2000;
        for (field, value) in [(0, 0x2100), (12, 0x2200), (16, 0x2300)] {
            self.put32(at + field, value);
        }
        self.put(0x2100, &0x2240_u64.to_le_bytes());
        self.put(0x2200, b"nvcuda.dll\0");
        self.put(0x2240, b"\x07\0cuMemCreate\0");
        self
    }

    /// A class with methods at these addresses.
    fn with_class(mut self, methods: &[u32]) -> Self {
        self.put(0x3010, &[NAME.as_bytes(), b"\0"].concat());
        for (field, value) in [(0, 1), (12, 0x3000), (20, 0x2400)] {
            self.put32(0x2400 + field, value);
        }
        self.put(0x2500, &(BASE + 0x2400).to_le_bytes());
        for (index, method) in methods.iter().enumerate() {
            self.put(0x2508 + index * 8, &(BASE + u64::from(*method)).to_le_bytes());
        }
        self
    }

    fn image(&self) -> Result<Image<'_>, ImageError> {
        Image::read(&self.0, Layout::File)
    }
}

#[test]
fn imports_have_a_library_a_name_and_the_place_of_their_pointer() {
    let library = Library::new().with_import();
    let image = library.image().unwrap();
    let imports = image.imports();
    let import = imports.first().unwrap();
    assert_eq!((import.library, import.name, import.slot), ("nvcuda.dll", "cuMemCreate", 0x2300));
    assert_eq!((imports.len(), import.is_delayed), (1, false));
}

#[test]
fn the_table_of_a_class_ends_where_no_method_follows() {
    let library = Library::new().with_class(&[CODE, CODE + 0x20, CODE + 0x40]);
    let table = VirtualTable { address: 0x2508, methods: vec![CODE, CODE + 0x20, CODE + 0x40] };
    assert_eq!(library.image().unwrap().virtual_table(NAME), Some(Ok(table)));
    assert_eq!(library.image().unwrap().virtual_table(".?AUother@@"), None);
}

#[test]
fn a_mapped_image_counts_its_pointers_from_where_it_lies() {
    let library = Library::new().with_class(&[CODE]);
    let at = |base| Image::read(&library.0, Layout::Mapped { base }).unwrap().virtual_table(NAME).unwrap();
    assert_eq!(at(BASE).map(|table| table.methods), Ok(vec![CODE]));
    assert_eq!(at(BASE + 0x10000), Err(ClassError::Table));
}

#[test]
fn a_class_without_methods_has_no_table_and_one_without_locator_is_said() {
    assert_eq!(
        Library::new().with_class(&[DATA]).image().unwrap().virtual_table(NAME),
        Some(Err(ClassError::Table))
    );
    let mut library = Library::new().with_class(&[CODE]);
    library.put32(0x2400 + 20, 0x2404);
    assert_eq!(library.image().unwrap().virtual_table(NAME), Some(Err(ClassError::Locator)));
}

#[test]
fn bytes_that_are_no_image_are_refused() {
    let mut library = Library::new();
    assert_eq!(Image::read(b"\x7fELF", Layout::File).unwrap_err(), ImageError::Header);
    library.put(OPTIONAL, &0x10b_u16.to_le_bytes());
    assert_eq!(library.image().unwrap_err(), ImageError::Not64Bit);
    library.put(OPTIONAL, &0x20b_u16.to_le_bytes());
    library.put(0x46, &u16::MAX.to_le_bytes());
    assert_eq!(library.image().unwrap_err(), ImageError::Sections);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_image_is_read_or_refused(
        changes in prop::collection::vec((0..0x4000_usize, any::<u8>()), 1..64),
        fields in prop::collection::vec((0..SECTIONS + 120, any::<u32>()), 0..4),
        length in 0..0x4001_usize,
    ) {
        let Library(mut bytes) = Library::new().with_import().with_class(&[CODE, CODE + 8, CODE + 16]);
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        for (at, value) in fields {
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes.truncate(length);
        for layout in [Layout::File, Layout::Mapped { base: BASE }] {
            if let Ok(image) = Image::read(&bytes, layout) {
                let _ = (image.imports(), image.virtual_table(NAME));
            }
        }
    }
}
