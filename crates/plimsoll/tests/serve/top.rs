//! Tests of `plimsoll top` on a pseudo-terminal, which `script` of util-linux provides.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, post};

const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

struct Screen {
    child: Child,
    keys: ChildStdin,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    fn start(daemon: &Daemon) -> Self {
        Self::of(&format!("exec {} top --url http://{}", env!("CARGO_BIN_EXE_plimsoll"), daemon.address))
    }

    /// Runs a command of the shell on a terminal.
    fn of(command: &str) -> Self {
        let command = format!("stty cols 100 rows 30; {command}");
        let mut child = Command::new("script")
            .args(["-qefc", &command, "/dev/null"])
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script of util-linux starts");
        let keys = child.stdin.take().expect("piped");
        let (mut output, seen) = (child.stdout.take().expect("piped"), Arc::new(Mutex::new(Vec::new())));
        let filled = Arc::clone(&seen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                filled.lock().expect("no reader panics").extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keys, seen }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("the terminal reads");
    }

    /// Everything that was written, with its control sequences.
    fn written(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("no reader panics")).into_owned()
    }

    /// The screen as a terminal shows it.
    fn text(&self) -> String {
        let mut terminal = vt100::Parser::new(30, 100, 0);
        terminal.process(&self.seen.lock().expect("no reader panics"));
        terminal.screen().contents()
    }

    fn shows(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.text().contains(text) {
            assert!(Instant::now() < end, "{text} is not on the screen:\n{}", self.text());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_change_is_shown_at_once_and_keys_act_on_the_server() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").model("beta", "200MiB", "", "").start();
    let mut screen = Screen::start(&daemon);
    screen.shows("beta");
    screen.press("l");
    screen.shows("loading alpha");
    screen.shows("ready");
    assert_eq!(chat(daemon.address, "beta").status, 200);
    let answered = Instant::now();
    screen.shows("200 MiB");
    assert!(answered.elapsed() < Duration::from_secs(2), "{:?}", answered.elapsed());
    screen.press("ju");
    screen.shows("unload beta: frees");
    screen.press("y");
    screen.shows("unloading beta");
    until("beta has left", || daemon.engines().len() == 1);
    screen.press("q");
    assert!(screen.child.wait().unwrap().success());
    let written = screen.written();
    assert!(written.contains(ENTER) && written.contains(LEAVE), "{written:?}");
    assert!(written.trim_end().ends_with("\u{1b}[?25h"), "{written:?}");
}

#[test]
fn an_event_is_on_the_screen_within_a_tenth_of_a_second() {
    let daemon = Setup::new().model("alpha", "100MiB", "", "").start();
    let screen = Screen::start(&daemon);
    screen.shows("alpha");
    // A busy machine delays any single event, so each happens until one is shown in time.
    let mut took = Vec::new();
    for (path, pinned) in [("pin", true), ("unpin", false)].into_iter().cycle().take(12) {
        thread::sleep(Duration::from_millis(150));
        let body = serde_json::json!({ "model": "alpha" });
        assert_eq!(post(daemon.address, &format!("/api/models/{path}"), &body).status, 200);
        let requested = Instant::now();
        while screen.text().contains("unloaded, pinned") != pinned {
            assert!(requested.elapsed() < Duration::from_secs(30), "{}", screen.text());
            thread::sleep(Duration::from_millis(1));
        }
        took.push(requested.elapsed());
        if took.last().is_some_and(|took| *took < Duration::from_millis(100)) {
            return;
        }
    }
    panic!("shown after {took:?}");
}

#[test]
fn a_panic_leaves_the_terminal_as_it_was() {
    if std::env::var_os("PLIMSOLL_TEST_PANICS").is_some() {
        // As `plimsoll top` begins, whose own code has no known panic.
        let _terminal = ratatui::try_init().unwrap();
        panic!("as the test asks");
    }
    let own = std::env::current_exe().unwrap();
    let test = "serve::top::a_panic_leaves_the_terminal_as_it_was --exact --nocapture";
    let mut screen = Screen::of(&format!("PLIMSOLL_TEST_PANICS=1 {} {test}; stty -a", own.display()));
    screen.child.wait().unwrap();
    let echoes = |text: &str| text.contains(" icanon ") && text.contains(" echo ");
    until("the end of stty", || echoes(&screen.written()));
    let written = screen.written();
    let (entered, left) = (written.find(ENTER).unwrap(), written.find(LEAVE).unwrap());
    assert!(entered < left && left < written.find("as the test asks").unwrap(), "{written}");
}

#[test]
fn the_terminal_is_restored_before_the_refusal_is_printed() {
    let daemon =
        Setup::new().config("[serve]\napi-keys = ['secret']\n").model("alpha", "100MiB", "", "").start();
    let mut screen = Screen::start(&daemon);
    assert_eq!(screen.child.wait().unwrap().code(), Some(1));
    let refused = |text: &str| text.find(LEAVE).is_some_and(|at| text[at..].contains("refuses"));
    until("the error", || refused(&screen.written()));
}

#[test]
fn without_a_terminal_the_hint_names_status() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_plimsoll")).arg("top").stdin(Stdio::null()).output().unwrap();
    let stated = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(stated.contains("needs a terminal") && stated.contains("plimsoll status"), "{stated}");
}
