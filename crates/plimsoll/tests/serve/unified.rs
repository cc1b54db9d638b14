//! Tests of a machine whose card shares the host's memory: page cache after a load, order of loads, and
//! reclaim before a load.
//!
//! The fake card has no memory of its own; memory, page cache and files are those of the machine. Its free
//! memory changes as other programs run, so checks that depend on it are repeated until no other program
//! interfered.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use rustix::fs::{Advice, fadvise};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http;
use crate::http::{chat, chat_body, post};

const MIB: u64 = 1 << 20;
const TRIES: usize = 40;

/// One card that has no memory of its own; what is described is a budget on it.
fn unified(described: &[&str]) -> Setup {
    let card = json!([{"uuid": "GPU-00000001-0000-0000-0000-000000000000", "name": "Orin"}]);
    Setup::with_cards(described)
        .argument("--reserve")
        .argument("0")
        .argument("--guard")
        .argument("off")
        .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
        .variable("RUST_LOG", "info,plimsoll_serve::handlers=debug")
        .config(&format!("[engine]\ncommand = [\"{}\"]\n", fake_engine().display()))
}

/// Files on a disk: what lies in memory alone is never given back.
pub(crate) struct Disk(TempDir);

impl Disk {
    /// `None` where the file system keeps its pages whatever it is told.
    pub(crate) fn new() -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
        let disk = Self(folder);
        let control = disk.path("control");
        std::fs::write(&control, vec![1; 1 << 20]).expect("it is ours");
        warm(&control);
        let there = cached(&control);
        let file = File::open(&control).expect("it is ours");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
        let works = there == Some(MIB) && cached(&control) == Some(0);
        works.then_some(disk).or_else(skip)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A model that has all of its weights.
    pub(crate) fn model(&self, name: &str, shards: u16) -> PathBuf {
        let changes = plimsoll_specimens::Changes { shards, ..Default::default() };
        let files = plimsoll_specimens::write("tiny", &self.path(name), &changes);
        files.expect("the folder is ours").swap_remove(0).path
    }

    /// A file of this length. Of one with a hole in it nobody can say what is cached: looking fills it.
    pub(crate) fn file(&self, name: &str, length: u64) -> PathBuf {
        let path = self.path(name);
        let mut file = File::create(&path).expect("it is ours");
        let piece = vec![1; 1 << 20];
        for _ in 0..length / MIB {
            file.write_all(&piece).expect("there is room");
        }
        path
    }
}

#[allow(clippy::print_stderr, reason = "what is not tested is said")]
fn skip() -> Option<Disk> {
    eprintln!("skipped: this file system does not give its page cache back");
    None
}

/// Brings a file into the page cache, as a load does, and onto the disk.
fn warm(path: &Path) {
    let mut file = File::open(path).expect("it is there");
    file.sync_all().expect("it can be written");
    let mut piece = vec![0; 1 << 20];
    while file.read(&mut piece).expect("it can be read") > 0 {}
}

/// Takes a file out of the page cache, of which it has all on the disk then.
pub(crate) fn cool(path: &Path) {
    let file = File::open(path).expect("it is there");
    file.sync_all().expect("it can be written");
    fadvise(&file, 0, None, Advice::DontNeed).expect("it is a file");
}

/// How much of a file, or of the set of which it is one, is in the page cache.
pub(crate) fn cached(path: &Path) -> Option<u64> {
    let stated = measured(&["--file", &path.to_string_lossy()]);
    let files = stated["files"].as_array().expect("files").iter();
    files.map(|file| file["cached"].as_u64()).sum()
}

/// Number of cached pages of a file, by the kernel's list. Unlike `cached`, this reads no page in.
fn pages(path: &Path) -> u64 {
    let output = Command::new("fincore").args(["-n", "-o", "PAGES"]).arg(path).output().expect("util-linux");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

/// What `reclaim` says of the machine as it is.
fn measured(arguments: &[&str]) -> Value {
    let stated = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["reclaim", "--need", "1KiB", "--dry-run", "--json"])
        .args(arguments)
        .output()
        .expect("plimsoll runs");
    let stated: Value = serde_json::from_slice(&stated.stdout).expect("an answer");
    stated["before"].clone()
}

