//! Test harness of the fake CUDA driver, which runs each test of an exported function in its own process.
//!
//! The driver exists once per process and reads its settings once. So each test starts itself again as a
//! child process, and both processes check the log that the child left.

use std::any::type_name;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use plimsoll_wire::env::CUDA_VISIBLE_DEVICES;

use crate::abi::{Context, Host, In, Out};
use crate::code::{Code, SUCCESS};

/// The log of the process of the test, for it and for those it started.
const LOG: &str = "PLIMSOLL_TEST_LOG";

/// Runs `test`, a closure in a test function, under `settings`, and gives the log without process and thread.
pub(crate) fn alone<T: FnOnce()>(settings: &str, test: T) -> Vec<String> {
    if let Ok(log) = env::var(LOG) {
        test();
        return read(Path::new(&log));
    }
    let name = type_name::<T>().trim_end_matches("::{{closure}}");
    let (_, name) = name.split_once("::").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(LOG, &log)
        .env("PLIMSOLL_FAKE_CUDA", format!("log={} {settings}", log.display()))
        .env_remove(CUDA_VISIBLE_DEVICES)
        .output()
        .unwrap();
    let stated =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stated}");
    assert!(stated.contains("1 passed"), "no test is called {name}: {stated}");
    read(&log)
}

fn read(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let body = |line: &str| line.split_once(' ').map(|(_, body)| body.to_owned());
    text.lines().filter_map(body).collect()
}

/// The rules that were broken.
pub(crate) fn broken(log: &[String]) -> Vec<&str> {
    let rule = |line: &'_ String| -> Option<usize> { line.strip_prefix("violation ")?.find(':') };
    log.iter().filter_map(|line| rule(line).map(|end| &line["violation ".len()..][..end])).collect()
}

/// Initialises the driver and opens a context on the first card.
pub(crate) fn start() -> Context {
    ok(crate::device::cuInit(0));
    let context = get(|context| crate::primary::cuDevicePrimaryCtxRetain(context, 0));
    ok(crate::context::cuCtxSetCurrent(context));
    context
}

/// The result of a call that must go well.
#[track_caller]
pub(crate) fn get<T>(call: impl FnOnce(Out<T>) -> Code) -> T {
    let mut value = std::mem::MaybeUninit::uninit();
    ok(call(Out::to(&mut value)));
    // SAFETY: a call that succeeds has written its result.
    unsafe { value.assume_init() }
}

#[track_caller]
pub(crate) fn ok(code: Code) {
    assert_eq!(code, SUCCESS);
}

/// The code of a call that writes a result which is of no interest.
pub(crate) fn code<T>(call: impl FnOnce(Out<T>) -> Code) -> Code {
    call(Out::to(&mut std::mem::MaybeUninit::uninit()))
}

impl<T> Out<T> {
    pub(crate) fn to(value: &mut std::mem::MaybeUninit<T>) -> Self {
        Self::from_pointer(value.as_mut_ptr())
    }
}

impl<T> From<&T> for In<T> {
    fn from(value: &T) -> Self {
        Self::from_pointer(value)
    }
}

impl Host {
    pub(crate) fn to(bytes: &[u8]) -> Self {
        Self::new(bytes.as_ptr().expose_provenance() as u64)
    }

    pub(crate) fn into(bytes: &mut [u8]) -> Self {
        Self::new(bytes.as_mut_ptr().expose_provenance() as u64)
    }
}
