//! Tests of reading a machine's cards, with a fake driver that shows the cards a test describes.
//!
//! Every test runs again in a process of its own, because the library and its cards come from the
//! environment.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, CardId, CardKind};
use plimsoll_cards::{Sampler, look};

use crate::built::built;

const ROLE: &str = "PLIMSOLL_TEST_ROLE";

const FOUR: &str = r#"[
    {"uuid":"GPU-d","name":"NVIDIA H200","total":150755869696,"free":150000000000,"pci":"00000000:DB:00.0"},
    {"uuid":"GPU-a","name":"NVIDIA H200","total":150755869696,"free":1073741824,"pci":"00000000:19:00.0",
     "processes":[{"pid":1,"used":536870912},{"pid":4000000,"used":null}],"graphics":[{"pid":1,"used":1048576}]},
    {"uuid":"GPU-b","cc":[8,6],"total":25769803776,"pci":"00000000:3B:00.0","processes":null},
    {"uuid":"GPU-c","total":25769803776,"pci":"00000000:5D:00.0"}]"#;

/// Runs `test`, which is called `name`, in a process whose NVML shows `cards`.
fn with_cards(name: &str, cards: &str, environment: &[(&str, &str)], test: impl FnOnce()) {
    if std::env::var_os(ROLE).is_some() {
        return test();
    }
    let name = format!("probe::{name}");
    let mut again = Command::new(std::env::current_exe().unwrap());
    let output = again
        .args(["--exact", &name, "--nocapture"])
        .env(ROLE, "alone")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
        .env("PLIMSOLL_FAKE_NVML_CARDS", cards)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn with_sampler<T>(test: impl AsyncFnOnce(Sampler) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime
        .block_on(async { test(Sampler::start_with(env!("CARGO_BIN_EXE_plimsoll").as_ref()).unwrap()).await })
}

#[test]
fn cards_are_seen_in_the_order_of_the_bus() {
    with_cards("cards_are_seen_in_the_order_of_the_bus", FOUR, &[], || {
        let machine = look();
        let ids: Vec<&str> = machine.cards.iter().map(|card| card.id.as_str()).collect();
        assert_eq!(ids, ["GPU-a", "GPU-b", "GPU-c", "GPU-d"]);
        let (first, second) = (&machine.cards[0], &machine.cards[1]);
        assert_eq!((first.kind, first.name.as_str()), (CardKind::Cuda, "NVIDIA H200"));
        assert_eq!((first.total, first.free), (Bytes::new(150_755_869_696), Bytes::gib(1)));
        assert_eq!(second.compute_capability, Some((8, 6)));
        assert_eq!(second.free, second.total);
        assert!(!machine.unified && machine.notes.is_empty());
        assert_eq!(machine.host.unwrap().kind, CardKind::Host);
    });
}

#[test]
fn strangers_on_a_card_are_listed_once_with_what_is_known_of_them() {
    let name = "strangers_on_a_card_are_listed_once_with_what_is_known_of_them";
    with_cards(name, FOUR, &[], || {
        let reading = with_sampler(async |sampler| sampler.read().await);
        assert_eq!(reading.free_on(&CardId::new("GPU-a")), Some(Bytes::gib(1)));
        assert!(reading.free_on(&CardId::new("host")).is_some());
        let occupied: Vec<_> =
            reading.holders.iter().map(|holder| (holder.card.as_str(), holder.pid, holder.used)).collect();
        assert_eq!(occupied, [("GPU-a", 1, Some(Bytes::mib(512))), ("GPU-a", 4_000_000, None)]);
        assert!(reading.holders[0].name.is_some());
    });
}

#[test]
fn a_card_that_shares_the_hosts_memory_has_the_hosts_numbers() {
    let name = "a_card_that_shares_the_hosts_memory_has_the_hosts_numbers";
    with_cards(name, r#"[{"uuid":"GPU-orin","name":"Orin"}]"#, &[], || {
        let machine = look();
        assert!(machine.unified);
        assert_eq!(machine.cards[0].total, machine.host.unwrap().total);
    });
}

