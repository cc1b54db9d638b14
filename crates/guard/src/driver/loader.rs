//! Finds libc's own `dlsym`, `dlopen` and `dladdr` by walking the loaded objects.
//!
//! Guard exports its own `dlsym`, so it cannot import libc's.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_nostd::elf::ElfImage;

type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
type Dladdr = unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> c_int;

/// The `dlsym` that the program would have without guard: the next one after ours. `interpose::symbol` jumps
/// there.
pub(crate) static NEXT_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLSYM: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static DLADDR: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Libraries that define the loader's functions, since and before glibc 2.34.
const HOMES: [&CStr; 2] = [c"libc.so.6", c"libdl.so.2"];

/// True if the loader's functions are known; looks for them at the first call.
pub(crate) fn ready() -> bool {
    // DECISION: `dlopen` and `dladdr` are not imported, because they moved between libraries in glibc 2.34.
    // An import would require either a newer or an older glibc.
    !NEXT_DLSYM.load(Acquire).is_null() || find()
}

#[cold]
fn find() -> bool {
    let mut search = LoaderSearch::default();
    // SAFETY: `visit` gets back the search that we pass, and keeps nothing.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    let LoaderSearch { dlsym, dlopen, dladdr, next, .. } = search;
    if dlsym.is_null() {
        return false;
    }
    DLSYM.store(dlsym.cast_mut(), Release);
    DLOPEN.store(dlopen.cast_mut(), Release);
    DLADDR.store(dladdr.cast_mut(), Release);
    // Last: readers take NEXT_DLSYM for the sign that all are there. Without another preload libc's own is
    // the next one.
    let next = if next.is_null() { dlsym } else { next };
    NEXT_DLSYM.store(next.cast_mut(), Release);
    true
}

#[derive(Debug)]
struct LoaderSearch {
    passed_us: bool,
    next: *const c_void,
    dlsym: *const c_void,
    dlopen: *const c_void,
    dladdr: *const c_void,
}

impl Default for LoaderSearch {
    fn default() -> Self {
        Self { passed_us: false, next: null(), dlsym: null(), dlopen: null(), dladdr: null() }
    }
}

/// Examines one loaded object. Objects come in the order in which symbols are searched.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid object and the search that `find` gave it.
    let (object, search) = unsafe { (ElfImage::of(&*info), &mut *search.cast::<LoaderSearch>()) };
    let Some(object) = object else { return 0 };
    let first = |place: &mut *const c_void, name: &CStr| {
        if place.is_null() {
            *place = object.function(name);
        }
    };
    // Guard itself, by the address of one of its statics: a soname could be anything after a rename.
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

/// Calls libc's own `dlsym`, which sets `dlerror`; RTLD_NEXT counts from guard's place. Null if libc's
/// functions were not found.
pub(crate) fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
    if !ready() {
        return null_mut();
    }
    // SAFETY: found as `dlsym` in libc; null was ruled out by `ready`.
    let dlsym = unsafe { core::mem::transmute::<*mut c_void, Dlsym>(DLSYM.load(Acquire)) };
    // SAFETY: the handle comes from the program or from `loaded`.
    unsafe { dlsym(handle, name.as_ptr()) }
}

/// A handle to the library of this soname if the program has loaded it, with one more reference, so that it
/// stays loaded.
pub(crate) fn loaded(soname: &CStr) -> *mut c_void {
    // RTLD_NOLOAD runs no code of the library.
    open(soname, libc::RTLD_LAZY | libc::RTLD_NOLOAD)
}

/// Loads a library for guard's own use.
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
    let mut info =
        libc::Dl_info { dli_fname: null(), dli_fbase: null_mut(), dli_sname: null(), dli_saddr: null_mut() };
    // SAFETY: any address may be asked about.
    (unsafe { dladdr(address, &raw mut info) } != 0).then_some(info)
}
