//! Guard from outside: finds the library, preloads it into a program, and reads and writes the pages on which
//! they meet.
//!
//! DECISION: this half never loads the library itself. It says what is wanted in the child's environment, and
//! everything else goes through files of a folder that belongs to this process: one page for each guarded
//! process and one ledger for all of them, read with `pread`, and changed with aligned eight-byte writes. A
//! child that dies, or this process, leaves nothing to wait for; folders of processes that are gone are swept
//! by the next one. What guard cannot reach (a static or a setuid program) is said only where the program's
//! file shows it.

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
