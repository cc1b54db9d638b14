//! Tests of the run-time pool of an engine that computes a prompt on simulated cards, compared with the pool
//! on a real card.
//!
//! The recordings are of llama.cpp b8799 with CUDA for sm_90, which no registry has. Its tests take the
//! engine's folder from `PLIMSOLL_OLDER_ENGINE` and say where the variable is missing. The others use the
//! engine of CI.

#![allow(clippy::print_stderr, reason = "the times are the result of the measurement")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plimsoll_planner::exact::{BufferKind, BufferPlace, Transcript};
use serde_json::{Value, json};

use super::cuda;
use crate::built::built;
use crate::child::plimsoll;
use crate::http;

const OLDER: &str = "PLIMSOLL_OLDER_ENGINE";
const H200: &str = "name=H200,total=143771MiB,free=143139MiB,cc=9.0";
/// Buffers of weights, cache and graph, which are taken before the pool.
const BUFFERS: usize = 3;
/// A thousandth: the bound on the error of a process less its context.
const BOUND: f64 = 0.001;
/// A server that is not ready after this time hangs.
const HANGS: Duration = Duration::from_secs(120);

fn data(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)).unwrap()
}

fn older() -> Option<PathBuf> {
    let folder = env::var_os(OLDER).map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: {OLDER} names no folder of llama.cpp b8799 for sm_90");
    }
    folder
}

