//! Searches all loaded objects for the C++ class of ggml's legacy pool, by its symbols.

use alloc::vec::Vec;
use core::ffi::CStr;

use super::mapped_objects::{self, MappedObject, wide};
use super::symbol_file;
use super::symbols::{self, ByteSource, ClassPart, ClassSymbol, NAMES};

/// A vtable of the class, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vtable {
    /// Address of its symbol; objects point two words further.
    pub(super) address: usize,
    pub(super) slots: usize,
}

/// Methods of the class, by address.
pub(super) type Methods = Vec<(ClassPart, usize)>;

/// Parts of the class that were found.
#[derive(Debug, Default)]
pub(super) struct FoundClass {
    pub(super) vtables: Vec<Vtable>,
    pub(super) methods: Methods,
}

/// Objects that do not contain the class, by their load address and a hash of their path.
#[derive(Debug, Default)]
pub(super) struct SearchedObjects(Vec<(usize, u64)>);

impl SearchedObjects {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }
}

/// Upper bound for the slots of a vtable of the class.
const SLOTS: usize = 32;

/// Searches all loaded objects. Needs the loader's lock.
pub(super) fn search(searched: &mut SearchedObjects) -> FoundClass {
    // All methods are collected before any vtable is checked, because a vtable may be in a different object
    // than its methods.
    //
    // DECISION: symbols are searched in memory first and then in the objects' files. The vtable in memory
    // must contain the methods' addresses, so a replaced file cannot mislead the search.
    let mut found = FoundClass::default();
    mapped_objects::walk(|object| {
        let place = (object.bias, hash(object.path));
        if searched.0.contains(&place) {
            return;
        }
        let symbols = symbols_of(&object);
        if symbols.is_empty() {
            searched.0.push(place);
        }
        for symbol in symbols {
            found.add(object.bias, symbol);
        }
    });
    found
}

fn symbols_of(object: &MappedObject<'_>) -> Vec<ClassSymbol> {
    let exported = NAMES.into_iter().filter_map(|(name, part)| {
        let symbol = object.symbol(name)?;
        Some(ClassSymbol { part, value: symbol.st_value, size: symbol.st_size })
    });
    let mut symbols: Vec<ClassSymbol> = exported.collect();
    if symbols.is_empty()
        && let Some(file) = ObjectFile::of(object)
    {
        symbol_file::search(&file, |symbol| symbols.push(symbol));
    }
    symbols
}

impl FoundClass {
    fn add(&mut self, bias: usize, symbol: ClassSymbol) {
        let address = bias.wrapping_add(wide(symbol.value));
        match symbol.part {
            ClassPart::Vtable => {
                let slots = (wide(symbol.size) / size_of::<usize>()).min(SLOTS);
                self.vtables.push(Vtable { address, slots });
            }
            method => self.methods.push((method, address)),
        }
    }
}

/// The file from which an object was loaded.
#[derive(Debug)]
struct ObjectFile(i32);

impl ObjectFile {
    /// `None` if it cannot be read or is another file by now: its program headers are not those in memory.
    fn of(object: &MappedObject<'_>) -> Option<Self> {
        let path = if object.path.is_empty() { c"/proc/self/exe" } else { object.path };
        // SAFETY: a C string, and flags that create nothing.
        let descriptor = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (descriptor >= 0).then_some(())?;
        let disk = Self(descriptor);
        let headers = object.headers();
        let offset = symbols::long(&disk, 32)?;
        let mut same = alloc::vec![0; headers.len()];
        (disk.read(offset, &mut same) && same == headers).then_some(disk)
    }
}

impl Drop for ObjectFile {
    fn drop(&mut self) {
        // SAFETY: opened by `of`, closed here only.
        unsafe { libc::close(self.0) };
    }
}

impl ByteSource for ObjectFile {
    fn read(&self, mut at: u64, mut into: &mut [u8]) -> bool {
        while !into.is_empty() {
            let Ok(offset) = i64::try_from(at) else {
                return false;
            };
            // SAFETY: writes at most `into.len()` bytes to `into`.
            let count = unsafe { libc::pread(self.0, into.as_mut_ptr().cast(), into.len(), offset) };
            let Some(count) = usize::try_from(count).ok().filter(|count| *count > 0) else {
                return false;
            };
            at = at.saturating_add(mapped_objects::long(count));
            into = into.get_mut(count..).unwrap_or_default();
        }
        true
    }
}

fn hash(path: &CStr) -> u64 {
    path.to_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
