//! Tests of engines under guard (the preloaded library): their options, and the effects of the memory figures
//! that they report.
//!
//! A page is the shared-memory file with an engine's memory figures. The first half of the tests writes pages
//! by hand. The second half runs the real library on a fake libcuda, whose memory each test sets.

use std::fs::Permissions;
use std::mem::offset_of;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_wire::page::{PageCard as Card, PageSnapshot as Snapshot, Refusal};
use plimsoll_wire::tree::{FILE, TreeSnapshot, key};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::built::built;
use crate::daemon::{Daemon, Setup, until};
use crate::http::{Answer, chat, get, post};
use crate::pages::hand_written::{HandWritten, library};
use crate::pages::real::{driver, guard, take};

const CARD: &str = "GPU-00000001-0000-0000-0000-000000000000";
const MIB: u64 = 1 << 20;

pub(crate) fn uuid() -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[3] = 1;
    uuid
}

/// A daemon with one card of 8 GiB, whose engines get `guard` preloaded.
pub(crate) fn one_card(setup: Setup, guard: &Path) -> Daemon {
    let card = json!([{"uuid": CARD, "name": "Fake 8G", "total": 8192 * MIB, "free": 8192 * MIB, "pci": "00000000:01:00.0"}]);
    setup
        .argument("--reserve")
        .argument("0")
        .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
        .variable("PLIMSOLL_GUARD_LIBRARY", &guard.to_string_lossy())
        .start()
}

/// A model whose page is `page`.
pub(crate) fn with_page(
    setup: Setup,
    name: &str,
    memory: &str,
    script: &str,
    page: &Path,
    more: &str,
) -> Setup {
    let engine = crate::daemon::fake_engine();
    setup.config(&format!(
        "[models.{name}]\ncmd = \"{} --port ${{PORT}} --alias {name}\"\nmemory = \"{memory}\"\n\
         env = {{ PLIMSOLL_FAKE_ENGINE = \"{script}\", PLIMSOLL_TEST_PAGE = \"{}\" }}\n{more}\n",
        engine.display(),
        page.display()
    ))
}

fn environment(daemon: &Daemon, model: &str) -> Value {
    assert_eq!(chat(daemon.address, model).status, 200);
    get(daemon.address, &format!("/upstream/{model}/fake/env")).json()["env"].clone()
}

pub(crate) fn model<'a>(status: &'a Value, name: &str) -> &'a Value {
    let mut models = status["models"].as_array().expect("models").iter();
    models.find(|model| model["name"] == name).expect("it is there")
}

#[test]
fn an_engine_on_a_card_is_watched_and_one_that_says_more_gets_more() {
    let daemon = one_card(
        Setup::with_cards(&[])
            .model("usual", "1GiB", "", "")
            .model("held", "1GiB", "", "guard = { mode = \"budget\", wait = \"3s\" }")
            .model("free", "1GiB", "", "guard = { mode = \"off\" }")
            .argument("--reuse"),
        library(),
    );
    let usual = environment(&daemon, "usual");
    assert_eq!(usual["PLIMSOLL_GUARD"], format!("card={CARD} reuse"));
    assert_eq!(usual["LD_PRELOAD"], library().to_str().expect("text"));
    let occupied = environment(&daemon, "held");
    assert_eq!(occupied["PLIMSOLL_GUARD"], format!("card={CARD}:{} reuse wait=3", 1024 * MIB));
    assert_ne!(occupied["PLIMSOLL_GUARD_PAGES"], usual["PLIMSOLL_GUARD_PAGES"]);
    let free = environment(&daemon, "free");
    assert_eq!(free["PLIMSOLL_GUARD"], Value::Null);
    assert_eq!(free["LD_PRELOAD"], Value::Null);
}

