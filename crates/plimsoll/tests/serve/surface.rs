//! Tests of access to the HTTP server: API keys, origins, host names, methods, message framings.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::daemon::{Daemon, Setup, fake_engine};
use crate::http::{Answer, chat, get, post, read};

/// Sends bytes as they are and reads one answer.
fn raw(address: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
    let patience = Some(Duration::from_secs(20));
    stream.set_read_timeout(patience).expect("a timeout can be set");
    // It may answer and close before it has read everything.
    let _ = stream.write_all(bytes);
    read(&stream)
}

fn request(address: SocketAddr, line: &str, headers: &str, body: &str) -> Answer {
    let head = format!(
        "{line} HTTP/1.1\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    raw(address, head.as_bytes())
}

fn one() -> Daemon {
    Setup::new().model("a", "100MiB", "", "").start()
}

const CHAT: &str = r#"{"model":"a","messages":[]}"#;

#[test]
fn every_route_but_health_wants_the_key() {
    let daemon = Setup::new().config("[serve]\napi-keys = ['secret']\n").model("a", "100MiB", "", "").start();
    let host = "Host: localhost\r\n";
    for line in [
        "GET /v1/models",
        "GET /models",
        "POST /models/load",
        "POST /models/unload",
        "GET /models/sse",
        "GET /running",
        "GET /unload",
        "GET /logs",
        "GET /logs/stream",
        "GET /metrics",
        "GET /props",
        "GET /slots?model=a",
        "GET /api/status",
        "GET /api/status/stream",
        "GET /api/version",
        "POST /v1/chat/completions",
        "POST /tokenize",
        "GET /upstream/a/health",
        "POST /api/models/unload/a",
    ] {
        for header in ["", "Authorization: Bearer wrong\r\n", "X-Api-Key: secre\r\n"] {
            let answer = request(daemon.address, line, &format!("{host}{header}"), CHAT);
            assert_eq!(answer.status, 401, "{line}: {}", answer.text());
            assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
            assert!(answer.header("www-authenticate").is_some());
        }
    }
    assert_eq!(get(daemon.address, "/health").status, 200);
    let keyed = format!("{host}Authorization: Bearer secret\r\n");
    let answer = request(daemon.address, "POST /v1/chat/completions", &keyed, CHAT);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(!daemon.talk().contains("secret"), "the key is in the log");
}

#[test]
fn others_reach_it_only_with_keys_or_on_command() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("a.toml");
    std::fs::write(&file, "").expect("the folder can be written");
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .arg("serve")
        .arg(&file)
        .args(["--listen", "0.0.0.0:0"])
        .output()
        .expect("plimsoll runs");
    assert_eq!(run.status.code(), Some(2));
    let stated = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(stated.contains("can be reached from other machines") && stated.contains("--open"), "{stated}");
    let help = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "--help"])
        .output()
        .expect("plimsoll runs");
    assert!(String::from_utf8_lossy(&help.stdout).contains("--open"));
}

#[test]
fn an_engine_takes_only_requests_that_come_through_us() {
    let daemon = Setup::new()
        .config("[serve]\nengine-ports = true\n[models.a]\nmodel = '/dev/null'\nmemory = '1MiB'\n")
        .argument("--engine")
        .argument(&fake_engine().to_string_lossy())
        .start();
    assert_eq!(chat(daemon.address, "a").status, 200);
    let running = get(daemon.address, "/running").json();
    let engine = running["running"][0]["proxy"]
        .as_str()
        .and_then(|proxy| proxy.strip_prefix("http://"))
        .expect("an address")
        .to_owned();
    let engine = engine.parse().expect("an address");
    assert_eq!(request(engine, "POST /v1/chat/completions", "Host: localhost\r\n", CHAT).status, 401);
    let shown = get(daemon.address, "/running").text() + &get(daemon.address, "/v1/models").text();
    assert!(!shown.contains("api-key"), "{shown}");
}

#[test]
fn a_page_cannot_make_its_own_name_point_here() {
    let daemon = one();
    let evil = "Host: evil.example:80\r\nOrigin: http://evil.example:80\r\n";
    let answer = request(daemon.address, "POST /v1/chat/completions", evil, CHAT);
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "foreign_host");
    let answer = request(daemon.address, "GET /logs", "Host: evil.example\r\n", "");
    assert_eq!(answer.status, 403);
    let asks =
        |host: &str| request(daemon.address, "GET /v1/models", &format!("Host: {host}\r\n"), "").status;
    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for host in ["localhost:1", "127.0.0.1", "[::1]:9", own.trim()] {
        assert_eq!(asks(host), 200, "{host}");
    }
    // A hostile network answers for its search domain, so these may be names of a page of its own.
    for host in ["printer", "printer.lan:8080"] {
        assert_eq!(asks(host), 403, "{host}");
    }
}

