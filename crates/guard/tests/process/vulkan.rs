//! Tests of guard as a layer of Vulkan's loader, on Mesa's software driver and on phantom's cards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use plimsoll_wire::options::Uuid;
use plimsoll_wire::page::{PageState, Refusal};

use crate::runner::artefact;
use crate::runner::client::{Client, Run};

const MIB: u64 = 1 << 20;
const LAYER: &str = "VK_LAYER_PLIMSOLL_guard";
/// A card of 1 GiB with a heap of the host, and an integrated one of 2 GiB.
const CARDS: &str = "total=1073741824,cc=8.9,vendor=4098,name=A;total=2147483648,cc=8.9,integrated=1,name=B";
/// Memory types of phantom's card.
const LOCAL: u32 = 0;
const MAPPED: u32 = 2;
const HOST: u32 = 1;

/// A driver of Vulkan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Driver {
    Mesa,
    Phantom,
}

/// A program under no guard, on this driver.
pub(super) fn bare(driver: Driver) -> Client {
    let files = match driver {
        Driver::Mesa => PathBuf::from("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"),
        Driver::Phantom => manifest("phantom.json", &icd()),
    };
    assert!(files.exists(), "{} is missing: install mesa-vulkan-drivers and libvulkan1", files.display());
    Client::of(&artefact::program("vulkan.c", &["-pthread", "-ldl"]), "-")
        .env("VK_DRIVER_FILES", &files)
        .env("VK_ICD_FILENAMES", &files)
        .env("PLIMSOLL_PHANTOM_CARDS", CARDS)
}

/// A program under guard, both preloaded and as a layer.
pub(super) fn guarded(driver: Driver, options: &str) -> Client {
    layered(bare(driver).guarded(options))
}

fn layered(client: Client) -> Client {
    let layer = manifest("layer/plimsoll_guard.json", &layer());
    client.env("VK_LAYER_PATH", layer.parent().unwrap()).env("VK_INSTANCE_LAYERS", LAYER)
}

fn layer() -> String {
    format!(
        r#"{{"file_format_version": "1.1.2", "layer": {{"name": "{LAYER}", "type": "GLOBAL",
            "library_path": "{}", "api_version": "1.3.0", "implementation_version": "1", "description": "guard",
            "functions": {{"vkNegotiateLoaderLayerInterfaceVersion": "vkNegotiateLoaderLayerInterfaceVersion"}}}}}}"#,
        artefact::guard().display()
    )
}

fn icd() -> String {
    let library = artefact::phantom().display();
    format!(
        r#"{{"file_format_version": "1.0.0", "ICD": {{"library_path": "{library}", "api_version": "1.3.0"}}}}"#
    )
}

/// A file for Vulkan's loader, which is written once.
fn manifest(name: &str, text: &str) -> PathBuf {
    let path = artefact::target().join("guard-tests/vulkan").join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    if fs::read_to_string(&path).ok().as_deref() != Some(text) {
        // Renamed into its place, because a program of another test may be reading it now.
        let draft = path.with_added_extension(std::process::id().to_string());
        fs::write(&draft, text).unwrap();
        fs::rename(&draft, &path).unwrap();
    }
    path
}

/// What the program said of words that begin so.
fn said<'a>(run: &'a Run, word: &str) -> Vec<&'a str> {
    let lines = run.lines.iter().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    lines.collect()
}

/// Size of a heap and bytes left in it, as the program was told.
fn heap(run: &Run, number: usize) -> Vec<(u64, u64)> {
    let lines = said(run, "heap").into_iter().filter_map(|line| line.strip_prefix(&format!("{number} ")));
    let figures = lines.map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(
            (words[0], words[6]),
            (words[1], "1"),
            "two queries agree, and no usage passes its budget"
        );
        (words[0].parse().unwrap(), words[4].parse().unwrap())
    });
    figures.collect()
}

fn allocated(run: &Run) -> Vec<u64> {
    run.page().cards().iter().map(|card| card.allocated).collect()
}

