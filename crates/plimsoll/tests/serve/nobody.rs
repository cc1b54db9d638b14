//! Security test with another user of the machine: a thousand attempts to read, connect or stop all fail.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::json;

use super::guarded::{one_card, uuid, with_page};
use crate::daemon::{Setup, alive, until};
use crate::http;
use crate::pages::hand_written::{HandWritten, library};

/// The user `nobody`, who shares nothing with the one who runs the tests.
const NOBODY: &str = "65534";
const SECRET: &str = "the-word-that-no-other-user-reads";

/// Tries everything, again and again, and prints each try that succeeded; then the number of tries.
const TRIES: &str = r#"
import os, signal, socket, sys
daemon, key, secret, port, engines, files = int(sys.argv[1]), sys.argv[2], sys.argv[3].encode(), int(sys.argv[4]), [int(x) for x in sys.argv[5].split(",")], sys.argv[6:]
tries = 0
def attempt(what, act):
    global tries
    tries += 1
    try:
        got = act()
    except OSError:
        return
    if got:
        print("SUCCEEDED", what, repr(got)[:300])
def read(path):
    with open(path, "rb") as file:
        return secret in file.read(1 << 20) or path.endswith((".page", ".1", ".log", ".watch", "key"))
def listing(folder):
    return os.listdir(folder)
