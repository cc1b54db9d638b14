//! Return of freed heap pages to the kernel.

/// Gives every whole page that the allocator holds without use back to the kernel.
///
/// glibc does so by itself only at the heap's end, so that one small block above them keeps all freed ones resident.
pub fn release_free_pages() {
    // SAFETY: `malloc_trim` has no precondition; it takes the locks of the arenas itself (`malloc.c: mtrim @ glibc 2.31`).
    unsafe { libc::malloc_trim(0) };
}
