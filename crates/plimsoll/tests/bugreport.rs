//! Tests of `plimsoll bugreport` as a program: the files that it lists and writes, and that no secret is in
//! the archive.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use assert_cmd::cargo::CommandCargoExt;

/// A server whose answers hold secrets.
fn server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap();
            let body = match String::from_utf8_lossy(&request[..read]).starts_with("GET /logs") {
                true => {
                    "line of an engine\nusing pLanted-by-variable for the hub\nAuthorization: Bearer pLanted-in-log\n"
                }
                false => {
                    "{\"models\":[],\"argv\":[\"--api-key\",\"pLanted-in-status\"],\"file\":\"/home/pLanted/m.gguf\"}"
                }
            };
            write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
        }
    });
    format!("http://{address}")
}

fn bugreport(folder: &Path, url: &str, more: &[&str]) -> Output {
    let mut command = Command::cargo_bin("plimsoll").unwrap();
    command.current_dir(folder).arg("bugreport").args(more).args([
        "--url",
        url,
        "--api-key",
        "pLanted-as-option",
    ]);
    command.env("HOME", folder.join("pLanted-home")).env("HF_TOKEN", "pLanted-by-variable");
    command.output().unwrap()
}

fn prepared() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let configuration = "\
[serve]
api-keys = [
  \"pLanted-key-1\",
  'pLanted-key-2',
]
webhook = \"https://hooks.example.org/pLanted-hook\"
log-file = \"serve.log\"

[models.a]
model = \"a.gguf\"
flags = \"-c 4096 --api-key pLanted-flag\"
env = { MY_PASSWORD = \"pLanted-env\" }

[models.b]
cmd = \"vllm serve m --port ${PORT} --api-key pLanted-cmd\"
proxy = \"http://ann:pLanted-url@127.0.0.1:${PORT}\"
";
    std::fs::write(folder.path().join("plimsoll.toml"), configuration).unwrap();
    let log = "INFO model a loaded\nINFO key pLanted-key-1 was refused\nGET /v1/models?token=pLanted-query\n";
    std::fs::write(folder.path().join("serve.log"), log).unwrap();
    std::fs::write(folder.path().join("more.log"), "password: pLanted words\nlast line\n").unwrap();
    folder
}

const ARGUMENTS: [&str; 3] = ["plimsoll.toml", "--log", "more.log"];

#[test]
fn no_secret_is_in_the_archive_wherever_it_stood() {
    let (folder, url) = (prepared(), server());
    let output =
        bugreport(folder.path(), &url, &[&ARGUMENTS[..], &["--yes", "--output", "r.tar.gz"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let unpacked =
        Command::new("tar").args(["-xzOf", "r.tar.gz"]).current_dir(folder.path()).output().unwrap();
    let text = String::from_utf8(unpacked.stdout).unwrap();
    assert!(!text.contains("pLanted"), "{text}");
    for kept in [
        "INFO model a loaded",
        "line of an engine",
        "last line",
        "-c 4096",
        "a.gguf",
        "vllm serve m",
        "\"plimsoll\"",
    ] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    // An archive is never overwritten.
    let again =
        bugreport(folder.path(), &url, &[&ARGUMENTS[..], &["--yes", "--output", "r.tar.gz"]].concat());
    assert_eq!(again.status.code(), Some(1), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn files_are_shown_before_anything_is_written() {
    let (folder, url) = (prepared(), server());
    let output = bugreport(folder.path(), &url, &ARGUMENTS);
    let text = String::from_utf8(output.stdout).unwrap();
    for name in [
        "versions.json",
        "cards.json",
        "engines.json",
        "status.json",
        "engines.log",
        "configuration.toml",
        "log-1.txt",
        "log-2.txt",
    ] {
        assert!(text.contains(&format!("bytes  {name}\n")), "{text}");
    }
    assert!(text.contains("nothing is written yet"), "{text}");
    assert!(!folder.path().join("plimsoll-bugreport.tar.gz").exists());
    let shown = bugreport(folder.path(), &url, &[&ARGUMENTS[..], &["--show", "configuration.toml"]].concat());
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("[serve]\napi-keys = [redacted]") && !shown.contains("pLanted"), "{shown}");
    let wrong = bugreport(folder.path(), &url, &["--show", "x"]);
    assert_eq!(wrong.status.code(), Some(2));
    // Without a server and with a damaged configuration, the rest is there.
    std::fs::write(folder.path().join("plimsoll.toml"), "[serve\napi-keys = [\"pLanted\"").unwrap();
    let output =
        bugreport(folder.path(), "http://127.0.0.1:1", &["plimsoll.toml", "--show", "configuration.toml"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("[serve") && !text.contains("pLanted"), "{text}");
}
