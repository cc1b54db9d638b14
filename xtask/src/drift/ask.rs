//! Asks an engine for its version, its help, a model's header and a model's memory, for the drift check.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::DriftError;
use super::engines::Engine;
use super::models::RequestedModel;
use crate::guard;

/// More than any model takes, so that size refuses nothing.
const CARD: &str = "name=H200,total=4096GiB,cc=9.0";
/// Attention with and without its kernel, and with a quantised cache.
const FLAGS: [&str; 3] = ["-c 16384 -fa on", "-c 16384 -fa on -ctk q8_0 -ctv q8_0", "-c 8192 -fa off"];
/// An engine that says nothing for as long hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// A log beyond is cut: what matters comes before.
const LONGEST_LOG: usize = 8 << 20;
const BUILD: &str = "cargo build --package plimsoll --package plimsoll-phantom must succeed";
const ENGINE: &str = "run the engine's --version by hand; a file of it may be missing";

/// Largest difference of a plan: closed form less engine.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    pub(super) model: String,
    pub(super) flags: &'static str,
    pub(super) term: &'static str,
    pub(super) mib: f64,
    /// The engine's word for the cards that it used.
    pub(super) interface: String,
}

pub(super) struct Asker {
    plimsoll: PathBuf,
    phantom: PathBuf,
    /// The folder in which the stand-in has the names of the drivers' libraries.
    stand_ins: PathBuf,
    models: PathBuf,
    cache: PathBuf,
    /// Models that engines were asked to load.
    requested: AtomicU64,
}

impl Asker {
    pub(super) fn new(root: &Path, place: &Path, built: Option<&Path>) -> Result<Self, DriftError> {
        let built = match built {
            Some(folder) => folder.to_owned(),
            None => build(root)?,
        };
        let file = |path: PathBuf| path.canonicalize().map_err(|error| DriftError::File { path, error });
        let asker = Self {
            plimsoll: file(built.join("plimsoll"))?,
            phantom: file(built.join("libplimsoll_phantom.so"))?,
            stand_ins: place.join("stand-ins"),
            models: place.join("models"),
            cache: place.join("cache"),
            requested: AtomicU64::new(0),
        };
        for folder in [&asker.models, &asker.cache, &asker.stand_ins] {
            fs::create_dir_all(folder).map_err(|error| DriftError::File { path: folder.clone(), error })?;
        }
        for name in plimsoll_wire::env::STAND_INS {
            let path = asker.stand_ins.join(name);
            let _ = fs::remove_file(&path);
            symlink(&asker.phantom, &path).map_err(|error| DriftError::File { path, error })?;
        }
        Ok(asker)
    }

    pub(super) fn models(&self) -> &Path {
        &self.models
    }

    pub(super) fn version(&self, engine: &Engine) -> Result<String, DriftError> {
        let stated = self.heard(engine, &["--version"])?;
        let line = stated.lines().find_map(|line| line.trim().strip_prefix("version: "));
        let program = engine.program.display().to_string();
        line.map(str::to_owned).ok_or_else(|| DriftError::Run {
            program,
            stated: tail(&stated),
            hint: ENGINE,
        })
    }

    pub(super) fn help(&self, engine: &Engine) -> Result<String, DriftError> {
        self.heard(engine, &["--help"])
    }

    /// What an engine prints of a file, up to the first context.
    pub(super) fn load(&self, engine: &Engine, path: &Path) -> Result<String, DriftError> {
        // Several engines run at a time.
        let number = self.requested.fetch_add(1, Ordering::Relaxed);
        let (path, socket) = (path.to_string_lossy(), self.cache.join(format!("{number}.sock")));
        let words =
            ["-m", &path, "-c", "512", "-ngl", "0", "-dev", "none", "--no-warmup", "--no-repack", "-lv", "5"];
        let heard = self.heard(engine, &[&words[..], &["--host", &socket.to_string_lossy()]].concat());
        let _ = fs::remove_file(&socket);
        heard
    }

