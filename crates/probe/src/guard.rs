//! Controls guard, the preloaded library that counts and limits GPU memory, from outside a program.
//!
//! Options go into the program's environment; memory figures and budgets come from files.

#[cfg(unix)]
mod depths;
mod pages;
#[cfg(unix)]
mod preload;
#[cfg(unix)]
mod reach;
mod record;
#[cfg(unix)]
mod vulkan_layer;

#[cfg(unix)]
pub use self::depths::{DepthReporter, LONGEST_SLOTS, SLOTS_WITHIN};
pub use self::pages::pids;
#[cfg(unix)]
pub use crate::folder::page_folders;
pub use pages::{
    answer_room_request, ask_for_idle, read_page, read_pages, read_tree, report_depths, set_budget,
};
#[cfg(unix)]
pub use preload::{Preload, preload};
#[cfg(unix)]
pub use reach::{Unreachable, unreachable};
pub use record::{CardRecord, GuardRefusal, Record};

// DECISION: this code never loads the library into its own process. A folder has one page of figures for each
// process and one budget ledger, so no process ever waits for a dead one.
/// The folder of the pages is called so, and then by its owner.
pub const PAGES: &str = "plimsoll-guard-";