#[test]
fn a_foreign_page_changes_nothing_and_reads_nothing() {
    let daemon = one();
    let page = "Host: localhost\r\nOrigin: https://evil.example\r\n";
    let answer = request(daemon.address, "POST /v1/chat/completions", page, CHAT);
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "foreign_origin");
    let answer = request(daemon.address, "GET /v1/models", page, "");
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, None));
    let image = "Host: localhost\r\nSec-Fetch-Site: cross-site\r\n";
    let status = |line: &str| request(daemon.address, line, image, "").status;
    for line in [
        "GET /unload",
        "GET /upstream/a/x.png",
        "GET /v1/x?model=a",
        "GET /slots?model=a",
        "GET /props?model=a",
        "GET /v1/models?reload",
        "GET /v1/models",
        "GET /logs",
    ] {
        assert_eq!(status(line), 403, "{line}");
    }
    assert!(daemon.running().is_empty(), "an image loaded a model");
    // A page of another port of this machine is another origin.
    let port = "Host: localhost\r\nOrigin: http://localhost:3000\r\n";
    for (line, body) in [
        ("POST /v1/chat/completions", CHAT),
        ("POST /models/unload", CHAT),
        ("POST /api/reload", ""),
        ("GET /logs", ""),
        ("GET /api/status", ""),
    ] {
        let answer = request(daemon.address, line, port, body);
        assert_eq!(answer.status, 403, "{line}: {}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), None);
        assert!(answer.text().contains("allow-origins"), "{}", answer.text());
    }
    let own = "Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n";
    assert_eq!(request(daemon.address, "POST /v1/chat/completions", own, CHAT).status, 200);
}

#[test]
fn pages_of_the_origins_that_are_named_use_the_server() {
    let daemon = Setup::new()
        .model("a", "100MiB", "", "")
        .argument("--allow-origin")
        .argument("https://app.example")
        .argument("--allow-origin")
        .argument("localhost")
        .start();
    for origin in ["https://app.example", "http://localhost:3000"] {
        let page = format!("Host: localhost\r\nOrigin: {origin}\r\n");
        let answer = request(daemon.address, "POST /v1/chat/completions", &page, CHAT);
        assert_eq!(answer.status, 200, "{origin}: {}", answer.text());
        assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    }
}

#[test]
fn odd_framings_reach_the_engine_as_one_plain_request() {
    let daemon = one();
    let chunked = format!("{:x}\r\n{CHAT}\r\n0\r\n\r\n", CHAT.len());
    let head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
    let smuggled = "GET /unload HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (headers, body) in [
        ("Transfer-Encoding: chunked\r\n".to_owned(), chunked.clone()),
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n".to_owned(), chunked + smuggled),
        (format!("Expect: 100-continue\r\nContent-Length: {}\r\n", CHAT.len()), CHAT.to_owned()),
    ] {
        let bytes = format!("{head}{headers}\r\n{body}");
        let mut stream = TcpStream::connect(daemon.address).expect("the daemon listens");
        stream.write_all(bytes.as_bytes()).expect("the daemon reads");
        let mut answer = read(&stream);
        if answer.status == 100 {
            answer = read(&stream);
        }
        // The interim answer and the real one may come in one read.
        assert!(matches!(answer.status, 0 | 200), "{headers}: {}", answer.text());
    }
    for headers in [
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: -1\r\n",
        "Bad Name: x\r\n",
    ] {
        let answer = raw(daemon.address, format!("{head}{headers}\r\n{CHAT}").as_bytes());
        assert_eq!(answer.status, 400, "{headers}");
    }
    assert_eq!(daemon.running(), ["a"], "nothing was smuggled");
}

