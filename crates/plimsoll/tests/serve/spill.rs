//! Tests of the key `spill`: a model is loaded with a part of its KV cache in host memory, as by `plimsoll
//! run --spill`.

use std::fs::Permissions;
use std::mem::offset_of;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_wire::page::{Page, PageSnapshot};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::guarded::{model, uuid};
use crate::built::built;
use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{chat, get};
use crate::pages::hand_written::{HandWritten, library};
use crate::pages::real::{driver, guard, take};

const CARD: &str = "GPU-00000001-0000-0000-0000-000000000000";
const MIB: u64 = 1 << 20;
/// K and V of eight layers, 2048 bytes a position each.
const CACHE: u64 = 2048 * MIB;
const CONTEXT: u64 = 65_536;
const SPILL: u64 = 2048 * MIB;

/// A model with a cache of 2 GiB, and its engine.
struct Yard {
    folder: TempDir,
    /// What the model takes of a card without `spill`.
    peak: u64,
}

impl Yard {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("m8.gguf");
        plimsoll_specimens::write("m8", &file, &plimsoll_specimens::Changes::default())
            .expect("the folder is ours");
        symlink(fake_engine(), folder.path().join("llama-server")).expect("the folder is ours");
        let mut yard = Self { folder, peak: 0 };
        let stated = yard.plan(&["--json", "--card", "name=Fake,total=80GiB,cc=9.0"]);
        let plan: Value = serde_json::from_slice(&stated.stdout).expect("a plan");
        assert_eq!(plan["cards"][0]["terms"]["kv"], CACHE);
        yard.peak = plan["cards"][0]["peak"].as_u64().expect("a number");
        yard
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn flags(&self) -> String {
        format!("-m {} -c {CONTEXT} -ngl 99 -fa on -fit off -np 1", self.path("m8.gguf").display())
    }

    fn plan(&self, options: &[&str]) -> Output {
        let mut plan = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        plan.arg("plan").args(options).arg("--").args(self.flags().split(' '));
        plan.env("XDG_CONFIG_HOME", self.folder.path()).output().expect("it runs")
    }

    /// A section for the model, whose engine is `program` of the folder.
    fn section(&self, name: &str, program: &str, more: &str) -> String {
        let program = self.path(program);
        format!(
            "[models.{name}]\nprogram = \"{}\"\nflags = \"{}\"\n{more}\n",
            program.display(),
            self.flags()
        )
    }

    /// A server with one card of so many bytes.
    fn setup(&self, total: u64, guard: &Path, config: &str) -> Setup {
        let card = json!([{"uuid": CARD, "name": "Fake", "total": total, "free": total, "cc": [9, 0], "pci": "00000000:01:00.0"}]);
        Setup::with_cards(&[])
            .argument("--reserve")
            .argument("0")
            .variable("PLIMSOLL_NVML", &built("libnvidia_ml.so", "fake-nvml").to_string_lossy())
            .variable("PLIMSOLL_FAKE_NVML_CARDS", &card.to_string())
            .variable("PLIMSOLL_GUARD_LIBRARY", &guard.to_string_lossy())
            .variable("XDG_CONFIG_HOME", &self.folder.path().to_string_lossy())
            .config(config)
    }

    /// The text and the status of `serve --check`, with one card of so many bytes.
    fn check(&self, total: u64, config: &str) -> (String, Option<i32>) {
        let file = self.path("plimsoll.toml");
        std::fs::write(&file, config).expect("the folder is ours");
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "--check", "--reserve", "0", "--card"])
            .arg(format!("name=Fake,total={total},cc=9.0"))
            .arg(&file)
            .env("PLIMSOLL_NVML", "")
            .env("PLIMSOLL_GUARD_LIBRARY", library())
            .output()
            .expect("it runs");
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (text.concat(), output.status.code())
    }
}

fn guard_options(daemon: &Daemon, model: &str) -> String {
    assert_eq!(chat(daemon.address, model).status, 200);
    let environment = get(daemon.address, &format!("/upstream/{model}/fake/env")).json();
    environment["env"]["PLIMSOLL_GUARD"].as_str().expect("text").to_owned()
}

fn claim(daemon: &Daemon, name: &str, card: &str) -> u64 {
    let status = daemon.status();
    let shares = model(&status, name)["claim"].as_array().expect("shares").iter();
    shares.filter(|share| share["card"] == card).filter_map(|share| share["bytes"].as_u64()).sum()
}

