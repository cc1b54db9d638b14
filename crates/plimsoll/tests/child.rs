//! Tests of a real engine as a child process: its flags, its control channel, its HTTP responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_wire::control::{EXIT_COMMAND, STATE_PREFIX};
use plimsoll_wire::env::LLAMA_SERVER_ROUTER_PORT;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(30);

/// Returns a plimsoll command whose home is shared by all tests of this checkout, so that the engine is
/// fetched once.
pub(crate) fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    command.env("PLIMSOLL_HOME", target.join("engine-home"));
    command
}

/// Installs the CPU engine, once, and returns its program.
pub(crate) fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let output = plimsoll().args(["engine", "install"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        PathBuf::from(String::from_utf8(output.stdout).unwrap().trim_end())
    })
}

pub(crate) struct Engine {
    pub(crate) child: Child,
    pub(crate) port: u16,
    states: Receiver<Value>,
}

impl Engine {
    /// Starts the engine under the control channel; on one thread, because threads that spin while they wait
    /// for each other take minutes on a machine that is busy with other tests.
    pub(crate) fn start(model: &Path, flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let port = free_port();
        let mut child = Command::new(program())
            .args(["--host", "127.0.0.1", "--threads", "1", "--port", &port.to_string(), "--model"])
            .arg(model)
            .args(flags)
            .env(LLAMA_SERVER_ROUTER_PORT, "1")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (send, states) = mpsc::channel();
        thread::spawn(move || {
            let states = lines.filter_map(|line| line.strip_prefix(STATE_PREFIX).map(str::to_owned));
            states.for_each(|state| drop(send.send(serde_json::from_str(&state).unwrap())));
        });
        Self { child, port, states }
    }

    /// Returns every state up to `ready`.
    pub(crate) fn states_until_ready(&self) -> Vec<Value> {
        let mut states = Vec::new();
        while states.last().is_none_or(|state: &Value| state["state"] != "ready") {
            states.push(self.states.recv_timeout(LIMIT).expect("a state line"));
        }
        states
    }

    pub(crate) fn ready(self) -> Self {
        self.states_until_ready();
        self
    }

    pub(crate) fn order_exit(&mut self) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{EXIT_COMMAND}").unwrap();
    }

    /// Returns how the child ended, and fails where it does not within the limit.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < end, "the engine does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request and returns its stream of answer bytes.
    pub(crate) fn send(&self, path: &str, headers: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: engine\r\nConnection: close\r\n{headers}\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    }

    /// Returns status and body of the answer to a request.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &Value) -> (u16, String) {
        let mut answer = Vec::new();
        self.send(path, headers, body).read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Returns the JSON body of a request that must succeed.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, "", body);
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}
