//! Tests of `plimsoll` on aarch64, where a Jetson's RAM is its card's memory: built with Debian's cross
//! compiler, run in qemu-user.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const TRIPLE: &str = "aarch64-unknown-linux-gnu";

/// What a Jetson's kernel and llama.cpp say when the kernel refuses.
const REFUSED: &str = "\
NvMapMemAllocInternalTagged: 1075072515 error 12
NvMapMemHandleAlloc: error 0
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 3456.00 MiB on device 0: cudaMalloc failed: out of memory
";

fn built() -> PathBuf {
    // target/debug/deps/aarch64-…
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    let program = target.join(TRIPLE).join("debug/plimsoll");
    // Set by `cargo xtask test`, which builds the program before the tests.
    if std::env::var_os("PLIMSOLL_TESTS_ARE_BUILT").is_some() {
        return program;
    }
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--package", "plimsoll", "--bin", "plimsoll", "--target", TRIPLE])
        .arg("--target-dir")
        .arg(target)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .unwrap();
    assert!(status.success(), "`cargo xtask cross` installs what it takes");
    program
}

fn emulated(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("qemu-aarch64");
    command.args(["-L", "/usr/aarch64-linux-gnu"]).arg(program).args(arguments);
    command
}

fn run(program: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = emulated(program, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn stated(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn long_plans_and_diagnoses_on_aarch64_are_the_same_as_here() {
    let program = built();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tiny.gguf");
    let model = model.to_str().unwrap();
    plimsoll_specimens::write("tiny", Path::new(model), &plimsoll_specimens::Changes::default()).unwrap();
    let plan = [
        "plan",
        "--json",
        "--card",
        "name=Orin,total=8GiB,free=6GiB,cc=8.7",
        "--",
        "-m",
        model,
        "-c",
        "4096",
    ];
    let here = Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(plan).output().unwrap();
    assert_eq!(stated(&run(&program, &plan, "")), stated(&here));
    let diagnosis = stated(&run(&program, &["doctor", "--json", "-"], REFUSED));
    let diagnosis: serde_json::Value = serde_json::from_str(&diagnosis).unwrap();
    assert_eq!(diagnosis["cause"], "unified_memory_refused");
}

/// A server that a failed assertion does not leave behind.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Engines need a kernel that starts programs of this architecture, so none is loaded.
#[test]
fn long_a_server_on_aarch64_answers_and_ends_at_a_signal() {
    let program = built();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("c.toml");
    std::fs::write(&config, "[models.orin]\ncmd = 'engine ${PORT}'\nmemory = '64MiB'\n").unwrap();
    let serve = [
        "serve",
        config.to_str().unwrap(),
        "--listen",
        "127.0.0.1:0",
        "--card",
        "name=a,kind=host,total=1GiB",
    ];
    let mut server = Server(emulated(&program, &serve).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("http://").unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"orin\""), "{answer}");
    let server_id = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(server_id, rustix::process::Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}
