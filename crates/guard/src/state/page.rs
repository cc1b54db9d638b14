//! Writes guard's memory figures to this process's page, a shared-memory file that the daemon reads.
//!
//! The daemon removes the file, because it still needs the last figures of a killed process.

use alloc::boxed::Box;
use core::ffi::{CStr, c_int};
use core::fmt::Write;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};

use plimsoll_wire::env;
use plimsoll_wire::page::Page;

use super::shared_file::{self, errno};
use crate::process;
use crate::say::say;
use crate::text::Text;

static PAGE: AtomicPtr<Page> = AtomicPtr::new(null_mut());

/// The page; one without cards until guard arms itself.
pub(crate) fn page() -> &'static Page {
    static EMPTY: Page = Page::new(0);
    // SAFETY: null, or a page that is never unmapped.
    unsafe { PAGE.load(Acquire).as_ref() }.unwrap_or(&EMPTY)
}

/// Makes the page; `fill` completes it before another process can see it.
pub(crate) fn create(fill: impl FnOnce(&Page)) {
    let process = process::number();
    let new = Box::new(Page::new(process));
    fill(&new);
    let Some(folder) = process::variable(env::GUARD_PAGES).and_then(|folder| folder.to_str().ok()) else {
        PAGE.store(Box::into_raw(new), Release);
        return;
    };
    match share(&new, folder, process) {
        Ok(shared) => PAGE.store(shared, Release),
        Err(act) => {
            say!(
                "cannot {act} a shared-memory file in {folder} (error {}); plimsoll does not see this \
                    process's memory",
                errno()
            );
            PAGE.store(Box::into_raw(new), Release);
        }
    }
}

fn share(page: &Page, folder: &str, process: u32) -> Result<*mut Page, &'static str> {
    let (mut path, mut draft) = (Text::new(), Text::new());
    let named = write!(path, "{folder}/{process}.page").and(write!(draft, "{folder}/.{process}.page"));
    let (Ok(()), Some(path), Some(draft)) = (named, path.as_c(), draft.as_c()) else {
        return Err("name");
    };
    let file = open(draft).or_else(|| {
        // Left by an earlier process with our number, which was killed while it wrote.
        // SAFETY: a C string.
        unsafe { libc::unlink(draft.as_ptr()) };
        open(draft)
    });
    let file = file.ok_or("create")?;
    let mapped = map(file, page);
    // SAFETY: our own descriptor, which a mapping does not need.
    unsafe { libc::close(file) };
    let mapped = mapped?;
    // SAFETY: C strings.
    match unsafe { libc::rename(draft.as_ptr(), path.as_ptr()) } {
        0 => Ok(mapped),
        _ => Err("name"),
    }
}

fn open(path: &CStr) -> Option<c_int> {
    const OWNER_ONLY: libc::mode_t = 0o600;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    // SAFETY: a C string; O_CREAT takes the mode.
    let file = unsafe { libc::open(path.as_ptr(), flags, OWNER_ONLY) };
    (file >= 0).then_some(file)
}

fn map(file: c_int, page: &Page) -> Result<*mut Page, &'static str> {
    // SAFETY: a page is plain bytes, of which so many are readable.
    let written = unsafe { libc::write(file, (&raw const *page).cast(), Page::SIZE) };
    if usize::try_from(written) != Ok(Page::SIZE) {
        return Err("write");
    }
    let mapped = shared_file::map(file, Page::SIZE);
    if mapped.is_null() {
        return Err("map");
    }
    Ok(mapped.cast())
}