    fn heard(&self, engine: &Engine, words: &[&str]) -> Result<String, DriftError> {
        let program = || engine.program.display().to_string();
        let start = |error| DriftError::Start { program: program(), error, hint: ENGINE };
        let mut searched = self.stand_ins.clone().into_os_string();
        let mut command = Command::new(&engine.program);
        for (name, value) in &engine.environment {
            match *name {
                "LD_LIBRARY_PATH" => {
                    searched.push(":");
                    searched.push(value);
                }
                _ => drop(command.env(name, value)),
            }
        }
        let (log, stated) = std::io::pipe().map_err(start)?;
        command.args(words).env("LD_PRELOAD", &self.phantom).env("LD_LIBRARY_PATH", searched);
        command.stdin(Stdio::null()).stdout(stated.try_clone().map_err(start)?).stderr(stated);
        let child = Arc::new(Mutex::new(command.spawn().map_err(start)?));
        // The command holds the write end of the pipe.
        drop(command);
        let kill = |child: &Mutex<std::process::Child>| {
            let mut child = child.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = child.kill();
            let _ = child.wait();
        };
        let (done, waits) = std::sync::mpsc::channel::<()>();
        let watched = Arc::clone(&child);
        let watcher = thread::spawn(move || {
            if waits.recv_timeout(LIMIT).is_err() {
                kill(&watched);
            }
        });
        let mut heard = String::new();
        for line in BufReader::new(log).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            heard.push_str(&line);
            heard.push('\n');
            if heard.len() > LONGEST_LOG || line.contains("constructing llama_context") {
                break;
            }
        }
        let _ = done.send(());
        let _ = watcher.join();
        kill(&child);
        Ok(heard)
    }

    /// The largest difference for each set of flags, or the reason why there is none.
    pub(super) fn differences(
        &self,
        engine: &Engine,
        model: &RequestedModel,
    ) -> Vec<Result<Difference, String>> {
        // A header that was grown is asked about without the cache types.
        let flags = FLAGS.iter().filter(|flags| !model.is_grown || !flags.contains("-ctk"));
        flags.map(|flags| self.difference(engine, model, flags)).collect()
    }

    fn difference(
        &self,
        engine: &Engine,
        model: &RequestedModel,
        flags: &'static str,
    ) -> Result<Difference, String> {
        let exact = self.plan(engine, model, flags, &format!("--exact={}", engine.program.display()))?;
        let build = exact["engine"]["build"].as_u64().map(|build| format!("@{build}")).unwrap_or_default();
        let forms = self.plan(engine, model, flags, &format!("--engine=llama.cpp{build}"))?;
        let stated = exact["reasons"].to_string();
        let Some((_, interface)) = stated.split_once(" backend for ") else {
            return Err(format!("the engine was not asked: {}", exact["warnings"][0]["text"]));
        };
        let interface = interface.split([' ', ',', ')']).next().unwrap_or_default().to_owned();
        let mib = |plan: &Value, pointer: &str| {
            plan.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0) / f64::from(1 << 20)
        };
        let off = TERMS.iter().map(|(term, pointer)| (*term, mib(&forms, pointer) - mib(&exact, pointer)));
        let (term, mib) = off.max_by(|a, b| a.1.abs().total_cmp(&b.1.abs())).unwrap_or_default();
        Ok(Difference { model: model.name.clone(), flags, term, mib, interface })
    }

    fn plan(&self, engine: &Engine, model: &RequestedModel, flags: &str, how: &str) -> Result<Value, String> {
        let mut command = Command::new(&self.plimsoll);
        command.args(["plan", "--json", "--card", CARD, how, "--", "-m"]).arg(&model.path);
        command.args(flags.split_whitespace()).args(["-fit", "off"]);
        command.env("PLIMSOLL_PHANTOM_LIBRARY", &self.phantom).env("XDG_CACHE_HOME", &self.cache);
        command.envs(engine.environment.iter().map(|(name, value)| (name, value)));
        let output = command.output().map_err(|error| error.to_string())?;
        serde_json::from_slice(&output.stdout).map_err(|_| {
            let stated = String::from_utf8_lossy(&output.stderr);
            let first = stated.lines().find_map(|line| line.strip_prefix("plimsoll: "));
            first.unwrap_or("plimsoll said nothing").chars().take(160).collect()
        })
    }
}

const TERMS: [(&str, &str); 6] = [
    ("weights", "/cards/0/terms/weights"),
    ("kv", "/cards/0/terms/kv"),
    ("compute", "/cards/0/terms/compute"),
    ("host weights", "/host/terms/weights"),
    ("host kv", "/host/terms/kv"),
    ("host compute", "/host/terms/compute"),
];

fn build(root: &Path) -> Result<PathBuf, DriftError> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "plimsoll", "--package", "plimsoll-phantom"])
        .current_dir(root)
        .status();
    let program = || "cargo build".to_owned();
    match built {
        Ok(status) if status.success() => Ok(guard::target(root).join("debug")),
        Ok(status) => Err(DriftError::Run { program: program(), stated: status.to_string(), hint: BUILD }),
        Err(error) => Err(DriftError::Start { program: program(), error, hint: BUILD }),
    }
}

fn tail(stated: &str) -> String {
    let last: Vec<&str> = stated.lines().rev().take(2).collect();
    if last.is_empty() { "nothing was printed".to_owned() } else { last.join("; ") }
}
