//! Fake guard library that writes the memory page and the budget ledger given by a test, and does nothing
//! else.

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use plimsoll_wire::page::{MAGIC, Oom, Page, PageCard as Card, PageState as State, Refusal, VERSION};
use plimsoll_wire::tree::{TreeSnapshot, budget_word, key};
use tempfile::TempDir;

/// Writes the file that `PLIMSOLL_TEST_PAGE` names as the process's page, with its process id put in, and a
/// second one, if there is one, as the ledger of all.
const LIBRARY: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void write_page(void) {
    const char *folder = getenv("PLIMSOLL_GUARD_PAGES"), *from = getenv("PLIMSOLL_TEST_PAGE");
    char bytes[8192], path[4096];
    if (!folder || !from) return;
    int in = open(from, O_RDONLY);
    if (in < 0) return;
    long size = read(in, bytes, sizeof bytes);
    close(in);
    int pid = getpid();
    memcpy(bytes + 16, &pid, 4);
    snprintf(path, sizeof path, "%s/%d.page", folder, pid);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (out < 0 || write(out, bytes, (unsigned long)size) != size) abort();
    close(out);
    snprintf(path, sizeof path, "%s.tree", from);
    in = open(path, O_RDONLY);
    if (in < 0) return;
    size = read(in, bytes, sizeof bytes);
    close(in);
    snprintf(path, sizeof path, "%s/tree.1", folder);
    out = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (out < 0) return;
    if (write(out, bytes, (unsigned long)size) != size) abort();
    close(out);
}
"#;

/// The stand-in for guard, compiled once.
pub(crate) fn library() -> &'static Path {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = folder.path().join("guard.c");
        std::fs::write(&source, LIBRARY).expect("the folder can be written");
        let path = folder.path().join("libplimsoll_guard.so");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&path, &source]).status();
        assert!(built.is_ok_and(|status| status.success()), "cc");
        (folder, path)
    });
    path
}

/// A page written by hand, and the ledger beside it.
pub(crate) struct HandWritten {
    page: Vec<u8>,
    ledger: Option<Vec<u8>>,
    uuid: [u8; 16],
}

impl HandWritten {
    /// Of an armed process with one card of 80 GiB.
    pub(crate) fn new(uuid: [u8; 16]) -> Self {
        let mut page = Self { page: vec![0; Page::SIZE], ledger: None, uuid };
        page.long(offset_of!(Page, magic), MAGIC);
        page.word(offset_of!(Page, version), VERSION);
        page.word(offset_of!(Page, state), State::Armed as u32);
        page.word(offset_of!(Page, count), 1);
        page.page[offset_of!(Page, cards)..][..16].copy_from_slice(&uuid);
        page.card(offset_of!(Card, total), 80 << 30)
    }

    /// Has a ledger with this budget of the card and this peak.
    pub(crate) fn tree(mut self, budget: u64, peak: u64) -> Self {
        let key = key(self.uuid, 0);
        let mut ledger: Vec<u8> =
            [key, budget_word(budget), peak].into_iter().flat_map(u64::to_ne_bytes).collect();
        ledger.resize(TreeSnapshot::SIZE, 0);
        let card = TreeSnapshot::read(&ledger).and_then(|tree| tree.card(key));
        let card = card.expect("the first place has it");
        assert_eq!((card.budget, card.peak), (Some(budget), peak));
        self.ledger = Some(ledger);
        self
    }

    /// Sets a number of the card.
    pub(crate) fn card(mut self, offset: usize, number: u64) -> Self {
        self.long(offset_of!(Page, cards) + offset, number);
        self
    }

    /// Sets a number of the page.
    pub(crate) fn word_at(mut self, offset: usize, number: u32) -> Self {
        self.word(offset, number);
        self
    }

    /// Sets the most host memory that was pinned.
    pub(crate) fn pinned(mut self, bytes: u64) -> Self {
        self.long(offset_of!(Page, pinned_peak), bytes);
        self
    }

    /// Asks for `bytes` more of the card.
    pub(crate) fn room_request(mut self, bytes: u64) -> Self {
        self.long(offset_of!(Page, room_request), 1);
        self.long(offset_of!(Page, room_request_bytes), bytes);
        self
    }

    /// Adds a refusal of `asked` bytes, just now.
    pub(crate) fn refusal(mut self, why: Refusal, requested: u64) -> Self {
        let count = offset_of!(Page, oom_count);
        let number = u64::from_ne_bytes(self.page[count..count + 8].try_into().expect("eight bytes"));
        let at = offset_of!(Page, ooms) + usize::try_from(number).expect("few") * size_of::<Oom>();
        self.long(count, number + 1);
        self.long(at + offset_of!(Oom, requested), requested);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(now.tv_sec).expect("after the start");
        self.long(at + offset_of!(Oom, time), seconds * 1_000_000_000);
        self.long(at + offset_of!(Oom, budget), 8 << 30);
        self.word(at + offset_of!(Oom, refusal), why as u32);
        self.long(at + offset_of!(Oom, sequence), number + 1);
        self.card(offset_of!(Card, ooms), number + 1)
    }

    pub(crate) fn write(&self, path: &Path) {
        std::fs::write(path, &self.page).expect("the folder can be written");
        if let Some(ledger) = &self.ledger {
            let alongside = format!("{}.tree", path.display());
            std::fs::write(alongside, ledger).expect("the folder can be written");
        }
    }

    fn long(&mut self, at: usize, number: u64) {
        self.page[at..at + 8].copy_from_slice(&number.to_ne_bytes());
    }

    fn word(&mut self, at: usize, number: u32) {
        self.page[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    }
}
