//! Meets the modules of the process, as they are loaded: their import tables, and ggml's pool in them.

use std::ffi::{CString, c_void};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::AcqRel, Ordering::Release};

use plimsoll_pe::{Image, Import, Layout};
use windows_sys::Win32::Foundation::HMODULE;
use windows_sys::Win32::System::LibraryLoader::{GetModuleFileNameW, GetModuleHandleA, GetModuleHandleW};
use windows_sys::Win32::System::Memory::{PAGE_READWRITE, VirtualProtect};
use windows_sys::Win32::System::ProcessStatus::K32EnumProcessModules;
use windows_sys::Win32::System::SystemInformation::GetWindowsDirectoryW;
use windows_sys::Win32::System::Threading::GetCurrentProcess;
use windows_sys::w;

use crate::{hooks, takeover};

/// Longest path of a module, in units of UTF-16.
const PATH: usize = 1 << 15;
/// Modules of a process that are looked at.
const MOST: usize = 1024;
/// Bytes of a module's headers.
const HEADERS: usize = 4096;

/// Path of this library, with a zero at its end, and its handle.
static OWN: OnceLock<(Vec<u16>, usize)> = OnceLock::new();
/// The system's folder, in small letters.
static WINDOWS: OnceLock<String> = OnceLock::new();
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Remembers this library, and looks at all modules that are there.
pub(crate) fn begin(own: HMODULE) {
    let mut path = path_of(own);
    path.push(0);
    let _ = OWN.set((path, own.addr()));
    walk();
}

/// The path of this library, which ends in zero.
pub(crate) fn own_path() -> &'static [u16] {
    OWN.get().map_or(&[0], |(path, _)| path)
}

/// Notes that a module was loaded, and looks at it. The loader's lock is held.
pub(crate) fn announce(module: HMODULE) {
    IS_CHANGED.store(true, Release);
    meet(module);
}

// DECISION: on Windows it is not documented whether the imports of a module are filled in when it is
// announced. So the modules are walked once more when the program next looks for a function, and an import
// is replaced only if it holds the function of its name.
/// Looks at all modules, if one was loaded since the last time.
pub(crate) fn look_again() {
    if IS_CHANGED.swap(false, AcqRel) {
        walk();
    }
}

fn walk() {
    let mut modules = vec![null_mut(); MOST];
    let size = u32::try_from(size_of_val(&modules[..])).unwrap_or(0);
    let mut needed = 0;
    // SAFETY: so many bytes of ours.
    let listed =
        unsafe { K32EnumProcessModules(GetCurrentProcess(), modules.as_mut_ptr(), size, &raw mut needed) };
    let count = usize::try_from(needed).unwrap_or(0) / size_of::<HMODULE>();
    if listed != 0 {
        modules.into_iter().take(count).for_each(meet);
    }
}

fn path_of(module: HMODULE) -> Vec<u16> {
    let mut path = vec![0; PATH];
    // SAFETY: a module of this process, and a place of this length.
    let length = unsafe { GetModuleFileNameW(module, path.as_mut_ptr(), u32::try_from(PATH).unwrap_or(0)) };
    path.truncate(usize::try_from(length).unwrap_or(0));
    path
}

fn windows() -> &'static str {
    WINDOWS.get_or_init(|| {
        let mut path = [0; 512];
        // SAFETY: a place of this length.
        let length = unsafe { GetWindowsDirectoryW(path.as_mut_ptr(), 512) };
        let path = path.get(..usize::try_from(length).unwrap_or(0)).unwrap_or(&[]);
        String::from_utf16_lossy(path).to_lowercase()
    })
}

