//! Tests of the code that replaces `std` in the preloaded libraries: released code pages, and the symbol
//! reader.

use core::ffi::c_void;
use core::ptr::null;

use plimsoll_nostd::code::release_code_pages;
use plimsoll_nostd::elf::ElfImage;
use plimsoll_nostd::lock::Lock;

/// Pages of files that are resident in this process (proc_pid_statm(5)).
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(2).unwrap().parse().unwrap()
}

#[test]
fn released_code_runs_again_and_little_of_it_is_resident() {
    let before = resident();
    release_code_pages();
    let after = resident();
    assert!(after < before, "{before} pages, then {after}");
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> i32 {
    // SAFETY: the loader passes an object, and we passed a pointer.
    let (object, found) = unsafe { (ElfImage::of(&*info), &mut *found.cast::<*const c_void>()) };
    if let Some(object) = object.filter(|object| object.name() == Some(c"libc.so.6")) {
        assert!(object.function(c"there is no such function").is_null());
        assert!(object.needed().all(|library| library.to_bytes().starts_with(b"ld-linux")));
        let getpid = object.function(c"getpid");
        assert!(object.holds(getpid) && !object.holds((&raw const *found).cast()));
        *found = getpid;
    }
    0
}

#[test]
fn a_function_of_libc_is_found_where_the_linker_found_it() {
    let mut found: *const c_void = null();
    // SAFETY: `visit` takes a pointer to a pointer.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut found).cast()) };
    assert!(!found.is_null());
    // SAFETY: getpid takes nothing.
    let getpid = unsafe { core::mem::transmute::<*const c_void, extern "C" fn() -> i32>(found) };
    assert_eq!(u32::try_from(getpid()).unwrap(), std::process::id());
}

#[test]
fn no_addition_of_many_threads_is_lost() {
    let sum = Lock::new(0_u64);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..20_000).for_each(|_| *sum.hold() += 1));
        }
    });
    assert_eq!(*sum.hold(), 160_000);
}

#[test]
fn a_failed_attempt_leaves_the_lock_with_its_holder() {
    let lock = Lock::new(());
    let occupied = lock.hold();
    assert!(lock.try_hold().is_none());
    assert!(lock.try_hold().is_none(), "the first attempt released it");
    drop(occupied);
    assert!(lock.try_hold().is_some());
}
