//! Releases the program's code pages from memory once it has started, because most of them serve the start
//! only.

use core::ffi::{c_int, c_void};
use core::ptr;
use core::slice;

/// Takes the program's code and constants out of the resident memory of this process. The kernel has them in
/// its file cache, and maps those again that are used again.
pub fn release_code_pages() {
    // SAFETY: `visit` has the signature that is called, and takes no data.
    unsafe { libc::dl_iterate_phdr(Some(visit), ptr::null_mut()) };
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: the loader passes a description that is valid during this call, and keeps the headers mapped.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr, slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    // SAFETY: `sysconf` has no precondition.
    let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16);
    for header in headers.iter().filter(|header| header.p_type == libc::PT_LOAD) {
        let begin = base.wrapping_add(header.p_vaddr);
        let end = begin.wrapping_add(header.p_filesz) / page * page;
        let begin = begin.next_multiple_of(page);
        let (Ok(address), Ok(length)) = (usize::try_from(begin), usize::try_from(end.saturating_sub(begin)))
        else {
            continue;
        };
        if header.p_flags & libc::PF_W == 0 {
            let pages = ptr::with_exposed_provenance_mut(address);
            // SAFETY: nothing has written to these pages of the program's file, and the kernel forbids
            // writing to it while it runs. So each page is read again with the same bytes.
            unsafe { libc::madvise(pages, length, libc::MADV_DONTNEED) };
        }
    }
    // The first object is the program, and the last that is visited.
    1
}
