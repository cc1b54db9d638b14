//! Tests that AMD's and Intel's cards appear in status, metrics and listings, even if no model is placed on
//! them.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::daemon::{Setup, until};
use crate::http::get;

/// An APU and a card whose driver states no memory.
fn write_files(root: &Path) {
    let write = |path: &str, text: &str| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let event = |driver: &str, id: &str, address: &str| {
        format!("DRIVER={driver}\nPCI_ID={id}\nPCI_SLOT_NAME={address}\n")
    };
    write("sys/class/drm/card0/device/uevent", &event("amdgpu", "1002:1586", "0000:c2:00.0"));
    write("sys/class/drm/card0/device/revision", "0xc1\n");
    for (file, gib) in [("vram_total", 4_u64), ("vram_used", 1), ("gtt_total", 60), ("gtt_used", 3)] {
        write(&format!("sys/class/drm/card0/device/mem_info_{file}"), &(gib << 30).to_string());
    }
    write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 41943040 kB\n");
    write("sys/class/drm/card1/device/uevent", &event("xe", "8086:E20B", "0000:03:00.0"));
}

#[test]
fn cards_without_a_model_are_in_status_metrics_and_listing_and_unknown_figures_are_in_none() {
    let root = tempfile::tempdir().unwrap();
    write_files(root.path());
    let daemon = Setup::with_cards(&[])
        .model("small", "1GiB", "", "")
        .variable("PLIMSOLL_NVML", "")
        .variable("PLIMSOLL_CARD_FILES", root.path().to_str().unwrap())
        .start();
    until("the first reading", || daemon.status()["other_cards"].is_array());
    let status = daemon.status();
    let [apu, arc] = status["other_cards"].as_array().unwrap().as_slice() else { panic!("{status:#}") };
    let gib = |gib: u64| Value::from(gib << 30);
    assert_eq!((&apu["total"], &apu["used"], &apu["free"]), (&gib(64), &gib(4), &gib(40)));
    assert_eq!((&apu["name"], &apu["limit"]), (&"AMD Radeon 8060S Graphics".into(), &"mem_available".into()));
    assert_eq!((&arc["name"], &arc["total"]), (&"Intel Arc B580".into(), &Value::Null));
    let page = get(daemon.address, "/metrics").text();
    let series = |name: &str, card: &str| {
        page.lines().any(|line| line.starts_with(name) && line.contains(&format!("card=\"{card}\"")))
    };
    assert!(series("plimsoll_other_card_free_bytes", "AMD Radeon 8060S Graphics"), "{page}");
    assert!(!series("plimsoll_other_card_total_bytes", "Intel Arc B580"), "{page}");
    let url = format!("http://{}", daemon.address);
    let listing = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(["ps", "--url", &url]).output().unwrap();
    let listing = String::from_utf8_lossy(&listing.stdout).into_owned();
    let row = |name: &str| listing.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    let shown = row("AMD Radeon 8060S Graphics").unwrap_or_default();
    assert!(shown.contains("65536 MiB") && shown.ends_with("40960 MiB"), "{listing}");
    assert!(row("Intel Arc B580").is_some_and(|row| row.ends_with('-')), "{listing}");
}
