//! Tests of two sums: the memory that processes hold on a card, and the memory that models can take of cards
//! and APUs.

use plimsoll_base::Bytes;

use super::*;

const GIB: u64 = 1 << 30;
const FIRST: &str = "0000:03:00.0";
const SECOND: &str = "0000:0a:00.0";
const NODES: &str = "sys/class/kfd/kfd/topology/nodes";

/// An RX 7900 XTX, whose driver for compute numbers it 51, and an RX 580.
fn two_cards() -> Written {
    Written::default()
        .amd("card1", FIRST, "1002:744C", [24 * GIB, 9 * GIB, 16 * GIB, GIB])
        .amd("card0", SECOND, "1002:67DF", [8 * GIB, GIB, 16 * GIB, 0])
        .with(&[
            ("sys/class/drm/card1/device/revision", "0xc8\n"),
            ("sys/class/drm/card1/device/unique_id", "946d7e1ef9b172dd\n"),
            ("sys/class/drm/card1/device/drm/renderD129/dev", "226:129\n"),
            ("sys/class/drm/card1-DP-1/status", "connected\n"),
            (
                &format!("{NODES}/1/properties"),
                "simd_count 192\nvendor_id 4098\ndevice_id 29772\nlocation_id 768\ndrm_render_minor 129\n\
                 gfx_target_version 110000\nunique_id 10695112379893543645\n",
            ),
            (&format!("{NODES}/1/gpu_id"), "51\n"),
            (&format!("{NODES}/0/properties"), "cpu_cores_count 16\nsimd_count 0\n"),
        ])
}

fn client(address: &str, number: u32, vram_mib: u64, gtt_mib: u64) -> String {
    format!(
        "drm-driver: amdgpu\ndrm-pdev: {address}\ndrm-client-id: {number}\ndrm-memory-vram: {} KiB\n\
         drm-memory-gtt: {} KiB\n",
        vram_mib << 10,
        gtt_mib << 10
    )
}

/// Card, process, MiB on the card and MiB outside.
fn held(survey: &KernelSurvey) -> Vec<(&str, u32, Option<u64>, Option<u64>)> {
    let mib = |bytes: Option<Bytes>| bytes.map(Bytes::whole_mib);
    let holder = |holder: &'_ crate::Holder| (holder.pid, mib(holder.used), mib(holder.outside));
    let card = |of: &crate::Holder| survey.cards.iter().find(|card| card.id == of.card).unwrap();
    let all = survey.holders.iter().map(|one| {
        let (pid, used, outside) = holder(one);
        (card(one).address.as_deref().unwrap(), pid, used, outside)
    });
    all.collect()
}

#[test]
fn identity_and_figures_come_from_the_kernels_files() {
    let survey = two_cards().survey();
    let [old, new] = survey.cards.as_slice() else { panic!("{survey:#?}") };
    assert_eq!(new.id.as_str(), "GPU-946d7e1ef9b172dd");
    assert_eq!(new.uuid.as_deref(), Some("GPU-946d7e1ef9b172dd"));
    assert_eq!((new.name.as_str(), new.architecture.as_deref()), ("AMD Radeon RX 7900 XTX", Some("gfx1100")));
    assert_eq!((new.render_minor, new.board), (Some(129), Some(Board::Own)));
    assert_eq!((new.total, new.free, new.limit), (gib(24), gib(15), Some(RoomLimit::Vram)));
    assert_eq!((old.id.as_str(), old.uuid.as_deref(), old.free), (SECOND, None, gib(7)));
    assert!(survey.notes.is_empty() && new.notes.is_empty(), "{survey:#?}");
}

fn gib(number: u64) -> Option<Bytes> {
    Some(Bytes::gib(number))
}

#[test]
fn a_client_counts_once_for_each_card_however_many_descriptors_it_has() {
    let survey = two_cards()
        .client(100, 5, &client(FIRST, 7, 1000, 50))
        .client(100, 6, &client(FIRST, 7, 1000, 50))
        .client(100, 9, &client(FIRST, 8, 24, 0))
        // A child that inherited the descriptor, and the same number on another card.
        .client(101, 5, &client(FIRST, 7, 1000, 50))
        .client(101, 8, &client(SECOND, 7, 300, 0))
        .with(&[("proc/100/comm", "llama-server\n")])
        .survey();
    assert_eq!(held(&survey), [(FIRST, 100, Some(1024), Some(50)), (SECOND, 101, Some(300), None)]);
    assert_eq!(survey.holders[0].name.as_deref(), Some("llama-server"));
}

