//! Starts `plimsoll serve` for a test, with its own configuration and address, and checks that it leaves
//! nothing behind.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::built::built;
use crate::http;

/// A daemon that runs; dropping it kills it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) config: PathBuf,
    _folder: TempDir,
    talk: Arc<Mutex<String>>,
}

/// How to start one.
pub(crate) struct Setup {
    config: String,
    file_name: &'static str,
    shell: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

impl Setup {
    /// A daemon with one card of 1 GiB of the test's own.
    pub(crate) fn new() -> Self {
        Self::with_cards(&["name=host,kind=host,total=1GiB"])
    }

    pub(crate) fn with_cards(cards: &[&str]) -> Self {
        let arguments = cards.iter().flat_map(|card| ["--card".to_owned(), (*card).to_owned()]).collect();
        Self {
            config: String::new(),
            file_name: "plimsoll.toml",
            shell: String::new(),
            arguments,
            environment: BTreeMap::new(),
        }
    }

    /// Adds a model of `memory` that a fake engine with this script serves; `more` are further lines of TOML.
    pub(crate) fn model(mut self, name: &str, memory: &str, script: &str, more: &str) -> Self {
        let engine = fake_engine();
        let cmd = format!("{} --port ${{PORT}} --alias {name}", engine.display());
        self.config += &format!(
            "[models.{name}]\ncmd = \"{cmd}\"\nmemory = \"{memory}\"\nenv = {{ PLIMSOLL_FAKE_ENGINE = \"{script}\" }}\n{more}\n"
        );
        self
    }

    pub(crate) fn config(mut self, text: &str) -> Self {
        self.config += text;
        self
    }

    /// The name of the configuration's file, which tells its format.
    pub(crate) fn named(mut self, file_name: &'static str) -> Self {
        self.file_name = file_name;
        self
    }

    /// What a shell does before it becomes the daemon.
    pub(crate) fn after(mut self, shell: &str) -> Self {
        self.shell = shell.to_owned();
        self
    }

    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn start(self) -> Daemon {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join(self.file_name);
        std::fs::write(&config, &self.config).expect("the folder can be written");
        let mut child = Command::new("bash")
            .args(["-c", &format!("{}\nexec \"$0\" \"$@\"", self.shell)])
            .arg(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("serve")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .env("XDG_STATE_HOME", folder.path())
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plimsoll starts");
        let talk = listen(child.stderr.take().expect("stderr is a pipe"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("stdout is a pipe"))
            .read_line(&mut line)
            .expect("stdout is text");
        let address = line.trim().strip_prefix("http://").and_then(|address| address.parse().ok());
        let stated = || talk.lock().expect("nobody panics with it").clone();
        let address = address.unwrap_or_else(|| panic!("no address on stdout: {line:?}\n{}", stated()));
        Daemon { child, address, config, _folder: folder, talk }
    }
}

impl Setup {
    /// Starts it, and returns what it says when it refuses to serve.
    pub(crate) fn refused(self) -> String {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let config = folder.path().join(self.file_name);
        std::fs::write(&config, &self.config).expect("the folder can be written");
        let output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .arg("serve")
            .arg(&config)
            .args(["--listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .envs(&self.environment)
            .output()
            .expect("plimsoll starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.config.clone()
    }

    /// What it has said on stderr.
    pub(crate) fn talk(&self) -> String {
        self.talk.lock().expect("nobody panics with it").clone()
    }

    /// Waits until it has said `words`: what it writes to stderr is read by a thread of ours, a moment later.
    pub(crate) fn reported(&self, words: &str) {
        until(&format!("{words:?} on stderr"), || self.talk().contains(words));
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill").args([&format!("-{name}"), &pid]).status().expect("kill runs").success()
        );
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < end, "the daemon does not end:\n{}", self.talk());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The models that are ready, as `/running` lists them.
    pub(crate) fn running(&self) -> Vec<String> {
        let answer = http::get(self.address, "/running").json();
        let entries = answer["running"].as_array().expect("a list").iter();
        let mut models: Vec<String> = entries
            .filter(|entry| entry["state"] == "ready")
            .filter_map(|entry| entry["model"].as_str().map(str::to_owned))
            .collect();
        models.sort();
        models
    }

    pub(crate) fn status(&self) -> Value {
        http::get(self.address, "/api/status").json()
    }

    /// Bytes that runs have claimed, over all cards but the host beside them.
    pub(crate) fn claimed(&self) -> u64 {
        let status = self.status();
        let cards = status["cards"].as_array().expect("cards");
        let own = cards.iter().filter(|card| cards.len() == 1 || card["id"] != "host");
        own.filter_map(|card| card["claimed"].as_u64()).sum()
    }

    /// Live descendants: engines, but not the warden.
    pub(crate) fn engines(&self) -> Vec<u32> {
        engines_of(self.pid())
    }

    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).map(Iterator::count).unwrap_or(0)
    }
}

#[allow(clippy::print_stderr, reason = "a failed test shows what the daemon said")]
impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("── plimsoll said ──\n{}", self.talk());
            return;
        }
        let talk = self.talk();
        let bug = talk.lines().find(|line| line.contains("a bug in plimsoll"));
        assert_eq!(bug, None);
    }
}

/// Waits until `done`, and panics with `what` if it never is.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !done() {
        assert!(Instant::now() < end, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

pub(crate) fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default().replace('\0', " ")
}

/// The trampoline that is about to become one is none yet.
fn is_engine(command: &str) -> bool {
    !command.contains("exec-child")
        && ["fake-engine", "llama-server"].iter().any(|name| command.contains(name))
}

/// Engines of the daemon with this process id.
pub(crate) fn engines_of(daemon: u32) -> Vec<u32> {
    let serves = |pid: &u32| is_engine(&command_line(*pid)) && !is_requested(*pid);
    descendants(daemon).into_iter().filter(serves).collect()
}

/// An engine that is asked for its memory runs over the stand-in for a card.
fn is_requested(pid: u32) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.windows(19).any(|window| window == b"libplimsoll_phantom")
}

pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut parents = BTreeMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parents.insert(pid, parent.unwrap_or(0));
    }
    let is_below = |pid: &u32| {
        let mut at = *pid;
        while let Some(parent) = parents.get(&at) {
            if *parent == root {
                return true;
            }
            at = *parent;
        }
        false
    };
    parents.keys().copied().filter(is_below).collect()
}

/// The engine that a test's models run.
pub(crate) fn fake_engine() -> PathBuf {
    built("fake-engine", "fake-engine")
}

fn listen(stderr: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let talk = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&talk);
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            *heard.lock().expect("nobody panics with it") += &(line + "\n");
        }
    });
    talk
}
