//! Names the C++ symbols (mangled) of ggml's legacy memory pool: its vtable and the methods in it.

use core::ffi::CStr;

/// Substring of all the names; a string table without it holds none of them.
pub(super) const SHARED: &[u8] = b"18ggml_cuda_pool_leg";

/// Part of the class that has its own symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClassPart {
    Vtable,
    /// `void * alloc(size_t, size_t *)`
    Alloc,
    /// `void free(void *, size_t)`
    Free,
    /// The destructor that `delete` calls: it gives the object's own memory back too.
    Delete,
    /// The destructor of an object that lives in another one; two names for one function.
    Destroy,
}

// DECISION: the vtable's slots are identified by comparing them with the methods' addresses. So a different
// order of declaration breaks nothing.
pub(super) const NAMES: [(&CStr, ClassPart); 6] = [
    (c"_ZTV18ggml_cuda_pool_leg", ClassPart::Vtable),
    (c"_ZN18ggml_cuda_pool_leg5allocEmPm", ClassPart::Alloc),
    (c"_ZN18ggml_cuda_pool_leg4freeEPvm", ClassPart::Free),
    (c"_ZN18ggml_cuda_pool_legD0Ev", ClassPart::Delete),
    (c"_ZN18ggml_cuda_pool_legD1Ev", ClassPart::Destroy),
    (c"_ZN18ggml_cuda_pool_legD2Ev", ClassPart::Destroy),
];

/// The longest of the names, with the zero behind it.
pub(super) const LONGEST: usize = 34;

const _: () = {
    let mut index = 0;
    while index < NAMES.len() {
        assert!(NAMES[index].0.count_bytes() < LONGEST);
        index += 1;
    }
};

/// Definition of one part, at an address relative to the object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassSymbol {
    pub(super) part: ClassPart,
    pub(super) value: u64,
    pub(super) size: u64,
}

/// Bytes of a file or of a loaded object, read with bounds checks.
pub(super) trait ByteSource {
    /// Fills `into` from `at`; false if not all of it is there.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

pub(super) fn array<const N: usize>(bytes: &impl ByteSource, at: u64) -> Option<[u8; N]> {
    let mut array = [0; N];
    bytes.read(at, &mut array).then_some(array)
}

pub(super) fn half(bytes: &impl ByteSource, at: u64) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn word(bytes: &impl ByteSource, at: u64) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn long(bytes: &impl ByteSource, at: u64) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Bytes of an entry of a symbol table.
pub(super) const ENTRY: u64 = 24;

/// An entry of a symbol table (`Elf64_Sym`), without its binding and section.
#[derive(Clone, Copy, Debug)]
pub(super) struct SymbolEntry {
    pub(super) name: u32,
    pub(super) value: u64,
    pub(super) size: u64,
    defined: bool,
}

impl SymbolEntry {
    pub(super) fn of(bytes: &[u8; 24]) -> Self {
        let [n0, n1, n2, n3, _, _, s0, s1, rest @ ..] = *bytes;
        let [v0, v1, v2, v3, v4, v5, v6, v7, z0, z1, z2, z3, z4, z5, z6, z7] = rest;
        Self {
            name: u32::from_le_bytes([n0, n1, n2, n3]),
            defined: u16::from_le_bytes([s0, s1]) != 0,
            value: u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]),
            size: u64::from_le_bytes([z0, z1, z2, z3, z4, z5, z6, z7]),
        }
    }

    /// The symbol of this entry, if the entry is a definition.
    pub(super) fn defines(&self, part: ClassPart) -> Option<ClassSymbol> {
        let Self { value, size, .. } = *self;
        self.defined.then_some(ClassSymbol { part, value, size })
    }
}
