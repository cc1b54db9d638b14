//! What stands in the slots.
//!
//! The prototypes are those of the class by the C++ ABI: a method is a function whose first argument is the object. Nothing may
//! unwind out of here, and nothing does: guard aborts where it cannot go on.

use core::ffi::c_void;
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use plimsoll_wire::options::Pool;

use super::pools::{self, Closed};
use super::symbols::Part;
use super::takeover::{self, Takeover};
use super::{loaded, managed};
use crate::account;
use crate::arm;
use crate::ladder;
use crate::say::say;

type Alloc = unsafe extern "C" fn(*mut c_void, usize, *mut usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void, *mut c_void, usize);
type Destroy = unsafe extern "C" fn(*mut c_void);

/// The function for the slot of a method; 0 for what is no method.
pub(super) fn of(part: Part) -> usize {
    match part {
        Part::Vtable => 0,
        Part::Alloc => (alloc as Alloc as *const c_void).expose_provenance(),
        Part::Free => (free as Free as *const c_void).expose_provenance(),
        Part::Delete => (delete as Destroy as *const c_void).expose_provenance(),
        Part::Destroy => (destroy as Destroy as *const c_void).expose_provenance(),
    }
}

unsafe extern "C" fn alloc(this: *mut c_void, size: usize, actual: *mut usize) -> *mut c_void {
    // SAFETY: the object begins with the vtable through which we were called.
    let Some(taken) = (unsafe { takeover::of(this.expose_provenance()) }) else {
        return null_mut();
    };
    let theirs = || {
        // SAFETY: what stood in this slot, of this prototype.
        let original = unsafe { transmute::<*const c_void, Option<Alloc>>(address(taken, Part::Alloc)) };
        // SAFETY: the caller's own arguments.
        original.map_or(null_mut(), |original| unsafe { original(this, size, actual) })
    };
    if !arm::armed() || !taken.serves() {
        return theirs();
    }
    if arm::options().pool == Pool::Managed {
        return managed::around(theirs);
    }
    if taken.fresh() && !sane(this, size, actual) {
        doubt(taken, "its first call makes no sense");
        return theirs();
    }
    if !taken.plausible() {
        doubt(taken, "its blocks are not given back to us");
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
    if !arm::forked() && pools::free(this.expose_provenance(), loaded::long(block.expose_provenance())) {
        taken.prove();
        ladder::answer();
        return;
    }
    // SAFETY: what stood in this slot, of this prototype.
    let original = unsafe { transmute::<*const c_void, Option<Free>>(address(taken, Part::Free)) };
    if let Some(original) = original {
        // SAFETY: the caller's own arguments, about a block that is not ours.
        unsafe { original(this, block, size) };
    }
}

unsafe extern "C" fn delete(this: *mut c_void) {
    // SAFETY: as the caller's.
    unsafe { end(this, Part::Delete) };
}

unsafe extern "C" fn destroy(this: *mut c_void) {
    // SAFETY: as the caller's.
    unsafe { end(this, Part::Destroy) };
}

unsafe fn end(this: *mut c_void, part: Part) {
    // SAFETY: as in `alloc`; destructors run while the object still has its class.
    let Some(taken) = (unsafe { takeover::of(this.expose_provenance()) }) else {
        return;
    };
    if !arm::forked() && pools::close(this.expose_provenance()) == Closed::Owing {
        // Blocks of ours lie in its table, which its own destructor would give to cudaFree and count wrong.
        say!(
            "a pool of ggml's was destroyed with blocks in it that were ours; its own destructor was left out"
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

fn address(taken: &Takeover, part: Part) -> *const c_void {
    core::ptr::with_exposed_provenance(taken.original(part))
}

/// Whether this can be a call of `alloc`.
#[cold]
fn sane(this: *mut c_void, size: usize, actual: *mut usize) -> bool {
    let total = account::current().map(|index| account::card(index).total.load(Relaxed));
    let fits = total.is_some_and(|total| loaded::long(size) <= total);
    fits && !this.is_null() && !actual.is_null() && actual.is_aligned() && writable(actual)
}

/// Has the kernel write there, which it refuses where a program would crash.
fn writable(place: *mut usize) -> bool {
    // SAFETY: the kernel checks the address; what is written is about to be overwritten.
    let written = unsafe {
        libc::syscall(
            libc::SYS_getrandom,
            place,
            size_of::<usize>(),
            libc::GRND_NONBLOCK,
        )
    };
    usize::try_from(written).is_ok_and(|written| written == size_of::<usize>())
}

#[cold]
fn doubt(taken: &Takeover, why: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if taken.disarm() && !SAID.swap(true, Relaxed) {
        say!("ggml's legacy pool is not taken over: {why}; it is as it was");
    }
}
