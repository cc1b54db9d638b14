//! Tests of the summary at the end of `plimsoll run`, from the memory figures that a program left.

use std::mem::offset_of;

use plimsoll_wire::page::{PageCard as Card, Refusal};
use serde_json::{Value, json};

use super::rig::{HandWritten, run, stated};

const UUID: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

fn uuid() -> [u8; 16] {
    std::array::from_fn(|index| u8::try_from(index).expect("sixteen"))
}

#[test]
fn one_line_a_card_says_peak_reserve_spill_and_refusals_and_the_report_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let (page, report) = (folder.path().join("page"), folder.path().join("report.json"));
    HandWritten::new(uuid())
        .tree(8 << 30, 3247 << 20)
        .card(offset_of!(Card, peak), 3000 << 20)
        .card(offset_of!(Card, reserved_peak), 1 << 30)
        .card(offset_of!(Card, spilled_peak), 256 << 20)
        .card(offset_of!(Card, allocations), 17)
        .pinned(48 << 20)
        .refusal(Refusal::Budget, 512 << 20)
        .refusal(Refusal::Driver, 3 << 20)
        .write(&page);
    let output = run(&["--report", report.to_str().unwrap()], &["true"])
        .env("PLIMSOLL_TEST_PAGE", &page)
        .output()
        .unwrap();
    assert_eq!(
        stated(&output).1,
        format!(
            "plimsoll run: {UUID}: peak 3247 MiB of a budget of 8192 MiB, reserved 1024 MiB, spilled 256 MiB, \
             2 refused (1 by the budget, 1 by the driver; the largest requested 512 MiB)\n\
             plimsoll run: host memory: at most 48 MiB were pinned\n"
        )
    );
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["schema"], "plimsoll.run/1");
    assert_eq!(report["command"], json!(["true"]));
    assert_eq!(report["exit"], json!({"code": 0}));
    assert_eq!(report["pinned"], 48 << 20);
    let card = &report["cards"][0];
    assert_eq!(
        (&card["uuid"], &card["peak"], &card["allocations"]),
        (&json!(UUID), &json!(3247_u64 << 20), &json!(17))
    );
    assert_eq!(card["refused"][0]["reason"], "budget");
    assert_eq!(card["refused"][1]["asked"], 3 << 20);
}

#[test]
fn processes_of_a_program_are_added_up_and_the_report_is_there_when_a_signal_ended_it() {
    let folder = tempfile::tempdir().unwrap();
    let (page, report) = (folder.path().join("page"), folder.path().join("report.json"));
    HandWritten::new(uuid()).card(offset_of!(Card, peak), 1 << 30).write(&page);
    let output =
        run(&["--report", report.to_str().unwrap()], &["sh", "-c", "sleep 0; sleep 0; kill -KILL $$"])
            .env("PLIMSOLL_TEST_PAGE", &page)
            .output()
            .unwrap();
    assert_eq!(
        stated(&output).1,
        format!(
            "plimsoll run: {UUID}: peak 3072 MiB, reserved 0 B, spilled 0 B, in 3 processes, no refusal\n"
        )
    );
    let report: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    assert_eq!(report["exit"], json!({"signal": 9}));
    assert_eq!(report["cards"][0]["processes"], 3);
    assert_eq!(report["cards"][0]["budget"], Value::Null);
}

#[test]
fn summary_peak_is_the_concurrent_total_of_processes_sharing_a_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid()).tree(2 << 30, 1500 << 20).card(offset_of!(Card, peak), 1 << 30).write(&page);
    let output =
        run(&[], &["sh", "-c", "sleep 0; sleep 0"]).env("PLIMSOLL_TEST_PAGE", &page).output().unwrap();
    assert_eq!(
        stated(&output).1,
        format!(
            "plimsoll run: {UUID}: peak 1500 MiB of a budget of 2048 MiB, reserved 0 B, spilled 0 B, in 3 processes, no refusal\n"
        )
    );
}

#[test]
fn a_program_without_a_card_is_one_line() {
    let output = run(&[], &["true"]).output().unwrap();
    assert_eq!(stated(&output).1, "plimsoll run: the program allocated no GPU memory\n");
}
