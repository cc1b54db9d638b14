//! Tests of plans for models on a server, with a fake hub.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use fake_hub::{FakeHub, Fault, HostedFile};
use plimsoll_model::gguf::DraftHeader;
use serde_json::Value;

use super::{H200, specimen, text};

const REPO: &str = "user/model-GGUF";
const SMALL: &str = "name=RTX3060,total=12GiB,free=11GiB,cc=8.6";

fn draft(name: &str) -> DraftHeader {
    plimsoll_specimens::specimen(name)
        .unwrap_or_else(|| plimsoll_specimens::shape(name).unwrap().files(1).remove(0))
}

fn server() -> FakeHub {
    let file = |name: &str| HostedFile::of(&draft(name));
    let files = vec![
        (REPO, "m-Q4_K_M.gguf", file("l8")),
        (REPO, "m-Q8_0.gguf", file("q30")),
        (REPO, "m-Q2_K.gguf", file("qwen3-4b")),
        ("user/vision-GGUF", "v-Q4_K_M.gguf", file("l8")),
        ("user/vision-GGUF", "mmproj-F16.gguf", file("gemma3-4b-mmproj")),
        ("user/gated-GGUF", "g-Q4_K_M.gguf", file("l8").with(Fault::Gated)),
    ];
    FakeHub::start(files).unwrap()
}

/// Runs `plimsoll plan` with the hub's address and caches in `home`.
pub(super) fn plan(server: &FakeHub, home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("plimsoll").unwrap();
    for name in
        ["HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "LLAMA_CACHE", "XDG_CACHE_HOME", "HF_TOKEN"]
    {
        command.env_remove(name);
    }
    command.env("HF_ENDPOINT", &server.address).env("HOME", home);
    command.arg("plan").args(arguments).output().unwrap()
}

pub(super) fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn a_repository_is_planned_as_its_file_would_be() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let file = specimen("l8", home.path());
    let direct = plan(&server, home.path(), &["--json", "--card", H200, file.to_str().unwrap()]);
    assert!(server.requests().is_empty());
    let url = format!("{}/{REPO}/resolve/{}/m-Q4_K_M.gguf", server.address, fake_hub::COMMIT);
    for arguments in [
        vec!["-hf", REPO],
        vec!["--hf-repo", "user/model-GGUF:q4_k_m"],
        vec!["-hf", REPO, "-hff", "m-Q4_K_M.gguf"],
        vec![&url],
        vec!["-mu", &url],
        vec!["-m", &url],
        vec!["--", "llama-server", "-hf", REPO],
    ] {
        let arguments = [vec!["--json", "--card", H200], arguments].concat();
        let output = plan(&server, home.path(), &arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        let (found, direct) = (json(&output), json(&direct));
        assert_eq!(found["cards"], direct["cards"], "{arguments:?}");
        let fetched = &found["fetched"][0];
        assert_eq!(fetched["sha256"], "ab".repeat(32), "{arguments:?}");
        assert_eq!(fetched["etag"], "\"0\"");
        assert!(fetched["address"].as_str().unwrap().ends_with("m-Q4_K_M.gguf"));
        assert!(text(&output.stderr).contains("fetched "), "{}", text(&output.stderr));
    }
    assert!(fs::read_dir("/dev/shm").unwrap().flatten().all(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        !name.starts_with("plimsoll-remote-")
            || Path::new("/proc").join(name.split('-').nth(2).unwrap()).exists()
    }));
}

#[test]
fn a_repositorys_projector_is_planned_with_its_model() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let peak = |arguments: &[&str]| {
        let output = plan(&server, home.path(), &[&["--json", "--card", H200], arguments].concat());
        json(&output)["cards"][0]["peak"].as_u64().unwrap()
    };
    let with = peak(&["-hf", "user/vision-GGUF"]);
    let without = peak(&["-hf", "user/vision-GGUF", "--", "--no-mmproj"]);
    assert!(with > without + (500 << 20), "{with} {without}");
    assert_eq!(without, peak(&["-hf", REPO]));
}