fn of_file(name: &str, path: &Path, flags: &str) -> String {
    format!("[models.{name}]\nmodel = \"{}\"\nflags = \"{flags}\"\nmemory = \"64MiB\"\n", path.display())
}

#[test]
fn page_cache_of_a_load_is_dropped_once_its_weights_are_on_the_card() {
    let Some(disk) = Disk::new() else { return };
    let (whole, partial, read) =
        (disk.model("whole.gguf", 2), disk.model("partial.gguf", 1), disk.model("read.gguf", 1));
    let daemon = unified(&[])
        .config(&of_file("whole", &whole, "-ngl 99"))
        .config(&of_file("partial", &partial, "-ngl 1"))
        .config(&of_file("read", &read, "-ngl 1 --no-mmap"))
        .config(&of_file("again", &read, "-ngl 99"))
        .start();
    let second = PathBuf::from(whole.to_string_lossy().replace("00001-of", "00002-of"));
    for files in [&[&whole, &second][..], &[&partial], &[&read]] {
        files.iter().for_each(|path| warm(path));
        let all: u64 = files.iter().map(|path| path.metadata().expect("it is there").len()).sum();
        assert_eq!(cached(files[0]), Some(all), "{}", files[0].display());
    }
    assert_eq!(chat(daemon.address, "whole").status, 200);
    daemon.reported("whole: about");
    until("no page of it is cached", || [&whole, &second].map(|path| pages(path)) == [0, 0]);
    assert_ne!(cached(&partial), Some(0), "nobody else's");

    assert_eq!(chat(daemon.address, "partial").status, 200);
    daemon.reported("the page cache of partial is kept: the engine computes with");
    assert_ne!(cached(&partial), Some(0));

    // What stayed on the host was copied there.
    assert_eq!(chat(daemon.address, "read").status, 200);
    daemon.reported("read: about");
    until("no page of it is cached", || pages(&read) == 0);
    warm(&read);
    assert_eq!(chat(daemon.address, "again").status, 200);
    daemon.reported("the page cache of again is kept: other running engines use the same model files");
    assert_ne!(cached(&read), Some(0));
}

#[test]
fn a_card_with_memory_of_its_own_leaves_the_page_cache_as_it_is() {
    let Some(disk) = Disk::new() else { return };
    let path = disk.model("whole.gguf", 1);
    let daemon = Setup::new()
        .config(&format!("[engine]\ncommand = [\"{}\"]\n", fake_engine().display()))
        .argument("--reclaim-before-load")
        .argument("user")
        .config(&of_file("whole", &path, "-ngl 99"))
        .start();
    daemon.reported("reclaim-before-load has no effect");
    warm(&path);
    assert_eq!(chat(daemon.address, "whole").status, 200);
    assert_eq!(chat(daemon.address, "whole").status, 200);
    assert_ne!(cached(&path), Some(0));
}

/// The models in the order in which they were loaded.
fn loads(daemon: &Daemon) -> Vec<String> {
    let talk = daemon.talk();
    let loads = talk.lines().filter_map(|line| {
        let (_, rest) = line.split_once("load ")?;
        rest.split_once(": ").map(|(name, _)| name.to_owned())
    });
    loads.filter(|name| !name.contains(' ')).collect()
}

/// Three models wait for one that is busy; returns the order in which they were loaded after it.
fn order_of_three(setup: Setup) -> Vec<String> {
    let daemon = setup
        .config("[serve]\npatience = \"100s\"\n")
        .model("busy", "700MiB", "delay_ms=2000", "")
        .model("small", "200MiB", "", "")
        .model("middle", "500MiB", "", "")
        .model("large", "900MiB", "", "")
        .start();
    let ask = |model: &str| {
        http::open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body(model, false)))
    };
    let busy = ask("busy");
    until("busy is up", || daemon.running() == ["busy"]);
    let queued = |model: &str| {
        let status = daemon.status();
        let models = status["models"].as_array().expect("models").clone();
        models.iter().any(|entry| entry["name"] == model && entry["queued"] == 1)
    };
    // The small one would fit beside the busy one, so it comes when the others are known.
    let waiting = ["middle", "large"].map(|model| {
        let waiting = ask(model);
        until("it waits", || queued(model));
        waiting
    });
    for stream in [&busy, &waiting[0], &waiting[1]] {
        assert_eq!(http::read(stream).status, 200);
    }
    assert_eq!(chat(daemon.address, "small").status, 200);
    loads(&daemon)
}

