//! Tests that control characters in text of files and servers are shown on a terminal, and never act on it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use serde_json::json;

use super::{H200, plimsoll, text};

/// A title, a cleared screen, C1, DEL, a line of its own, a turned direction, a line separator, and a colour
/// of ours.
const HOSTILE: &str = "a\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\u{7f}\nplimsoll: ok\u{202e}\u{2028}\u{fdd0}b";

/// Nothing that a terminal obeys, and each line is one of ours.
fn check(stated: &str) {
    let obeyed = |letter: char| {
        letter != '\n' && letter.is_control()
            || matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fdd0}'..='\u{fdef}')
    };
    assert!(!stated.contains(obeyed), "{stated:?}");
    assert!(!stated.lines().any(|line| line.starts_with("plimsoll: ok")), "{stated}");
    assert!(stated.contains("\\u{1b}]0;x\\u{7}"), "it is shown: {stated}");
}

fn both(arguments: &[&str]) -> String {
    let output = plimsoll(arguments);
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn names_in_a_model_file_are_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let file = path.to_str().unwrap();
    let (specimen, _) = plimsoll_specimens::specimens().next().unwrap();
    for key in ["general.name", "general.architecture"] {
        let mut header = plimsoll_specimens::specimen(specimen).unwrap();
        header.entries.retain(|(name, _)| name != key);
        header.put(key, HOSTILE);
        plimsoll_specimens::write_header(&path, &header).unwrap();
        check(&both(&["plan", file, "--card", H200]));
        check(&both(&["plan", "--fit", "ctx", "--card", H200, "--", "-m", file]));
    }
}

/// A server that answers every request with the same body, until the test ends.
fn serve(body: Vec<u8>, kind: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let head =
                format!("HTTP/1.1 {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(&[head.as_bytes(), &body].concat());
        }
    });
    address
}

#[test]
fn answers_of_a_server_are_shown_and_not_obeyed() {
    let model = json!({
        "name": HOSTILE, "id": HOSTILE, "state": "failed", "last_failure": { "text": HOSTILE }, "aliases": ["m"],
    });
    let answer = json!({
        "models": [model], "data": [model], "cards": [{ "name": HOSTILE }], "server": { "version": HOSTILE },
        "refused": [{ "name": HOSTILE, "mistakes": [HOSTILE] }], "reload": [HOSTILE], "yields": [{ "name": HOSTILE }],
        "marks": [{ "kind": "failed", "name": HOSTILE, "text": HOSTILE }],
    });
    let url = serve(answer.to_string().into_bytes(), "200 OK");
    for verb in [&["ps"][..], &["status"], &["reload"], &["load", "m"], &["yield"]] {
        check(&both(&[verb, &["--url", &url]].concat()));
    }
    // A document is for programs.
    let status: serde_json::Value =
        serde_json::from_slice(&plimsoll(&["ps", "--json", "--url", &url]).stdout).unwrap();
    assert_eq!(status, answer);
    let refusal = json!({ "error": { "message": HOSTILE, "hints": [{ "text": HOSTILE }] } });
    let url = serve(refusal.to_string().into_bytes(), "500 Wrong");
    for verb in ["ps", "reload", "logs"] {
        check(&both(&[verb, "--url", &url]));
    }
    check(&both(&["unload", "m", "--url", &url]));
}

#[test]
fn logs_are_bytes_for_a_program_and_text_for_a_terminal() {
    let logged = [HOSTILE.as_bytes(), b"\n\x9b2J\xff\n"].concat();
    let url = serve(logged.clone(), "200 OK");
    assert_eq!(plimsoll(&["logs", "--url", &url]).stdout, logged);
    for more in ["", " -f"] {
        let command = format!("{} logs{more} --url {url}", env!("CARGO_BIN_EXE_plimsoll"));
        let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).output().unwrap();
        let shown = text(&shown.stdout).replace("\r\n", "\n");
        assert!(shown.contains("\\u{1b}]0;x\\u{7}") && shown.contains("\\x9b2J\\xff"), "{shown:?}");
        assert!(!shown.contains(|letter: char| letter != '\n' && letter.is_control()), "{shown:?}");
    }
}

/// What a line of ours could be taken for.
const BROKEN: &str = "a\nplimsoll: ok\nhint: no";

/// A command's words on both streams, with names that hold line feeds; each of their lines is one of ours.
fn unbroken(arguments: &[&str]) {
    let stated = both(arguments);
    let foreign = |line: &&str| line.starts_with("plimsoll: ok") || line.starts_with("hint: no");
    assert_eq!(stated.lines().find(foreign), None, "{arguments:?}: {stated}");
    assert!(stated.contains("a\\nplimsoll: ok\\nhint: no"), "{arguments:?}: {stated}");
}

#[test]
fn names_with_line_feeds_begin_no_line_of_any_verb() {
    let folder = tempfile::tempdir().unwrap();
    let path = |end: &str| folder.path().join(format!("{BROKEN}{end}")).to_str().unwrap().to_owned();
    let log = "CUDA error: out of memory\n";
    let (yaml, toml, gguf, logs) =
        (path(".yaml"), path(".toml"), path(".gguf"), [path(".log"), path(".txt")]);
    std::fs::write(&gguf, "no model").unwrap();
    std::fs::write(&logs[0], log).unwrap();
    std::fs::write(&logs[1], "Killed process 7 (python) total-vm:1kB, anon-rss:1kB\n").unwrap();
    std::fs::write(&yaml, "models:\n  m:\n    cmd: 'llama-server --port ${nope}'\n").unwrap();
    std::fs::write(&toml, "[models.m]\nmodel = 'x.gguf'\n").unwrap();
    let missing = path(".none");
    for arguments in [
        &["plan", &missing, "--card", H200][..],
        &["plan", &gguf, "--card", H200],
        &["plan", "--card", H200, "--", "-m", &missing],
        &["plan", "m.gguf", "--card", BROKEN],
        &["serve", "--check", &missing],
        &["serve", "--check", &yaml],
        &["serve", &missing],
        &["run", "--", &missing],
        &["watch", "-o", &path("/no"), "--", "true"],
        &["import", &missing],
        &["import", &yaml],
        &["import", &toml],
        &["doctor", &missing],
        &["doctor", &logs[0], &logs[1]],
        &["doctor", "--", &missing],
        &["ps", "--url", BROKEN],
        &["fleet", "drain", BROKEN],
        &["engine", BROKEN],
    ] {
        unbroken(arguments);
    }
}

#[test]
fn names_with_line_feeds_in_a_configuration_begin_no_line() {
    let folder = tempfile::tempdir().unwrap();
    let name = json!(BROKEN).to_string();
    for (file, text) in [
        ("a.toml", format!("[models.{name}]\nmodel = {name}\n")),
        ("b.toml", format!("[models.{name}]\nmodel = \"x.gguf\"\n{name} = 1\n")),
        ("c.toml", format!("[models.m]\nmodel = \"x.gguf\"\n[{name}]\nx = 1\n")),
        ("d.yaml", format!("models:\n  {name}:\n    cmd: llama-server --port 1\n    {name}: 1\n")),
    ] {
        let path = folder.path().join(file);
        std::fs::write(&path, text).unwrap();
        unbroken(&["serve", "--check", path.to_str().unwrap()]);
    }
}
