//! Functions that replace the methods of ggml's legacy memory pool.
//!
//! They follow the C++ ABI: a method is a function whose first argument is the object.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::mapped_objects;
use super::pools::{self, PoolEnd};
use super::symbols::ClassPart;
use super::takeover::{self, Takeover};
use crate::say::say;
use crate::{arm, driver_guard, ladder, state};

type Alloc = unsafe extern "C" fn(*mut c_void, usize, *mut usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);
type Destroy = unsafe extern "C" fn(*mut c_void);

/// The replacement of a method; 0 for a part that is no method.
pub(super) fn of(part: ClassPart) -> usize {
    match part {
        ClassPart::Vtable => 0,
        ClassPart::Alloc => (alloc as Alloc as *const c_void).expose_provenance(),
        ClassPart::Free => (free as Free as *const c_void).expose_provenance(),
        ClassPart::Delete => (delete as Destroy as *const c_void).expose_provenance(),
        ClassPart::Destroy => (destroy as Destroy as *const c_void).expose_provenance(),
    }
}

unsafe extern "C" fn alloc(this: *mut c_void, size: usize, actual: *mut usize) -> *mut c_void {
    // SAFETY: the object begins with the vtable through which we were called.
    let Some(taken) = (unsafe { takeover::of(this.expose_provenance()) }) else {
        return null_mut();
    };
    let theirs = || {
        // SAFETY: what stood in this slot, of this prototype.
        let original = unsafe { transmute::<*const c_void, Option<Alloc>>(address(taken, ClassPart::Alloc)) };
        // SAFETY: the caller's own arguments.
        original.map_or(null_mut(), |original| unsafe { original(this, size, actual) })
    };
    if !arm::armed() || !taken.serves() {
        return theirs();
    }
    // Only before the first block: afterwards the prototype is known to be right.
    if taken.fresh() && !sane(this, size, actual) {
        doubt(taken, "the arguments of the first call to the pool are invalid");
        return theirs();
    }
    if !taken.plausible() {
        doubt(taken, "the program does not return the pool's blocks to guard");
        return theirs();
    }
    match pools::allocate(this.expose_provenance(), size) {
        Some((address, size)) => {
            // SAFETY: where the caller wants to be told how much it got.
            unsafe { actual.write(size) };
            core::ptr::with_exposed_provenance_mut(address)
        }
        None => theirs(),
    }
}

unsafe extern "C" fn free(this: *mut c_void, block: *mut c_void, size: usize) {
    // SAFETY: as in `alloc`.
    let Some(taken) = (unsafe { takeover::of(this.expose_provenance()) }) else {
        return;
    };
    if !arm::forked()
        && pools::free(this.expose_provenance(), mapped_objects::long(block.expose_provenance()))
    {
        taken.prove();
        ladder::answer();
        return;
    }
    // SAFETY: what stood in this slot, of this prototype.
    let original = unsafe { transmute::<*const c_void, Option<Free>>(address(taken, ClassPart::Free)) };
    if let Some(original) = original {
        // SAFETY: the caller's own arguments, about a block that is not ours.
        unsafe { original(this, block, size) };
    }
}

unsafe extern "C" fn delete(this: *mut c_void) {
    // SAFETY: as the caller's.
    unsafe { end(this, ClassPart::Delete) };
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    // SAFETY: as the caller's.
    unsafe { end(this, ClassPart::Destroy) };
}

unsafe fn end(this: *mut c_void, part: ClassPart) {
    // SAFETY: as in `alloc`; destructors run while the object still has its class.
    let Some(taken) = (unsafe { takeover::of(this.expose_provenance()) }) else {
        return;
    };
    if !arm::forked() && pools::close(this.expose_provenance()) == PoolEnd::Owing {
        // ggml's destructor would pass our blocks, which lie in its table, to cudaFree and then assert on its
        // own count.
        say!(
            "a ggml pool was destroyed while it still contained blocks from guard; ggml's destructor was \
            skipped"
        );
        return;
    }
    // SAFETY: what stood in this slot, of this prototype.
    let original = unsafe { transmute::<*const c_void, Option<Destroy>>(address(taken, part)) };
    if let Some(original) = original {
        // SAFETY: the caller's own object.
        unsafe { original(this) };
    }
}

fn address(taken: &Takeover, part: ClassPart) -> *const c_void {
    core::ptr::with_exposed_provenance(taken.original(part))
}

/// True if the arguments can be those of a call of `alloc`.
#[cold]
fn sane(this: *mut c_void, size: usize, actual: *mut usize) -> bool {
    let total = driver_guard::current_card().map(|index| state::card(index).total.load(Relaxed));
    let fits = total.is_some_and(|total| mapped_objects::long(size) <= total);
    fits && !this.is_null() && !actual.is_null() && actual.is_aligned() && writable(actual)
}

/// Tests a pointer by having the kernel write to it: a bad one gives EFAULT in place of SIGSEGV.
fn writable(place: *mut usize) -> bool {
    // SAFETY: the kernel checks the address; what is written is about to be overwritten.
    let written =
        unsafe { libc::syscall(libc::SYS_getrandom, place, size_of::<usize>(), libc::GRND_NONBLOCK) };
    usize::try_from(written).is_ok_and(|written| written == size_of::<usize>())
}

#[cold]
fn doubt(taken: &Takeover, why: &str) {
    static STATED: AtomicBool = AtomicBool::new(false);
    if taken.disarm() && !STATED.swap(true, Relaxed) {
        say!("ggml's legacy pool is not replaced: {why}; the program continues with ggml's own pool");
    }
}
