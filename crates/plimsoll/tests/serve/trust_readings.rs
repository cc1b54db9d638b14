//! Test that each load is decided on a new reading of the card's memory.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::built::built;
use crate::daemon::Setup;
use crate::http::{chat, get};

const GIB: u64 = 1 << 30;

fn show(file: &Path, free: u64) {
    let card = json!([{"uuid": "GPU-aaaa", "name": "Fake 24G", "total": 24 * GIB, "free": free * GIB,
                       "cc": [8, 9], "pci": "00000000:00:00.0"}]);
    // Renamed into place, because the library may read the file at any moment.
    let new = file.with_extension("new");
    std::fs::write(&new, Value::to_string(&card)).expect("a written file");
    std::fs::rename(new, file).expect("a renamed file");
}

#[test]
fn memory_that_another_process_took_a_moment_ago_is_seen_before_a_load() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cards.json");
    show(&file, 24);
    let library = built("libnvidia_ml.so", "fake-nvml");
    let daemon = Setup::with_cards(&[])
        .variable("PLIMSOLL_NVML", &library.to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &format!("@{}", file.display()))
        .model("a", "8GiB", "", "")
        .start();
    // Several times, because the periodic reading may happen to come in between.
    for _ in 0..3 {
        show(&file, 24);
        thread::sleep(Duration::from_millis(1300));
        show(&file, 4);
        let refused = chat(daemon.address, "a");
        assert_eq!(refused.status, 503, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "no_room", "{}", refused.text());
    }
    show(&file, 24);
    // The reading that the last refusal rests on counts for 50 ms.
    thread::sleep(Duration::from_millis(100));
    assert_eq!(chat(daemon.address, "a").status, 200);
    assert_eq!(get(daemon.address, "/health").status, 200);
}
