//! Global allocator and panic handler of the preloaded libraries guard and phantom, over libc's `malloc` and
//! `abort`.

use core::alloc::{GlobalAlloc, Layout};
use core::panic::PanicInfo;
use core::ptr::null_mut;

struct Malloc;

/// Alignment that `malloc` guarantees on every 64-bit Linux.
const ALIGNED: usize = 16;

// SAFETY: every block comes from malloc or posix_memalign, both of which `free` takes back.
unsafe impl GlobalAlloc for Malloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGNED {
            // SAFETY: any size is a valid argument.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut block = null_mut();
        // posix_memalign and not aligned_alloc: C11 demands of that a size which the alignment divides.
        // SAFETY: `block` is ours, and a Layout's alignment is a power of two; more than 16 is a multiple of
        // a pointer's size.
        match unsafe { libc::posix_memalign(&raw mut block, layout.align(), layout.size()) } {
            0 => block.cast(),
            _ => null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller promises that `alloc` gave it.
        unsafe { libc::free(block.cast()) };
    }
}

#[global_allocator]
static MALLOC: Malloc = Malloc;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // No message: formatting it would pull in code that may panic again, in a process that is not ours.
    // SAFETY: abort takes nothing and does not return.
    unsafe { libc::abort() }
}
