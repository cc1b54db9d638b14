//! Tests with damaged device files: fewer figures are found, nothing panics, and free memory is never
//! overstated.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// A card, an APU, an Intel card, a driver for compute, and processes.
fn whole() -> Written {
    let mut tree = Written::default()
        .amd("card1", "0000:03:00.0", "1002:744C", [24 << 30, 9 << 30, 16 << 30, 1 << 30])
        .amd("card0", "0000:c2:00.0", "1002:1586", [1 << 29, 1 << 28, 120 << 30, 1 << 30])
        .with(&[
            ("sys/class/drm/card1/device/unique_id", "946d7e1ef9b172dd\n"),
            ("sys/class/drm/card1/device/revision", "0xc8\n"),
            (
                "sys/class/drm/card2/device/uevent",
                "DRIVER=xe\nPCI_ID=8086:E20B\nPCI_SLOT_NAME=0000:0b:00.0\n",
            ),
            ("sys/class/drm/card2/device/drm/renderD128/dev", "226:128\n"),
            ("sys/module/ttm/parameters/pages_limit", "31457280\n"),
            ("proc/meminfo", "MemTotal: 131072000 kB\nMemAvailable: 93323264 kB\n"),
            ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
            (
                "proc/100/fdinfo/5",
                "drm-driver: amdgpu\ndrm-pdev: 0000:03:00.0\ndrm-client-id: 7\ndrm-resident-vram: 9 MiB\n",
            ),
            (
                "proc/101/fdinfo/5",
                "drm-driver: amdgpu\ndrm-pdev: 0000:c2:00.0\ndrm-client-id: 7\ndrm-memory-gtt: 9 KiB\n",
            ),
            (
                "sys/class/kfd/kfd/topology/nodes/1/properties",
                "simd_count 192\nlocation_id 768\ngfx_target_version 110501\nunique_id 5\n",
            ),
            ("sys/class/kfd/kfd/topology/nodes/1/gpu_id", "51\n"),
            (
                "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties",
                "heap_type 1\nsize_in_bytes 17163091968\n",
            ),
            ("sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/used_memory", "14102528\n"),
            ("sys/class/kfd/kfd/proc/100/vram_51", "4194304\n"),
        ]);
    let mut answer = vec![1, 0, 0, 0, 0, 0, 0, 0, 1];
    answer.resize(96, 7);
    tree.regions.insert(128, answer);
    tree
}

/// A change at a place of a file.
#[derive(Clone, Debug)]
enum Damage {
    Cut,
    Byte(u8),
    Text(&'static str),
    Remove(usize),
}

fn damage() -> impl Strategy<Value = Damage> {
    const TEXTS: [&str; 10] = [
        "18446744073709551615",
        "-1",
        "99999999999999999999",
        "\0\0",
        "\n",
        ":",
        "0x",
        " KiB",
        "\u{fffd}\u{202e}",
        "nan",
    ];
    prop_oneof![
        Just(Damage::Cut),
        any::<u8>().prop_map(Damage::Byte),
        proptest::sample::select(&TEXTS[..]).prop_map(Damage::Text),
        (1..40_usize).prop_map(Damage::Remove),
    ]
}

fn apply(bytes: &mut Vec<u8>, at: usize, damage: &Damage) {
    let at = at % (bytes.len() + 1);
    match damage {
        Damage::Cut => bytes.truncate(at),
        Damage::Byte(byte) => bytes.insert(at, *byte),
        Damage::Text(text) => drop(bytes.splice(at..at, text.bytes())),
        Damage::Remove(count) => drop(bytes.drain(at..bytes.len().min(at + count))),
    }
}

fn hold(rounds: u32) {
    let tree = whole();
    let paths: Vec<&String> = tree.files.keys().collect();
    let damages = proptest::collection::vec((0..=paths.len(), any::<usize>(), damage()), 1..4);
    let mut runner =
        TestRunner::new(Config { cases: rounds, failure_persistence: None, ..Config::default() });
    let held = runner.run(&damages, |damages| {
        let mut damaged = tree.clone();
        for (file, at, damage) in &damages {
            // One past the files is the answer of the render node.
            let bytes = match paths.get(*file) {
                Some(path) => damaged.files.get_mut(*path),
                None => damaged.regions.get_mut(&128),
            };
            apply(bytes.unwrap(), *at, damage);
        }
        let survey = damaged.survey();
        for card in &survey.cards {
            let is_own = card.board != Some(Board::Shared);
            prop_assert!(!is_own || card.free.is_none_or(|free| Some(free) <= card.total), "{card:?}");
            prop_assert_eq!(card.free.is_some(), card.limit.is_some());
            prop_assert!(!card.name.is_empty());
        }
        let mut ids: Vec<&str> = survey.cards.iter().map(|card| card.id.as_str()).collect();
        ids.sort_unstable();
        prop_assert!(ids.windows(2).all(|pair| pair[0] != pair[1]), "{ids:?}");
        Ok(())
    });
    held.unwrap();
}

#[test]
fn a_hundred_thousand_damaged_trees_are_read_without_a_panic() {
    hold(100_000);
}

#[test]
fn long_a_million_damaged_trees_are_read_without_a_panic() {
    hold(1_000_000);
}
