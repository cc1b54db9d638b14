//! Tests of what a program sees of the fake CUDA driver, and of the log of its calls.

use super::stage::{Stage, violations};

const WHOLE: &[&str] = &["1", "16", "2000", "mixed", "graph", "async"];
const SETTINGS: &str = "total=1G context=100M";
const SEEN: &str = "\
cards: 1
context: free 924 MiB of 1024 MiB
cuMemAlloc of 1048576 bytes: 0
read back: plimsoll
filled with: 7
allocated: free 922 MiB of 1024 MiB
freed: free 924 MiB of 1024 MiB
cuMemAlloc of 16777216 bytes: 0
read back: plimsoll
filled with: 7
allocated: free 908 MiB of 1024 MiB
freed: free 924 MiB of 1024 MiB
cuMemAlloc of 2097152000 bytes: 2
mixed range: across the edge
mixed: free 920 MiB of 1024 MiB
graph filled with: 42
asynchronous: free 924 MiB of 1024 MiB
done
";

#[test]
fn a_program_that_imports_the_driver_lives_its_life() {
    let stage = Stage::new();
    let direct = stage.build("direct");
    assert_eq!(stage.run(&direct, WHOLE, SETTINGS), SEEN);
    assert_eq!(violations(&stage.log()), Vec::<&String>::new());
}

#[test]
fn a_program_that_binds_as_cudart_does_sees_and_does_the_same() {
    let stage = Stage::new();
    let (direct, runtime) = (stage.build("direct"), stage.build("runtime_like"));
    stage.run(&direct, WHOLE, SETTINGS);
    let done = stage.log();
    assert_eq!(stage.run(&runtime, WHOLE, SETTINGS), SEEN);
    let looked_up = |line: &String| line.starts_with("call cuGetProcAddress");
    let mut log = stage.log();
    assert!(log.iter().any(looked_up));
    log.retain(|line| !looked_up(line));
    assert_eq!(log, done, "two runs of one program log the same");
}

#[test]
fn thunks_and_per_thread_twins_work_as_the_functions_do() {
    let stage = Stage::new();
    let runtime = stage.build("runtime_like");
    assert_eq!(stage.run(&runtime, WHOLE, &format!("{SETTINGS} distinct=1")), SEEN);
    stage.log();
    let mut command = stage.command(&runtime, SETTINGS);
    let output = command.env("CUDART_FLAGS", "2").args(WHOLE).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), SEEN);
    let log = stage.log();
    let called = |name: &str| log.iter().any(|line| line.starts_with(&format!("call {name}(")));
    assert!(called("cuMemcpyHtoD_v2_ptds") && called("cuGraphLaunch_ptsz"));
    assert!(!called("cuMemcpyHtoD_v2") && !called("cuGraphLaunch"));
}
