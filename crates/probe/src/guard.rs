//! Control of guard, the preloaded library that counts and limits GPU memory, from outside a program.
//!
//! Guard cannot be preloaded into static or setuid programs; this is reported if the program's file shows it.
//!
//! DECISION: this code never loads the library into its own process. Options go into the child's environment,
//! everything else through files in a folder: one page of figures for each process and one budget ledger. So
//! no process ever waits for a dead one.

mod pages;
mod preload;
mod reach;
mod record;

pub use self::pages::pids;
pub use crate::folder::page_folders;
pub use pages::{answer_plea, ask_for_idle, read_page, read_pages, read_tree, set_budget};
pub use preload::{Preload, preload};
pub use reach::{Unreachable, unreachable};
pub use record::{CardRecord, GuardRefusal, Record};

/// The folder of the pages is called so, and then by its owner.
pub const PAGES: &str = "plimsoll-guard-";