#[test]
fn clients_that_ended_or_hold_nothing_are_no_holders() {
    let survey = two_cards()
        // A process between exit and reaping has no descriptors; another lost its files during the reading.
        .with(&[("proc/200/comm", "gone\n"), ("proc/201/fdinfo/4", "")])
        .client(202, 3, &client(FIRST, 9, 0, 0))
        .client(203, 3, "pos: 0\nflags: 0100002\nmnt_id: 15\n")
        .client(204, 3, &client("0000:99:00.0", 9, 64, 0))
        .with(&[("sys/class/kfd/kfd/proc/205/vram_51", "0\n")])
        .survey();
    assert_eq!(held(&survey), []);
}

#[test]
fn both_reports_on_one_process_count_once_and_each_alone_counts() {
    let proc = "sys/class/kfd/kfd/proc";
    let survey = two_cards()
        .client(300, 4, &client(FIRST, 1, 600, 20))
        .client(301, 4, &client(FIRST, 2, 5, 0))
        .client(302, 4, &client(FIRST, 3, 70, 0))
        .with(&[
            (&format!("{proc}/300/vram_51"), "536870912\n"),
            (&format!("{proc}/301/vram_51"), "4294967296\n"),
            (&format!("{proc}/303/vram_51"), "1073741824\n"),
            (&format!("{proc}/303/vram_99"), "1073741824\n"),
            (&format!("{proc}/303/pasid"), "32771\n"),
        ])
        .survey();
    assert_eq!(
        held(&survey),
        [
            (FIRST, 300, Some(600), Some(20)),
            (FIRST, 301, Some(4096), None),
            (FIRST, 302, Some(70), None),
            (FIRST, 303, Some(1024), None)
        ]
    );
    // The driver counts the card's own memory, whatever is known of its processes.
    assert_eq!(survey.cards[1].used, gib(9));
}

#[test]
fn a_client_without_figures_holds_an_unknown_amount() {
    let survey = two_cards()
        .client(400, 4, &format!("drm-driver: amdgpu\ndrm-pdev: {FIRST}\ndrm-client-id: 3\n"))
        .survey();
    assert_eq!(held(&survey), [(FIRST, 400, None, None)]);
}

/// Strix Halo: 512 MiB carved out, and GTT of 120 GiB.
fn apu(gtt_used: u64, pages_limit: &str, available: &str) -> Written {
    Written::default()
        .amd("card1", "0000:c2:00.0", "1002:1586", [GIB / 2, GIB / 4, 120 * GIB, gtt_used])
        .with(&[
            ("sys/class/drm/card1/device/revision", "0xc1\n"),
            ("sys/class/drm/card1/device/unique_id", "\n"),
            ("sys/module/ttm/parameters/pages_limit", pages_limit),
            ("proc/meminfo", &format!("MemTotal: 131072000 kB\nMemAvailable: {available} kB\n")),
            ("proc/sys/kernel/osrelease", "6.17.4-arch1-1\n"),
        ])
}

#[test]
fn an_apu_is_one_pool_whose_room_is_the_least_of_three_limits() {
    let mib = |mib: u64| Some(Bytes::mib(mib));
    for (gtt_used, pages, available, free, limit) in [
        // MemAvailable 89 GiB, as in llama.cpp PR 20472.
        (0, "31457280", "93323264", mib(89 << 10), RoomLimit::MemAvailable),
        (0, "4194304", "93323264", mib(16 << 10), RoomLimit::TtmPagesLimit),
        (100 * GIB, "31457280", "93323264", mib(20 << 10), RoomLimit::TtmPagesLimit),
        (100 * GIB, "33554432", "93323264", mib((20 << 10) + 256), RoomLimit::VramAndGtt),
        (0, "31457280", "1024", mib(256), RoomLimit::CarveOut),
    ] {
        let survey = apu(gtt_used, pages, available).survey();
        let [card] = survey.cards.as_slice() else { panic!("{survey:?}") };
        assert_eq!((card.free, card.limit), (free, Some(limit)), "{pages} {available}");
        assert_eq!((card.name.as_str(), card.board), ("AMD Radeon 8060S Graphics", Some(Board::Shared)));
        assert_eq!((card.id.as_str(), card.uuid.as_deref()), ("0000:c2:00.0", None));
        assert!(card.notes.is_empty(), "{card:?}");
    }
}

#[test]
fn a_large_carve_out_is_room_whatever_the_host_has_left() {
    let survey = Written::default()
        .amd("card0", "0000:c2:00.0", "1002:1586", [96 * GIB, GIB, 16 * GIB, 0])
        .with(&[("proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 20971520 kB\n")])
        .survey();
    let card = &survey.cards[0];
    assert_eq!((card.free, card.limit), (gib(95), Some(RoomLimit::CarveOut)));
}

#[test]
fn memory_of_an_apus_processes_lies_in_both_pools_and_counts_where_the_driver_is_behind() {
    let survey =
        apu(0, "31457280", "125829120").client(500, 4, &client("0000:c2:00.0", 1, 5, 25 << 10)).survey();
    let card = &survey.cards[0];
    assert_eq!(held(&survey), [("0000:c2:00.0", 500, Some((25 << 10) + 5), None)]);
    assert_eq!(card.used, Some(Bytes::mib((25 << 10) + 5)));
    assert_eq!(card.limit, Some(RoomLimit::VramAndGtt));
}

