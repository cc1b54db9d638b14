//! Test of Open WebUI in Chromium: the list of models, a chat that streams, and a change of the model.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::fleet::{Fleet, Member, three};
use super::venv::{self, OPEN_WEBUI, script};
use crate::http;

const PUPPETEER: &str = "puppeteer-core@24.43.1";

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The library that drives Chromium, below the target folder.
fn puppeteer() -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("puppeteer");
    let library = place.join("node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js");
    if !library.exists() {
        fs::create_dir_all(&place).unwrap();
        let install =
            Command::new("npm").args(["install", "--no-save", PUPPETEER]).current_dir(&place).output();
        let install = install.unwrap();
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
    }
    library
}

/// Waits until the program listens, which it does once it is ready.
fn answers(port: SocketAddr, log: &Path) {
    let begun = Instant::now();
    while TcpStream::connect(port).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(240), "{}", fs::read_to_string(log).unwrap());
        thread::sleep(Duration::from_millis(200));
    }
}

/// A gigabyte to install, so it is no part of CI.
#[test]
fn long_open_webui_lists_the_models_streams_a_chat_and_changes_the_model() {
    // Random weights end an answer early at a temperature. A long answer takes long enough to be seen in
    // parts.
    let [alpha, beta, _] = three().map(|member| {
        let flags = member.flags.replace("-c 2048", "-c 8192") + " -n 3000 --temp 0";
        Member { flags, ..member }
    });
    let fleet = Fleet::start(&[alpha, beta], "", |needs| {
        needs.iter().max().unwrap() + needs.iter().min().unwrap() / 2
    });
    let base = format!("http://{}", fleet.daemon.address);

    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = folder.path().join("log");
    let mut serve = Command::new(OPEN_WEBUI.python());
    serve.arg(script("open_webui.py")).args(["serve", &base, &port.port().to_string()]).arg(folder.path());
    serve.stdout(File::create(&log).unwrap()).stderr(File::options().append(true).open(&log).unwrap());
    let server = Server(serve.spawn().unwrap());
    answers(port, &log);

    let mut browser = Command::new("node");
    browser
        .arg(script("open_webui.mjs"))
        .arg(puppeteer())
        .arg(format!("http://{port}/"))
        .args(["alpha", "beta"]);
    let seen = venv::output(&mut browser);
    drop(server);
    assert_eq!(seen["listed"], json!(["alpha", "beta"]));
    for model in ["alpha", "beta"] {
        let parts = seen[model]["parts"].as_u64().unwrap();
        assert!(parts > 2, "the answer of {model} arrived in {parts} parts: {seen}");
    }
    // The budget holds one of them.
    let page = http::get(fleet.daemon.address, "/metrics").text();
    for model in ["alpha", "beta"] {
        assert!(page.contains(&format!("plimsoll_loads_total{{model=\"{model}\"}} 1")), "{page}");
    }
}
