//! Tests that the server's answers match its description `/openapi.json`, by requests that schemathesis
//! generates from it.

use std::process::Command;
use std::thread;

use crate::daemon::Setup;
use crate::real_engine::venv::SCHEMATHESIS;

const KEYS: &str = "[serve]\napi-keys = ['secret']\n";
const KEY: &[&str] = &["--header", "Authorization: Bearer secret"];

/// Sends so many requests to each path of a server with these settings, beside those at the bounds of each
/// parameter.
fn assert_described(settings: &str, arguments: &[&str], examples: u32) {
    // Two models, so that a request has to name one. Any other name is one of the first, so that requests
    // with invented names reach an engine.
    let daemon = Setup::new()
        .config(settings)
        .model("a", "100MiB", "", "aliases = ['*']")
        .model("b", "100MiB", "", "")
        .start();
    let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/described.toml");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = Command::new(SCHEMATHESIS.python())
        .args(["-m", "schemathesis.cli", "--config-file", config, "--no-color", "run"])
        .args([&format!("http://{}/openapi.json", daemon.address), "--phases=examples,coverage,fuzzing"])
        .arg(format!("--max-examples={examples}"))
        .args(arguments)
        // It keeps notes in the folder that it runs in.
        .current_dir(folder.path())
        .output()
        .expect("schemathesis runs");
    let stated = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{stated}{}", String::from_utf8_lossy(&run.stderr));
    assert!(stated.contains("generated") && stated.contains("passed"), "{stated}");
}

fn assert_described_with_and_without_keys(examples: u32) {
    SCHEMATHESIS.python();
    thread::scope(|scope| {
        scope.spawn(|| assert_described("", &[], examples));
        scope.spawn(|| assert_described(KEYS, KEY, examples));
    });
}

#[test]
fn answers_are_as_described_with_and_without_keys() {
    assert_described_with_and_without_keys(5);
}

#[test]
fn long_answers_to_hundreds_of_requests_are_as_described() {
    assert_described_with_and_without_keys(100);
}
