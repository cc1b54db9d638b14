//! Tests of PyTorch's out-of-memory error with a working NVML and with a failing one.

use crate::runner::artefact;
use crate::runner::client::{Client, Run};

const UUID: &str = "GPU-00000000-0000-0000-0000-00000000000a";
const BUS: &str = "00000000:01:00.0";

fn torch(options: Option<&str>, nvml: &str) -> Run {
    torch_at(BUS, options, nvml)
}

/// The same for the card at this PCI address.
fn torch_at(bus: &str, options: Option<&str>, nvml: &str) -> Run {
    let client = Client::of(&artefact::program("torch.c", &["-ldl"]), "torch");
    let client = match options {
        Some(options) => client.guarded(options),
        None => client,
    };
    let libraries = format!("{}:{}", artefact::cuda().display(), artefact::nvml().display());
    client
        .driver(&format!("cards=1 total=1G uuids={UUID}"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("PLIMSOLL_FAKE_NVML_CARDS", nvml)
        .run(&[bus, "1000000"])
}

fn card(processes: &str) -> String {
    format!(r#"[{{"uuid":"{UUID}","pci":"{BUS}","total":2000000000,"free":1500000000,{processes}}}]"#)
}

const NOT_SUPPORTED: &str = r#""processes":null,"processes_code":3"#;
const NO_PERMISSION: &str = r#""processes":null,"processes_code":4"#;

#[test]
fn nvml_failure_trips_an_assert_in_pytorch_alone_and_a_clean_oom_under_guard() {
    // As on Tegra: NVML has the card under another PCI address than the driver.
    let elsewhere = card(NOT_SUPPORTED).replace(BUS, "00000000:77:00.0");
    for (nvml, assertion) in [
        (card(NOT_SUPPORTED), "processes gave 3"),
        (card(NO_PERMISSION), "processes gave 4"),
        ("!9".to_owned(), "init gave 9"),
        (elsewhere, "device gave 6"),
    ] {
        let bare = torch(None, &nvml);
        assert_eq!(bare.lines, [format!("INTERNAL ASSERT FAILED: {assertion}")]);
        let guarded = torch(Some("budget=2500000"), &nvml);
        assert_eq!(
            guarded.lines[..2],
            ["OutOfMemoryError: 500000 of 2500000", "this process 2000000"],
            "{assertion}: {}",
            guarded.stated
        );
    }
}

#[test]
fn a_device_that_an_initialised_nvml_does_not_know_is_an_error_as_without_guard() {
    let stranger = r#"[{"uuid":"GPU-1","pci":"00000000:77:00.0"}]"#;
    let no_card = "00000000:99:00.0";
    for (bus, nvml) in [(BUS, stranger), (no_card, stranger), (no_card, &card(NOT_SUPPORTED))] {
        let asserted = ["INTERNAL ASSERT FAILED: device gave 6"];
        assert_eq!(torch_at(bus, None, nvml).lines, asserted, "{bus}");
        assert_eq!(torch_at(bus, Some("budget=2500000"), nvml).lines, asserted, "{bus}");
    }
}

#[test]
fn an_address_without_a_card_has_no_stand_in() {
    let run = torch_at("00000000:99:00.0", Some("budget=2500000"), "!9");
    assert!(run.lines[0].starts_with("INTERNAL ASSERT FAILED: device gave"), "{:?}", run.lines);
}

#[test]
fn a_healthy_nvml_answers_unchanged() {
    let nvml = card(r#""processes":[{"pid":7,"used":55},{"pid":8,"used":66}]"#);
    let (bare, guarded) = (torch(None, &nvml), torch(Some(""), &nvml));
    assert_eq!(guarded.lines, bare.lines);
    assert_eq!(bare.lines[1..], ["another 55", "another 66", "memory 2000000000 1500000000 500000000"]);
}

#[test]
fn nvml_speaks_of_no_more_memory_than_the_budget() {
    let run = torch(Some("budget=2500000"), &card(r#""processes":[]"#));
    assert_eq!(run.lines, ["OutOfMemoryError: 500000 of 2500000", "memory 2500000 500000 2000000"]);
}

#[test]
fn guarded_neighbours_on_the_card_are_named() {
    let mut neighbour = Client::new("dlsym", "");
    let folder = neighbour.folder().to_owned();
    neighbour = neighbour.driver(&format!("cards=1 total=1G uuids={UUID}"));
    let words = ["init", "retain:0", "alloc:12345", "wait"];
    let piped = std::process::Stdio::piped;
    let mut child = neighbour.command(&words).stdin(piped()).stdout(piped()).spawn().unwrap();
    while crate::runner::client::pages(&folder).first().is_none_or(|page| page.cards()[0].allocated == 0) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let client = Client::of(&artefact::program("torch.c", &["-ldl"]), "torch").guarded("budget=2500000");
    let libraries = format!("{}:{}", artefact::cuda().display(), artefact::nvml().display());
    let run = client
        .driver(&format!("cards=1 total=1G uuids={UUID}"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("PLIMSOLL_GUARD_PAGES", &folder)
        .env("PLIMSOLL_FAKE_NVML_CARDS", card(NOT_SUPPORTED))
        .run(&[BUS, "1000000"]);
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(run.lines[1..3], ["this process 2000000", "another 12345"], "{}", run.stated);
}

#[test]
fn the_first_context_is_measured_and_belongs_to_the_budget() {
    // This NVML counts our process as another namespace's would: the difference would be nothing, the entry
    // is not ours.
    let nothing = torch(Some("budget=2500000"), &card(r#""processes":[]"#));
    assert_eq!(nothing.page().cards()[0].context, 0);
    // A shell writes its own number into NVML's list, and becomes the program.
    let client = Client::of(std::path::Path::new("/bin/sh"), "-c").guarded("budget=2500000");
    let list = client.folder().join("cards.json");
    let entry = r#""processes":[{"pid":'$$',"used":600000}]"#;
    let script =
        format!(r#"echo '{}' > {list}; exec "$0" torch "$1" "$2""#, card(entry), list = list.display());
    let libraries = format!("{}:{}", artefact::cuda().display(), artefact::nvml().display());
    let program = artefact::program("torch.c", &["-ldl"]);
    let run = client
        .driver(&format!("cards=1 total=1G uuids={UUID}"))
        .env("LD_LIBRARY_PATH", libraries)
        .env("PLIMSOLL_FAKE_NVML_CARDS", format!("@{}", list.display()))
        .run(&[&script, &program.to_string_lossy(), BUS, "1000000"]);
    assert_eq!(run.lines.first().unwrap(), "OutOfMemoryError: 900000 of 2500000", "{}", run.stated);
    let card = run.page().cards()[0];
    assert_eq!((card.context, card.allocated), (600_000, 1_600_000));
}
