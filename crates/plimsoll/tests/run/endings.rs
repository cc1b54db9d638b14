//! Tests that `plimsoll run` ends as its program ends: by the same exit code or signal.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::rig::{run, stated, with_default_signals};

#[test]
fn its_exit_code_is_the_programs() {
    for code in [0, 1, 42, 255] {
        let output = run(&[], &["sh", "-c", &format!("exit {code}")]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
    }
}

#[test]
fn a_signal_that_kills_the_program_kills_it_too() {
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("INT", 2)] {
        let output = run(&[], &["sh", "-c", &format!("kill -{name} $$")]).output().unwrap();
        assert_eq!(output.status.signal(), Some(number), "{name}: {:?}", output.status);
        assert!(!output.status.core_dumped());
    }
}

#[test]
fn missing_and_non_executable_programs_exit_127_and_126() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "hello").unwrap();
    for (command, code, words) in [
        ("no-such-program", 127, "was not found"),
        ("/no/such/program", 127, "was not found"),
        (text.to_str().unwrap(), 126, "is not executable"),
        (folder.path().to_str().unwrap(), 126, "is not executable"),
    ] {
        let output = run(&[], &[command]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        let (stdout, stderr) = stated(&output);
        assert_eq!(stdout, "");
        assert!(stderr.starts_with("plimsoll: ") && stderr.contains(words), "{stderr}");
    }
}

#[test]
fn a_failure_of_its_own_is_125_and_starts_nothing() {
    let output = run(&[], &["echo", "ran"])
        .env("PLIMSOLL_GUARD_LIBRARY", "/nowhere/libplimsoll_guard.so")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    let (stdout, stderr) = stated(&output);
    assert_eq!(stdout, "");
    assert!(stderr.contains("no file /nowhere/libplimsoll_guard.so"), "{stderr}");
    assert!(stderr.contains("cargo xtask guard"), "{stderr}");
    let output = run(&["--card", "0"], &["echo", "ran"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let (_, stderr) = stated(&output);
    assert!(stderr.contains("no GPU is visible"), "{stderr}");
}

/// Starts a program that says "up", sends us a signal, and returns what the program said then and our end.
fn signalled(script: &str, signal: &str) -> (String, Option<i32>, Option<i32>) {
    use std::io::{BufRead, BufReader, Read};
    let mut child = run(&[], &["sh", "-c", script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program runs");
    let mut stdout = BufReader::new(child.stdout.take().expect("the program runs"));
    let mut line = String::new();
    stdout.read_line(&mut line).expect("the program runs");
    assert_eq!(line, "up\n");
    let pid = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([&format!("-{signal}"), &pid])
            .status()
            .expect("the program runs")
            .success()
    );
    let limit = Instant::now() + Duration::from_secs(20);
    let status = loop {
        if let Some(status) = child.try_wait().expect("the program runs") {
            break status;
        }
        assert!(Instant::now() < limit, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the program runs");
    (rest, status.code(), status.signal())
}

#[test]
fn signals_reach_the_program_which_decides_what_they_mean() {
    for signal in ["TERM", "INT", "HUP", "USR1", "QUIT"] {
        let script = format!("trap 'echo got; exit 7' {signal}; echo up; while :; do sleep 0.01; done");
        let (rest, code, _) = signalled(&script, signal);
        assert_eq!((rest.as_str(), code), ("got\n", Some(7)), "{signal}");
    }
    let (_, _, signal) = signalled("echo up; exec sleep 60", "TERM");
    assert_eq!(signal, Some(15), "who has no handler dies by it, and so do we");
}

#[test]
fn sighup_ignored_by_nohup_stays_ignored() {
    let output = with_default_signals("sh")
        .args(["-c", "trap '' HUP; exec \"$0\" run -- grep SigIgn /proc/self/status"])
        .arg(env!("CARGO_BIN_EXE_plimsoll"))
        .env("PLIMSOLL_GUARD_LIBRARY", super::rig::library())
        .env("PLIMSOLL_NVML", "")
        .output()
        .unwrap();
    let mask = stated(&output).0.trim().rsplit('\t').next().unwrap();
    // Two above 31 are glibc's own.
    let named = u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff;
    assert_eq!(named, 1, "SIGHUP alone: {mask}");
}