/// The engine is asked for no less than the plan says, so a budget below that makes weights overflow, not
/// what comes later.
#[test]
fn an_engine_that_may_spill_is_given_the_sizes_it_will_ask_for() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("m8.gguf");
    let plimsoll = || Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    plimsoll_specimens::write("m8", &model, &plimsoll_specimens::Changes::default())
        .expect("the folder is ours");
    let flags = format!("-m {} -c 8192 -ngl 99 -fa on -fit off -np 1", model.display());
    let planned = plimsoll()
        .args(["plan", "--json", "--card", "name=Fake,total=8GiB,free=8GiB", "--"])
        .args(flags.split(' '))
        .output();
    let plan: Value = serde_json::from_slice(&planned.expect("plimsoll runs").stdout).expect("a plan");
    let terms = &plan["cards"][0]["terms"];
    let terms = ["weights", "kv", "compute", "pool"].map(|term| terms[term].as_u64().expect("known"));
    let need: u64 = terms.iter().sum();
    let engine = crate::daemon::fake_engine();
    let server = folder.path().join("llama-server");
    std::os::unix::fs::symlink(engine, &server).expect("the folder is ours");
    let entry = |name: &str, guard: &str| {
        format!(
            "[models.{name}]\ncmd = \"{} {flags} --port ${{PORT}}\"\nguard = {{ {guard} }}\n",
            server.display()
        )
    };
    let spills = "budget = \"1200MiB\", spill = \"1GiB\"";
    let daemon = one_card(
        Setup::with_cards(&[])
            .config(&entry("spills", spills))
            .config(&entry("by-hand", &format!("{spills}, keep = \"100MiB\"")))
            .config(&entry("refused", "budget = \"1200MiB\"")),
        library(),
    );
    let reported =
        |model: &str| environment(&daemon, model)["PLIMSOLL_GUARD"].as_str().expect("text").to_owned();
    let (budget, spill) = (1200 * MIB, 1024 * MIB);
    let card = format!("card={CARD}:{budget}");
    let row = 2048;
    let tensor = 8192 * row;
    let cache = format!("cache={CARD}:1:8192:8x{row}/{tensor},{row}/{tensor}");
    assert_eq!(reported("spills"), format!("{card}:{need} {cache} budget={budget} spill={spill}"));
    assert_eq!(reported("by-hand"), format!("{card} budget={budget} spill={spill} keep={}", 100 * MIB));
    assert_eq!(reported("refused"), format!("{card} budget={budget}"));
}

#[test]
fn without_the_library_engines_run_as_ever_and_that_is_said_once() {
    let daemon = one_card(
        Setup::with_cards(&[]).model("a", "1GiB", "", "").model("b", "1GiB", "", ""),
        Path::new("/nowhere/libplimsoll_guard.so"),
    );
    assert_eq!(chat(daemon.address, "a").status, 200);
    assert_eq!(chat(daemon.address, "b").status, 200);
    daemon.reported("ready b");
    assert_eq!(daemon.talk().matches("engines run without guard").count(), 1);
    assert!(daemon.talk().contains("no file /nowhere/libplimsoll_guard.so"));
}

#[test]
fn guard_page_is_measured_shown_and_counted_and_its_folder_ends_with_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid())
        .card(offset_of!(Card, allocated), 900 * MIB)
        .card(offset_of!(Card, peak), 950 * MIB)
        .card(offset_of!(Card, spilled), 7 * MIB)
        .card(offset_of!(Card, allocations), 3)
        .write(&page);
    let setup = with_page(Setup::with_cards(&[]), "alpha", "1GiB", "", &page, "");
    let daemon = one_card(setup, library());
    let pages = environment(&daemon, "alpha")["PLIMSOLL_GUARD_PAGES"].clone();
    let measured = json!({"card": CARD, "bytes": 900 * MIB});
    until("the page is measured", || model(&daemon.status(), "alpha")["measured"][0] == measured);
    let status = daemon.status();
    let alongside = &model(&status, "alpha")["measured"][1];
    assert!(
        alongside["card"] == "host" && alongside["bytes"].as_u64().is_some_and(|bytes| bytes > 0),
        "{alongside}"
    );
    let running = get(daemon.address, "/running").json();
    assert_eq!(
        running["running"][0]["memory"],
        json!({"claim": 1024 * MIB, "measured": 900 * MIB, "growth": null})
    );
    let metrics = get(daemon.address, "/metrics").text();
    for line in [
        format!("plimsoll_guard_allocated_bytes{{model=\"alpha\",card=\"Fake 8G\"}} {}", 900 * MIB),
        format!("plimsoll_guard_peak_bytes{{model=\"alpha\",card=\"Fake 8G\"}} {}", 950 * MIB),
        format!("plimsoll_guard_spilled_bytes{{model=\"alpha\",card=\"Fake 8G\"}} {}", 7 * MIB),
        "plimsoll_guard_refusals_total{model=\"alpha\",card=\"Fake 8G\"} 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}\n{metrics}");
    }
    let pages = PathBuf::from(pages.as_str().expect("a path"));
    assert!(pages.exists());
    get(daemon.address, "/unload");
    until("the folder of the pages is gone", || !pages.exists());
}

