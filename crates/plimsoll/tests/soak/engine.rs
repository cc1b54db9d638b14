//! Starts a fake engine for a test, on an unused port.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::built::built;

/// Dropping it kills it.
pub(crate) struct Engine {
    child: Child,
    port: u16,
}

impl Engine {
    /// Starts one with this script, and waits until it listens. A port that is taken meanwhile is given up
    /// for another.
    pub(crate) fn start(script: &str) -> Self {
        Self::start_with(script, |_| {})
    }

    /// The same with more of its surroundings.
    pub(crate) fn start_with(script: &str, surroundings: impl Fn(&mut Command)) -> Self {
        for _ in 0..20 {
            let port = free_port();
            let mut command = command(script, port);
            surroundings(&mut command);
            let mut engine = Self { child: command.spawn().expect("the fake engine starts"), port };
            if engine.listens() {
                return engine;
            }
        }
        panic!("no fake engine came up");
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    fn listens(&mut self) -> bool {
        let limit = Instant::now() + Duration::from_secs(30);
        while Instant::now() < limit && self.lives() {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                // Somebody else may have been faster with the port; then ours ends.
                std::thread::sleep(Duration::from_millis(50));
                return self.lives();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback has a port");
    listener.local_addr().expect("it is bound").port()
}

fn command(script: &str, port: u16) -> Command {
    let mut command = Command::new(built("fake-engine", "fake-engine"));
    command
        .args(["--alias", "tiny", "--port", &port.to_string()])
        .env("PLIMSOLL_FAKE_ENGINE", script)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
