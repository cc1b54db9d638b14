//! The loader's own functions, found without naming them.
//!
//! We export `dlsym`, so we cannot import it; `dlopen` and `dladdr` are in libdl.so.2 before glibc 2.34 and in libc after it, so
//! importing them would tie the artefact to one side. Walking the loaded objects finds them on both, works under LD_BIND_NOW,
//! needs no symbol version, and tells libc's own `dlsym` from the one of another preload. The walk runs once, at the first use.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use super::elf::Object;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;

/// The `dlsym` that the program would have if we were not here: the next one after ours. Doors jump there.
pub(crate) static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLADDR: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Libraries that have the loader's functions, before and since glibc 2.34.
const HOMES: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];

/// Whether the loader's functions are known; finds them at the first call.
pub(crate) fn ready() -> bool {
    !NEXT_DLSYM.load(Acquire).is_null() || find()
}

#[cold]
fn find() -> bool {
    let mut search = Search::default();
    // SAFETY: `visit` gets back the search that we pass, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let Search {
        dlsym,
        dlopen,
        dladdr,
        next,
        ..
    } = search;
    if dlsym.is_null() {
        return false;
    }
    DLSYM.store(dlsym.cast_mut(), Release);
    DLOPEN.store(dlopen.cast_mut(), Release);
    DLADDR.store(dladdr.cast_mut(), Release);
    let next = if next.is_null() { dlsym } else { next };
    NEXT_DLSYM.store(next.cast_mut(), Release);
    true
}

#[derive(Debug)]
struct Search {
    passed_us: bool,
    next: *const c_void,
    dlsym: *const c_void,
    dlopen: *const c_void,
    dladdr: *const c_void,
}

impl Default for Search {
    fn default() -> Self {
        Self {
            passed_us: false,
            next: null(),
            dlsym: null(),
            dlopen: null(),
            dladdr: null(),
        }
    }
}

/// Looks at one loaded object; they come in the order in which symbols are searched.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid object and the search that `find` gave it.
    let (object, search) = unsafe { (Object::of(&*info), &mut *search.cast::<Search>()) };
    let Some(object) = object else { return 0 };
    let first = |place: &mut *const c_void, name: &CStr| {
        if place.is_null() {
            *place = object.function(name);
        }
    };
    if object.holds((&raw const NEXT_DLSYM).cast()) {
        search.passed_us = true;
        return 0;
    }
    if search.passed_us {
        first(&mut search.next, c"dlsym");
    }
    if object.name().is_some_and(|name| HOMES.contains(&name)) {
        first(&mut search.dlsym, c"dlsym");
        first(&mut search.dlopen, c"dlopen");
        first(&mut search.dladdr, c"dladdr");
    }
    0
}

/// libc's own `dlsym`; a lookup with RTLD_NEXT is seen as ours. Sets `dlerror` as ever. Null if the loader is a strange one.
pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    if !ready() {
        return null_mut();
    }
    // SAFETY: found as `dlsym` in libc; null was ruled out by `ready`.
    let dlsym = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(DLSYM.load(Acquire)) };
    // SAFETY: the handle comes from the program or from `loaded`.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// A handle to the library of this soname if the program has loaded it, and one more reference, so that it stays.
pub(crate) fn loaded(soname: &CStr) -> *mut c_void {
    // RTLD_NOLOAD runs no code of the library.
    open(soname, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// Loads a library for our own use.
pub(crate) fn load(soname: &CStr) -> *mut c_void {
    open(soname, libc::RTLD_LAZY | libc::RTLD_LOCAL)
}

fn open(soname: &CStr, flags: c_int) -> *mut c_void {
    if !ready() || DLOPEN.load(Acquire).is_null() {
        return null_mut();
    }
    // SAFETY: found as `dlopen` in libc or libdl, and not null.
    let dlopen = unsafe { core::mem::transmute::<*mut c_void, Dlopen>(DLOPEN.load(Acquire)) };
    // SAFETY: a C string; what a library does when it is loaded is its own.
    unsafe { dlopen(soname.as_ptr(), flags) }
}

/// The object and the symbol at or before an address.
pub(crate) fn place(address: *const c_void) -> Option<libc::Dl_info> {
    if !ready() || DLADDR.load(Acquire).is_null() {
        return None;
    }
    // SAFETY: found as `dladdr` in libc or libdl, and not null.
    let dladdr = unsafe { core::mem::transmute::<*mut c_void, Dladdr>(DLADDR.load(Acquire)) };
    let mut info = libc::Dl_info {
        dli_fname: null(),
        dli_fbase: null_mut(),
        dli_sname: null(),
        dli_saddr: null_mut(),
    };
    // SAFETY: any address may be asked about.
    (unsafe { dladdr(address, &raw mut info) } != 0).then_some(info)
}
