//! Test of an engine's port on which another user's process listens: it is never mistaken for the engine.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_doctor::CauseSign;
use plimsoll_engine::{EngineAddress, Readiness, free_port};
use plimsoll_process::port_owner::{PortOwner, listener_on};
use plimsoll_serve::post_mortem;

use super::rig::{eventually, launcher, on_one_thread, shell, start};

/// `nobody` on Debian and most others.
const NOBODY: &str = "65534";

/// A number beyond every `kernel.pid_max`.
const NO_GROUP: u32 = 1 << 30;

/// Killed when the test ends, however it does.
struct Thief(Child);

impl Drop for Thief {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn another_user_who_takes_the_port_is_never_taken_for_the_engine() {
    if !rustix::process::getuid().is_root() {
        // Only root can start a process of another user; the unit tests read the listeners of this one.
        return;
    }
    let port = free_port(&[]).unwrap();
    let thief = format!(
        "import http.server\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20 def do_GET(self): self.send_response(200); self.end_headers()\n\
         http.server.HTTPServer(('127.0.0.1', {port}), H).serve_forever()\n"
    );
    let thief = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups", "/usr/bin/env", "python3", "-c", &thief])
        .env("PATH", "/usr/bin:/bin")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let thief = Thief(thief);
    eventually(|| listener_on([127, 0, 0, 1].into(), port).unwrap().is_some());
    assert_eq!(PortOwner::new(port, NO_GROUP).stranger(), Some(65534));
    // Held by a process of the engine's group, the same listener is the engine's (sudo, setpriv).
    assert_eq!(PortOwner::new(port, thief.0.id()).stranger(), None);
    on_one_thread(async {
        let mut spec = shell("sleep 1000");
        spec.address = EngineAddress::Port(port);
        spec.readiness = Readiness::Health { path: "/health".to_owned() };
        let mut running = start(&launcher(), spec).await;
        let ended = tokio::time::timeout(Duration::from_secs(10), running.ended()).await.unwrap();
        assert!(!ended.was_ready);
        assert_eq!(post_mortem("alpha", &ended, None).sign, Some(CauseSign::PortTaken));
    });
}
