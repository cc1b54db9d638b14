//! Reader of the dynamic symbols of an ELF object that the loader has mapped into this process.

use core::ffi::{CStr, c_char, c_void};
use core::ptr::null;
use core::slice;

#[repr(C)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const END: i64 = 0;
const HASH: i64 = 4;
const STRINGS: i64 = 5;
const SYMBOLS: i64 = 6;
const SONAME: i64 = 14;
const NEEDED: i64 = 1;
const GNU_HASH: i64 = 0x6fff_fef5;
const FUNCTION: u8 = 2;

// DECISION: the symbols are read from memory, by the object's hash table. `dlsym` is not called, because
// guard (the preloaded library) replaces it.
/// A mapped object, valid during the callback of `dl_iterate_phdr`.
#[derive(Debug)]
pub struct ElfImage<'a> {
    base: usize,
    headers: &'a [libc::Elf64_Phdr],
    entries: *const Dynamic,
    strings: *const c_char,
    symbols: *const libc::Elf64_Sym,
    soname: usize,
    gnu_hash: *const u32,
    hash: *const u32,
}

impl<'a> ElfImage<'a> {
    /// Reads the dynamic section of an object; None if it has no symbols.
    ///
    /// # Safety
    /// `info` comes from `dl_iterate_phdr`, and this is used no longer than its callback runs.
    pub unsafe fn of(info: &'a libc::dl_phdr_info) -> Option<Self> {
        let base = usize::try_from(info.dlpi_addr).ok()?;
        // SAFETY: the loader keeps the headers of a loaded object mapped.
        let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC)?;
        let mut entry = at::<Dynamic>(base.wrapping_add(usize::try_from(dynamic.p_vaddr).ok()?));
        let mut object = Self {
            base,
            headers,
            entries: entry,
            strings: null(),
            symbols: null(),
            soname: 0,
            gnu_hash: null(),
            hash: null(),
        };
        // SAFETY: the dynamic section is mapped and ends with an END entry.
        while let Dynamic { tag, value } = unsafe { &*entry }
            && *tag != END
        {
            match *tag {
                STRINGS => object.strings = at(object.relocated(*value)),
                SYMBOLS => object.symbols = at(object.relocated(*value)),
                HASH => object.hash = at(object.relocated(*value)),
                GNU_HASH => object.gnu_hash = at(object.relocated(*value)),
                SONAME => object.soname = *value,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        (!object.strings.is_null() && !object.symbols.is_null()).then_some(object)
    }

    /// glibc adds the base to the addresses of a dynamic section, but not in the kernel's vdso.
    fn relocated(&self, address: usize) -> usize {
        if address < self.base { address.wrapping_add(self.base) } else { address }
    }

    /// Its DT_SONAME; None for an executable and for libraries that were linked without one.
    pub fn name(&self) -> Option<&CStr> {
        // SAFETY: the soname is an offset into the string table, whose strings end in zero.
        (self.soname != 0).then(|| unsafe { CStr::from_ptr(self.strings.wrapping_add(self.soname)) })
    }

    /// The names of the libraries that it needs, in order.
    pub fn needed(&self) -> impl Iterator<Item = &CStr> {
        let mut entry = self.entries;
        core::iter::from_fn(move || {
            loop {
                // SAFETY: the dynamic section is mapped and ends with an END entry, which is not passed.
                let Dynamic { tag, value } = unsafe { &*entry };
                if *tag == END {
                    return None;
                }
                entry = entry.wrapping_add(1);
                if *tag == NEEDED {
                    // SAFETY: an offset into the string table, whose strings end in zero.
                    return Some(unsafe { CStr::from_ptr(self.strings.wrapping_add(*value)) });
                }
            }
        })
    }

    /// True if the address lies in one of its segments.
    pub fn holds(&self, address: *const c_void) -> bool {
        let offset = address.addr().wrapping_sub(self.base);
        self.headers.iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
            let (start, size) = (header.p_vaddr, header.p_memsz);
            u64::try_from(offset).is_ok_and(|offset| offset >= start && offset - start < size)
        })
    }

    /// The exported function of this name, of any version, or null.
    pub fn function(&self, name: &CStr) -> *const c_void {
        let symbol = self.symbol(name).filter(|symbol| symbol.st_info & 15 == FUNCTION);
        symbol.map_or(null(), |symbol| {
            at(self.base.wrapping_add(usize::try_from(symbol.st_value).unwrap_or(0)))
        })
    }

    /// The symbol that it defines under this name, a function or data.
    pub fn symbol(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
        if !self.gnu_hash.is_null() {
            self.by_gnu_hash(name)
        } else if !self.hash.is_null() {
            self.by_hash(name)
        } else {
            None
        }
    }

    fn by_gnu_hash(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
        let hash = gnu_hash(name);
        // Layout of DT_GNU_HASH: header, Bloom filter of 64-bit words, buckets, chains (glibc
        // elf/dl-lookup.c:do_lookup_x @ 2.36).
        // SAFETY: the table starts with four words: buckets, first hashed symbol, words of the filter, its
        // shift.
        let [buckets, first, filter, _] = unsafe { *self.gnu_hash.cast::<[u32; 4]>() };
        let table = self.gnu_hash.wrapping_add(4 + usize::try_from(filter).ok()? * 2);
        let bucket = usize::try_from(hash.checked_rem(buckets)?).ok()?;
        // SAFETY: `buckets` words follow the filter.
        let mut index = unsafe { *table.wrapping_add(bucket) };
        let chain = table.wrapping_add(usize::try_from(buckets).ok()?);
        while index >= first {
            // SAFETY: the chain has a word for each symbol from the first; the last one of a bucket is odd.
            let word = unsafe { *chain.wrapping_add(usize::try_from(index - first).ok()?) };
            // The lowest bit marks the end of a chain and is no part of the hash.
            if word | 1 == hash | 1
                && let Some(symbol) = self.symbol_named(index, name)
            {
                return Some(symbol);
            }
            if word & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }

    fn by_hash(&self, name: &CStr) -> Option<&libc::Elf64_Sym> {
        // SAFETY: the table starts with two words, of which the second counts the symbols.
        let [_, count] = unsafe { *self.hash.cast::<[u32; 2]>() };
        (0..count).find_map(|index| self.symbol_named(index, name))
    }

    /// The symbol with this number, if it has that name and is defined here.
    fn symbol_named(&self, index: u32, name: &CStr) -> Option<&libc::Elf64_Sym> {
        // SAFETY: the number comes from the hash table of these symbols.
        let symbol = unsafe { &*self.symbols.wrapping_add(usize::try_from(index).ok()?) };
        let text = self.strings.wrapping_add(usize::try_from(symbol.st_name).ok()?);
        // SAFETY: names are strings of the string table.
        let same = unsafe { CStr::from_ptr(text) } == name;
        // SHN_UNDEF: a reference to another object's symbol, not a definition.
        (same && symbol.st_shndx != 0).then_some(symbol)
    }
}

/// The hash of `DT_GNU_HASH`.
fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

fn at<T>(address: usize) -> *const T {
    core::ptr::with_exposed_provenance(address)
}
