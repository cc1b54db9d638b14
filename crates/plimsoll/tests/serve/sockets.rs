//! Tests of engines on Unix sockets, each in a folder of its own.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;

use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{chat, get, post};

/// A preset with one model `m` that `engine` serves, and these further lines.
fn preset(engine: &str, lines: &str) -> Setup {
    Setup::new().named("models.ini").config(&format!(
        ";plimsoll: engine = {engine}\n{lines}[m]\nhf-repo = user/m\n;plimsoll: memory = 1MiB\n"
    ))
}

fn socketed() -> Setup {
    preset(&fake_engine().to_string_lossy(), "")
}

/// The address of the engine, as `/running` lists it.
fn proxy(daemon: &Daemon) -> String {
    let answer = chat(daemon.address, "m");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let running = get(daemon.address, "/running").json();
    let entry = &running["running"][0];
    assert_eq!(entry["pid"].as_u64(), daemon.engines().first().map(|pid| u64::from(*pid)));
    entry["proxy"].as_str().expect("it has an address").to_owned()
}

fn socket_of(daemon: &Daemon) -> PathBuf {
    let proxy = proxy(daemon);
    PathBuf::from(proxy.strip_prefix("unix:").unwrap_or_else(|| panic!("{proxy}")))
}

/// Inodes of the TCP sockets that listen anywhere, among the descriptors of a process.
fn listens_on_a_port(pid: u32) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the table can be read")
        + &std::fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    let listening: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process is ours").flatten();
    let mut links = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| listening.iter().any(|socket| link.as_os_str() == socket.as_str()))
}

#[test]
fn an_engine_that_can_listens_on_a_socket_that_only_its_user_reaches() {
    let daemon = socketed().start();
    let socket = socket_of(&daemon);
    let about = std::fs::metadata(&socket).expect("the socket is there");
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let folder = socket.parent().expect("it has a folder");
    let owner = std::fs::metadata(folder).expect("it is there");
    assert_eq!(owner.permissions().mode() & 0o777, 0o700);
    assert_eq!(owner.uid(), rustix::process::getuid().as_raw());
    let engines = daemon.engines();
    assert!(!engines.iter().any(|pid| listens_on_a_port(*pid)), "no port is open");
    assert!(UnixStream::connect(&socket).is_ok());
    // All ways to the engine: chat above, a stream of its own path, and its health.
    assert_eq!(get(daemon.address, "/upstream/m/health").status, 200);
    post(daemon.address, "/unload", &serde_json::Value::Null);
    until("the folder is gone with its engine", || !folder.exists());
}

#[test]
fn another_user_reaches_no_engine() {
    if !rustix::process::getuid().is_root() {
        // Only root can start a process of another user; the modes above are what holds.
        return;
    }
    let daemon = socketed().start();
    let socket = socket_of(&daemon);
    let script = "import socket, sys, os\n\
                  s = socket.socket(socket.AF_UNIX)\n\
                  for act in (lambda: s.connect(sys.argv[1]), lambda: os.unlink(sys.argv[1]), lambda: os.listdir(os.path.dirname(sys.argv[1])), lambda: os.kill(int(sys.argv[2]), 9)):\n\
                  \x20 try: act()\n\
                  \x20 except PermissionError: continue\n\
                  \x20 sys.exit(1)\n";
    let engine = daemon.engines()[0].to_string();
    let thief = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "/usr/bin/python3", "-c", script])
        .arg(&socket)
        .arg(engine)
        .status()
        .expect("setpriv runs");
    assert!(thief.success(), "every act is refused");
    assert_eq!(chat(daemon.address, "m").status, 200);
}

#[test]
fn a_port_is_taken_where_the_configuration_says_so_or_the_engine_knows_no_sockets() {
    let stated = preset(&fake_engine().to_string_lossy(), ";plimsoll: engine-ports = on\n").start();
    assert!(proxy(&stated).starts_with("http://127.0.0.1:"));
    // A shell script may start a container, which does not see the folder.
    let folder = tempfile::tempdir().expect("a temporary folder");
    let script = folder.path().join("llama-server");
    std::fs::write(&script, format!("#!/bin/sh\nexec '{}' \"$@\"\n", fake_engine().display()))
        .expect("it is ours");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let script = preset(&script.to_string_lossy(), "").start();
    assert!(proxy(&script).starts_with("http://127.0.0.1:"));
    // Python, whose help says nothing of sockets.
    let deaf = folder.path().join("deaf");
    let text = format!(
        "#!/usr/bin/env python3\nimport os, sys\nif '--help' in sys.argv: sys.exit('--host HOST  address')\nos.execv('{0}', ['{0}'] + sys.argv[1:])\n",
        fake_engine().display()
    );
    std::fs::write(&deaf, text).expect("it is ours");
    std::fs::set_permissions(&deaf, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let deaf = preset(&deaf.to_string_lossy(), "").start();
    assert!(proxy(&deaf).starts_with("http://127.0.0.1:"));
}

#[test]
fn an_engine_that_makes_no_socket_although_it_says_so_is_started_again_on_a_port() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let liar = folder.path().join("liar");
    // Listens on another file, as an engine in a container would for everybody outside.
    let text = format!(
        "#!/usr/bin/env python3\nimport os, sys\nw = [a + 'et.sock' if a.endswith('.sock') else a for a in sys.argv[1:]]\nos.execv('{0}', ['{0}'] + w)\n",
        fake_engine().display()
    );
    std::fs::write(&liar, text).expect("it is ours");
    std::fs::set_permissions(&liar, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let daemon = preset(&liar.to_string_lossy(), "").start();
    assert!(proxy(&daemon).starts_with("http://127.0.0.1:"));
    post(daemon.address, "/unload", &serde_json::Value::Null);
    until("it is unloaded", || daemon.engines().is_empty());
    let loads = |daemon: &Daemon| {
        get(daemon.address, "/logs").text().matches("did not create the Unix socket").count()
    };
    let before = loads(&daemon);
    assert!(proxy(&daemon).starts_with("http://127.0.0.1:"), "remembered for the program");
    assert_eq!(loads(&daemon), before);
}

#[test]
fn a_long_tmpdir_leaves_room_for_the_name_of_a_socket() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let long = folder.path().join("x".repeat(100));
    std::fs::create_dir(&long).expect("it is ours");
    let daemon = socketed().variable("TMPDIR", &long.to_string_lossy()).start();
    assert!(socket_of(&daemon).starts_with("/tmp"));
}

