//! Tests that no grandchild, zombie or descriptor is left behind, whichever process dies first.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use plimsoll_process::Launcher;

use super::rig::{
    LIMIT, alone, engine, eventually, is_alone, launcher, lives, on_one_thread, open_files, shell, start,
    zombies,
};

/// A wrapper as people write them: the engine is its child, and it ignores polite requests.
const WRAPPER: &str = "trap '' TERM; (trap '' TERM; while :; do sleep 0.1; done) & echo $!; wait";

/// The first line of the log as a process id.
async fn grandchild(running: &super::rig::Running) -> u32 {
    loop {
        if let Some(line) = running.child.log().tail(1).first() {
            return line.text.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_wrapper_takes_what_it_started_with_it() {
    on_one_thread(async {
        let launcher = launcher();
        // Stopped, and dead by itself: both sweep the group.
        let mut running = start(&launcher, shell(WRAPPER)).await;
        let pid = grandchild(&running).await;
        assert!(lives(pid));
        running.child.stop(Duration::from_millis(100));
        running.ended().await;
        eventually(|| !lives(pid));

        let mut running = start(&launcher, shell("sleep 1000 & echo $!; exit 1")).await;
        let pid = grandchild(&running).await;
        running.ended().await;
        eventually(|| !lives(pid));
    });
}

#[test]
fn kill_dash_nine_of_the_daemon_leaves_nobody() {
    if is_alone() {
        return be_a_daemon();
    }
    let mut daemon = alone("launch::leftovers::kill_dash_nine_of_the_daemon_leaves_nobody")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pids = children_of(&mut daemon);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually(|| !pids.iter().any(|pid| lives(*pid)));
}

#[test]
fn a_warden_that_died_is_replaced_and_knows_everybody() {
    if is_alone() {
        return be_a_daemon();
    }
    let mut daemon = alone("launch::leftovers::a_warden_that_died_is_replaced_and_knows_everybody")
        .env(KILL_WARDEN, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pids = children_of(&mut daemon);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually(|| !pids.iter().any(|pid| lives(*pid)));
}

const KILL_WARDEN: &str = "PLIMSOLL_TEST_KILL_WARDEN";

/// Waits until the daemon has said whom it started.
fn children_of(daemon: &mut std::process::Child) -> Vec<u32> {
    let lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let line = lines
        .map(Result::unwrap)
        .find_map(|line| line.split_once("children: ").map(|(_, pids)| pids.to_owned()))
        .unwrap();
    let pids: Vec<u32> = line.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| lives(*pid)));
    pids
}

fn kill_warden() {
    let us = std::process::id();
    let children = std::fs::read_dir(format!("/proc/{us}/task")).unwrap().flatten();
    let children = children.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let wardens: Vec<String> = children
        .flat_map(|pids| pids.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with(b"\0warden\0")
        })
        .collect();
    assert_eq!(wardens.len(), 1);
    assert!(Command::new("kill").args(["-KILL", &wardens[0]]).status().unwrap().success());
    let warden = wardens[0].parse().unwrap();
    eventually(|| !lives(warden));
}

/// Starts an engine and a wrapper with a grandchild, says so, and waits to be killed.
#[expect(clippy::print_stdout, reason = "how it tells its parent")]
fn be_a_daemon() {
    on_one_thread(async {
        let launcher = launcher();
        let mut one = start(&launcher, engine("")).await;
        one.ready().await;
        let two = start(&launcher, shell(WRAPPER)).await;
        let three = grandchild(&two).await;
        if std::env::var_os(KILL_WARDEN).is_some() {
            kill_warden();
            // The next start finds out, and tells the new one of all.
            start(&launcher, shell("exit 0")).await.ended().await;
        }
        println!("children: {} {} {three}", one.child.pid(), two.child.pid());
        std::future::pending::<()>().await;
    });
}

#[test]
fn two_hundred_starts_and_stops_leak_nothing() {
    if !is_alone() {
        let status = alone("launch::leftovers::two_hundred_starts_and_stops_leak_nothing").status().unwrap();
        assert!(status.success());
        return;
    }
    on_one_thread(async {
        let launcher = launcher();
        // The first one opens what stays open.
        cycle(&launcher, 0).await;
        let before = open_files();
        for n in 1..=200 {
            cycle(&launcher, n).await;
        }
        assert_eq!(open_files(), before);
        assert_eq!(zombies(), 0);
    });
}

async fn cycle(launcher: &Launcher, n: u32) {
    let mut running = start(launcher, shell("echo hello; sleep 1000")).await;
    running.ready().await;
    match n % 3 {
        0 => running.child.stop(LIMIT),
        1 => running.child.kill(),
        // As if it had crashed.
        _ => {
            let pid = running.child.pid().to_string();
            assert!(Command::new("kill").args(["-USR1", &pid]).status().unwrap().success());
        }
    }
    running.ended().await;
}
