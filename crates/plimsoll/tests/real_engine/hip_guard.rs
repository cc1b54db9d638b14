//! Tests of guard with a real ggml-hip on a simulated 16 GB Radeon without virtual memory management (the
//! report in llama.cpp PR 22158).
//!
//! The library of `cyllama-rocm` 0.2.12 is of the week of the report, in which f16 copies of a quantised
//! cache came from the legacy pool. Debian's newer one has them in the graph's buffer.

#![allow(clippy::print_stderr, reason = "the table of bytes is the result of the measurement")]

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::debian;
use super::venv::{CYLLAMA_ROCM, script};
use crate::child::plimsoll;
use crate::http;

/// 27 of its layers leave 16 GiB a few GiB for the pool.
const LAYERS: u32 = 27;
/// Bytes of a position of one layer's K and V as f16: 8 heads of 128.
const POSITION: u64 = 2 * 8 * 128 * 2;
const GIB: u64 = 1 << 30;
/// A server that is not ready after this time hangs.
const HANGS: Duration = Duration::from_secs(120);

struct Bench {
    folder: TempDir,
    model: PathBuf,
    guard: PathBuf,
}

/// What a run left in the stand-in's log.
struct Peaks {
    device: u64,
    host: u64,
    /// Device bytes before the pool's first request.
    buffers: u64,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("stand-in");
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../doubles/fake-hip/build.sh");
        assert!(Command::new(build).arg("6").arg(&library).status().unwrap().success());
        debian::HIP.runtime(folder.path(), &library);
        let model = folder.path().join("model.gguf");
        let changes = plimsoll_specimens::Changes {
            layers: Some(LAYERS),
            context: Some(262_144),
            ..plimsoll_specimens::Changes::default()
        };
        plimsoll_specimens::write("l8", &model, &changes).unwrap();
        Self { folder, model, guard: guard() }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// The prompt with `plimsoll run` and these options, or bare without any.
    fn prompt(&self, card: &str, options: &[&str], tokens: u64) -> Output {
        let _ = fs::remove_file(self.log());
        let python = CYLLAMA_ROCM.python();
        let mut command = if options.is_empty() {
            Command::new(python)
        } else {
            let mut run = plimsoll();
            run.arg("run").args(options).arg("--").arg(python).env("PLIMSOLL_GUARD_LIBRARY", &self.guard);
            run
        };
        command
            .arg(script("legacy_pool.py"))
            .arg(&self.model)
            .arg(tokens.to_string())
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("PLIMSOLL_FAKE_HIP", format!("{card} log={}", self.log().display()))
            .output()
            .unwrap()
    }

    /// Debian's llama-server with the flags of the report.
    fn server(&self, card: &str, guard: Option<&str>, port: u16) -> Child {
        let _ = fs::remove_file(self.log());
        let flags = "-ngl 99 -fit off --no-warmup --cache-ram 0 -c 262144 -ctk q4_0 -ctv q4_0 -b 1024 -ub 128 -np 1 -fa on -t 1";
        let mut command = Command::new(debian::HIP.server());
        command
            .arg("-m")
            .arg(&self.model)
            .args(flags.split(' '))
            .args(["--port", &port.to_string()])
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("PLIMSOLL_FAKE_HIP", format!("{card} arch=gfx1201 log={}", self.log().display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(words) = guard {
            command.env("LD_PRELOAD", &self.guard).env("PLIMSOLL_GUARD", words);
        }
        command.spawn().unwrap()
    }

    fn peaks(&self) -> Peaks {
        let text = fs::read_to_string(self.log()).unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(" device ")).collect();
        let figure = |line: &str, name: &str| {
            let at = line.split(' ').skip_while(|word| *word != name).nth(1).unwrap();
            at.parse::<u64>().unwrap()
        };
        let most = |name: &str| lines.iter().map(|line| figure(line, name)).max().unwrap();
        // Weights, host output, cache, and the buffers of the graph on card and host.
        Peaks { device: most("device"), host: most("host"), buffers: figure(lines[4], "device") }
    }
}

pub(super) fn guard() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--profile", "guard", "--package", "plimsoll-guard"]);
        assert!(build.current_dir(&root).status().unwrap().success());
    }
    target.join("guard/libplimsoll_guard.so")
}