/// Replaces what a module of the program imports, and the pool in it. Modules of the system are left alone.
fn meet(module: HMODULE) {
    let path = String::from_utf16_lossy(&path_of(module));
    let is_own = OWN.get().is_some_and(|(_, own)| *own == module.addr());
    if module.is_null() || is_own || path.is_empty() || path.to_lowercase().starts_with(windows()) {
        return;
    }
    let base = module.expose_provenance();
    // SAFETY: the headers of a module are mapped, at the address that is its handle.
    let headers = unsafe { std::slice::from_raw_parts(module.cast::<u8>(), HEADERS) };
    let Some(size) = Image::mapped_size(headers) else { return };
    // SAFETY: the loader has mapped so many bytes, and the program does not unload a library that it uses.
    let bytes = unsafe { std::slice::from_raw_parts(module.cast::<u8>(), size) };
    let layout = Layout::Mapped { base: crate::driver::bytes(base) };
    let Ok(image) = Image::read(bytes, layout) else { return };
    for import in image.imports() {
        if let Some((slot, function)) = replaced(&import, base) {
            // SAFETY: a slot of the import table.
            unsafe { write_pointer(slot, function) };
        }
    }
    let name =
        Path::new(&path).file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    // SAFETY: the image lies there.
    unsafe { takeover::take(&image, base, &name) };
}

/// Where an import is to lead elsewhere, and whither.
fn replaced(import: &Import<'_>, base: usize) -> Option<(usize, usize)> {
    if import.is_delayed {
        // Its first call looks for the function by `GetProcAddress`.
        return None;
    }
    let slot = base.checked_add(usize::try_from(import.slot).ok()?)?;
    let library = import.library.to_ascii_lowercase();
    let is_cuda = library.starts_with("cudart64_") || library == "nvcuda.dll";
    let is_system = library.starts_with("kernel") || library.starts_with("api-ms-win-core-");
    let is_replaced_system = is_system && hooks::of_system(import.name).is_some();
    if !is_cuda && !is_replaced_system {
        return None;
    }
    // SAFETY: a slot of the image, which holds a pointer.
    let current = unsafe { std::ptr::with_exposed_provenance::<usize>(slot).read() };
    let is_filled = functions(&library, import.name, is_cuda).contains(&current);
    let new = if is_cuda { hooks::replacement(import.name, current) } else { hooks::of_system(import.name) };
    is_filled.then_some((slot, new?))
}

/// Addresses that a filled import of this name may hold.
fn functions(library: &str, name: &str, is_cuda: bool) -> Vec<usize> {
    let (Ok(library), Ok(name)) = (CString::new(library), CString::new(name)) else { return Vec::new() };
    // SAFETY: names that end in zero.
    let modules = unsafe {
        if is_cuda {
            vec![GetModuleHandleA(library.as_ptr().cast())]
        } else {
            // The names of programming interfaces (api-ms-win-…) stand for one of these.
            vec![GetModuleHandleW(w!("kernel32.dll")), GetModuleHandleW(w!("kernelbase.dll"))]
        }
    };
    let loaded = modules.into_iter().filter(|module| !module.is_null());
    // SAFETY: loaded modules, and a name that ends in zero.
    loaded.map(|module| unsafe { hooks::get_procedure(module, name.as_ptr().cast()) }).collect()
}

/// Writes a pointer into a page that may be read-only. `None` if the system refuses.
///
/// # Safety
/// A pointer of a module that is loaded.
pub(crate) unsafe fn write_pointer(place: usize, pointer: usize) -> Option<()> {
    let place = std::ptr::with_exposed_provenance_mut::<usize>(place);
    let page = place.cast::<c_void>();
    let mut protection = 0;
    // SAFETY: the page is the module's.
    unsafe {
        if VirtualProtect(page, size_of::<usize>(), PAGE_READWRITE, &raw mut protection) == 0 {
            return None;
        }
        // One aligned store: another thread calls the old function or the new one.
        std::sync::atomic::AtomicUsize::from_ptr(place).store(pointer, Release);
        VirtualProtect(page, size_of::<usize>(), protection, &raw mut protection);
    }
    Some(())
}
