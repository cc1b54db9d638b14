//! Looks up a function of the fake driver by name and CUDA version, for `cuGetProcAddress`.
//!
//! A name and a version give the function with the ABI of that version. By default the addresses are those of
//! `dlsym`, as with all known NVIDIA drivers; with `distinct=1` they are separate thunks.

use std::ffi::{c_char, c_void};

use crate::abi::structs::Uuid;
use crate::abi::{Host, In, Out};
use crate::call::{DefaultStream, Entry, default_stream, driver};
use crate::code::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Outcome};
use crate::settings::settings;

const LEGACY_STREAM: u64 = 1 << 0;
const PER_THREAD_STREAM: u64 = 1 << 1;

/// `CUdriverProcAddressQueryResult`.
const FOUND: i32 = 0;
const SYMBOL_NOT_FOUND: i32 = 1;
const VERSION_NOT_SUFFICIENT: i32 = 2;

const TABLES: &[&[Entry]] = &[
    ENTRIES,
    crate::code::ENTRIES,
    crate::device::ENTRIES,
    crate::context::ENTRIES,
    crate::primary::ENTRIES,
    crate::linear::ENTRIES,
    crate::vmm::ENTRIES,
    crate::batch::ENTRIES,
    crate::copy::ENTRIES,
    crate::fill::ENTRIES,
    crate::streams::ENTRIES,
    crate::events::ENTRIES,
    crate::capture::ENTRIES,
    crate::graphs::ENTRIES,
    crate::modules::ENTRIES,
    crate::host::ENTRIES,
    crate::pointer::ENTRIES,
    crate::pools::ENTRIES,
    crate::arrays::ENTRIES,
    crate::sharing::ENTRIES,
];

/// What `name` means to a program built for `version`; Err tells why there is nothing.
fn find(name: &str, version: i32, flags: u64) -> Result<*const c_void, i32> {
    let named = || TABLES.iter().copied().flatten().filter(|entry| entry.name == name);
    let version = version.min(settings().driver);
    let is_renewed = settings().renewed.iter().any(|of| of.name == name && of.since <= version);
    let newest = named().filter(|entry| entry.since <= version).max_by_key(|entry| entry.since);
    match newest {
        Some(Entry { per_thread: Some(twin), .. }) if flags & PER_THREAD_STREAM != 0 => Ok(twin()),
        Some(entry) if settings().distinct || is_renewed => Ok((entry.thunk)()),
        Some(entry) => Ok((entry.address)()),
        None if named().next().is_some() => Err(VERSION_NOT_SUFFICIENT),
        None => Err(SYMBOL_NOT_FOUND),
    }
}

