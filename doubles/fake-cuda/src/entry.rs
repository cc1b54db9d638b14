//! `cuGetProcAddress`: a name and a version give the function whose ABI that version of CUDA had.
//!
//! By default its addresses are those of `dlsym`, as NVIDIA's are believed to be; with `distinct=1` they are thunks.

use std::ffi::{c_char, c_void};

use crate::abi::structs::Uuid;
use crate::abi::{Host, In, Out};
use crate::call::{Entry, driver};
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
    let named = || {
        TABLES
            .iter()
            .copied()
            .flatten()
            .filter(|entry| entry.name == name)
    };
    let version = version.min(settings().driver);
    let newest = named()
        .filter(|entry| entry.since <= version)
        .max_by_key(|entry| entry.since);
    match newest {
        Some(Entry {
            per_thread: Some(twin),
            ..
        }) if flags & PER_THREAD_STREAM != 0 => Ok(twin()),
        Some(entry) if settings().distinct => Ok((entry.thunk)()),
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
    fn cuGetProcAddress = "cuGetProcAddress" since 11030
        (symbol: In<c_char>, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64)
    {
        look_up(symbol, pfn, cudaVersion, flags, Out::nowhere())
    }

    fn cuGetProcAddress_v2 = "cuGetProcAddress" since 12000
        (symbol: In<c_char>, pfn: Out<*const c_void>, cudaVersion: i32, flags: u64, symbolStatus: Out<i32>)
    {
        look_up(symbol, pfn, cudaVersion, flags, symbolStatus)
    }

    fn cuGetExportTable = "cuGetExportTable" since 3000 (table: Out<Host>, id: In<Uuid>) {
        let _ = (table, id);
        Err(NOT_SUPPORTED)
    }
}
