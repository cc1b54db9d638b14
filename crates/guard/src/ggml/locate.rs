//! Finds ggml's legacy pool in every way it may be loaded.
//!
//! DECISION: by name, in the objects' dynamic tables first and in the symbol tables of their files where those have nothing.
//! What is found must prove itself: the vtable's slots in memory must be the addresses of the methods, so that a wrong or
//! newer file, or a table that says something else than the memory, finds nothing. A vtable may lie in another object than
//! the methods (copy relocations), so all the methods are gathered before any vtable is judged.

use alloc::vec::Vec;
use core::ffi::CStr;

use super::file;
use super::loaded::{self, Object, wide};
use super::symbols::{self, Bytes, NAMES, Part, Symbol};

/// A vtable of the class, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Vtable {
    /// Of its symbol; objects point two words further.
    pub(super) address: usize,
    pub(super) slots: usize,
}

/// The methods of the class, by address.
pub(super) type Methods = Vec<(Part, usize)>;

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) vtables: Vec<Vtable>,
    pub(super) methods: Methods,
}

/// Objects that are known to have nothing, by their place and the path they came from.
#[derive(Debug, Default)]
pub(super) struct Barren(Vec<(usize, u64)>);

impl Barren {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }
}

/// The most slots that a vtable of the class is believed to have.
const SLOTS: usize = 32;

/// Looks through the loaded objects. To be called under the loader's lock.
pub(super) fn search(barren: &mut Barren) -> Found {
    let mut found = Found::default();
    loaded::walk(|object| {
        let place = (object.bias, hash(object.path));
        if barren.0.contains(&place) {
            return;
        }
        let symbols = symbols_of(&object);
        if symbols.is_empty() {
            barren.0.push(place);
        }
        for symbol in symbols {
            found.add(object.bias, symbol);
        }
    });
    found
}

fn symbols_of(object: &Object<'_>) -> Vec<Symbol> {
    let exported = NAMES.into_iter().filter_map(|(name, part)| {
        let symbol = object.symbol(name)?;
        Some(Symbol {
            part,
            value: symbol.st_value,
            size: symbol.st_size,
        })
    });
    let mut symbols: Vec<Symbol> = exported.collect();
    if symbols.is_empty()
        && let Some(disk) = Disk::of(object)
    {
        file::search(&disk, |symbol| symbols.push(symbol));
    }
    symbols
}

impl Found {
    fn add(&mut self, bias: usize, symbol: Symbol) {
        let address = bias.wrapping_add(wide(symbol.value));
        match symbol.part {
            Part::Vtable => {
                let slots = (wide(symbol.size) / size_of::<usize>()).min(SLOTS);
                self.vtables.push(Vtable { address, slots });
            }
            method => self.methods.push((method, address)),
        }
    }
}

/// The file that an object was loaded from.
#[derive(Debug)]
struct Disk(i32);

impl Disk {
    /// `None` if it cannot be read or is another file by now: its program headers are not those in memory.
    fn of(object: &Object<'_>) -> Option<Self> {
        let path = if object.path.is_empty() {
            c"/proc/self/exe"
        } else {
            object.path
        };
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

impl Drop for Disk {
    fn drop(&mut self) {
        // SAFETY: opened by `of`, closed here only.
        unsafe { libc::close(self.0) };
    }
}

impl Bytes for Disk {
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
            at = at.saturating_add(loaded::long(count));
            into = into.get_mut(count..).unwrap_or_default();
        }
        true
    }
}

fn hash(path: &CStr) -> u64 {
    path.to_bytes().iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
