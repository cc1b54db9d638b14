//! Reader and writer of the shared-memory files of guard, the preloaded library.
//!
//! A page has the memory figures of one process; the ledger has the budget that processes share. Any program
//! can write to these files, so they are untrusted input.

use std::fs;
use std::io;
use std::path::Path;

use plimsoll_base::Bytes;
use plimsoll_wire::page::{DEPTHS, Page, PageSnapshot};
use plimsoll_wire::tree::{FILE, TreeSnapshot, budget_word};

/// Guarded processes of one child that are looked at.
const MOST: usize = 1024;
const EXTENSION: &str = "page";

/// Reads every page of `folder`, in no order.
pub fn read_pages(folder: &Path) -> Vec<PageSnapshot> {
    pids(folder).filter_map(|pid| read_page(folder, pid)).collect()
}

/// Reads the page of one process; `None` if it has none, or none that can be read.
pub fn read_page(folder: &Path, pid: u32) -> Option<PageSnapshot> {
    let mut bytes = [0; Page::SIZE];
    let file = plimsoll_file::open_nofollow(&path(folder, pid)).ok()?;
    // The process goes on writing meanwhile, so counters of one snapshot may be a moment apart.
    plimsoll_file::read_exact_at(&file, &mut bytes, 0).ok()?;
    PageSnapshot::read(&bytes).ok()
}

/// Reads the cards in the ledger of `folder`; `None` if no process of the tree has used one.
pub fn read_tree(folder: &Path) -> Option<TreeSnapshot> {
    let mut bytes = [0; TreeSnapshot::SIZE];
    let file = plimsoll_file::open_nofollow(&folder.join(FILE)).ok()?;
    plimsoll_file::read_exact_at(&file, &mut bytes, 0).ok()?;
    TreeSnapshot::read(&bytes)
}

/// Sets the memory that all processes of `folder` together may take on the card with this
/// [`key`](plimsoll_wire::tree::key); fails if none of them has used it yet.
pub fn set_budget(folder: &Path, key: u64, budget: Bytes) -> io::Result<()> {
    let offset = read_tree(folder).and_then(|tree| tree.budget_offset(key));
    // The offset is looked up each time: cards are added to the ledger as processes first use them.
    let word = budget_word(budget.get()).to_ne_bytes();
    // One word in one write: guarded processes see the old budget or the new one, never a mixture.
    put(&folder.join(FILE), offset.ok_or(io::ErrorKind::NotFound)?, &word)
}

/// Replies to a process's request for room, once everything possible was done.
pub fn answer_room_request(folder: &Path, pid: u32, room_request: u64) -> io::Result<()> {
    put(&path(folder, pid), Page::ROOM_REQUEST_ANSWERED_OFFSET, &room_request.to_ne_bytes())
}

/// Requests the process to release the idle memory of its pools on the card with this number in its page. The
/// reply to `number` appears next to it when the process reaches a safe point.
pub fn ask_for_idle(folder: &Path, pid: u32, card: usize, number: u32) -> io::Result<()> {
    let offset = Page::ask_offset(card).ok_or(io::ErrorKind::InvalidInput)?;
    put(&path(folder, pid), offset, &number.to_ne_bytes())
}

/// Reports to the process how many positions each stream of its cache is about to use. `number` grows with
/// each report.
pub fn report_depths(folder: &Path, pid: u32, depths: &[u32], number: u32) -> io::Result<()> {
    let depths = depths.get(..depths.len().min(DEPTHS)).unwrap_or(depths);
    let bytes: Vec<u8> = depths.iter().flat_map(|depth| depth.to_ne_bytes()).collect();
    let path = path(folder, pid);
    // The number last: a process that sees it sees the depths. One that reads between two reports moves a
    // granule too many or too few, and gets the next report soon.
    put(&path, Page::DEPTHS_OFFSET, &bytes)?;
    put(&path, Page::DEPTH_REPORTS_OFFSET, &number.to_ne_bytes())
}

fn put(path: &Path, offset: usize, bytes: &[u8]) -> io::Result<()> {
    let file = plimsoll_file::open_to_write(path)?;
    let offset = u64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // This word only: the others belong to the process that maps the page.
    plimsoll_file::write_all_at(&file, bytes, offset)
}

fn path(folder: &Path, pid: u32) -> std::path::PathBuf {
    folder.join(format!("{pid}.{EXTENSION}"))
}

/// The processes that have, or had, a page in `folder`.
pub fn pids(folder: &Path) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let pid = |entry: fs::DirEntry| {
        let path = entry.path();
        let is_page = path.extension().is_some_and(|extension| extension == EXTENSION);
        path.file_stem()?.to_str()?.parse().ok().filter(|_| is_page)
    };
    entries.filter_map(pid).take(MOST)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    #[test]
    fn neither_a_fifo_nor_a_link_is_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        assert!(Command::new("mkfifo").arg(path.join("7.page")).status().unwrap().success());
        fs::write(path.join("elsewhere"), [0; Page::SIZE]).unwrap();
        symlink(path.join("elsewhere"), path.join("8.page")).unwrap();
        symlink(path.join("7.page"), path.join(FILE)).unwrap();
        let (done, waits) = channel();
        // On a thread, so that a read that waits fails the test instead of hanging it.
        std::thread::spawn(move || {
            let read = (read_pages(&path).len(), read_tree(&path).is_some());
            let written = [7, 8].map(|pid| answer_room_request(&path, pid, 1).is_ok());
            let _ = done.send((read, written));
        });
        let outcome = waits.recv_timeout(Duration::from_secs(10));
        assert_eq!(outcome, Ok(((0, false), [false; 2])), "a read waits");
    }
}
