//! Tests of the server under systemd: its state notifications, and the units that it prints.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use crate::daemon::Setup;
use crate::http::get;

/// The next message but for signs of life.
fn next(socket: &UnixDatagram) -> String {
    loop {
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).expect("a message within the time");
        let reported = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if reported != "WATCHDOG=1" {
            return reported;
        }
    }
}

#[test]
fn systemd_hears_of_the_start_each_reload_and_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut daemon = Setup::new()
        .model("a", "64MiB", "", "")
        .variable("NOTIFY_SOCKET", path.to_str().unwrap())
        .variable("WATCHDOG_USEC", "100000")
        .start();
    let ready = format!("READY=1\nSTATUS=1 model at http://{}", daemon.address);
    assert_eq!(next(&socket), ready);
    let mut sign = [0; 64];
    let length = socket.recv(&mut sign).unwrap();
    assert_eq!(&sign[..length], b"WATCHDOG=1");
    daemon.signal("HUP");
    assert!(next(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next(&socket), ready);
    daemon.signal("TERM");
    assert_eq!(next(&socket), "STOPPING=1");
    assert!(daemon.wait().success());
}

#[test]
fn a_hostile_socket_of_a_manager_is_reported_and_serves_all_the_same() {
    let daemon = Setup::new().model("a", "64MiB", "", "").variable("NOTIFY_SOCKET", "../no\nsocket").start();
    assert_eq!(get(daemon.address, "/health").status, 200);
    daemon.reported("is neither a path nor the name of an abstract socket");
}

fn serve(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("serve").args(words).output().unwrap()
}

#[test]
fn a_unit_names_this_program_and_needs_print_unit_to_be_asked_for() {
    let output = serve(&["--print-unit", "--user", "/srv/models.toml"]);
    let unit = String::from_utf8(output.stdout).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).canonicalize().unwrap();
    let folder = std::env::current_dir().unwrap();
    let start = format!(
        "\nWorkingDirectory={}\nExecStart={} serve /srv/models.toml\n",
        folder.display(),
        program.display()
    );
    assert!(unit.lines().take(2).all(|line| line.starts_with('#')), "{unit}");
    assert!(unit.contains("loginctl enable-linger"), "{unit}");
    assert!(unit.contains(&start) && unit.contains("\nType=notify\n"), "{unit}");
    assert_eq!(serve(&["--user", "x.toml"]).status.code(), Some(2));
    assert_eq!(serve(&[]).status.code(), Some(2));
    for option in ["--listen=:8080", "-v", "--log-format=json"] {
        let output = serve(&["--print-unit", "--user", "/srv/models.toml", option]);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{option}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("under [serve]"));
    }
}

#[test]
fn a_unit_of_the_machine_names_only_a_program_that_root_alone_may_change() {
    let output = serve(&["--print-unit"]);
    let (unit, error) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    match output.status.code() {
        Some(0) => assert!(
            unit.contains("\nUser=plimsoll\n") && unit.contains(" serve /etc/plimsoll/plimsoll.toml\n")
        ),
        // The build folder belongs to an ordinary user.
        code => assert!(code == Some(2) && error.contains("--print-unit --user"), "{error}"),
    }
}