#[test]
fn a_model_that_lacks_room_is_admitted_and_guarded_as_run_guards_it() {
    let yard = Yard::new();
    let total = yard.peak - 1024 * MIB;
    let config = yard.section("spills", "llama-server", "spill = \"2GiB\"");
    let daemon = yard.setup(total, library(), &config).start();
    let stated = guard_options(&daemon, "spills");
    assert_eq!(claim(&daemon, "spills", CARD), total);
    let budget = total - total / 64;
    assert!(stated.starts_with(&format!("card={CARD}:{budget}:")), "{stated}");
    assert!(stated.ends_with(&format!(" spill={SPILL}")), "{stated}");

    let program = yard.path("shown/llama-server");
    std::fs::create_dir(yard.path("shown")).expect("the folder is ours");
    std::fs::write(&program, "#!/bin/sh\necho \"$PLIMSOLL_GUARD\"\n").expect("the folder is ours");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
    let card = json!([{"uuid": CARD, "name": "Fake", "total": total, "free": total, "cc": [9, 0], "pci": "00000000:01:00.0"}]);
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["run", "--card", &format!("0={budget}"), "--spill", "2GiB", "--"])
        .arg(&program)
        .args(yard.flags().split(' '))
        .env("PLIMSOLL_NVML", built("libnvidia_ml.so", "fake-nvml"))
        .env("PLIMSOLL_FAKE_NVML_CARDS", card.to_string())
        .env("PLIMSOLL_GUARD_LIBRARY", library())
        .output()
        .expect("it runs");
    // `run` hides other cards from Vulkan through guard, `serve` by the variables of the engine's backend.
    assert_eq!(
        String::from_utf8_lossy(&run.stdout).trim(),
        format!("{stated} hide-others"),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

#[test]
fn the_depth_at_full_speed_is_in_every_listing_and_the_host_holds_what_overflows() {
    let yard = Yard::new();
    let total = yard.peak - 1024 * MIB;
    let config = yard.section("spills", "llama-server", "spill = \"2GiB\"");
    let daemon = yard.setup(total, library(), &config).start();
    guard_options(&daemon, "spills");
    let status = daemon.status();
    let spill = model(&status, "spills")["spill"].clone();
    let on_host = spill["on_host"].as_u64().expect("bytes");
    assert!((1024 * MIB..1300 * MIB).contains(&on_host), "{spill}");
    let tokens = spill["full_speed_tokens"].as_u64().expect("a number");
    // A granule has 1024 positions of one of sixteen tensors.
    assert_eq!(tokens, (CACHE - on_host) / (16 * 2048) / 1024 * 1024, "{spill}");
    assert_eq!(spill["ms_per_1000_tokens_beyond"], Value::Null, "nothing has measured the bus");
    assert_eq!(get(daemon.address, "/v1/models").json()["data"][0]["spill"], spill);
    assert_eq!(get(daemon.address, "/running").json()["running"][0]["spill"], spill);
    assert!(claim(&daemon, "spills", "host") >= on_host);
    daemon.reported(&format!("so only the first {tokens} tokens of a conversation are at full speed"));
}

#[test]
fn a_model_that_fits_is_loaded_as_without_the_key() {
    let yard = Yard::new();
    let config = yard.section("with", "llama-server", "spill = \"2GiB\"")
        + &yard.section("without", "llama-server", "");
    let daemon = yard.setup(yard.peak, library(), &config).start();
    let with = guard_options(&daemon, "with");
    let claims = |name| [CARD, "host"].map(|card| claim(&daemon, name, card));
    let claimed = claims("with");
    assert_eq!(model(&daemon.status(), "with")["spill"], Value::Null);
    assert_eq!(with, format!("card={CARD}"));
    assert_eq!(guard_options(&daemon, "without"), with);
    assert_eq!(claims("without"), claimed);
}

#[test]
fn a_model_beside_another_one_gets_the_rest_of_the_card() {
    let yard = Yard::new();
    let total = yard.peak + 2304 * MIB;
    let config = yard.section("first", "llama-server", "spill = \"2GiB\"")
        + &yard.section("second", "llama-server", "spill = \"2GiB\"");
    let daemon = yard.setup(total, library(), &config).start();
    guard_options(&daemon, "first");
    guard_options(&daemon, "second");
    assert_eq!(daemon.running(), ["first", "second"]);
    assert_eq!([claim(&daemon, "first", CARD), claim(&daemon, "second", CARD)], [yard.peak, 2304 * MIB]);
}

#[test]
fn the_used_positions_are_reported_and_the_rate_of_the_bus_is_kept_for_plans() {
    let yard = Yard::new();
    let page = yard.path("page");
    HandWritten::new(uuid())
        .word_at(offset_of!(Page, waits), 1)
        .word_at(offset_of!(Page, bus_rate), 47_684)
        .write(&page);
    let test_page = format!("spill = \"2GiB\"\nenv = {{ PLIMSOLL_TEST_PAGE = \"{}\" }}", page.display());
    let config = yard.section("spills", "llama-server", &test_page);
    let total = yard.peak - 1024 * MIB;
    let daemon = yard.setup(total, library(), &config).start();
    guard_options(&daemon, "spills");
    let environment = get(daemon.address, "/upstream/spills/fake/env").json();
    let pages = PathBuf::from(environment["env"]["PLIMSOLL_GUARD_PAGES"].as_str().expect("a path"));
    let reports = || {
        let entries = std::fs::read_dir(&pages).expect("it runs").flatten();
        let page = entries.map(|entry| entry.path()).find(|path| path.extension().is_some());
        let page = std::fs::read(page.expect("a page")).expect("it is readable");
        PageSnapshot::read(&page).expect("it is a page").depth_reports
    };
    until("depths are reported", || reports() > 0);
    // 1000 positions of sixteen tensors are 31.25 MiB.
    until("the price is shown", || {
        model(&daemon.status(), "spills")["spill"]["ms_per_1000_tokens_beyond"] == json!(0.7)
    });
    let file = yard.path("plimsoll/bus.json");
    until("the rate is kept", || file.exists());
    let card = format!("name=Fake,total={total},cc=9.0");
    let stated = String::from_utf8_lossy(&yard.plan(&["--card", &card]).stdout).replace('\n', " ");
    let stated = stated.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(stated.contains("tokens of a conversation are at full speed"), "{stated}");
    assert!(
        stated.contains("32 MiB over the bus for every 1000 further tokens, which takes 0.7 ms"),
        "{stated}"
    );
}

#[test]
fn a_check_says_the_depth_and_refuses_what_cannot_spill_with_the_remedy() {
    let yard = Yard::new();
    let total = yard.peak - 1024 * MIB;
    let check = |more: &str| yard.check(total, &yard.section("m", "llama-server", more));
    let (stated, status) = check("spill = \"2GiB\"");
    assert_eq!(status, Some(0), "{stated}");
    assert!(stated.contains("go to host memory, so only the first "), "{stated}");
    let (stated, status) = check("spill = \"500MiB\"");
    assert_eq!(status, Some(1), "{stated}");
    let (stated, status) = check("");
    assert_eq!(status, Some(1), "{stated}");
    assert!(stated.contains("set `spill = \""), "{stated}");
    let mamba = yard.path("mamba2.gguf");
    plimsoll_specimens::write("mamba2", &mamba, &plimsoll_specimens::Changes::default())
        .expect("the folder is ours");
    let section = format!(
        "[models.m]\nprogram = \"{}\"\nflags = \"-m {} -c 4096 -ngl 99\"\nspill = \"2GiB\"\n",
        yard.path("llama-server").display(),
        mamba.display()
    );
    let (stated, status) = yard.check(8192 * MIB, &section);
    assert_eq!(status, Some(1), "{stated}");
    assert!(stated.contains("no cache of positions") && stated.contains("remove `spill`"), "{stated}");
}

/// An engine that asks for its weights and its cache as llama.cpp does.
fn over_fake_cuda(yard: &Yard, weights: u64) {
    let there = yard.path("there");
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in --version|--help) exec {engine} \"$@\";; esac\n{take} {weights} {cache} touch={there} \
         until={there}-never >&2 &\nwhile [ ! -e {there} ]; do sleep 0.01; done\nexec {engine} \"$@\"\n",
        engine = fake_engine().display(),
        take = take(),
        cache = CACHE / MIB,
        there = there.display(),
    );
    let program = yard.path("takes");
    std::fs::write(&program, script).expect("the folder is ours");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("the file is ours");
}