#[test]
fn an_old_kernel_and_a_known_fault_are_named() {
    let survey = apu(0, "31457280", "93323264")
        .with(&[
            ("proc/sys/kernel/osrelease", "6.8.0-45-generic\n"),
            (
                &format!("{NODES}/1/properties"),
                "simd_count 80\nlocation_id 49664\ngfx_target_version 110501\nunique_id 0\n",
            ),
        ])
        .survey();
    let notes = survey.cards[0].notes.join("\n");
    assert!(
        notes.contains("with kernel 6.8, HIP uses only the 512 MiB that the firmware sets aside"),
        "{notes}"
    );
    assert!(notes.contains("GGML_CUDA_ENABLE_UNIFIED_MEMORY"), "{notes}");
}

#[test]
fn intels_memory_is_the_answer_of_its_driver_and_the_integrated_one_takes_the_hosts() {
    let event = |driver: &str, id: &str, address: &str| {
        format!("DRIVER={driver}\nPCI_ID={id}\nPCI_SLOT_NAME={address}\n")
    };
    let mut region = vec![1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    region.extend((12 * GIB).to_le_bytes());
    region.extend((2 * GIB).to_le_bytes());
    region.resize(8 + 88, 0);
    let mut tree = Written::default().with(&[
        ("sys/class/drm/card1/device/uevent", &event("xe", "8086:E20B", FIRST)),
        ("sys/class/drm/card1/device/drm/renderD128/dev", "226:128\n"),
        ("sys/class/drm/card0/device/uevent", &event("i915", "8086:9B41", "0000:00:02.0")),
        ("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"),
        (
            "proc/7/fdinfo/3",
            "drm-driver: xe\ndrm-pdev: 0000:03:00.0\ndrm-client-id: 1\ndrm-resident-vram0: 1 MiB\n",
        ),
    ]);
    tree.regions.insert(128, region);
    let survey = tree.survey();
    let [integrated, arc] = survey.cards.as_slice() else { panic!("{survey:?}") };
    assert_eq!((arc.name.as_str(), arc.total, arc.free), ("Intel Arc B580", gib(12), gib(10)));
    assert_eq!((integrated.total, integrated.free), (gib(16), gib(8)));
    assert_eq!(integrated.limit, Some(RoomLimit::MemAvailable));
    assert_eq!(held(&survey), [(FIRST, 7, Some(1), None)]);
}

#[test]
fn partitions_of_one_card_have_ids_of_their_own() {
    let partition = |number: u32, place: u32| {
        (
            format!("{NODES}/{number}/properties"),
            format!(
                "simd_count 80\nvendor_id 4098\ndevice_id 29858\nlocation_id {place}\n\
                 unique_id 598046273873802902\n"
            ),
        )
    };
    let (first, second) = (partition(2, 2560), partition(3, 2561));
    let survey = Written::default().with(&[(&first.0, &first.1), (&second.0, &second.1)]).survey();
    let ids: Vec<&str> = survey.cards.iter().map(|card| card.id.as_str()).collect();
    assert_eq!(ids, ["0000:0a:00.0", "0000:0a:00.1"]);
    assert!(survey.cards.iter().all(|card| card.uuid.is_none() && card.name == "AMD Instinct MI308X"));
}

#[test]
fn cards_that_are_left_out_are_named_with_the_reason() {
    let survey = Written::default()
        .with(&[
            ("sys/class/drm/card0/device/uevent", "DRIVER=ast\nPCI_ID=1A03:2000\n"),
            ("sys/class/drm/card1/device/uevent", "PCI_ID=1002:744C\nPCI_SLOT_NAME=0000:03:00.0\n"),
            ("sys/class/drm/card2/device/uevent", "DRIVER=nvidia\nPCI_ID=10DE:2684\n"),
            ("sys/class/drm/card3/device/uevent", "DRIVER=tegra-host1x\n"),
            (
                "proc/driver/nvidia/gpus/0000:01:00.0/information",
                "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 123\nGPU UUID: \t GPU-1234\n",
            ),
        ])
        .survey();
    assert_eq!(
        survey.notes,
        [
            "card0 is left out: it is not a GPU of AMD or Intel",
            "card1 is left out: no driver is bound to it",
            "card3 is left out: it is not a PCI device"
        ]
    );
    let [nvidia] = survey.cards.as_slice() else { panic!("{survey:?}") };
    assert_eq!((nvidia.id.as_str(), nvidia.total), ("GPU-1234", None));
    assert!(nvidia.notes[0].contains("NVML"), "{nvidia:?}");
}
