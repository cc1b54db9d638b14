//! Tests of `plimsoll measure watch` as a process: the contents of a recording, of one that was cut off, and
//! their display.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

fn plimsoll(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(arguments).stdin(Stdio::null()).env("PLIMSOLL_NVML", "");
    command
}

fn output(arguments: &[&str]) -> Output {
    plimsoll(arguments).output().expect("plimsoll starts")
}

fn shown(record: &Path, more: &[&str]) -> Output {
    let record = record.to_str().expect("text");
    output(&[&["watch", "show", record], more].concat())
}

fn summary(record: &Path, more: &[&str]) -> Value {
    let output = shown(record, &[&["--json"], more].concat());
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let record = folder.path().join("a.watch");
    (folder, record)
}

/// Takes 80 MiB in steps, keeps them for a while, and ends with 3.
const TAKE: &str = "import time\nkept = []\nfor _ in range(8):\n    kept.append(bytearray(10 << 20)); time.sleep(0.1)\ntime.sleep(0.5)\nraise SystemExit(3)";

#[test]
fn a_program_is_watched_to_its_end_which_is_ours_and_its_growth_is_reported() {
    let (folder, record) = folder();
    let page = folder.path().join("a.html");
    let path = record.to_str().unwrap();
    let watched = output(&["watch", "-o", path, "--every", "20ms", "--", "python3", "-c", TAKE]);
    assert_eq!(watched.status.code(), Some(3), "{watched:?}");
    let summary = summary(&record, &["--html", page.to_str().unwrap()]);
    assert_eq!(summary["end"], "exited with status 3");
    assert!(summary["samples"].as_u64().unwrap() >= 5, "{summary:#}");
    let figures = summary["figures"].as_array().unwrap();
    let resident = |figure: &&Value| {
        figure["figure"]["what"] == "resident"
            && figure["figure"]["subject"].as_str().unwrap().contains("python")
    };
    let peak = figures.iter().filter(resident).map(|figure| figure["peak"].as_u64().unwrap()).max().unwrap();
    assert!(peak >= 80 << 10, "{peak} KiB");
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("<svg") && page.contains("processes: resident host memory"));
    for foreign in ["<script", "src=", "href=", "url(", "@import"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

/// A watch on this very process, which is killed at the end.
struct Attached(Child);

impl Attached {
    fn start(record: &Path) -> Self {
        let pid = std::process::id().to_string();
        let watch =
            plimsoll(&["watch", "-o", record.to_str().expect("text"), "--every", "10ms", "--pid", &pid]);
        let mut watch = watch;
        Self(watch.stderr(Stdio::null()).spawn().expect("plimsoll starts"))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watch_that_is_killed_loses_at_most_the_sample_it_was_writing() {
    let (_folder, record) = folder();
    let watch = Attached::start(&record);
    let limit = Instant::now() + Duration::from_secs(60);
    let seen = loop {
        assert!(Instant::now() < limit, "no samples came");
        std::thread::sleep(Duration::from_millis(20));
        // A record that has just been created is none yet.
        let text = shown(&record, &["--json"]).stdout;
        let summary: Value = serde_json::from_slice(&text).unwrap_or_default();
        let seen = summary["samples"].as_u64().unwrap_or(0);
        if seen > 20 {
            break seen;
        }
    };
    drop(watch);
    let left = summary(&record, &[]);
    assert!(left["samples"].as_u64().unwrap() >= seen, "{left:#}");
    // A sample of this machine is far below that.
    assert!(left["torn_bytes"].as_u64().unwrap() < 4096, "{left:#}");
    assert_eq!(left["end"], Value::Null);
    let text = shown(&record, &[]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("the rest of the recording is damaged"));
    // A tail that really is torn is dropped too.
    let whole = fs::read(&record).unwrap();
    fs::write(&record, &whole[..whole.len() - 3]).unwrap();
    assert!(summary(&record, &[])["samples"].as_u64().unwrap() + 1 >= left["samples"].as_u64().unwrap());
}

#[test]
fn a_file_that_is_there_is_left_alone_and_one_that_is_no_record_is_reported() {
    let (_folder, record) = folder();
    fs::write(&record, "precious").unwrap();
    let path = record.to_str().unwrap();
    let refused = output(&["watch", "-o", path, "--for", "10ms"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("already exists; name another file with -o"));
    assert_eq!(fs::read(&record).unwrap(), b"precious");
    let shown = shown(&record, &[]);
    assert_eq!(shown.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("not a recording of `plimsoll measure watch`"));
    assert_eq!(output(&["watch", "-o", path, "--", "/no/such/program"]).status.code(), Some(127));
}

#[test]
fn a_watch_of_the_machine_ends_with_its_time() {
    let (_folder, record) = folder();
    output(&["watch", "-o", record.to_str().unwrap(), "--every", "20ms", "--for", "300ms"]);
    let summary = summary(&record, &[]);
    assert_eq!(summary["end"], "the recording time is over");
    assert!(summary["samples"].as_u64().unwrap() >= 2, "{summary:#}");
}

#[test]
fn a_second_recording_without_a_name_takes_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["plimsoll.watch", "plimsoll-2.watch", "plimsoll-3.watch"] {
        let mut watch = plimsoll(&["watch", "--every", "20ms", "--for", "60ms"]);
        let stated = watch.current_dir(folder.path()).output().unwrap();
        assert!(stated.status.success(), "{stated:?}");
        assert!(
            String::from_utf8_lossy(&stated.stderr).contains(&format!("recorded to {name};")),
            "{stated:?}"
        );
        assert!(folder.path().join(name).is_file());
    }
}