#[test]
fn the_folder_of_all_pages_goes_with_the_daemon_and_with_the_next_one_if_it_was_killed() {
    let start = || one_card(Setup::with_cards(&[]).model("a", "1GiB", "", ""), library());
    let folder = |daemon: &Daemon| {
        let pages = environment(daemon, "a")["PLIMSOLL_GUARD_PAGES"].clone();
        let pages = PathBuf::from(pages.as_str().expect("a path"));
        pages.parent().expect("a folder").to_owned()
    };
    let mut first = start();
    let kept = folder(&first);
    assert!(kept.exists());
    first.signal("TERM");
    assert!(first.wait().success());
    assert!(!kept.exists(), "{}", kept.display());
    let mut second = start();
    let left = folder(&second);
    second.signal("KILL");
    second.wait();
    let third = start();
    until("the folder of the dead is swept", || !left.exists());
    assert_ne!(folder(&third), left);
}

#[test]
fn a_need_that_nobody_knew_is_settled_by_the_page_where_the_driver_names_no_process() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid()).card(offset_of!(Card, allocated), 2000 * MIB).write(&page);
    let engine = crate::daemon::fake_engine();
    let config = format!(
        "[models.alpha]\ncmd = \"{} --port ${{PORT}}\"\nenv = {{ PLIMSOLL_TEST_PAGE = \"{}\" }}\n",
        engine.display(),
        page.display()
    );
    let daemon = one_card(Setup::with_cards(&[]).config(&config), library());
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    until("the claim is what was measured, and five per cent", || {
        model(&daemon.status(), "alpha")["claim"][0]["bytes"] == 2100 * MIB
    });
    assert_eq!(model(&daemon.status(), "alpha")["measured"][0]["bytes"], 2000 * MIB);
}

pub(crate) fn refusal(answer: &Answer) -> Value {
    fn find(reason: &Value) -> Option<Value> {
        if reason["code"] == "guard_refused" {
            return Some(reason.clone());
        }
        reason["because"].as_array()?.iter().find_map(find)
    }
    let body = answer.json();
    find(&body["error"]["reason"]).unwrap_or_else(|| panic!("no refusal in {body:#}"))
}

#[test]
fn a_death_after_a_refusal_is_reported_with_budget_need_and_who_holds_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid())
        .card(offset_of!(Card, allocated), 900 * MIB)
        .refusal(Refusal::Budget, 512 * MIB)
        .write(&page);
    let setup = Setup::with_cards(&[]).model("beta", "3GiB", "", "pin = true");
    let setup = with_page(setup, "alpha", "1GiB", "fail=signal_at_load:ABRT", &page, "");
    let daemon = one_card(setup, library());
    assert_eq!(chat(daemon.address, "beta").status, 200);
    let answer = chat(daemon.address, "alpha");
    assert_eq!(answer.status, 503);
    let refused = refusal(&answer);
    assert_eq!(refused["facts"]["verdict"], "budget");
    assert_eq!(refused["facts"]["asked"], 512 * MIB);
    assert_eq!(refused["facts"]["budget"], 8192 * MIB);
    assert_eq!(refused["because"][0]["code"], "neighbour");
}

/// The one page of a folder.
fn page_in(folder: &Path) -> Snapshot {
    let entries = std::fs::read_dir(folder).expect("it runs").flatten();
    let mut paths = entries.map(|entry| entry.path());
    let page = paths.find(|path| path.extension().is_some_and(|kind| kind == "page"));
    let bytes = std::fs::read(page.expect("one page")).expect("it is readable");
    Snapshot::read(&bytes).expect("it is a page")
}

/// What the processes of a folder may take of their card together.
fn budget_in(folder: &Path) -> Option<u64> {
    let ledger = std::fs::read(folder.join(FILE)).expect("it is readable");
    let tree = TreeSnapshot::read(&ledger).expect("it is a ledger");
    tree.card(key(uuid(), 0)).expect("it has the card").budget
}

#[test]
fn a_room_request_makes_an_idle_neighbour_leave_and_raises_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid())
        .card(offset_of!(Card, allocated), 3000 * MIB)
        .tree(3072 * MIB, 3000 * MIB)
        .room_request(2000 * MIB)
        .write(&page);
    let setup = Setup::with_cards(&[]).model("small", "1GiB", "", "").model("idle", "3GiB", "", "");
    let guard = "guard = { mode = \"budget\", reclaim = true }";
    let daemon = one_card(with_page(setup, "alpha", "3GiB", "", &page, guard), library());
    assert_eq!(chat(daemon.address, "idle").status, 200);
    assert_eq!(chat(daemon.address, "small").status, 200);
    let folder = environment(&daemon, "alpha")["PLIMSOLL_GUARD_PAGES"].clone();
    let folder = PathBuf::from(folder.as_str().expect("a path"));
    until("the request for room is answered", || page_in(&folder).room_request.is_none());
    assert_eq!(budget_in(&folder), Some(5000 * MIB));
    assert_eq!(daemon.running(), ["alpha", "small"], "one suffices, and of the two that do the older leaves");
    daemon.reported("stop idle");
    daemon.reported("alpha requests 2000 MiB more memory");
}

