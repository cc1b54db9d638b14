//! Tests of fixed ports in commands: no engine answers for another, whatever program listens on its port.

use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::daemon::{Daemon, Setup, until};
use crate::http::{Answer, chat, get};

/// A program that answers everything with its name, after a pause before it binds.
const PROGRAM: &str = "import http.server, os, sys, time
port, name, pause = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
if 'daemon' in sys.argv:
    if os.fork() == 0:
        os.setsid()
    else:
        time.sleep(1000)
time.sleep(pause)
class H(http.server.BaseHTTPRequestHandler):
    def answer(self):
        self.rfile.read(int(self.headers.get('Content-Length') or 0))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(name.encode())
    do_GET = do_POST = answer
    def log_message(self, *words): pass
http.server.HTTPServer.allow_reuse_address = True
http.server.HTTPServer(('127.0.0.1', port), H).serve_forever()
";

struct Bench {
    folder: TempDir,
    port: u16,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("fake.py"), PROGRAM).expect("the folder can be written");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        Self { folder, port }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("fake.py")
    }

    fn section(&self, name: &str, flags: &str) -> String {
        let (program, port) = (self.program(), self.port);
        format!(
            "[models.{name}]\ncmd = 'python3 {} {port} {name} {flags}'\nproxy = 'http://127.0.0.1:{port}'\nmemory = '100MiB'\n",
            program.display()
        )
    }

    fn serve(&self, sections: &[(&str, &str)]) -> Daemon {
        let config: String = sections.iter().map(|(name, flags)| self.section(name, flags)).collect();
        Setup::new().config(&config).start()
    }

    /// A program of somebody else on the same port.
    fn stray(&self) -> Stray {
        let port = self.port.to_string();
        Stray::of(Command::new("python3").arg(self.program()).args([&port, "stray", "0"]))
    }

    fn is_listened_on(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.port)).is_ok()
    }
}

/// A program with a process group of its own, which is killed when the test ends, however it does.
struct Stray(Child);

impl Stray {
    fn of(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).process_group(0).spawn().expect("the program starts"))
    }
}

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", self.0.id())]).status();
        let _ = self.0.wait();
    }
}

fn says(answer: &Answer, name: &str) {
    assert_eq!((answer.status, answer.text().as_str()), (200, name));
}

#[test]
fn two_models_of_one_port_take_turns_and_each_answers_for_itself() {
    let bench = Bench::new();
    let daemon = bench.serve(&[("tts0", "0"), ("tts1", "0.3")]);
    daemon.reported("`tts0`, `tts1` all listen on port");
    for _ in 0..2 {
        for name in ["tts0", "tts1"] {
            says(&chat(daemon.address, name), name);
            assert_eq!(daemon.running(), [name]);
        }
    }
    daemon.reported(&format!("stop tts0 (idle 0 s): tts1 listens on the same port ({})", bench.port));
    // Two clients at once get each their own.
    let address = daemon.address;
    let threads =
        ["tts0", "tts1", "tts0", "tts1"].map(|name| thread::spawn(move || says(&chat(address, name), name)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_port_that_another_program_has_is_refused_with_its_process() {
    let bench = Bench::new();
    let stray = bench.stray();
    until("the stray listens", || bench.is_listened_on());
    let daemon = bench.serve(&[("tts1", "0")]);
    for _ in 0..2 {
        let answer = chat(daemon.address, "tts1");
        assert_eq!(answer.status, 503, "{}", answer.text());
        let reported = format!(
            "port {}, on which its command listens, is taken by process {} (python3)",
            bench.port,
            stray.0.id()
        );
        assert!(
            answer.text().contains(&reported) && answer.text().contains("write `${PORT}`"),
            "{}",
            answer.text()
        );
    }
    assert!(!daemon.talk().contains("ready tts1"), "{}", daemon.talk());
    drop(stray);
    until("its own engine answers", || chat(daemon.address, "tts1").status == 200);
    says(&chat(daemon.address, "tts1"), "tts1");
}

#[test]
fn a_listener_that_appears_before_the_engine_binds_is_not_taken_for_it() {
    let bench = Bench::new();
    // Older than the engine, it binds when the engine has been started.
    let (port, program) = (bench.port.to_string(), bench.program());
    let go = bench.folder.path().join("go");
    let waits = format!(
        "import os, sys, time\nwhile not os.path.exists({go:?}): time.sleep(0.01)\nexec(open({program:?}).read())"
    );
    let _older = Stray::of(Command::new("python3").args(["-c", &waits, &port, "stray", "0"]));
    let daemon = bench.serve(&[("late", "600")]);
    let address = daemon.address;
    let requested = thread::spawn(move || chat(address, "late"));
    daemon.reported("load late");
    until("the engine runs", || get(address, "/running").text().contains("starting"));
    // The start comes a moment after its line.
    thread::sleep(Duration::from_millis(500));
    std::fs::write(&go, "").unwrap();
    let answer = requested.join().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(!daemon.talk().contains("ready late"), "{}", daemon.talk());
    assert_eq!(daemon.talk().matches("INFO load late").count(), 1, "{}", daemon.talk());
}

#[test]
fn a_younger_listener_is_believed_only_if_the_engine_lives_on() {
    let bench = Bench::new();
    // It binds after the stray, and ends for that.
    let daemon = bench.serve(&[("late", "1.2")]);
    let address = daemon.address;
    let requested = thread::spawn(move || chat(address, "late"));
    daemon.reported("load late");
    thread::sleep(Duration::from_millis(700));
    let _stray = bench.stray();
    let answer = requested.join().unwrap();
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(!daemon.talk().contains("ready late"), "{}", daemon.talk());
}

#[test]
fn a_listener_in_another_group_or_of_another_tree_is_the_engines_as_before() {
    let bench = Bench::new();
    let daemon = bench.serve(&[("forks", "0 daemon")]);
    says(&chat(daemon.address, "forks"), "forks");
    drop(daemon);
    // As a container service does it: the command asks for the start and waits, and the listener is nobody's
    // child.
    until("the port is free again", || !bench.is_listened_on());
    let (port, program, requested) = (bench.port, bench.program(), bench.folder.path().join("asked"));
    let asks = format!("sh -c \"touch {}; exec sleep 1000\"", requested.display());
    let waits = format!("while [ ! -e {} ]; do sleep 0.05; done", requested.display());
    let service = format!("{waits}; python3 {} {port} boxed 0; exit", program.display());
    let _service = Stray::of(Command::new("sh").args(["-c", &service]));
    let section = "[models.boxed]\nmemory = '1MiB'\n";
    let daemon =
        Setup::new().config(&format!("{section}cmd = '{asks}'\nproxy = 'http://127.0.0.1:{port}'\n")).start();
    says(&chat(daemon.address, "boxed"), "boxed");
}
