//! Control of guard from outside a program: finding and preloading the library, and reading and writing its
//! pages.
//!
//! Guard is the library that counts and limits a program's GPU memory. A page is a small shared-memory file
//! in which it records one process's figures.
//!
//! DECISION: this code never loads the library into its own process. Options go into the child's environment.
//! Everything else goes through files in a folder owned by this process: one page for each guarded process
//! and one budget ledger for all of them. These files are read with `pread` and changed with aligned
//! eight-byte writes. If a child or this process dies, no other process waits for it. The folders of dead
//! processes are removed by the next process that creates one. Guard cannot be preloaded into static or
//! setuid programs; this is reported if it can be seen from the program's file.

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