#[test]
fn of_those_that_wait_for_the_card_the_largest_is_loaded_first() {
    let order = order_of_three(unified(&["name=Orin,total=1GiB"]));
    assert_eq!(order[..3], ["busy", "large", "middle"]);
    let order = order_of_three(Setup::new());
    assert_eq!(order[..3], ["busy", "middle", "large"], "elsewhere by age");
}

#[test]
fn preloads_go_one_after_another_the_largest_first() {
    let preload =
        |setup: Setup, name: &str, memory: &str| setup.model(name, memory, "load_ms=300", "preload = true");
    let mut setup = unified(&["name=Orin,total=1GiB"]);
    for (name, memory) in [("small", "100MiB"), ("large", "400MiB"), ("middle", "200MiB")] {
        setup = preload(setup, name, memory);
    }
    let daemon = setup.start();
    until("all are up", || daemon.running().len() == 3);
    assert_eq!(loads(&daemon), ["large", "middle", "small"]);
    let talk = daemon.talk();
    let at = |words: &str| talk.find(words).expect("it was said");
    assert!(at("ready large") < at("load middle") && at("ready middle") < at("load small"));
}

/// What `/models/sse` has told so far.
fn listen(daemon: &Daemon) -> Arc<Mutex<Vec<Value>>> {
    let stream = http::open(daemon.address, "GET", "/models/sse", None);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reported);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(event) = line.strip_prefix("data: ").and_then(|data| serde_json::from_str(data).ok())
            {
                heard.lock().expect("nobody panics with it").push(event);
            }
        }
    });
    reported
}

/// A machine on which a file fills the page cache, and a model that needs a part of what that takes.
struct Short {
    disk: Disk,
    shelf: PathBuf,
}

impl Short {
    const SHELF: u64 = 256 * MIB;

    fn new() -> Option<Self> {
        let disk = Disk::new()?;
        let shelf = disk.file("shelf.gguf", Self::SHELF);
        Some(Self { disk, shelf })
    }

    /// Fills the page cache, and says what is more than what is free and less than what could be.
    fn need(&self) -> u64 {
        warm(&self.shelf);
        let now = measured(&["--gate", "free"])["now"].as_u64().expect("a number");
        now + Self::SHELF / 2
    }

    /// A daemon with an idle model, one that is on the disk and nothing else, and one that needs what is not
    /// free.
    fn serve(&self, need: u64, script: &str, more: &[&str]) -> Daemon {
        let setup = more.iter().fold(unified(&[]), |setup, word| setup.argument(word));
        setup
            .config(&of_file("shelf", &self.shelf, "-ngl 99"))
            .model("idle", "16MiB", "", "")
            .model("alpha", &need.to_string(), script, "")
            .start()
    }
}

#[test]
fn memory_for_a_load_is_reclaimed_before_it_without_eviction() {
    let Some(short) = Short::new() else { return };
    for _ in 0..TRIES {
        let need = short.need();
        let daemon = short.serve(need, "", &["--reclaim-before-load", "user"]);
        let reported = listen(&daemon);
        until("the stream is open", || {
            post(daemon.address, "/models/unload", &json!({"model": "idle"}));
            assert_eq!(chat(daemon.address, "idle").status, 200);
            !reported.lock().expect("nobody panics with it").is_empty()
        });
        assert_eq!(chat(daemon.address, "alpha").status, 200);
        assert_eq!(daemon.running(), ["alpha", "idle"]);
        let reported = reported.lock().expect("nobody panics with it").clone();
        let reclaimed = reported.iter().find(|event| event["event"] == "reclaimed");
        let Some(event) = reclaimed.filter(|event| event["data"]["enough"] == true) else {
            continue;
        };
        let data = &event["data"];
        assert_eq!((&event["model"], &data["need"]), (&json!("alpha"), &json!(need)));
        assert_eq!(data["steps"][0]["step"], "advise-files", "{data}");
        assert_eq!(data["steps"][0]["error"], Value::Null);
        assert!(
            data["before"]["allowed"].as_u64() < Some(need)
                && data["after"]["allowed"].as_u64() >= Some(need)
        );
        let left = cached(&short.shelf);
        assert!(left < Some(Short::SHELF / 4), "all but what was asked for to know: {left:?}");
        daemon.reported("host memory reclaimed for alpha: ");
        return;
    }
    panic!("memory never stood still");
}