def ask(address, path, family=socket.AF_INET):
    with socket.socket(family) as client:
        client.settimeout(2)
        client.connect(address)
        client.sendall(("GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % path).encode())
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer.split(b" ")[1:2] == [b"200"] and answer
def sockets():
    with open("/proc/net/unix") as table:
        return {line.split()[-1] for line in table if "/" in line.split()[-1] and "plimsoll" in line}
def listening():
    """Ports of 127.0.0.1 that the user under attack listens on, other than the daemon's own."""
    with open("/proc/net/tcp") as table:
        rows = [line.split() for line in table][1:]
    return {int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and row[7] == str(os.stat("/proc/%d" % daemon).st_uid)} - {port}
def mine(name):
    path = "/tmp/plimsoll-nobody-%d-%s" % (os.getpid(), name)
    with open(path, "w") as file:
        file.write("not a page")
    return path
def replace(path):
    other = mine("new")
    try:
        os.rename(other, path)
    finally:
        if os.path.exists(other): os.remove(other)
    return "replaced"
def link(path, hard):
    own = "/tmp/plimsoll-nobody-%d-link" % os.getpid()
    if os.path.lexists(own): os.remove(own)
    # A link of one's own to it is allowed, and leads nowhere.
    (os.link if hard else os.symlink)(path, own)
    try:
        return listing(own + "/") if os.path.isdir(own) else read(own + "") or open(own, "ab") and "opened"
    finally:
        os.remove(own)
while tries < 1000:
    for process in [daemon, *engines]:
        attempt("stop", lambda: os.kill(process, signal.SIGTERM) or "sent")
        attempt("kill", lambda: os.kill(process, signal.SIGKILL) or "sent")
        for name in ("environ", "mem", "maps", "io", "syscall", "stack"):
            attempt("%s of %d" % (name, process), lambda: read("/proc/%d/%s" % (process, name)))
        for folder in ("fd", "cwd", "root", "map_files"):
            attempt("%s of %d" % (folder, process), lambda: listing("/proc/%d/%s/" % (process, folder)))
        attempt("command line of %d" % process, lambda: read("/proc/%d/cmdline" % process))
    for path in files:
        attempt(path, lambda: listing(path) if os.path.isdir(path) else read(path))
        attempt("write " + path, lambda: open(path + "/x" if os.path.isdir(path) else path, "ab") and "opened")
        attempt("make in " + path, lambda: os.symlink(files[0], path + "/x") or "made")
        attempt("list " + path, lambda: listing(path) or "listed")
        # Everybody may make files in /dev/shm.
        if os.path.dirname(path) != "/dev/shm":
            attempt("make beside " + path, lambda: os.symlink(files[0], path + ".new") or "made")
        attempt("replace " + path, lambda: replace(path))
        attempt("remove " + path, lambda: (os.rmdir if os.path.isdir(path) else os.remove)(path) or "removed")
        attempt("mode of " + path, lambda: os.chmod(path, 0o777) or "changed")
        attempt("link to " + path, lambda: link(path, False))
        attempt("hard link to " + path, lambda: link(path, True))
    for path in ("/logs", "/api/status", "/v1/models", "/running", "/api/models/unload"):
        attempt("ask " + path, lambda: ask(("127.0.0.1", port), path))
    for path in sockets():
        attempt("socket " + path, lambda: ask(path, "/health", socket.AF_UNIX))
print("tries", tries)
"#;

/// The folder of the pages of a daemon's first engine.
fn page_folder(daemon: u32) -> PathBuf {
    let name = format!("plimsoll-guard-{daemon}-");
    let mut folders =
        fs::read_dir("/dev/shm").expect("it exists").map(|entry| entry.expect("it is there").path());
    let is_its =
        |path: &PathBuf| path.file_name().is_some_and(|its| its.to_string_lossy().starts_with(&name));
    let folder = folders.find(is_its).expect("the daemon has one");
    let mut parts = fs::read_dir(folder).expect("it is ours").map(|entry| entry.expect("it is ours").path());
    parts.find(|part| part.is_dir()).expect("the engine is guarded")
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that cannot run says why")]
fn another_user_reads_nothing_connects_to_no_engine_and_stops_none_in_a_thousand_tries() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A folder that everybody may enter: what is in it protects itself.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let key = folder.path().join("key");
    fs::write(&key, format!("{SECRET}\n")).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let (logs, run) = (folder.path().join("logs"), folder.path().join("run"));
    for created in [&logs, &run] {
        fs::create_dir(created).unwrap();
        fs::set_permissions(created, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let serve = format!("[serve]\napi-key-files = [\"{}\"]\n", key.display());
    let page = folder.path().join("page");
    HandWritten::new(uuid()).tree(64 << 20, 1 << 20).write(&page);
    let setup = Setup::with_cards(&[])
        .config(&serve)
        .argument("--log-file")
        .argument(&logs.join("engines.log").to_string_lossy())
        .variable("XDG_RUNTIME_DIR", &run.to_string_lossy());
    let daemon = one_card(with_page(setup, "a", "64MiB", "", &page, ""), library());
    let ask = || {
        let mut body = http::chat_body("a", false);
        body["messages"] = json!([{"role": "user", "content": SECRET}]);
        let header = format!("Authorization: Bearer {SECRET}\r\n");
        let stream = http::open_with(daemon.address, "POST", "/v1/chat/completions", &header, Some(&body));
        http::read(&stream)
    };
    assert_eq!(ask().status, 200);
    let engines = daemon.engines();
    let list = engines.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let recording = logs.join("engines.watch");
    let mut watch = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["watch", "--every", "50ms", "--pid", &daemon.pid().to_string(), "-o"])
        .arg(&recording)
        .env("PLIMSOLL_NVML", "")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("it records", || recording.exists());
    let mut files = vec![key];
    let pages = page_folder(daemon.pid());
    let written: Vec<PathBuf> = fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(written.len() >= 2, "a page and a ledger: {written:?}");
    files.extend([pages.parent().unwrap().to_owned(), pages]);
    files.extend(written);
    for entry in [&logs, &run].into_iter().flat_map(|created| fs::read_dir(created).unwrap()) {
        files.push(entry.unwrap().path());
    }
    let output = Command::new("setpriv")
        // The first python3 of root's PATH may lie in root's home.
        .env("PATH", "/usr/bin:/bin")
        .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "python3", "-c", TRIES])
        .args([&daemon.pid().to_string(), "key", SECRET, &daemon.address.port().to_string(), &list])
        .args(&files)
        .output()
        .unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    let stated = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!stated.contains("SUCCEEDED"), "{stated}");
    let tries = stated.trim().strip_prefix("tries ").and_then(|tries| tries.parse::<u32>().ok());
    assert!(tries.is_some_and(|tries| tries >= 1000), "{stated}");
    assert_eq!(ask().status, 200);
    assert_eq!(daemon.engines(), engines);
    assert!(engines.iter().all(|engine| alive(*engine)));
}