#[test]
fn names_of_models_are_text_and_nothing_else() {
    let name = "né/🚢 \\\"x\\\"";
    let engine = fake_engine();
    let daemon = Setup::new()
        .config(&format!(
            "[serve]\nstrict-names = true\n[models.\"{name}\"]\ncmd = \"{} --port ${{PORT}} --alias x\"\nmemory = \"1MiB\"\n",
            engine.display()
        ))
        .start();
    let name = "né/🚢 \"x\"";
    let answer = chat(daemon.address, name);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let encoded = "n%C3%A9/%F0%9F%9A%A2%20%22x%22";
    for path in ["/upstream/{}/health", "/v1/models/{}", "/slots?model={}"] {
        let path = path.replace("{}", encoded);
        assert_eq!(get(daemon.address, &path).status, 200, "{path}");
    }
    assert!(get(daemon.address, "/metrics").text().contains(r#"model="né/🚢 \"x\"""#));
    for foreign in ["a\nb", "../../etc/passwd", "\0", "x\r\nX-Evil: 1", &"y".repeat(500)] {
        let answer = chat(daemon.address, foreign);
        assert!(matches!(answer.status, 400 | 404), "{}", answer.text());
        assert!(answer.header("x-evil").is_none());
        answer.json();
    }
}

#[test]
fn the_path_below_upstream_stays_below_the_engine() {
    let daemon = one();
    assert_eq!(chat(daemon.address, "a").status, 200);
    let through = get(daemon.address, "/upstream/a/health");
    assert_eq!(through.status, 200);
    assert!(through.header("x-fake-engine").is_some());
    for path in ["/upstream/a/../../api/status", "/upstream/a/%2e%2e/api/status", "/upstream/a//api/status"] {
        let answer = get(daemon.address, path);
        assert!(answer.header("x-fake-engine").is_some(), "{path}: {}", answer.text());
        assert_eq!(answer.status, 404, "{path}");
    }
    for path in ["/upstream/a%0d%0aX-Evil:%201/x", "/upstream/", "/upstream/b/x"] {
        let answer = get(daemon.address, path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.header("x-evil").is_none());
    }
}

#[test]
fn depth_and_compression_do_no_harm() {
    let daemon = Setup::new().model("a", "100MiB", "", "").model("b", "100MiB", "", "").start();
    let deep = format!(r#"{{"x":{}{},"model":"a"}}"#, "[".repeat(500_000), "]".repeat(500_000));
    let answer = request(daemon.address, "POST /tokenize", "Host: localhost\r\n", &deep);
    assert_eq!(answer.status, 200);
    let headers = "Host: localhost\r\nContent-Encoding: gzip\r\n";
    let answer = request(daemon.address, "POST /v1/chat/completions", headers, "\x1f\x0b");
    assert_eq!(answer.status, 415, "{}", answer.text());
    assert_eq!(answer.json()["error"]["code"], "body_compressed");
}

#[test]
fn head_and_wrong_methods_are_answered_as_http_has_it() {
    let daemon = one();
    let head = request(daemon.address, "HEAD /v1/models", "Host: localhost\r\n", "");
    assert_eq!(head.status, 200);
    assert!(head.body.is_empty());
    let wrong = get(daemon.address, "/tokenize");
    assert_eq!(wrong.status, 405);
    assert_eq!(wrong.header("allow"), Some("POST"));
    assert_eq!(wrong.json()["error"]["code"], "wrong_method");
    let trace = request(daemon.address, "TRACE /health", "Host: localhost\r\n", "");
    assert_eq!(trace.status, 405);
    let pipelined = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(50);
    let mut stream = TcpStream::connect(daemon.address).expect("the daemon listens");
    let last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all((pipelined + last).as_bytes()).expect("the daemon reads");
    let mut all = String::new();
    std::io::Read::read_to_string(&mut stream, &mut all).expect("it ends");
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 51);
}

#[test]
fn orders_about_models_are_answered_at_every_moment() {
    let daemon =
        Setup::new().model("slow", "600MiB", "load_ms=600", "").model("other", "600MiB", "", "").start();
    let order =
        |what: &str, model: &str| post(daemon.address, &format!("/models/{what}"), &json!({"model": model}));
    assert_eq!(order("unload", "slow").status, 400);
    assert_eq!(order("load", "slow").status, 200);
    assert_eq!(order("load", "slow").status, 400, "it loads already");
    assert_eq!(order("load", "other").status, 200, "it queues");
    assert_eq!(order("unload", "slow").status, 200, "a load is called off");
    crate::daemon::until("the other one comes", || daemon.running() == ["other"]);
    assert_eq!(order("load", "nope").status, 404);
    assert_eq!(chat(daemon.address, "slow").status, 200);
}
