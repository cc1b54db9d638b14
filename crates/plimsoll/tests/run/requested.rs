//! Tests of `plimsoll reclaim --card` while a program under `plimsoll run` holds idle memory of the card.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::rig::{run, text};
use crate::built::built;
use crate::pages::real::{driver, guard};

const MIB: u64 = 1 << 20;

/// The program, compiled once.
fn idle() -> &'static str {
    static BUILT: OnceLock<(TempDir, String)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/programs/idle.c");
        let path = folder.path().join("idle").to_str().expect("text").to_owned();
        let built = Command::new("cc").args(["-o", &path, source, "-ldl"]).status();
        assert!(built.is_ok_and(|status| status.success()), "cc");
        (folder, path)
    });
    path
}

/// A machine with one card, which no other test has: whoever is asked about it is this test's.
struct Machine {
    uuid: String,
    driver: TempDir,
}

impl Machine {
    fn new(number: u32) -> Self {
        Self {
            uuid: format!("GPU-{number:08x}-a5ed-0000-0000-{:012x}", std::process::id()),
            driver: driver(&built("libplimsoll_fake_cuda.so", "fake-cuda")),
        }
    }

    fn on(&self, command: &mut Command) {
        let cards = json!([{"uuid": self.uuid, "name": "Large", "total": 8192 * MIB, "free": 1024 * MIB}]);
        command
            .env("PLIMSOLL_GUARD_LIBRARY", guard())
            .env("LD_LIBRARY_PATH", self.driver.path())
            .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
            .env("PLIMSOLL_FAKE_NVML_CARDS", cards.to_string())
            .env("PLIMSOLL_FAKE_CUDA", format!("cards=1 total=8G uuids={}", self.uuid))
            .env_remove("CUDA_VISIBLE_DEVICES");
    }

    /// Starts a program that holds 64 MiB idle, and calls its driver from time to time or, `still`, not at
    /// all.
    fn holder(&self, still: bool) -> Holder {
        let words: &[&str] = if still { &["64", "still"] } else { &["64"] };
        let mut command = run(&[], &[&[idle()], words].concat());
        self.on(&mut command);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut stated = String::new();
        let stdout = child.stdout.take().expect("it is piped");
        BufReader::new(stdout).read_line(&mut stated).expect("it speaks");
        assert_eq!(stated, "ready\n");
        Holder(child)
    }

    fn reclaim(&self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        self.on(&mut command);
        command.args(["reclaim", "--card", "0"]).args(options).output().expect("it runs")
    }
}

/// Ends when its stdin does.
struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn answer(output: &Output) -> (i32, Value) {
    let answer = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    (output.status.code().expect("it ends by itself"), answer)
}

#[test]
fn a_neighbour_that_works_gives_back_what_it_holds_idle_and_the_proof_is_printed() {
    let machine = Machine::new(1);
    let _holder = machine.holder(false);
    // The driver says what it was told to say, so what comes back is seen on the page alone.
    let (status, answer) = answer(&machine.reclaim(&["--need", "2GiB", "--wait", "120", "--json"]));
    assert_eq!((status, answer["verdict"].as_str()), (1, Some("beyond")), "{answer}");
    let requested = answer["asked"].as_array().expect("a list");
    assert_eq!(requested.len(), 1, "{answer}");
    assert_eq!(requested[0]["name"], "idle");
    assert_eq!(requested[0]["answered"], true);
    assert_eq!(requested[0]["gave"], 64 * MIB);
    let occupied = |when: &str| requested[0][when]["allocated"].as_u64().expect("a number");
    assert_eq!(occupied("before") - occupied("after"), 64 * MIB);

    let stated = machine.reclaim(&["--need", "2GiB", "--wait", "120"]);
    let stated = text(&stated.stdout);
    assert!(stated.contains("need    2048 MiB on Large\nbefore  1024 MiB free\n"), "{stated}");
    assert!(
        stated.ends_with("not enough: 1024 MiB more are needed, and no process on the card runs under guard, so none can be asked to release memory\n"),
        "it holds nothing any more: {stated}"
    );
}

#[test]
fn a_neighbour_that_calls_nothing_is_not_waited_for_longer_than_was_said() {
    let machine = Machine::new(2);
    let _holder = machine.holder(true);
    let output = machine.reclaim(&["--need", "2GiB", "--wait", "0"]);
    let stated = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stated.contains("did not answer, because it made no driver call while plimsoll waited\n"),
        "{stated}"
    );
    assert!(stated.ends_with("not enough: 1024 MiB are still missing\n"), "{stated}");
}

#[test]
fn nobody_is_asked_where_there_is_enough_or_where_only_a_prediction_is_wanted() {
    let machine = Machine::new(3);
    let _holder = machine.holder(false);
    let (status, enough) = answer(&machine.reclaim(&["--need", "1GiB", "--json"]));
    assert_eq!((status, enough["verdict"].as_str()), (0, Some("enough")));
    let (status, predicted) = answer(&machine.reclaim(&["--need", "2GiB", "--dry-run", "--json"]));
    assert_eq!((status, predicted["verdict"].as_str()), (1, Some("beyond")));
    assert_eq!(predicted["idle_under_guard"][0]["name"], "idle");
    let (_, requested) = answer(&machine.reclaim(&["--need", "2GiB", "--wait", "120", "--json"]));
    assert_eq!(requested["asked"][0]["gave"], 64 * MIB, "it was all there still: {requested}");
}
