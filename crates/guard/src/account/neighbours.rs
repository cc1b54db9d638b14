//! Other guarded processes on a card, by the pages they share.

use core::ffi::{CStr, c_int};
use core::fmt::Write;

use plimsoll_wire::env;
use plimsoll_wire::page::{Page, Snapshot};

use super::{CardIndex, card, uuid};
use crate::arm;
use crate::text::Text;

/// More are not looked at.
pub(crate) const MOST: usize = 63;

/// Tells of each living neighbour its process and what it holds of the card.
pub(crate) fn each(index: CardIndex, mut tell: impl FnMut(u32, u64)) {
    let Some(folder) = arm::variable(env::GUARD_PAGES).and_then(|folder| folder.to_str().ok()) else {
        return;
    };
    let mut path = Text::new();
    if write!(path, "{folder}").is_err() {
        return;
    }
    // SAFETY: a C string; null is ruled out before use, and the listing is closed once.
    unsafe {
        let listing = path
            .as_c()
            .map_or(core::ptr::null_mut(), |path| libc::opendir(path.as_ptr()));
        if listing.is_null() {
            return;
        }
        let mut told = 0;
        while let Some(entry) = libc::readdir(listing).as_ref()
            && told < MOST
        {
            if let Some((process, held)) = held(folder, CStr::from_ptr(entry.d_name.as_ptr()), index) {
                tell(process, held);
                told += 1;
            }
        }
        libc::closedir(listing);
    }
}

/// What the process whose page has this name holds of the card; None if it is no page, ours, or a dead one's.
fn held(folder: &str, name: &CStr, index: CardIndex) -> Option<(u32, u64)> {
    let name = name.to_str().ok()?;
    let process: i32 = name.strip_suffix(".page")?.parse().ok()?;
    // SAFETY: signal 0 asks whether there is such a process.
    if process == arm::process() || unsafe { libc::kill(process, 0) } != 0 {
        return None;
    }
    let mut path = Text::new();
    write!(path, "{folder}/{name}").ok()?;
    let page = Snapshot::read(&read(path.as_c()?)?).ok()?;
    let wanted = uuid(card(index));
    let theirs = page.cards().iter().find(|card| card.uuid == wanted)?;
    Some((u32::try_from(process).ok()?, theirs.allocated))
}

fn read(path: &CStr) -> Option<[u8; Page::SIZE]> {
    let mut bytes = [0; Page::SIZE];
    // SAFETY: a C string, room for the bytes, and a descriptor that is closed once.
    unsafe {
        let file: c_int = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW);
        if file < 0 {
            return None;
        }
        let read = libc::read(file, bytes.as_mut_ptr().cast(), bytes.len());
        libc::close(file);
        (usize::try_from(read) == Ok(Page::SIZE)).then_some(bytes)
    }
}