#[test]
fn a_room_request_that_nobody_can_meet_is_answered_and_costs_nobody_a_thing() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page");
    HandWritten::new(uuid())
        .card(offset_of!(Card, allocated), 3000 * MIB)
        .tree(3072 * MIB, 3000 * MIB)
        .room_request(9000 * MIB)
        .write(&page);
    let setup = Setup::with_cards(&[]).model("idle", "3GiB", "", "");
    let guard = "guard = { mode = \"budget\", reclaim = true }";
    let daemon = one_card(with_page(setup, "alpha", "3GiB", "", &page, guard), library());
    assert_eq!(chat(daemon.address, "idle").status, 200);
    let folder = environment(&daemon, "alpha")["PLIMSOLL_GUARD_PAGES"].clone();
    let folder = PathBuf::from(folder.as_str().expect("a path"));
    until("the request for room is answered", || {
        page_in(&folder).room_request.is_none() && budget_in(&folder) == Some(3072 * MIB)
    });
    assert_eq!(daemon.running(), ["alpha", "idle"]);
}

pub(crate) fn on_fake_cuda(setup: Setup, driver: &TempDir) -> Daemon {
    let shared = driver.path().join("shared");
    let words = format!("uuids={CARD} total=8G context=64M shared={}", shared.display());
    let setup =
        setup.variable("LD_LIBRARY_PATH", &driver.path().to_string_lossy()).variable("CUDA_FAKE", &words);
    one_card(setup, guard())
}

/// Asks with a prompt of so many tokens, as the fake engine counts them.
pub(crate) fn deep(daemon: &Daemon, model: &str, tokens: usize) -> Answer {
    let words = "word".repeat(tokens);
    let body = json!({"model": model, "messages": [{"role": "user", "content": words}]});
    post(daemon.address, "/v1/chat/completions", &body)
}

#[test]
fn bytes_that_an_engine_takes_of_the_driver_are_measured_and_their_growth_is_learned() {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let script = format!("cuda=1 vram={} vram_per_token=65536", 512 * MIB);
    let daemon = on_fake_cuda(Setup::with_cards(&[]).model("alpha", "2GiB", &script, ""), &driver);
    assert_eq!(deep(&daemon, "alpha", 1000).status, 200);
    assert_eq!(model(&daemon.status(), "alpha")["growth"], Value::Null, "one look is none");
    assert_eq!(deep(&daemon, "alpha", 5000).status, 200);
    let growth = model(&daemon.status(), "alpha")["growth"].clone();
    assert_eq!(growth["bytes_per_token"], 65536, "{growth}");
    let span = growth["to"].as_u64().expect("a number") - growth["from"].as_u64().expect("a number");
    assert_eq!(span, 4000);
    // The context is not the page's business where there is no budget; a prompt has a few more tokens than
    // its words.
    until("weights and growth are measured", || {
        let measured = model(&daemon.status(), "alpha")["measured"][0]["bytes"].as_u64();
        measured.is_some_and(|bytes| (824 * MIB + MIB / 2..830 * MIB).contains(&bytes))
    });
    let listing = get(daemon.address, "/v1/models").json();
    assert_eq!(listing["data"][0]["memory"]["growth"]["bytes_per_token"], 65536);
}

#[test]
fn an_engine_that_outgrows_its_claim_is_refused_and_gets_what_it_lacked() {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let script = format!("cuda=1 vram={} vram_per_token=65536", 512 * MIB);
    let setup = Setup::with_cards(&[]).model("alpha", "1GiB", &script, "guard = { mode = \"budget\" }");
    let daemon = on_fake_cuda(setup, &driver);
    assert_eq!(deep(&daemon, "alpha", 1000).status, 200);
    // 20 000 tokens are 1250 MiB; the claim is 1 GiB. It dies, its claim grows by what lacked, and it
    // answers.
    assert_eq!(deep(&daemon, "alpha", 20_000).status, 200);
    daemon.reported("alpha: the engine ran out of card memory while serving");
    let status = daemon.status();
    let claim = model(&status, "alpha")["claim"][0]["bytes"].as_u64().expect("a claim");
    assert!((1762 * MIB..1900 * MIB).contains(&claim), "{claim}");
}

