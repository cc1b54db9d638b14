//! Tests that other machines reach a server only with API keys or by explicit permission, and never under a
//! foreign host name.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::http;

/// Killed when the test ends, however it does.
struct Exposed(Child);

impl Drop for Exposed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(config: &str, folder: &tempfile::TempDir) -> Command {
    let file = folder.path().join("a.toml");
    std::fs::write(&file, config).expect("the folder can be written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.arg("serve").arg(&file).args([
        "--listen",
        "0.0.0.0:0",
        "--card",
        "name=host,kind=host,total=1GiB",
    ]);
    command
}

#[test]
fn a_key_that_is_empty_protects_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let run = command("[serve]\napi-keys = [\"\"]\n", &folder).output().expect("plimsoll runs");
    let stated = String::from_utf8_lossy(&run.stderr).into_owned();
    assert_eq!(run.status.code(), Some(2), "{stated}");
    assert!(stated.contains("key"), "{stated}");
}

#[test]
fn an_open_server_refuses_foreign_host_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let child = command("", &folder)
        .arg("--open")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("plimsoll starts");
    let mut exposed = Exposed(child);
    let mut line = String::new();
    let out = exposed.0.stdout.take().expect("stdout is a pipe");
    BufReader::new(out).read_line(&mut line).expect("stdout is text");
    let port = line.trim().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let asks = |method: &str, path: &str, host: &str| {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(address).expect("it listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it reads");
        http::read(&stream).status
    };
    for (method, path) in [("GET", "/logs"), ("POST", "/v1/chat/completions"), ("POST", "/unload")] {
        assert_eq!(asks(method, path, "evil.example"), 403, "{path}");
    }
    for host in ["localhost", "192.168.1.7:8080"] {
        assert_eq!(asks("GET", "/v1/models", host), 200, "{host}");
    }
}