#[test]
fn without_options_a_program_gets_the_same_results_as_without_the_layer() {
    let words = [
        "heaps",
        "open",
        "buffer:1000000:0",
        "alloc:50000000:0",
        "heaps",
        "free:0",
        "alloc:99999999999999:0",
        "close",
        "end",
    ];
    for driver in [Driver::Mesa, Driver::Phantom] {
        let bare = bare(driver).run(&words);
        let guarded = guarded(driver, "").run(&words);
        assert_eq!(guarded.lines, bare.lines, "{driver:?}: {}", guarded.stated);
        let page = guarded.page();
        assert_eq!((page.state, allocated(&guarded)[0]), (PageState::Armed, 0));
        assert_eq!(page.cards()[0].peak, 51_000_000);
        // Not wanted, but the layer is still in the environment: it does nothing.
        let inert = layered(self::bare(driver)).run(&words);
        assert_eq!((inert.lines, inert.stated, inert.status.code()), (bare.lines, bare.stated, Some(0)));
    }
}

#[test]
fn a_refusal_is_exactly_out_of_device_memory_and_leaves_its_reason() {
    for driver in [Driver::Mesa, Driver::Phantom] {
        let words =
            ["open", "alloc:400000:0", "alloc:600001:0", "alloc:600000:0", "free:0", "alloc:400000:0"];
        let run = guarded(driver, "budget=1000000").run(&words);
        assert_eq!(said(&run, "alloc"), ["0", "-2", "0", "0"], "{driver:?}: {}", run.stated);
        let page = run.page();
        let oom = page.ooms().next().unwrap();
        assert_eq!(
            (oom.requested, oom.allocated, oom.budget, oom.refusal),
            (600_001, 400_000, Some(1_000_000), Refusal::Budget)
        );
        assert_eq!((page.ooms().count(), allocated(&run)[0], run.tree().peak), (1, 1_000_000, 1_000_000));
        assert!(run.stated.contains("refused because the request exceeds the budget"), "{}", run.stated);
    }
}

#[test]
fn a_refusal_by_the_driver_is_reported_as_its_own() {
    let run = guarded(Driver::Phantom, "").run(&["open", "alloc:0xfffffffffffff000:0"]);
    assert_eq!(said(&run, "alloc"), ["-2"]);
    assert_eq!(run.page().ooms().next().unwrap().refusal, Refusal::Driver);
}

#[test]
fn one_buffer_that_is_refused_in_several_memory_types_is_one_refusal() {
    let types = format!("{MAPPED}+{LOCAL}+{MAPPED}");
    let buffer = format!("buffer:{}:{types}", 600 * MIB);
    let run = guarded(Driver::Phantom, "budget=500000000").run(&["open", &buffer, &buffer]);
    assert_eq!(said(&run, "buffer").len(), 2);
    assert_eq!((run.page().ooms().count(), run.page().cards()[0].ooms), (2, 2), "{}", run.stated);
}

#[test]
fn heaps_say_what_is_left_of_the_budget() {
    let words = ["heaps", "open", "alloc:100000000:0", "heaps", "alloc:400000000:0", "heaps"];
    let run = guarded(Driver::Phantom, "budget=500000000").run(&words);
    let size = 500_000_000;
    assert_eq!(heap(&run, 0), [(size, size), (size, 400_000_000), (size, 0)], "{}", run.stated);
    let own = heap(&run, 1)[0];
    assert_eq!(heap(&run, 1), [own; 3], "the host's heap is not the card's");
    // A budget above what there is promises nothing.
    let large = guarded(Driver::Phantom, "budget=99999999999").run(&words);
    assert_eq!(large.lines, bare(Driver::Phantom).run(&words).lines);
}

#[test]
fn the_heap_of_an_integrated_card_is_the_budget() {
    let run = guarded(Driver::Phantom, "budget=500000000").run(&[
        "card:1",
        "open",
        "alloc:500000000:0",
        "alloc:1:0",
        "heaps",
    ]);
    assert_eq!((said(&run, "alloc"), heap(&run, 0)), (vec!["0", "-2"], vec![(500_000_000, 0)]));
    assert_eq!(allocated(&run), [0, 500_000_000]);
}