/// The tokens that a program had computed.
fn reached(output: &Output) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().filter_map(|line| line.strip_prefix("at ")).next_back();
    last.map_or(0, |tokens| tokens.parse().unwrap())
}

fn row(name: &str, tokens: u64, peaks: &Peaks) {
    eprintln!("{name:<40} {tokens:>7} tokens, card {:>12} B, host {:>11} B", peaks.device, peaks.host);
}

#[test]
fn long_a_prompt_that_kills_ggml_on_16_gib_without_vmm_ends_under_guard() {
    let bench = Bench::new();
    let bare = bench.prompt("total=16G", &[], 100_000);
    let stated = String::from_utf8_lossy(&bare.stderr);
    assert!(stated.contains("ROCm error: out of memory"), "{stated}");
    let (died, peaks) = (reached(&bare), bench.peaks());
    row("bare, dies", died, &peaks);
    assert!((20_000..80_000).contains(&died), "{died}");
    let used = peaks.device - peaks.buffers;
    assert!(used > 10 * died * POSITION, "the legacy pool keeps each size that it had: {used}");

    // The engine was built without virtual memory management; the runtime may have it or not.
    for (card, hundredths) in [("total=16G vmm=1", 107), ("total=16G vmm=0", 125)] {
        let guarded = bench.prompt(card, &["--pool", "ours"], 100_000);
        assert!(guarded.status.success(), "{}", String::from_utf8_lossy(&guarded.stderr));
        let peaks = bench.peaks();
        row(card, reached(&guarded), &peaks);
        assert_eq!(reached(&guarded), 100_000);
        // Positions in steps of 256.
        let live = 100_000_u64.next_multiple_of(256) * POSITION;
        let pool = peaks.device - peaks.buffers;
        assert!(pool * 100 <= live * hundredths, "{card}: {pool} for {live}");
    }
}

#[test]
fn long_a_cache_that_does_not_fit_is_spilled_by_its_overflow_alone() {
    let bench = Bench::new();
    let bare = bench.prompt("total=10G", &[], 100_000);
    assert!(String::from_utf8_lossy(&bare.stderr).contains("failed to allocate buffer for kv cache"));
    let options = ["--pool", "ours", "--spill", "16GiB", "--keep", "1GiB"];
    let mut host = Vec::new();
    for card in ["total=10G vmm=1 host_vmm=1", "total=10G"] {
        let spilled = bench.prompt(card, &options, 100_000);
        let stated = String::from_utf8_lossy(&spilled.stderr);
        assert!(spilled.status.success(), "{stated}");
        assert!(stated.contains("longer on PCIe 4.0 x16"), "{stated}");
        let peaks = bench.peaks();
        row(card, reached(&spilled), &peaks);
        assert_eq!(reached(&spilled), 100_000);
        host.push(peaks.host);
        assert!(peaks.device <= 10 * GIB);
    }
    // Where host memory can be mapped behind the card's, the part beyond the card and the room that was kept
    // leaves it; else the whole cache, which is the block that does not fit.
    let cache = u64::from(LAYERS) * 262_144 * 2 * (8 * 128 / 32 * 18);
    assert!(host[0] < cache / 2 && host[1] > cache, "{host:?} of {cache}");
}

#[test]
fn long_debians_server_answers_with_a_cache_that_does_not_fit() {
    let bench = Bench::new();
    let tokens: Vec<u64> = (0..60_000).map(|n| 300 + n * 7919 % 20_000).collect();
    let mut bare = bench.server("total=10G", None, 0);
    assert!(!bare.wait().unwrap().success());
    for card in ["total=10G vmm=1 host_vmm=1", "total=10G"] {
        let port = plimsoll_engine::free_port(&[]).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let words = "pool=ours spill=17179869184 keep=1610612736";
        let mut child = bench.server(card, Some(words), port);
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() || http::get(address, "/health").status != 200 {
            assert!(child.try_wait().unwrap().is_none() && begun.elapsed() < HANGS, "{card}");
            sleep(Duration::from_millis(50));
        }
        let answer = http::post(address, "/completion", &json!({"prompt": tokens, "n_predict": 2}));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(answer.status, 200, "{card}: {}", answer.text());
        let peaks = bench.peaks();
        row(&format!("Debian, {card}"), 60_000, &peaks);
        assert!(peaks.device <= 10 * GIB);
    }
}