#[test]
fn socket_folder_of_a_killed_daemon_is_removed_by_the_next() {
    let daemon = socketed().start();
    let socket = socket_of(&daemon);
    let whole = socket.ancestors().nth(2).expect("one folder for all").to_owned();
    let engine = daemon.engines()[0];
    drop(daemon);
    until("the engine is gone", || !crate::daemon::alive(engine));
    assert!(whole.exists());
    let next = socketed().start();
    proxy(&next);
    assert!(!whole.exists());
}

#[test]
fn an_engine_inherits_what_engines_read_and_no_secret_of_the_daemons_shell() {
    let daemon = socketed()
        .variable("AWS_SECRET_ACCESS_KEY", "s3cret")
        .variable("MY_TOKEN", "passed")
        .variable("HF_HOME", "/models")
        .config("")
        .start();
    chat(daemon.address, "m");
    let environ = |daemon: &Daemon| {
        let pid = daemon.engines()[0];
        String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/environ")).expect("it runs")).into_owned()
    };
    let seen = environ(&daemon);
    assert!(seen.contains("HF_HOME=/models"), "{seen}");
    assert!(!seen.contains("s3cret") && !seen.contains("MY_TOKEN"), "{seen}");
    daemon.reported("engines do not inherit");
    drop(daemon);
    let daemon = preset(&fake_engine().to_string_lossy(), ";plimsoll: pass-env = MY_*\n")
        .variable("MY_TOKEN", "passed")
        .start();
    chat(daemon.address, "m");
    assert!(environ(&daemon).contains("MY_TOKEN=passed"));
}

/// A place that another user may enter: the build folder may be closed to it.
pub(crate) fn engine_for_everybody() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir_in("/var").expect("root may write there");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let engine = folder.path().join("fake-engine");
    std::fs::copy(fake_engine(), &engine).expect("there is room");
    (folder, engine)
}

#[test]
fn engines_run_as_the_user_that_the_configuration_names() {
    if !rustix::process::getuid().is_root() {
        let refused = preset("true", ";plimsoll: engine-user = nobody\n").refused();
        assert!(refused.contains("only root can start engines as another user"), "{refused}");
        return;
    }
    let (_folder, engine) = engine_for_everybody();
    let daemon = preset(&engine.to_string_lossy(), ";plimsoll: engine-user = nobody\n").start();
    let socket = socket_of(&daemon);
    let owner = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").uid();
    assert_eq!((owner(&socket), owner(socket.parent().unwrap())), (65534, 65534));
    let pid = daemon.engines()[0];
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    assert!(status.contains("Uid:\t65534\t65534\t65534"), "{status}");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let unknown = preset("true", ";plimsoll: engine-user = no-such-user\n").refused();
    assert!(unknown.contains("there is no such user"), "{unknown}");
}

#[test]
fn an_engine_of_llama_swaps_file_listens_on_the_loopback_whatever_its_command_says() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // The double of an engine goes by the name of the real one.
    let engine = folder.path().join("llama-server");
    std::os::unix::fs::symlink(fake_engine(), &engine).expect("the folder can be written");
    let daemon = Setup::new()
        .named("config.yaml")
        .config(&format!(
            "models:\n  alpha:\n    cmd: {0} --port ${{PORT}} --host 0.0.0.0 --alias alpha\n  beta:\n    cmd: {0} --port \
             ${{PORT}} --alias beta\n    env: [LLAMA_ARG_HOST=0.0.0.0]\n  gamma:\n    cmd: {1} --port ${{PORT}} --host 0.0.0.0\n",
            engine.display(),
            fake_engine().display()
        ))
        .start();
    let arguments =
        |name: &str| get(daemon.address, &format!("/v1/models/{name}")).json()["status"]["args"].to_string();
    assert_eq!(chat(daemon.address, "alpha").status, 200);
    assert!(arguments("alpha").contains(r#""--host","127.0.0.1""#), "{}", arguments("alpha"));
    daemon.reported("config.yaml:2: `--host 0.0.0.0` of `alpha` is replaced by 127.0.0.1");
    assert_eq!(chat(daemon.address, "beta").status, 200);
    daemon.reported("config.yaml:4: `LLAMA_ARG_HOST=0.0.0.0` of `beta` is replaced by 127.0.0.1");
    daemon.reported("config.yaml:7: the engine of `gamma` listens on all interfaces (`--host 0.0.0.0`), so that other machines reach it");
}
