//! The ways by which a program comes by a function of the driver.
//!
//! ELF import: our exports come first in the order of symbols. `dlsym`: [`symbol`]. `cuGetProcAddress` and what builds on it
//! (every CUDA runtime): [`procedure`]. In both the real look-up runs first, and only what it finds is replaced, so that a
//! function which this driver does not have, or which is another library's, is never promised. `dlvsym`, `cuGetExportTable` and
//! `dlopen` are left alone; RTLD_DEEPBIND, dlmopen, static and setuid programs are out of reach.

pub(crate) mod procedure;
// A unit test keeps the `dlsym` it came with.
#[cfg(not(test))]
mod symbol;