fn look_up(
    symbol: In<c_char>,
    address: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Outcome {
    let name = symbol.text()?;
    if address.is_null() || flags & !(LEGACY_STREAM | PER_THREAD_STREAM) != 0 {
        return Err(INVALID_VALUE);
    }
    // Without flags the search is for what the caller was compiled for.
    let flags = match default_stream() {
        DefaultStream::PerThread if flags == 0 => PER_THREAD_STREAM,
        _ => flags,
    };
    match find(&name, version, flags) {
        Ok(found) => {
            status.set_if_wanted(FOUND);
            address.set(found)
        }
        Err(why) => {
            status.set_if_wanted(why);
            address.set(std::ptr::null())?;
            Err(NOT_FOUND)
        }
    }
}

driver! {
    fn cuGetProcAddress / cuGetProcAddress_ptsz = "cuGetProcAddress" since 11030
        (symbol: In<c_char>, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64)
    {
        look_up(symbol, pfn, cudaVersion, flags, Out::nowhere())
    }

    fn cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz = "cuGetProcAddress" since 12000
        (symbol: In<c_char>, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64, symbolStatus: Out<i32>)
    {
        look_up(symbol, pfn, cudaVersion, flags, symbolStatus)
    }

    fn cuGetExportTable = "cuGetExportTable" since 3000 (table: Out<Host>, id: In<Uuid>) {
        let _ = (table, id);
        Err(NOT_SUPPORTED)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;
    use crate::alone::{alone, get};
    use crate::code::{Code, SUCCESS};

    /// Code, address and status of a look-up.
    fn look(name: &str, version: i32, flags: u64) -> (Code, *const c_void, i32) {
        let name = CString::new(name).unwrap();
        let mut found = std::mem::MaybeUninit::new(std::ptr::null());
        let mut code = SUCCESS;
        let status = get(|status| {
            code = cuGetProcAddress_v2(
                In::from_pointer(name.as_ptr()),
                Out::to(&mut found),
                version,
                flags,
                status,
            );
            SUCCESS
        });
        // SAFETY: it was initialised before the call.
        (code, unsafe { found.assume_init() }, status)
    }

    fn address(name: &str, version: i32) -> *const c_void {
        look(name, version, 0).1
    }

    #[test]
    fn a_version_gives_the_function_that_it_had() {
        alone("", || {
            use crate::context::{cuCtxCreate, cuCtxCreate_v2, cuCtxCreate_v3, cuCtxCreate_v4};
            assert_eq!(address("cuCtxCreate", 3010), cuCtxCreate as *const c_void);
            assert_eq!(address("cuCtxCreate", 11030), cuCtxCreate_v2 as *const c_void);
            assert_eq!(address("cuCtxCreate", 11040), cuCtxCreate_v3 as *const c_void);
            assert_eq!(address("cuCtxCreate", 12080), cuCtxCreate_v4 as *const c_void);
            assert_eq!(address("cuGetProcAddress", 11030), cuGetProcAddress as *const c_void);
            assert_eq!(address("cuGetProcAddress", 12000), cuGetProcAddress_v2 as *const c_void);
            assert_eq!(address("cuMemAlloc", 3020), crate::linear::cuMemAlloc_v2 as *const c_void);
        });
    }

    #[test]
    fn missing_symbols_report_their_cause() {
        alone("driver=12000", || {
            assert_eq!(look("cuMemAlloc_v2", 12000, 0), (NOT_FOUND, std::ptr::null(), SYMBOL_NOT_FOUND));
            assert_eq!(look("cuMemCreate", 10000, 0), (NOT_FOUND, std::ptr::null(), VERSION_NOT_SUFFICIENT));
            let newer_than_the_driver = look("cuMemAdvise", 12080, 0).1;
            assert_eq!(newer_than_the_driver, crate::host::cuMemAdvise as *const c_void);
            assert_eq!(look("cuInit", 12000, 4).0, INVALID_VALUE);
        });
    }

    #[test]
    fn per_thread_programs_get_the_twins_where_there_are_any() {
        alone("", || {
            use crate::copy::{cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds};
            let twin = look("cuMemcpyHtoD", 12080, PER_THREAD_STREAM).1;
            assert_eq!(twin, cuMemcpyHtoD_v2_ptds as *const c_void);
            assert_eq!(address("cuMemcpyHtoD", 12080), cuMemcpyHtoD_v2 as *const c_void);
            let same = look("cuMemAlloc", 12080, PER_THREAD_STREAM).1;
            assert_eq!(same, crate::linear::cuMemAlloc_v2 as *const c_void);
        });
    }

    #[test]
    fn a_renewed_function_has_another_address_from_its_version_on() {
        alone("driver=15000 renewed=cuMemAlloc:14000", || {
            let before = crate::linear::cuMemAlloc_v2 as *const c_void;
            assert_eq!(address("cuMemAlloc", 13050), before);
            assert_ne!(address("cuMemAlloc", 14000), before);
            assert_eq!(address("cuMemFree", 14000), crate::linear::cuMemFree_v2 as *const c_void);
        });
    }

    #[test]
    fn thunks_have_other_addresses() {
        alone("distinct=1", || {
            let thunk = address("cuMemAlloc", 12080);
            assert!(!thunk.is_null());
            assert_ne!(thunk, crate::linear::cuMemAlloc_v2 as *const c_void);
        });
    }
}
