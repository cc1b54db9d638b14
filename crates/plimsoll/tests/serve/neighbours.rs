//! Tests that `serve` asks a program under guard (the preloaded library), which it did not start, to release
//! idle memory before a model is stopped.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use plimsoll_wire::page::{Page, PageCard as Card, PageSnapshot as Snapshot};
use serde_json::json;
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, until};
use crate::http::chat;
use crate::pages::hand_written::{HandWritten, library};

const MIB: u64 = 1 << 20;

/// A machine with one card that no other test has, and a neighbour on it whose page is this test's: so this
/// process is the neighbour.
struct Machine {
    folder: TempDir,
    page: PathBuf,
    uuid: String,
}

impl Machine {
    fn new(number: u8) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let pages = folder.path().join("plimsoll-guard-neighbour");
        std::fs::create_dir(&pages).expect("the folder is ours");
        let pid = std::process::id();
        let mut uuid = [0; 16];
        uuid[..4].copy_from_slice(&pid.to_be_bytes());
        uuid[15] = number;
        let page = pages.join(format!("{pid}.page"));
        HandWritten::new(uuid)
            .card(offset_of!(Card, allocated), 3000 * MIB)
            .card(offset_of!(Card, reserved), 3000 * MIB)
            .card(offset_of!(Card, idle), 2500 * MIB)
            .write(&page);
        let file = File::options().write(true).open(&page).expect("it is ours");
        file.write_all_at(&pid.to_ne_bytes(), 16).expect("it is ours");
        let machine = Self { folder, page, uuid: plimsoll_wire::options::Uuid(uuid).to_string() };
        machine.has_free(8192 - 3000);
        machine
    }

    fn cards(&self) -> PathBuf {
        self.folder.path().join("cards.json")
    }

    /// What the driver says from now on.
    fn has_free(&self, mib: u64) {
        let card = json!([{"uuid": self.uuid, "name": "Fake 8G", "total": 8192 * MIB, "free": mib * MIB, "pci": "00000000:01:00.0"}]);
        let draft = self.folder.path().join("draft");
        std::fs::write(&draft, card.to_string()).expect("the folder is ours");
        std::fs::rename(draft, self.cards()).expect("the folder is ours");
    }

    /// A daemon with two models that do not fit together while the neighbour is there.
    fn serve(&self, ask: &str) -> Daemon {
        let nvml = built("libnvidia_ml.so", "fake-nvml");
        Setup::with_cards(&[])
            .model("first", "3GiB", "", "")
            .model("second", "3GiB", "", "")
            .argument("--reserve")
            .argument("0")
            .argument("--ask")
            .argument(ask)
            .variable("PLIMSOLL_NVML", path(&nvml))
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &format!("@{}", self.cards().display()))
            .variable("PLIMSOLL_GUARD_LIBRARY", path(library()))
            .variable("XDG_RUNTIME_DIR", path(self.folder.path()))
            .start()
    }

    fn requested(&self) -> u32 {
        let page = std::fs::read(&self.page).expect("it is ours");
        Snapshot::read(&page).expect("it is a page").cards()[0].ask
    }

    /// Gives 2500 MiB back, as guard would, and says so on the page.
    fn answer(&self) {
        self.has_free(8192 - 500);
        let file = File::options().write(true).open(&self.page).expect("it is ours");
        let put = |at: usize, bytes: &[u8]| {
            file.write_all_at(bytes, u64::try_from(at).expect("small")).expect("it is ours");
        };
        put(offset_of!(Page, given_back), &(2500 * MIB).to_ne_bytes());
        put(offset_of!(Page, cards) + offset_of!(Card, answered), &self.requested().to_ne_bytes());
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn memory_released_by_a_neighbour_prevents_an_eviction() {
    let machine = Machine::new(1);
    // Ten minutes: nothing here depends on how soon the neighbour answers.
    let daemon = machine.serve("600000");
    assert_eq!(chat(daemon.address, "first").status, 200);
    assert_eq!(machine.requested(), 0, "nobody is asked for what fits");
    std::thread::scope(|scope| {
        let second = scope.spawn(|| chat(daemon.address, "second"));
        until("the neighbour is asked", || machine.requested() == 1);
        assert_eq!(daemon.running(), ["first"]);
        machine.answer();
        assert_eq!(second.join().expect("it is answered").status, 200);
    });
    assert_eq!(daemon.running(), ["first", "second"]);
    daemon.reported("to make room for second, guarded processes released 2500 MiB of idle memory: ");
}

#[test]
fn eviction_makes_room_if_neighbours_are_not_queried() {
    let machine = Machine::new(2);
    let daemon = machine.serve("0");
    assert_eq!(chat(daemon.address, "first").status, 200);
    assert_eq!(chat(daemon.address, "second").status, 200);
    assert_eq!(daemon.running(), ["second"]);
    assert_eq!(machine.requested(), 0);
}
