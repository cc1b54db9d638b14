//! An engine sees exactly its own cards, and the daemon touches none.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, built};
use crate::http::{chat, get};

const CARDS: [&str; 4] = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"];

/// A daemon that sees four cards of 24 GiB through fake-nvml.
fn four_cards(setup: Setup) -> Daemon {
    let gib = 1_u64 << 30;
    let cards: Vec<Value> = (0..4)
        .map(|n| {
            json!({"uuid": CARDS[n], "name": "Fake 24G", "total": 24 * gib, "free": 24 * gib,
                   "cc": [8, 9], "pci": format!("00000000:0{n}:00.0")})
        })
        .collect();
    let library = built("libnvidia_ml.so", "fake-nvml");
    setup
        .variable("PLIMSOLL_NVML", &library.to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &Value::from(cards).to_string())
        .start()
}

fn seen(daemon: &Daemon, model: &str) -> Value {
    assert_eq!(chat(daemon.address, model).status, 200);
    get(daemon.address, &format!("/upstream/{model}/fake/env")).json()["env"].clone()
}

#[test]
fn each_child_names_only_its_own_cards_by_uuid() {
    let daemon = four_cards(
        Setup::with_cards(&[])
            .model("one", "20GiB", "", "cards = [\"GPU-bbbb\"]")
            .model("two", "40GiB", "", "cards = [\"GPU-aaaa\", \"GPU-dddd\"]")
            .model("any", "10GiB", "", ""),
    );
    let one = seen(&daemon, "one");
    assert_eq!(one["CUDA_VISIBLE_DEVICES"], "GPU-bbbb");
    assert_eq!(one["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    assert_eq!(seen(&daemon, "two")["CUDA_VISIBLE_DEVICES"], "GPU-aaaa,GPU-dddd");
    assert_eq!(
        seen(&daemon, "any")["CUDA_VISIBLE_DEVICES"],
        "GPU-cccc",
        "the only card with room"
    );
    assert_eq!(daemon.running(), ["any", "one", "two"]);
}

#[test]
fn the_daemon_maps_neither_libcuda_nor_the_library_that_maps_it() {
    let daemon = four_cards(Setup::with_cards(&[]).model("one", "1GiB", "", ""));
    assert_eq!(chat(daemon.address, "one").status, 200);
    assert_eq!(
        daemon.status()["cards"].as_array().map(Vec::len),
        Some(4),
        "the cards are seen"
    );
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("it runs");
    for library in ["libcuda", "nvidia_ml", "nvidia-ml"] {
        assert!(!maps.contains(library), "{maps}");
    }
}