/// An engine that ends with its test.
struct Served(Child, SocketAddr);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Served {
    fn start(engine: &Path, folder: &Path, (kv, vmm): (&str, u32)) -> Self {
        let phantom = built("libplimsoll_phantom.so", "plimsoll-phantom");
        for name in ["libcudart.so.13", "libcublas.so.13", "libcuda.so.1"] {
            symlink(&phantom, folder.join(name)).unwrap();
        }
        let port = plimsoll_engine::free_port(&[]).unwrap();
        let flags = format!(
            "-dev CUDA0 -ngl 99 -fit off --no-warmup --cache-ram 0 -c 65536 -fa on -b 2048 -ub 512 -np 1 -ctk {kv} -ctv {kv} --port {port}"
        );
        let child = Command::new(engine.join("llama-server"))
            .arg("-m")
            .arg(cuda::specimen("m8", folder))
            .args(flags.split_whitespace())
            .env("LD_PRELOAD", &phantom)
            .env("LD_LIBRARY_PATH", env::join_paths([folder, engine]).unwrap())
            .env("PLIMSOLL_PHANTOM_CARDS", format!("total=150754820096,free=150092120064,cc=9.0,vmm={vmm}"))
            .env("PLIMSOLL_PHANTOM_REPORT", folder.join("report"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let served = Self(child.unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
        let begun = Instant::now();
        while TcpStream::connect(served.1).is_err() || http::get(served.1, "/health").status != 200 {
            assert!(begun.elapsed() < HANGS, "the engine is not ready");
            sleep(Duration::from_millis(10));
        }
        served
    }
}

/// Requests of a prompt of 61 440 tokens, by kind: the blocks of the legacy pool, and pieces of virtual
/// memory.
fn requests(engine: &Path, kv: &str, vmm: u32) -> (Vec<u64>, Vec<u64>) {
    let folder = tempfile::tempdir().unwrap();
    let served = Served::start(engine, folder.path(), (kv, vmm));
    let tokens: Vec<u64> = (0..61_440).map(|n| 300 + n * 7919 % 20_000).collect();
    let begun = Instant::now();
    let answer = http::post(served.1, "/completion", &json!({"prompt": tokens, "n_predict": 2}));
    eprintln!("{kv} vmm={vmm}: a prompt of 61 440 tokens took {:.2?}", begun.elapsed());
    assert_eq!(answer.status, 200, "{}", answer.text());
    drop(served);
    let report = fs::read_to_string(folder.path().join("report")).unwrap();
    let events: Vec<Value> = report.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["event"] != "guess"), "the engine has code for the card");
    let of = |kind: &str| {
        let taken = events.iter().filter(|event| event["event"] == "take" && event["kind"] == kind);
        taken.map(|event| event["bytes"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    (of("device").split_off(BUFFERS), of("pool"))
}

#[test]
fn long_a_prompt_makes_the_cards_own_requests_in_order() {
    let Some(engine) = older() else {
        return;
    };
    for (kv, count) in [("q8_0", 87), ("f16", 5)] {
        let recorded = data(&format!("traces/old-{kv}-ub512.legacy-driver.txt"));
        let recorded: Vec<u64> = recorded.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(recorded.len(), count);
        assert_eq!(requests(&engine, kv, 0).0, recorded, "{kv}");
    }
    let (blocks, pieces) = requests(&engine, "q8_0", 1);
    assert_eq!((blocks.len(), pieces.len(), pieces.iter().sum::<u64>()), (0, 115, 251_658_240));
}

/// Terms of a plan.
fn terms(output: &Output) -> BTreeMap<String, u64> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(plan["cards"][0]["terms"].clone()).unwrap()
}

#[test]
fn long_grown_prompts_are_planned_within_a_thousandth_of_nvidia_smi() {
    let Some(engine) = older() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let model = cuda::specimen("m8", folder.path());
    let rows: Value = serde_json::from_str(&data("measured/h200-growth-b8799.json")).unwrap();
    let rows = rows["depth"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (pool, kv) = (row["pool"].as_str().unwrap(), row["kv"].as_str().unwrap());
        let flags = format!(
            "-ngl 99 -b 2048 -fa on -np 1 -ctk {kv} -ctv {kv} -ub {} -c {}",
            row["ubatch"], row["context"]
        );
        let output = plimsoll()
            .args(["plan", "--json", "--no-cache", "--card", &format!("{H200},pool={pool}")])
            .arg(format!("--exact={}", engine.join("llama-server").display()))
            .args(["--prompt", &row["tokens"].to_string(), "--", "-m"])
            .arg(&model)
            .args(flags.split_whitespace())
            .env("LD_LIBRARY_PATH", &engine)
            .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"))
            .output();
        let terms = terms(&output.unwrap());
        let mib = |bytes: u64| f64::from(u32::try_from(bytes >> 10).unwrap()) / 1024.0;
        let without_context = mib(terms.values().sum::<u64>() - terms["context"]);
        let measured =
            f64::from(u32::try_from(row["after_prompt"].as_u64().unwrap()).unwrap()) - mib(terms["context"]);
        let off = (without_context - measured) / measured;
        eprintln!("{pool} {kv}: {without_context:.1} MiB for {measured:.1}, {:+.3} %", off * 100.0);
        assert!(off.abs() <= BOUND, "{pool} {kv}: {off}");
    }
}

/// The sizes that an engine without a card asks for with these flags, on a card of this description.
fn exact(engine: &Path, folder: &Path, more: &str, flags: &str) -> Value {
    let mut command = plimsoll();
    command
        .args(["plan", "--json", "--card", &format!("{H200}{more}")])
        .arg(format!("--exact={}", engine.join("llama-server").display()))
        .args(["--", "-m"])
        .arg(cuda::specimen("m8", folder))
        .args(flags.split_whitespace())
        .env("LD_LIBRARY_PATH", engine)
        .env("XDG_CACHE_HOME", folder)
        .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"));
    let output = command.output().unwrap();
    let refused = |_| panic!("{flags}: {}", String::from_utf8_lossy(&output.stderr));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(refused);
    assert!(plan["reasons"].to_string().contains("engine_said"), "{plan}");
    plan
}

/// A term of a plan in MiB.
fn mebibytes(term: &Value) -> f64 {
    term.as_f64().unwrap() / f64::from(1 << 20)
}

/// MiB of the allocation that the driver refused.
fn requested_for(log: &str) -> f64 {
    let size = log.split_once(": allocating ").and_then(|(_, rest)| rest.split_once(" MiB"));
    size.unwrap().0.parse().unwrap()
}

/// Sixteen configurations of b8799 on the H200: four by the engine's own lines, of which two end with the
/// buffer that was refused, and twelve prompts by the bytes that guard counted.
#[test]
fn long_the_older_engine_asks_without_a_card_for_what_it_asked_of_an_h200() {
    const OFF: f64 = 0.05;
    let Some(engine) = older() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut equal = 0;
    for (log, refused, flags) in [
        ("pool_growth", "", "-c 60160 -fa on -ctk q8_0 -ctv q8_0"),
        ("unified_memory_thrash", "", "-c 8192 -fa on"),
        ("compute_buffer_too_large", "compute", "-c 32768 -fa off -ub 2048"),
        ("kv_cache_too_large", "kv", "-c 131072 -fa on"),
    ] {
        let text = data(&format!("logs/{log}.h200.llama.log"));
        let plan = exact(&engine, folder.path(), "", &format!("-np 1 {flags}"));
        let stated = Transcript::read(&text);
        let of_card = (BufferPlace::Card(0), &plan["cards"][0]["terms"]);
        for (place, terms) in [of_card, (BufferPlace::Host, &plan["host"]["terms"])] {
            let kinds = [BufferKind::Weights, BufferKind::Cache, BufferKind::Compute];
            for (term, kind) in ["weights", "kv", "compute"].into_iter().zip(kinds) {
                let stated = match place {
                    BufferPlace::Card(_) if term == refused => requested_for(&text),
                    _ => mebibytes(&stated.sum(place, kind).get().into()),
                };
                let ours = mebibytes(&terms[term]);
                // Behind a buffer that is refused no other has a line.
                let is_stated = stated > 0.0 || refused.is_empty();
                assert!(
                    !is_stated || (ours - stated).abs() <= OFF,
                    "{log} {place:?} {term}: {ours} for {stated}"
                );
            }
        }
        equal += 1;
    }
    let rows: Value = serde_json::from_str(&data("measured/h200-growth-b8799.json")).unwrap();
    for row in rows["budgets"].as_array().unwrap().iter().filter(|row| row["ooms"] == 0) {
        let (pool, kv) = (row["pool"].as_str().unwrap(), row["kv"].as_str().unwrap());
        let card = format!(",pool={pool},budget={}MiB", row["budget_mib"]);
        let flags = format!("-b 2048 -fa on -np 1 -ctk {kv} -ctv {kv} -c {}", row["context"]);
        let plan = exact(&engine, folder.path(), &card, &flags);
        let (ours, counted) = (mebibytes(&plan["cards"][0]["peak"]), mebibytes(&row["counted"]));
        assert!((ours - counted).abs() <= OFF, "{pool} {kv} {}: {ours} for {counted}", row["context"]);
        equal += 1;
    }
    eprintln!("{equal} of 16 configurations are equal within {OFF} MiB");
    assert_eq!(equal, 16);
}

/// Without flash attention, llama.cpp 0.5.0's pool grows with each token.
#[test]
fn the_pool_of_a_plan_is_that_of_the_engines_own_backend_after_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let model = cuda::specimen("m8", folder.path());
    let plan = |prompt: Option<u32>, capability: &str| {
        let mut command = plimsoll();
        command
            .args(["plan", "--json", "--card", &format!("name=A,total=80GiB,cc={capability}")])
            .arg(format!("--exact={}", cuda::engine().program.display()))
            .args(prompt.map(|tokens| format!("--prompt={tokens}")))
            .args(["--", "-m"])
            .arg(&model)
            .args(["-c", "4096", "-np", "1", "-fa", "off"])
            .env("XDG_CACHE_HOME", folder.path())
            .env("PLIMSOLL_PHANTOM_LIBRARY", built("libplimsoll_phantom.so", "plimsoll-phantom"));
        cuda::engine().prepare(&cuda::engine().backend, &mut command);
        command.output().unwrap()
    };
    let pool = |prompt, capability| terms(&plan(prompt, capability))["pool"];
    let (short, long) = (plan(Some(500), "8.9"), plan(Some(4000), "8.9"));
    let grown = terms(&long)["pool"] - terms(&short)["pool"];
    assert!(grown > 64 << 20, "{grown}");
    // The computed pool is of b10605, which pads a product; both are of the whole cache.
    let computed = pool(None, "8.9");
    assert!(terms(&long)["pool"].abs_diff(computed) <= 16 << 20, "{long:?} for {computed}");
    let stated = String::from_utf8_lossy(&long.stdout).into_owned();
    assert!(stated.contains("after a prompt of 4000 tokens"), "{stated}");
    assert_eq!(terms(&plan(Some(4000), "8.9")), terms(&long), "the answer is kept");

    let refused = plan(Some(5000), "8.9");
    let stated = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{stated}");
    assert!(
        stated.contains("exceeds the available context size") && stated.contains("hint: give --prompt"),
        "{stated}"
    );
}