#[test]
fn a_search_prints_the_name_that_was_given() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let output =
        plan(&server, home.path(), &["--fit", "ctx", "--card", SMALL, "-hf", REPO, "--", "-ngl", "99"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let line = text(&output.stdout);
    assert!(line.starts_with(&format!("--hf-repo {REPO} ")) && line.contains("--ctx-size"), "{line}");
}

#[test]
fn quantisations_are_listed_with_the_best_that_fits_first() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let arguments = ["-hf", REPO, "--quants", "--card", SMALL, "--", "-c", "8192"];
    let output = plan(&server, home.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let stated = text(&output.stdout);
    println!("{stated}");
    let lines: Vec<&str> = stated.lines().collect();
    let order = ["quantisation", "Q4_K_M", "Q2_K", "Q8_0"];
    assert!(
        lines.len() == 4 && lines.iter().zip(order).all(|(line, name)| line.starts_with(name)),
        "{stated}"
    );
    assert!(lines[1].contains("fits, ") && lines[3].contains("does not fit, "), "{stated}");
    let output = plan(&server, home.path(), &[&["--json"], &arguments[..]].concat());
    let list = json(&output);
    assert_eq!(list["schema"], "plimsoll.quants/1");
    assert_eq!(list["quantisations"][0]["name"], "Q4_K_M");
    let one = plan(&server, home.path(), &["--json", "-hf", REPO, "--card", SMALL, "--", "-c", "8192"]);
    assert_eq!(list["quantisations"][0]["cards"][0]["peak"], json(&one)["cards"][0]["peak"]);
    assert!(text(&one.stderr).contains("--quants compares all 3 quantisations"), "{}", text(&one.stderr));
    let tiny = "name=small,total=1GiB,cc=8.6";
    assert_eq!(plan(&server, home.path(), &["-hf", REPO, "--quants", "--card", tiny]).status.code(), Some(1));
}

#[test]
fn downloaded_models_are_not_fetched_again() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    let snapshot = home.path().join(".cache/huggingface/hub/models--user--model-GGUF/snapshots/abc");
    fs::create_dir_all(&snapshot).unwrap();
    fs::rename(specimen("l8", home.path()), snapshot.join("m-Q4_K_M.gguf")).unwrap();
    for arguments in [&["-hf", REPO][..], &["--", "-hf", REPO, "--offline"]] {
        let output = plan(&server, home.path(), &[&["--json", "--card", H200], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(json(&output)["fetched"].is_null());
    }
    assert!(server.requests().is_empty());
    plan(&server, home.path(), &["--card", H200, "-hf", "user/model-GGUF:Q8_0"]);
    assert!(!server.requests().is_empty());
}

#[test]
fn a_failed_fetch_exits_2_and_names_file_and_remedy() {
    let (server, home) = (server(), tempfile::tempdir().unwrap());
    for (arguments, stated) in [
        (vec!["-hf", "user/gated-GGUF"], "HF_TOKEN"),
        (vec!["-hf", "user/none"], "user/none"),
        (vec!["-hf", "user/model-GGUF:Q9"], "it has Q2_K, Q4_K_M, Q8_0"),
        (vec!["-hf", REPO, "-hff", "x.gguf"], "the repository has no file `x.gguf`"),
        (vec!["-hf", REPO, "--header-limit", "100KiB"], "--header-limit"),
        (vec!["--", "-hf", REPO, "--offline"], "--offline"),
        (vec!["http://127.0.0.1:9/m.gguf"], "127.0.0.1:9/m.gguf"),
        (vec!["--quants", "m.gguf"], "-hf USER/REPO --quants"),
        (vec!["-hf", "user/none", "--quants"], "user/none"),
    ] {
        let output = plan(&server, home.path(), &[vec!["--card", H200], arguments.clone()].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stdout));
        assert!(text(&output.stderr).contains(stated), "{arguments:?}: {}", text(&output.stderr));
    }
}
