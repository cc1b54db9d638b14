//! What is sought: the vtable of ggml's legacy pool and the methods that stand in it, by their mangled names.
//!
//! DECISION: nothing about the class is assumed but its name and the signatures of its two virtual methods. Which slot of the
//! vtable is which is found by comparing the slots with the addresses of the methods, so that another order of
//! declaration, or a base class that grows a method, moves the slots and breaks nothing.

use core::ffi::CStr;

/// The part that all the names share; a string table without it holds none of them.
pub(super) const SHARED: &[u8] = b"18ggml_cuda_pool_leg";

/// A part of the class that has a symbol of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
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

pub(super) const NAMES: [(&CStr, Part); 6] = [
    (c"_ZTV18ggml_cuda_pool_leg", Part::Vtable),
    (c"_ZN18ggml_cuda_pool_leg5allocEmPm", Part::Alloc),
    (c"_ZN18ggml_cuda_pool_leg4freeEPvm", Part::Free),
    (c"_ZN18ggml_cuda_pool_legD0Ev", Part::Delete),
    (c"_ZN18ggml_cuda_pool_legD1Ev", Part::Destroy),
    (c"_ZN18ggml_cuda_pool_legD2Ev", Part::Destroy),
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

/// A definition of one part, at an address as the object's file counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) part: Part,
    pub(super) value: u64,
    pub(super) size: u64,
}

/// Bytes that may be looked at: a file, or the memory of a loaded object. Whoever reads beyond their end is told so.
pub(super) trait Bytes {
    /// Fills `into` from `at`; false if not all of it is there.
    fn read(&self, at: u64, into: &mut [u8]) -> bool;
}

pub(super) fn array<const N: usize>(bytes: &impl Bytes, at: u64) -> Option<[u8; N]> {
    let mut array = [0; N];
    bytes.read(at, &mut array).then_some(array)
}

pub(super) fn half(bytes: &impl Bytes, at: u64) -> Option<u16> {
    array(bytes, at).map(u16::from_le_bytes)
}

pub(super) fn word(bytes: &impl Bytes, at: u64) -> Option<u32> {
    array(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn long(bytes: &impl Bytes, at: u64) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

/// Bytes of an entry of a symbol table.
pub(super) const ENTRY: u64 = 24;

/// An entry of a symbol table, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) name: u32,
    pub(super) value: u64,
    pub(super) size: u64,
    defined: bool,
}

impl Entry {
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

    /// The symbol that this entry defines, if it is a definition.
    pub(super) fn defines(&self, part: Part) -> Option<Symbol> {
        let Self { value, size, .. } = *self;
        self.defined.then_some(Symbol { part, value, size })
    }
}