#[test]
fn root_steps_are_left_to_the_helper_and_not_run_by_the_daemon() {
    let Some(short) = Short::new() else { return };
    let helper = short.disk.path("sudo");
    let record = short.disk.path("asked");
    std::fs::write(&helper, format!("#!/bin/sh\nprintf '%s\\n' \"$*\" >> {}\n", record.display()))
        .expect("it is ours");
    let runnable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&helper, runnable).expect("it is ours");
    let path = std::env::var("PATH").expect("there is one");
    let path = format!("{}:{path}", short.disk.0.path().display());
    // The file is no model's, so that only what drops everybody's page cache would help.
    let serve = |who: &str| {
        let need = short.need().to_string();
        let daemon = unified(&[])
            .model("alpha", &need, "", "")
            .argument("--reclaim-before-load")
            .argument(who)
            .variable("PATH", &path)
            .start();
        assert_eq!(chat(daemon.address, "alpha").status, 200, "it is tried all the same");
        assert!(cached(&short.shelf) > Some(Short::SHELF / 2), "the daemon itself did it");
        daemon.talk()
    };
    let stated = |who: &str, words: &str| (0..TRIES).any(|_| serve(who).contains(words));
    assert!(stated("user", "drop-page-cache would free") && !record.exists());
    assert!(stated("sudo", "drop-page-cache: "));
    let requested = std::fs::read_to_string(&record).expect("it was asked");
    let first = requested.lines().next().expect("a line");
    assert!(first.starts_with("-n /") && first.ends_with("drop-page-cache"), "{requested}");
}

#[test]
fn reclaim_before_a_load_is_off_by_default() {
    let Some(short) = Short::new() else { return };
    let daemon = short.serve(short.need(), "", &[]);
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert_ne!(cached(&short.shelf), Some(0));
    assert!(!daemon.talk().contains("reclaim"), "{}", daemon.talk());
}

/// The hints of the refusal of a load that fails. Where another program takes memory in the meantime, the
/// load has no room, and is tried with another server.
fn hints(serve: impl Fn() -> Daemon) -> String {
    let mut errors = (0..TRIES).map(|_| {
        let answer = chat(serve().address, "alpha");
        assert_eq!(answer.status, 503, "{}", answer.text());
        answer.json()["error"].clone()
    });
    let error = errors.find(|error| error["code"] != "no_room").expect("a load that had room");
    assert_eq!(error["code"], "load_failed", "{error}");
    error["hints"].to_string()
}

#[test]
fn a_load_that_fails_all_the_same_says_what_was_done_for_it_or_what_could_be() {
    let Some(short) = Short::new() else { return };
    let fails = "fail=oom_at_load";
    let off = hints(|| short.serve(64 * MIB, fails, &[]));
    assert!(off.contains("reclaim-before-load = \\\"user\\\""), "{off}");
    // There is enough: nothing was done, and nothing is to be said.
    let enough = hints(|| short.serve(64 * MIB, fails, &["--reclaim-before-load", "user"]));
    assert_eq!(enough, "null");
    let elsewhere = || Setup::new().model("alpha", "64MiB", fails, "").start();
    assert_eq!(hints(elsewhere), "null");

    for _ in 0..TRIES {
        let done = hints(|| short.serve(short.need(), fails, &["--reclaim-before-load", "user"]));
        if done.contains("before the load, ") && done.contains("advise-files: ") {
            return;
        }
    }
    panic!("memory never stood still");
}

#[test]
fn a_model_that_is_unloaded_while_room_is_made_never_starts() {
    let Some(short) = Short::new() else { return };
    let daemon = short.serve(short.need(), "", &["--reclaim-before-load", "user"]);
    let model = json!({"model": "alpha"});
    assert_eq!(post(daemon.address, "/models/load", &model).status, 200);
    assert_eq!(post(daemon.address, "/models/unload", &model).status, 200);
    until("its claim is given back", || daemon.claimed() == 0);
    assert_eq!(daemon.running(), [""; 0]);
    assert_eq!(chat(daemon.address, "alpha").status, 200, "and may come back");
    drop(short.disk);
}
