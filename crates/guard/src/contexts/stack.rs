//! Prints the calling thread's stack trace on stderr: one line for each frame, with object, offset and
//! symbol.
//!
//! For stripped programs, `addr2line -e OBJECT OFFSET` finds the source line.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::null_mut;

use crate::driver::loader;
use crate::say::say;

const DEEPEST: usize = 32;

/// Writes the frames of the calling thread, without guard's own.
pub(super) fn say() {
    let mut frames = [null_mut::<c_void>(); DEEPEST];
    let room = c_int::try_from(frames.len()).unwrap_or(0);
    // SAFETY: there is room for so many frames.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), room) };
    let frames = frames.iter().take(usize::try_from(count).unwrap_or(0));
    let us = loader::place(say as *const c_void).map(|place| place.dli_fbase);
    let mut stated = 0;
    for frame in frames {
        let place = loader::place(*frame);
        if place.map(|place| place.dli_fbase) == us {
            continue;
        }
        frame_stated(stated, *frame, place);
        stated += 1;
    }
    if stated == 0 {
        say!("  (no call stack: the program has no unwinder or no unwind tables)");
    }
}

fn frame_stated(number: usize, frame: *mut c_void, place: Option<libc::Dl_info>) {
    let Some(place) = place else {
        say!("  #{number} {frame:p}");
        return;
    };
    let offset = frame.addr().wrapping_sub(place.dli_fbase.addr());
    // SAFETY: names of a loaded object, or null.
    let (object, symbol) = unsafe { (text(place.dli_fname), text(place.dli_sname)) };
    match symbol {
        "" => say!("  #{number} {object}+{offset:#x}"),
        _ => say!("  #{number} {object}+{offset:#x} ({symbol})"),
    }
}

/// # Safety
/// Null, or a C string that lives as long as its object.
unsafe fn text(name: *const c_char) -> &'static str {
    if name.is_null() {
        return "";
    }
    // SAFETY: by this function's contract.
    unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("")
}