#[test]
fn an_engine_that_is_held_to_less_than_it_needs_fails_with_the_numbers_and_its_neighbour_lives() {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let script = format!("cuda=1 vram={} vram_per_token=65536", 512 * MIB);
    let setup = Setup::with_cards(&[])
        .model("beta", "4GiB", &format!("cuda=1 vram={}", 3072 * MIB), "")
        .model("alpha", "2GiB", &script, "guard = { budget = \"1GiB\" }");
    let daemon = on_fake_cuda(setup, &driver);
    assert_eq!(chat(daemon.address, "beta").status, 200);
    assert_eq!(deep(&daemon, "alpha", 1000).status, 200);
    let answer = deep(&daemon, "alpha", 20_000);
    assert_eq!(answer.status, 503);
    let refused = refusal(&answer);
    assert_eq!(refused["facts"]["verdict"], "budget", "{refused:#}");
    assert_eq!(refused["facts"]["card"], "Fake 8G");
    assert_eq!(refused["facts"]["budget"], 1024 * MIB);
    let neighbours = refused["because"].as_array().expect("neighbours").iter();
    let occupied: Vec<&Value> = neighbours.map(|one| &one["text"]).collect();
    assert!(
        occupied.iter().any(|text| text.as_str().is_some_and(|text| text.ends_with("are held by beta"))),
        "{occupied:?}"
    );
    assert_eq!(chat(daemon.address, "beta").status, 200);
}

/// An engine of 512 MiB that first starts a helper, which takes so many MiB, as workers of a larger server
/// do.
fn with_helper(setup: Setup, name: &str, helper: u64, folder: &Path) -> Setup {
    let program = folder.join(name);
    let there = format!("{}/{name}-$$", folder.display());
    let script = format!(
        "#!/bin/sh\n{} {helper} touch={there} until={there}-never &\nwhile [ ! -e {there} ]; do sleep 0.01; done\nexec {} \"$@\"\n",
        take(),
        crate::daemon::fake_engine().display()
    );
    std::fs::write(&program, script).expect("the folder is ours");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
    setup.config(&format!(
        "[models.{name}]\ncmd = \"{} --port ${{PORT}} --alias {name}\"\nmemory = \"2GiB\"\nguard = {{ budget = \"1GiB\" }}\n\
         env = {{ PLIMSOLL_FAKE_ENGINE = \"cuda=1 vram={}\" }}\n",
        program.display(),
        512 * MIB
    ))
}

#[test]
fn a_budget_holds_for_an_engine_and_all_that_it_starts() {
    let (driver, folder) =
        (driver(&built("libplimsoll_fake_cuda.so", "fake-cuda")), tempfile::tempdir().unwrap());
    let setup = with_helper(Setup::with_cards(&[]), "small", 300, folder.path());
    let daemon = on_fake_cuda(with_helper(setup, "large", 700, folder.path()), &driver);
    assert_eq!(chat(daemon.address, "small").status, 200);
    until("both processes are measured", || {
        let measured = model(&daemon.status(), "small")["measured"][0]["bytes"].as_u64();
        measured.is_some_and(|bytes| (812 * MIB..1024 * MIB).contains(&bytes))
    });
    let answer = chat(daemon.address, "large");
    assert_eq!(answer.status, 503);
    let facts = refusal(&answer)["facts"].clone();
    assert_eq!((&facts["verdict"], &facts["budget"]), (&json!("budget"), &json!(1024 * MIB)), "{facts}");
    let allocated = facts["allocated"].as_u64().expect("a number");
    assert!((700 * MIB..1024 * MIB).contains(&allocated), "its helper's are counted: {facts}");
}

#[test]
fn an_engine_that_may_request_room_outgrows_its_claim_without_dying() {
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let script = format!("cuda=1 vram={} vram_per_token=65536", 512 * MIB);
    let guard = "guard = { mode = \"budget\", reclaim = true, wait = \"10s\" }";
    let setup = Setup::with_cards(&[])
        .model("idle", "7GiB", &format!("cuda=1 vram={}", 3072 * MIB), "")
        .model("alpha", "1GiB", &script, guard);
    let daemon = on_fake_cuda(setup, &driver);
    assert_eq!(chat(daemon.address, "idle").status, 200);
    assert_eq!(deep(&daemon, "alpha", 1000).status, 200);
    assert_eq!(deep(&daemon, "alpha", 20_000).status, 200);
    daemon.reported("stop idle");
    assert!(!daemon.talk().contains("ran out of card memory"), "nobody died");
    assert_eq!(daemon.running(), ["alpha"]);
}