#[test]
fn a_card_in_mig_mode_is_left_out_aloud() {
    let cards = r#"[{"uuid":"GPU-mig","name":"NVIDIA H100","total":1,"mig":true},{"uuid":"GPU-ok","total":1,"mig":false}]"#;
    with_cards("a_card_in_mig_mode_is_left_out_aloud", cards, &[], || {
        let machine = look();
        assert_eq!(machine.cards.len(), 1);
        assert_eq!(machine.cards[0].id.as_str(), "GPU-ok");
        assert!(machine.notes[0].starts_with("NVIDIA H100 is left out: the card is in MIG mode"));
    });
}

#[test]
fn without_the_library_there_are_no_cards_and_no_error() {
    let name = "without_the_library_there_are_no_cards_and_no_error";
    with_cards(name, FOUR, &[("PLIMSOLL_NVML", "/no/such/libnvidia-ml.so.1")], || {
        let machine = look();
        assert!(machine.cards.is_empty());
        assert!(machine.notes[0].starts_with("no NVIDIA card is visible: "));
        assert!(machine.host.is_some());
        assert!(with_sampler(async |sampler| sampler.read().await).holders.is_empty());
    });
}

#[test]
fn the_daemons_own_limits_hold() {
    let visible = [("CUDA_VISIBLE_DEVICES", "GPU-c,0")];
    with_cards("the_daemons_own_limits_hold", FOUR, &visible, || {
        let ids: Vec<String> = look().cards.iter().map(|card| card.id.to_string()).collect();
        assert_eq!(ids, ["GPU-c", "GPU-a"]);
    });
}

#[test]
fn sampling_maps_no_driver_library_into_the_process() {
    let name = "sampling_maps_no_driver_library_into_the_process";
    with_cards(name, FOUR, &[], || {
        with_sampler(async |sampler| {
            assert_eq!(sampler.machine().await.unwrap().cards.len(), 4);
            sampler.read().await;
            let maps = fs::read_to_string("/proc/self/maps").unwrap();
            for library in ["libnvidia_ml", "libnvidia-ml", "libcuda"] {
                assert!(!maps.contains(library), "{maps}");
            }
        });
    });
}

#[test]
fn bytes_that_come_back_are_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cards.json");
    let cards = |free: u64| format!(r#"[{{"uuid":"GPU-a","total":1000,"free":{free}}}]"#);
    fs::write(&file, cards(100)).unwrap();
    let at_file = format!("@{}", file.display());
    with_cards("bytes_that_come_back_are_waited_for", &at_file, &[], || {
        let path = std::env::var("PLIMSOLL_FAKE_NVML_CARDS").unwrap();
        let path = PathBuf::from(path.trim_start_matches('@'));
        let target = [(CardId::new("GPU-a"), Bytes::new(900))];
        with_sampler(async |sampler| {
            let driver = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                // As a whole, as a driver would.
                fs::write(path.with_extension("new"), cards(900)).unwrap();
                fs::rename(path.with_extension("new"), &path).unwrap();
            };
            let start = Instant::now();
            let (reading, ()) = tokio::join!(sampler.returned(&target), driver);
            assert_eq!(reading.free_on(&target[0].0), Some(Bytes::new(900)));
            assert!((Duration::from_millis(300)..Duration::from_secs(4)).contains(&start.elapsed()));
        });
    });
}

#[test]
fn bytes_that_never_come_back_are_given_up_once_nothing_moves() {
    let name = "bytes_that_never_come_back_are_given_up_once_nothing_moves";
    with_cards(name, FOUR, &[], || {
        let target = [(CardId::new("GPU-a"), Bytes::MAX)];
        let start = Instant::now();
        let reading = with_sampler(async |sampler| sampler.returned(&target).await);
        assert_eq!(reading.free_on(&target[0].0), Some(Bytes::gib(1)));
        assert!((Duration::from_millis(500)..Duration::from_secs(4)).contains(&start.elapsed()));
    });
}