#[test]
fn memory_of_the_host_is_counted_as_pinned_and_never_refused() {
    let host = format!("alloc:{}:{HOST}", 100 * MIB);
    let run = guarded(Driver::Phantom, "budget=1000").run(&["open", &host, &host, "free:1"]);
    assert_eq!((said(&run, "alloc"), allocated(&run)[0]), (vec!["0", "0"], 0));
    assert_eq!((run.page().pinned, run.page().pinned_peak), (100 * MIB, 200 * MIB));
}

#[test]
fn memory_that_is_imported_was_counted_where_it_was_made() {
    let run =
        guarded(Driver::Mesa, "budget=1500000").run(&["open-shared", "share:1000000", "import:0", "free:1"]);
    assert_eq!((said(&run, "share"), said(&run, "import")), (vec!["0"], vec!["0 0"]), "{}", run.stated);
    assert_eq!(allocated(&run)[0], 1_000_000);
}

#[test]
fn memory_counts_until_the_last_object_that_has_it_goes() {
    let words =
        ["open-shared", "share:1000000", "import:0", "free:0", "alloc:600000:0", "free:1", "alloc:600000:0"];
    let run = guarded(Driver::Mesa, "budget=1500000").run(&words);
    assert_eq!(said(&run, "import"), ["0 0"], "{}", run.stated);
    // The import outlives the exporter, and its memory stays on the card until it goes.
    assert_eq!((said(&run, "alloc"), allocated(&run)[0]), (vec!["-2", "0"], 600_000), "{}", run.stated);
    let again = ["open-shared", "share:1000000", "import:0", "import:0", "free:1", "free:0", "free:2"];
    let run = guarded(Driver::Mesa, "budget=1500000").run(&again);
    assert_eq!((allocated(&run)[0], run.page().cards()[0].peak), (0, 1_000_000), "{}", run.stated);
    let closed = guarded(Driver::Mesa, "").run(&["open-shared", "share:1000000", "import:0", "close"]);
    assert_eq!(allocated(&closed)[0], 0, "{}", closed.stated);
}

#[test]
fn a_program_sees_no_device_but_its_cards_by_their_place_on_the_pci_bus() {
    let card = |address: &str| format!("card={}:700000000 hide-others", Uuid::of_address(address).unwrap());
    // The second card has another vendor's identity, and no address of the options is its own.
    let run =
        guarded(Driver::Phantom, &card("0000:01:00.0")).run(&["groups", "heaps", "open", "alloc:1000:0"]);
    assert_eq!((said(&run, "cards"), said(&run, "groups")), (vec!["0 1"], vec!["0 1 0 1"]), "{}", run.stated);
    assert_eq!((heap(&run, 0)[0].0, allocated(&run)[0]), (700_000_000, 1000));
    let none = guarded(Driver::Phantom, &card("0000:77:00.0")).run(&["groups"]);
    // As where no driver has a device; Mesa's own layer crashes on an empty list.
    assert!(said(&none, "cards")[0].starts_with("-3 ") && said(&none, "groups")[0].starts_with("-3 "));
    assert!(none.stated.contains("has 2 devices, of which none is a card that this program was given"));
    let shown = guarded(Driver::Phantom, &card("0000:01:00.0").replace(" hide-others", "")).run(&["groups"]);
    assert_eq!((said(&shown, "cards"), said(&shown, "groups")), (vec!["0 2"], vec!["0 1 0 1"]));
}

#[test]
fn a_group_of_devices_takes_the_same_of_each_of_its_cards() {
    let cards = format!("{0};{0}", "total=1073741824,cc=8.9,vendor=4098");
    let second = Uuid::of_address("0000:02:00.0").unwrap();
    let client = guarded(Driver::Phantom, &format!("card={second}:1500 budget=5000"))
        .env("PLIMSOLL_PHANTOM_CARDS", &cards);
    let run = client.run(&["open-group", "alloc:1000:0", "alloc:1000:0", "free:0", "alloc:1200:0"]);
    assert_eq!(said(&run, "alloc"), ["0", "-2", "0"], "{}", run.stated);
    assert_eq!(allocated(&run), [1200, 1200]);
    assert_eq!(run.page().cards().iter().map(|card| card.peak).collect::<Vec<_>>(), [1200, 1200]);
}

