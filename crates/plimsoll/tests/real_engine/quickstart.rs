//! Tests of `plimsoll quickstart` as a new user runs it.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};

use super::fleet;
use crate::child::plimsoll;

fn quickstart(folder: &tempfile::TempDir) -> Command {
    let mut command = plimsoll();
    command.arg("quickstart").arg("--folder").arg(folder.path());
    command
}

/// A quickstart that serves on; dropping it kills it.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_tour_shows_plans_answers_who_had_to_leave_and_a_refusal() {
    let folder = tempfile::tempdir().unwrap();
    for run in ["first", "second"] {
        let output = quickstart(&folder).args(["--once", "--listen", "127.0.0.1:0"]).output().unwrap();
        let reported = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{run}: {reported}");
        assert!(output.stdout.is_empty(), "{run}");
        for line in [
            "beta, llama.cpp b11549, context 2048",
            "alpha is loaded and answers after",
            "alpha is still loaded and answers after",
            "alpha is idle and least recently used, so it is stopped",
            "beta is loaded and answers after",
            "refused at once, with status 413",
            "hint: ",
        ] {
            assert!(reported.contains(line), "{run}: `{line}` is not in\n{reported}");
        }
    }
}

#[test]
fn after_the_tour_it_serves_on_another_port_where_the_wanted_one_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let wanted = taken.local_addr().unwrap();
    let log = folder.path().join("log");
    let child = quickstart(&folder)
        // A port alone, as `serve` takes it.
        .args(["--listen", &wanted.port().to_string()])
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn();
    let mut serving = Serving(child.unwrap());
    let mut line = String::new();
    let stdout = serving.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let address: SocketAddr = line.trim().strip_prefix("http://").unwrap().parse().unwrap();
    assert_ne!(address, wanted);
    assert_eq!(fleet::chat(address, "alpha").status, 200);
    let process = rustix::process::Pid::from_child(&serving.0);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
    assert!(serving.0.wait().unwrap().success());
    // After the tour the log is that of `serve`.
    let reported = std::fs::read_to_string(log).unwrap();
    let (_, after) = reported.split_once("the server keeps running").unwrap();
    for line in ["Z  INFO load alpha: ", "Z  INFO request alpha: 200 in ", "Z  INFO end: "] {
        assert!(after.contains(line), "`{line}` is not in\n{after}");
    }
    assert!(!reported.split("the server keeps running").next().unwrap().contains(" INFO "), "{reported}");
}
