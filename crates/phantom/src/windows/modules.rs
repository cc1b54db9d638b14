//! Names of the libraries that the modules of this process import.

use core::ffi::{CStr, c_char};
use std::ptr::null_mut;

use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::Diagnostics::Debug::{
    IMAGE_DIRECTORY_ENTRY_IMPORT, IMAGE_NT_HEADERS64, IMAGE_NT_OPTIONAL_HDR64_MAGIC,
};
use windows_sys::Win32::System::ProcessStatus::K32EnumProcessModules;
use windows_sys::Win32::System::SystemServices::{
    IMAGE_DOS_HEADER, IMAGE_DOS_SIGNATURE, IMAGE_IMPORT_DESCRIPTOR, IMAGE_NT_SIGNATURE,
};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// The most modules that are looked at; an engine has about 60.
const MOST: usize = 1024;

/// Calls `see` with each name in the import table of each module.
pub(super) fn each_import(mut see: impl FnMut(&CStr)) {
    let mut modules: [HMODULE; MOST] = [null_mut(); MOST];
    let mut size = 0;
    let room = u32::try_from(size_of_val(&modules)).unwrap_or(0);
    // SAFETY: this process, and an array of this size.
    let is_listed =
        unsafe { K32EnumProcessModules(GetCurrentProcess(), modules.as_mut_ptr(), room, &raw mut size) };
    let count = usize::try_from(size).unwrap_or(0) / size_of::<HMODULE>();
    if is_listed != 0 {
        modules.iter().take(count).for_each(|&module| imports(module, &mut see));
    }
}

/// The names of one module, as the loader maps it (PE format: the headers, then the import directory).
fn imports(module: HMODULE, see: &mut impl FnMut(&CStr)) {
    let base = module.cast::<u8>();
    let at = |offset: u32| base.wrapping_add(usize::try_from(offset).unwrap_or(0));
    // SAFETY: a module begins with this header.
    let dos = unsafe { &*base.cast::<IMAGE_DOS_HEADER>() };
    let Ok(offset) = u32::try_from(dos.e_lfanew) else { return };
    if dos.e_magic != IMAGE_DOS_SIGNATURE {
        return;
    }
    // SAFETY: the loader has mapped what the first header points to, and has read it.
    let headers = unsafe { &*at(offset).cast::<IMAGE_NT_HEADERS64>() };
    let is_known = headers.Signature == IMAGE_NT_SIGNATURE
        && headers.OptionalHeader.Magic == IMAGE_NT_OPTIONAL_HDR64_MAGIC;
    let directory = headers.OptionalHeader.DataDirectory[usize::from(IMAGE_DIRECTORY_ENTRY_IMPORT)];
    if !is_known || directory.VirtualAddress == 0 {
        return;
    }
    let mut entry = at(directory.VirtualAddress).cast::<IMAGE_IMPORT_DESCRIPTOR>();
    // SAFETY: the directory is mapped, and ends with an entry without a name.
    while let name @ 1.. = unsafe { (*entry).Name } {
        // SAFETY: the address of a name, which ends in zero.
        see(unsafe { CStr::from_ptr(at(name).cast::<c_char>()) });
        entry = entry.wrapping_add(1);
    }
}
