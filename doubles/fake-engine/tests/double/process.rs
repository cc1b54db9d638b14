//! Starts a fake engine for its tests, with a blocking client for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use serde_json::Value;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Double {
    child: Child,
    pub(crate) port: u16,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Double {
    /// Starts the double and does not wait for anything.
    pub(crate) fn spawn(script: &str, arguments: &[&str], router: bool) -> Self {
        let port = free_port();
        let mut command = Command::new(env!("CARGO_BIN_EXE_fake-engine"));
        command.args(["--port", &port.to_string(), "--alias", "alpha"]).args(arguments);
        command.env("PLIMSOLL_FAKE_ENGINE", script).env("CUDA_VISIBLE_DEVICES", "GPU-1");
        if router {
            command.env("LLAMA_SERVER_ROUTER_PORT", "1");
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, port, stdin, stdout, stderr }
    }

    /// Starts the double and waits until it is ready.
    pub(crate) fn ready(script: &str) -> Self {
        let mut double = Self::spawn(script, &[], false);
        double.wait_for_log("listening on");
        double
    }

    pub(crate) fn wait_for_log(&mut self, words: &str) {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "no {words:?} in the log");
        }
    }

    pub(crate) fn state(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let json = line.strip_prefix("cmd_child_to_router:state:").expect("a state line");
        serde_json::from_str(json).unwrap()
    }

    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The exit status and all that was left in the log.
    pub(crate) fn end(&mut self) -> (ExitStatus, String) {
        let mut log = String::new();
        self.stderr.read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap(), log)
    }

    pub(crate) fn end_signal(&mut self) -> Option<i32> {
        self.end().0.signal()
    }

    pub(crate) fn connect(&self) -> Client {
        // The listener is up within milliseconds of the spawn; a load may still be going on.
        let socket = (0..500)
            .find_map(|_| {
                let socket = TcpStream::connect(("127.0.0.1", self.port)).ok();
                socket.or_else(|| {
                    std::thread::sleep(Duration::from_millis(5));
                    None
                })
            })
            .expect("a listener");
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { socket: BufReader::new(socket) }
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.connect().send("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.connect().send("POST", path, body)
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) struct Client {
    pub(crate) socket: BufReader<TcpStream>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    /// Unframed; cut short where the connection was.
    pub(crate) body: String,
    /// False when the connection ended before the answer did.
    pub(crate) is_whole: bool,
}

impl Client {
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> Reply {
        self.write(method, path, "", body);
        self.read()
    }

    pub(crate) fn write(&mut self, method: &str, path: &str, headers: &str, body: &str) {
        let length = body.len();
        let text =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
        self.socket.get_mut().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn read(&mut self) -> Reply {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.socket.read_line(&mut head).unwrap_or(0) == 0 {
                return Reply { status: 0, head, body: String::new(), is_whole: false };
            }
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")?.parse().ok());
        let (body, is_whole) = match length {
            Some(length) => self.read_length(length),
            None => self.read_chunks(),
        };
        Reply { status, head, body, is_whole }
    }

    /// The status of an interim answer, which is a status line and an empty line.
    pub(crate) fn read_interim(&mut self) -> u16 {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.socket.read_line(&mut head).unwrap(), 0);
        }
        head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn read_length(&mut self, length: usize) -> (String, bool) {
        let mut body = vec![0; length];
        let whole = self.socket.read_exact(&mut body).is_ok();
        (String::from_utf8(body).unwrap(), whole)
    }

    fn read_chunks(&mut self) -> (String, bool) {
        let mut body = String::new();
        loop {
            let mut size = String::new();
            self.socket.read_line(&mut size).ok();
            let Ok(size) = usize::from_str_radix(size.trim_end(), 16) else {
                return (body, false);
            };
            let mut chunk = Vec::new();
            let wanted = u64::try_from(size + 2).unwrap();
            self.socket.by_ref().take(wanted).read_to_end(&mut chunk).ok();
            let whole = chunk.len() == size + 2;
            chunk.truncate(size);
            body += &String::from_utf8(chunk).unwrap();
            if !whole || size == 0 {
                return (body, whole);
            }
        }
    }
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// The payloads of all whole events.
    pub(crate) fn events(&self) -> Vec<&str> {
        let whole = self.body.rfind("\n\n").map_or("", |end| &self.body[..end]);
        whole.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect()
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
