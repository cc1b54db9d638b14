//! Asks Linux for the host's memory, the page size, and the memory regions of Intel's cards.

use std::path::Path;

use plimsoll_base::Bytes;
pub(crate) use plimsoll_process::reading::name as process_name;

use super::render_node;
use crate::kernel::IntelDriver;
use crate::{HostMemory, Sysroot};

/// The host's memory; `None` without a usable `/proc`.
pub(crate) fn host() -> Option<HostMemory> {
    HostMemory::of(&Sysroot::live())
}

/// The size of a page.
pub(crate) fn page() -> Option<Bytes> {
    u64::try_from(rustix::param::page_size()).ok().map(Bytes::new)
}

/// The answer of an Intel driver about memory.
pub(crate) fn memory_regions(node: &Path, driver: IntelDriver) -> Option<Vec<u8>> {
    render_node::memory_regions(node, driver).ok()
}