#[test]
fn guard_divides_the_cache_where_the_server_says() {
    let yard = Yard::new();
    over_fake_cuda(&yard, 1006);
    let total = yard.peak - 1024 * MIB;
    let driver = driver(&built("libplimsoll_fake_cuda.so", "fake-cuda"));
    let shared = driver.path().join("shared");
    let words = format!("uuids={CARD} total={}M context=512M shared={}", total / MIB, shared.display());
    let config = yard.section("spills", "takes", "spill = \"2GiB\"");
    let daemon = yard
        .setup(total, guard(), &config)
        .variable("LD_LIBRARY_PATH", &driver.path().to_string_lossy())
        .variable("CUDA_FAKE", &words)
        .start();
    assert_eq!(chat(daemon.address, "spills").status, 200);
    let tokens = model(&daemon.status(), "spills")["spill"]["full_speed_tokens"].as_u64().expect("a number");
    let stated = get(daemon.address, "/logs").text();
    let begin = format!("of the KV cache's {CONTEXT} positions, the first ");
    let (_, rest) = stated.split_once(&begin).unwrap_or_else(|| panic!("{stated}"));
    let printed: u64 = rest.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    // The stand-in has no NVML that tells guard of the context. So guard takes the 32 MiB that its budget has
    // for small requests, which are a granule of each tensor.
    assert!((tokens..=tokens + 1024).contains(&printed), "{tokens}: {stated}");
}
