//! Asks an Intel card's driver for its memory regions, by an ioctl on its render node (`xe_drm.h`,
//! `i915_drm.h`).
//!
//! sysfs states no size of such a card's memory, and this needs no library and no rights beyond the node's.
// The foreign ABI of this crate: an ioctl whose answer the kernel writes to memory that a number points to.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::kernel::IntelDriver;

/// More than the kernel's answer for any card; each region has 88 bytes.
const LARGEST: usize = 64 * 1024;
/// `DRM_IOCTL_BASE`.
const GROUP: u8 = b'd';
/// `DRM_COMMAND_BASE + DRM_XE_DEVICE_QUERY`.
const XE_QUERY: u8 = 0x40;
/// `DRM_COMMAND_BASE + DRM_I915_QUERY`.
const I915_QUERY: u8 = 0x40 + 0x39;
const XE_MEMORY_REGIONS: u32 = 1;
const I915_MEMORY_REGIONS: u64 = 4;

/// `struct drm_xe_device_query`.
#[repr(C)]
#[derive(Default)]
struct XeQuery {
    extensions: u64,
    query: u32,
    size: u32,
    data: u64,
    reserved: [u64; 2],
}

/// `struct drm_i915_query`.
#[repr(C)]
struct I915Query {
    count: u32,
    flags: u32,
    items: u64,
}

/// `struct drm_i915_query_item`.
#[repr(C)]
#[derive(Default)]
struct I915Item {
    query: u64,
    length: i32,
    flags: u32,
    data: u64,
}

const XE: Opcode = opcode::read_write::<XeQuery>(GROUP, XE_QUERY);
const I915: Opcode = opcode::read_write::<I915Query>(GROUP, I915_QUERY);

/// The kernel's answer, whose layout is the driver's.
pub(super) fn memory_regions(node: &Path, driver: IntelDriver) -> io::Result<Vec<u8>> {
    let node = File::options().read(true).write(true).open(node)?;
    let ask = match driver {
        IntelDriver::Xe => ask_xe,
        IntelDriver::I915 => ask_i915,
    };
    // Asked without room, the driver states the size of its answer.
    let size = ask(&node, &mut [])?;
    if size == 0 || size > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut answer = vec![0; size];
    let written = ask(&node, &mut answer)?;
    answer.truncate(written);
    Ok(answer)
}

fn ask_xe(node: &File, answer: &mut [u8]) -> io::Result<usize> {
    let size = u32::try_from(answer.len()).map_err(io::Error::other)?;
    let data = if answer.is_empty() { 0 } else { address(answer) };
    let mut query = XeQuery { query: XE_MEMORY_REGIONS, size, data, ..XeQuery::default() };
    // SAFETY: `XeQuery` has the layout of `struct drm_xe_device_query`, whose size is part of the number. The
    // kernel writes at most `size` bytes to `data`, which is `answer`, borrowed for the whole call; with a
    // size of 0 it writes none.
    unsafe { ioctl(node, Updater::<XE, XeQuery>::new(&mut query)) }?;
    usize::try_from(query.size).map_err(io::Error::other)
}

fn ask_i915(node: &File, answer: &mut [u8]) -> io::Result<usize> {
    let length = i32::try_from(answer.len()).map_err(io::Error::other)?;
    let data = if answer.is_empty() { 0 } else { address(answer) };
    let mut item = I915Item { query: I915_MEMORY_REGIONS, length, flags: 0, data };
    let items = (&raw mut item).expose_provenance() as u64;
    let mut query = I915Query { count: 1, flags: 0, items };
    // SAFETY: `I915Query` and `I915Item` have the layouts of `struct drm_i915_query` and its item. `items`
    // points to one item that outlives the call, and the kernel writes at most `length` bytes to its `data`,
    // which is `answer`, borrowed for the whole call; with a length of 0 it writes none.
    unsafe { ioctl(node, Updater::<I915, I915Query>::new(&mut query)) }?;
    // The kernel wrote to the item behind the compiler's back.
    // SAFETY: `item` is alive, aligned and initialised.
    let length = unsafe { (&raw const item.length).read_volatile() };
    // A negative length is the item's own error.
    usize::try_from(length).map_err(|_| io::Error::from_raw_os_error(length.saturating_neg()))
}

fn address(bytes: &mut [u8]) -> u64 {
    bytes.as_mut_ptr().expose_provenance() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_of_the_kernels_headers() {
        assert_eq!((XE, I915), (0xC028_6440, 0xC010_6479));
    }

    #[test]
    fn a_file_that_is_no_render_node_is_an_error() {
        for driver in [IntelDriver::Xe, IntelDriver::I915] {
            assert!(memory_regions(Path::new("/dev/null"), driver).is_err());
            assert!(memory_regions(Path::new("/dev/dri/renderD9999"), driver).is_err());
        }
    }
}
