//! The pages of a folder: read as snapshots, written eight bytes at a time.
//!
//! A page is written by a process that may be anything, so it is input: what is no page is skipped, and a folder is read up to
//! a limit.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plimsoll_core::bytes::Bytes;
use plimsoll_wire::page::{Page, Snapshot, UNLIMITED};

/// Guarded processes of one child that are looked at.
const MOST: usize = 1024;
const EXTENSION: &str = "page";

/// Reads every page of `folder`, in no order.
pub fn read_pages(folder: &Path) -> Vec<Snapshot> {
    pids(folder).filter_map(|pid| read_page(folder, pid)).collect()
}

/// Reads the page of one process; `None` if it has none, or none that can be read.
pub fn read_page(folder: &Path, pid: u32) -> Option<Snapshot> {
    let mut bytes = [0; Page::SIZE];
    let file = File::open(path(folder, pid)).ok()?;
    file.read_exact_at(&mut bytes, 0).ok()?;
    Snapshot::read(&bytes).ok()
}

/// Sets what the process may allocate on the card with this number in its page; `None` lifts the limit.
pub fn set_budget(folder: &Path, pid: u32, card: usize, budget: Option<Bytes>) -> io::Result<()> {
    let offset = Page::budget_offset(card).ok_or(io::ErrorKind::InvalidInput)?;
    write(folder, pid, offset, budget.map_or(UNLIMITED, Bytes::get))
}

/// Tells the process that its plea was heard and that what could be done is done.
pub fn answer_plea(folder: &Path, pid: u32, plea: u64) -> io::Result<()> {
    write(folder, pid, Page::PLEA_ANSWERED_OFFSET, plea)
}

/// Asks the process to give back what its pools hold idle on the card with this number in its page. The answer to `number` stands
/// beside it once the process has come to a safe point.
pub fn ask_for_idle(folder: &Path, pid: u32, card: usize, number: u32) -> io::Result<()> {
    let offset = Page::ask_offset(card).ok_or(io::ErrorKind::InvalidInput)?;
    put(folder, pid, offset, &number.to_ne_bytes())
}

fn write(folder: &Path, pid: u32, offset: usize, number: u64) -> io::Result<()> {
    put(folder, pid, offset, &number.to_ne_bytes())
}

fn put(folder: &Path, pid: u32, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).open(path(folder, pid))?;
    let offset = u64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    file.write_all_at(bytes, offset)
}

fn path(folder: &Path, pid: u32) -> std::path::PathBuf {
    folder.join(format!("{pid}.{EXTENSION}"))
}

/// The processes that have, or had, a page in `folder`.
pub(crate) fn pids(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let pid = |entry: fs::DirEntry| {
        let path = entry.path();
        let is_page = path.extension().is_some_and(|extension| extension == EXTENSION);
        path.file_stem()?.to_str()?.parse().ok().filter(|_| is_page)
    };
    entries.filter_map(pid).take(MOST)
}
