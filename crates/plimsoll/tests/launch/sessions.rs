//! Tests of grandchildren that start their own session, and of file descriptors that an engine must not
//! inherit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use super::rig::{alone, eventually, is_alone, launcher, lives, on_one_thread, shell, start};

const DAEMONISED: &str = "setsid sleep 97 & echo $!; wait";
/// The middle process is gone before anyone looks: an orphan, as a daemon makes itself one.
const ORPHAN: &str = "sh -c 'setsid sleep 97 & echo $!'; sleep 1000";

async fn first_line(running: &super::rig::Running) -> u32 {
    loop {
        if let Some(line) = running.child.log().tail(1).first() {
            return line.text.parse().unwrap();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_session_of_its_own_does_not_outlive_its_engine() {
    on_one_thread(async {
        let launcher = launcher();
        for script in [DAEMONISED, ORPHAN] {
            let mut running = start(&launcher, shell(script)).await;
            let pid = first_line(&running).await;
            // `setsid` is a session of its own once it has become `sleep`.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(lives(pid));
            running.child.kill();
            running.ended().await;
            eventually(|| !lives(pid));
        }
        // The engine dies by itself: its tree is torn, and only the mark is left.
        let mut running = start(&launcher, shell("setsid sleep 97 & echo $!; sleep 0.2; exit 1")).await;
        let pid = first_line(&running).await;
        running.ended().await;
        eventually(|| !lives(pid));
    });
}

#[test]
fn a_session_of_its_own_does_not_outlive_a_killed_daemon() {
    if is_alone() {
        return be_a_daemon();
    }
    let mut daemon = alone("launch::sessions::a_session_of_its_own_does_not_outlive_a_killed_daemon")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(daemon.stdout.take().unwrap()).lines();
    let pid: u32 = lines
        .map(Result::unwrap)
        .find_map(|line| line.split_once("session: ").map(|(_, pid)| pid.parse().unwrap()))
        .unwrap();
    assert!(lives(pid));
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    eventually(|| !lives(pid));
}

#[expect(clippy::print_stdout, reason = "it is how the parent learns of it")]
fn be_a_daemon() {
    on_one_thread(async {
        let running = start(&launcher(), shell(DAEMONISED)).await;
        println!("session: {}", first_line(&running).await);
        std::future::pending::<()>().await;
    });
}

#[test]
fn no_descriptor_of_the_daemons_parent_reaches_an_engine() {
    on_one_thread(async {
        // Python passes the descriptor on without close-on-exec, as a shell's `exec 7<file` does.
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join("secret")).unwrap();
        rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).unwrap();
        let mut running = start(&launcher(), shell("ls -l /proc/self/fd; exit 0")).await;
        let ended = running.ended().await;
        assert!(ended.last_lines.iter().any(|line| line.contains("pipe:")), "{ended:?}");
        assert!(!ended.last_lines.iter().any(|line| line.contains("secret")), "{ended:?}");
    });
}