#[test]
fn all_memory_goes_with_its_device() {
    let run = guarded(Driver::Phantom, "").run(&["open", "alloc:1000:0", "alloc:2000:1", "close", "end"]);
    assert_eq!((allocated(&run)[0], run.page().pinned, run.page().cards()[0].peak), (0, 0, 1000));
}

#[test]
fn threads_of_a_vulkan_program_never_pass_the_budget_together() {
    for driver in [Driver::Mesa, Driver::Phantom] {
        let run = guarded(driver, "budget=1000000").run(&["open", "threads"]);
        let card = run.page().cards()[0];
        assert!(card.ooms > 0 && card.peak <= 1_000_000 && card.allocated == 0, "{driver:?}: {card:?}");
        assert_eq!(said(&run, "churn").len(), 8);
    }
}

#[test]
fn only_the_overflow_of_buffers_goes_to_the_hosts_heap() {
    let types = format!("{MAPPED}+{LOCAL}");
    let buffer = |mib: u64| format!("buffer:{}:{types}", mib * MIB);
    let options = format!("budget={} spill={}", 500 * MIB, 300 * MIB);
    let words = ["open", &buffer(400), &buffer(200), &buffer(150), &buffer(100), "free:1", "heaps"];
    let run = guarded(Driver::Phantom, &options).run(&words);
    let codes: Vec<_> = said(&run, "buffer").iter().map(|line| line.split(' ').next().unwrap()).collect();
    // 200 MiB overflow; 150 more would pass `spill`; 100 still fit the budget.
    assert_eq!(codes, ["0", "0", "-2", "0"], "{}", run.stated);
    let page = run.page();
    let card = page.cards()[0];
    assert_eq!((card.allocated, card.spilled, card.spilled_peak), (500 * MIB, 0, 200 * MIB));
    assert_eq!(page.ooms().next().unwrap().refusal, Refusal::Spill);
}

#[test]
fn memory_that_is_no_single_buffers_is_not_spilled() {
    let options = format!("budget={} spill={}", 500 * MIB, 900 * MIB);
    let alloc = format!("alloc:{}:0", 600 * MIB);
    let run = guarded(Driver::Phantom, &options).run(&["open", "buffer:1000:0", &alloc]);
    assert_eq!((said(&run, "alloc"), run.page().cards()[0].spilled), (vec!["-2"], 0));
}

#[test]
fn two_processes_under_one_budget_never_pass_it() {
    storm(30);
}

#[test]
fn long_two_processes_under_one_budget_never_pass_it() {
    storm(1000);
}

/// Runs pairs of processes that allocate blocks of random sizes under one budget, and adds up what they wrote
/// down together: a block after it was given, and before it is freed.
fn storm(runs: u64) {
    const BUDGET: u64 = 40 * MIB;
    let mut refused = 0;
    for seed in 0..runs {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("churn");
        let start = |half: u64| {
            let word = format!("churn:{}:300:{}", 2 * seed + half, 4 * MIB);
            let client = guarded(Driver::Phantom, &format!("budget={BUDGET}")).env("CHURN_LOG", &log);
            let mut client = of_tree(client, folder.path());
            let quiet = client.command(&["open", &word]).stdout(Stdio::null()).stderr(Stdio::null());
            (quiet.spawn().unwrap(), client)
        };
        for (mut child, _) in [start(0), start(1)] {
            assert!(child.wait().unwrap().success());
        }
        let (mut held, mut most) = (0_i64, 0);
        for line in fs::read_to_string(log).unwrap().lines() {
            held += line.parse::<i64>().unwrap();
            most = most.max(held);
        }
        assert!(
            (0..=BUDGET).contains(&u64::try_from(most).unwrap()) && held == 0,
            "seed {seed}: {most} {held}"
        );
        let pages = crate::runner::client::pages(folder.path());
        assert!(pages.iter().all(|page| page.cards()[0].allocated == 0), "seed {seed}");
        refused += pages.iter().map(|page| page.cards()[0].ooms).sum::<u64>();
    }
    assert!(refused > runs, "the budget was the limit: {refused}");
}

/// The program as one of those that share this folder.
fn of_tree(client: Client, folder: &Path) -> Client {
    client.env("PLIMSOLL_GUARD_PAGES", folder).env("PLIMSOLL_GUARD_TRACE", folder.join("trace"))
}
