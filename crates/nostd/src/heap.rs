//! Configures glibc's allocator, and returns freed heap pages to the kernel.

/// Gives every whole page that the allocator holds without use back to the kernel.
///
/// glibc does so by itself only at the heap's end, so that one small block above them keeps all freed ones
/// resident.
pub fn release_free_pages() {
    // SAFETY: `malloc_trim` has no precondition; it takes the locks of the arenas itself (`malloc.c: mtrim @
    // glibc 2.31`).
    unsafe { libc::malloc_trim(0) };
}

/// Fixes the sizes from which glibc maps a block by itself, and from which free memory at the heap's end goes
/// back.
///
/// Without it both follow the largest block freed so far, up to 32 MiB (`malloc.c: free @ glibc 2.31`).
pub fn fix_thresholds(mapped: i32, trimmed: i32) {
    // SAFETY: `mallopt` only stores the numbers under its own lock (`malloc.c: __libc_mallopt @ glibc 2.31`);
    // one that it refuses changes nothing.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, mapped);
        libc::mallopt(libc::M_TRIM_THRESHOLD, trimmed);
    }
}
