//! What the kernel and the board say of a machine's memory, read from bytes, and what follows from it.
//!
//! Decision: one parser for each file of `/proc`, `/sys` and `/etc` and for each line of tegrastats, typed and bounded, used
//! by whoever looks (probe, reclaim, doctor). A file that is cut, mixed up or not what its name says gives less, never a
//! panic and never a wrong number: what cannot be read is `None`.

mod buddyinfo;
mod fields;
mod l4t;
mod meminfo;
mod tegrastats;

pub use buddyinfo::{BuddyInfo, ZoneBlocks};
pub use l4t::{NvmapFault, Release};
pub use meminfo::MemInfo;
pub use tegrastats::{Iram, LargestFree, Rail, Swap, TegraStats, Temperature};
