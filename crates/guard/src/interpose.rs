//! Makes every way of finding a function of CUDA's driver or HIP's runtime lead to guard's replacement, by a
//! table of names.
//!
//! The ways are an ELF import, `dlsym` ([`symbol`]), `cuGetProcAddress` ([`procedure`]) and
//! `hipGetProcAddress`. RTLD_DEEPBIND, dlmopen, static programs and setuid programs are not covered.

use core::ffi::{CStr, c_char, c_void};

use crate::hooks::{self, Hook};

mod procedure;
// A unit test keeps the `dlsym` that it came with.
#[cfg(not(test))]
mod symbol;

const PARTS: [&[Hook]; 16] = [
    hooks::init::TABLE,
    hooks::hip::TABLE,
    procedure::TABLE,
    hooks::memory::TABLE,
    hooks::vmm::TABLE,
    hooks::pools::TABLE,
    hooks::arrays::TABLE,
    hooks::info::TABLE,
    hooks::context::TABLE,
    hooks::nvml::TABLE,
    hooks::pointer::TABLE,
    hooks::ipc::TABLE,
    hooks::capture::TABLE,
    hooks::graphs::TABLE,
    hooks::waits::TABLE,
    hooks::pinned::TABLE,
];

/// A power of two, more than twice the number of hooks, so that a search ends after few probes.
const PLACES: usize = 512;

// DECISION: names are looked up in a hash table built at compile time, without allocation, lock, thread local
// or panic. Every `dlsym` call of every program passes through it.
static NAMES: [Option<&Hook>; PLACES] = places();

const fn places() -> [Option<&'static Hook>; PLACES] {
    let mut places = [None; PLACES];
    let mut part = 0;
    while part < PARTS.len() {
        let mut row = 0;
        while row < PARTS[part].len() {
            let hook = &PARTS[part][row];
            let mut place = place_of(hash(hook.symbol.as_bytes()));
            while places[place].is_some() {
                place = (place + 1) % PLACES;
            }
            places[place] = Some(hook);
            row += 1;
        }
        part += 1;
    }
    places
}

/// FNV-1a.
const fn hash(name: &[u8]) -> u32 {
    let mut hash = START;
    let mut index = 0;
    while index < name.len() {
        hash = mixed(hash, name[index]);
        index += 1;
    }
    hash
}

const START: u32 = 0x811c_9dc5;

const fn mixed(hash: u32, byte: u8) -> u32 {
    (hash ^ byte as u32).wrapping_mul(0x0100_0193)
}

#[allow(
    clippy::as_conversions,
    reason = "usize holds every u32 on the supported platforms, and `try_from` is not const"
)]
const fn place_of(hash: u32) -> usize {
    hash as usize % PLACES
}

/// The hook for a symbol of this name.
///
/// # Safety
/// `name` is a C string.
pub(crate) unsafe fn named(name: *const c_char) -> Option<&'static Hook> {
    // Nearly all names fail here, after four bytes: the driver's are "cuUpper…", NVML's "nvml…", AMD's
    // "hipUpper…", and "cuda…" is the runtime's.
    // SAFETY: each byte is read only after the ones before it were not the closing zero.
    let ours = unsafe {
        match (*name.cast::<[u8; 1]>())[0] {
            b'c' => *name.add(1).cast::<u8>() == b'u' && (*name.add(2).cast::<u8>()).is_ascii_uppercase(),
            b'n' => *name.add(1).cast::<u8>() == b'v' && *name.add(2).cast::<u8>() == b'm',
            b'h' => {
                *name.add(1).cast::<u8>() == b'i'
                    && *name.add(2).cast::<u8>() == b'p'
                    && (*name.add(3).cast::<u8>()).is_ascii_uppercase()
            }
            _ => false,
        }
    };
    if !ours {
        return None;
    }
    // SAFETY: a C string, as the caller promises.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let mut place = place_of(hash(name));
    while let Some(Some(hook)) = NAMES.get(place) {
        if hook.symbol.as_bytes() == name {
            return Some(hook);
        }
        place = (place + 1) % PLACES;
    }
    None
}

/// The hooks for this name in `cuGetProcAddress`, with or without the suffix of an ABI.
fn variants(name: &[u8]) -> impl Iterator<Item = &'static Hook> {
    all().filter(move |hook| hook.name.as_bytes() == name || hook.symbol.as_bytes() == name)
}

fn all() -> impl Iterator<Item = &'static Hook> {
    PARTS.iter().copied().flatten()
}

/// The hook whose real function is at this address.
fn standing_for(name: &[u8], address: *const c_void) -> Option<&'static Hook> {
    variants(name).find(|hook| hook.slot.function().cast_const() == address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hook_is_found_by_its_name_and_by_no_other() {
        for hook in all() {
            let name = std::ffi::CString::new(hook.symbol).unwrap();
            // SAFETY: a C string.
            let found = unsafe { named(name.as_ptr()) }.unwrap();
            assert_eq!((found.symbol, found.address()), (hook.symbol, hook.address()));
        }
        for name in [
            c"",
            c"c",
            c"cu",
            c"n",
            c"cuMemAlloc_v",
            c"cuMemAlloc_v22",
            c"cudaMalloc",
            c"cuBogus",
            c"nvml",
            c"hi",
            c"hip",
            c"hipblasCreate",
            c"hipMallocs",
        ] {
            // SAFETY: a C string.
            assert!(unsafe { named(name.as_ptr()) }.is_none(), "{name:?}");
        }
    }

    #[test]
    fn no_name_stands_twice() {
        let mut names: Vec<&str> = all().map(|hook| hook.symbol).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(count * 2 < PLACES, "{count} hooks want a larger table");
    }
}
