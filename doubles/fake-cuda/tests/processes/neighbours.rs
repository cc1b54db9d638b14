//! Tests of several processes that share one card of the fake CUDA driver.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use super::stage::Stage;

/// A `neighbour` program, killed when the test is over.
#[derive(Debug)]
struct Neighbour {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Neighbour {
    fn new(stage: &Stage) -> Self {
        let program = stage.path("neighbour");
        let settings = format!("total=1G context=24M shared={}", stage.path("shared").display());
        let mut command = stage.command(&program, &settings);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self {
            input: child.stdin.take().unwrap(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Says a line and gives the answer; empty when the process died of it.
    fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stage() -> Stage {
    let stage = Stage::new();
    stage.build("neighbour");
    stage
}

#[test]
fn processes_see_each_others_memory_and_contexts() {
    let stage = stage();
    let mut first = Neighbour::new(&stage);
    assert_eq!(first.ask("info"), "1000");
    let mut second = Neighbour::new(&stage);
    assert_eq!(second.ask("alloc 600"), "0");
    assert_eq!(first.ask("info"), "376");
    assert_eq!(first.ask("alloc 400"), "2", "it is the card that is full");
    assert_eq!(second.ask("free"), "0");
    assert_eq!(first.ask("alloc 400"), "0");
}

#[test]
fn a_killed_process_gives_all_back_even_before_anybody_waits_for_it() {
    let stage = stage();
    let mut survivor = Neighbour::new(&stage);
    for _ in 0..3 {
        let mut victim = Neighbour::new(&stage);
        assert_eq!(victim.ask("alloc 900"), "0");
        assert_eq!(survivor.ask("info"), "76");
        victim.child.kill().unwrap();
        // The end of its output comes before the kernel makes it a zombie.
        let mut rest = String::new();
        victim.output.read_line(&mut rest).unwrap();
        let freed = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            survivor.ask("info") == "1000"
        });
        assert!(freed, "{}", survivor.ask("info"));
    }
    assert_eq!(survivor.ask("alloc 1000"), "0");
}

#[test]
fn a_process_killed_in_the_middle_of_an_allocation_leaves_the_sums_right() {
    let stage = stage();
    let mut survivor = Neighbour::new(&stage);
    for round in 0..10 {
        let mut victim = Neighbour::new(&stage);
        assert_eq!(victim.ask("churn"), "churning");
        std::thread::sleep(Duration::from_micros(700 * round));
        victim.child.kill().unwrap();
        victim.child.wait().unwrap();
        assert_eq!(survivor.ask("info"), "1000");
    }
}

#[test]
fn memory_is_opened_by_a_neighbour_at_no_cost() {
    let stage = stage();
    let (mut owner, mut guest) = (Neighbour::new(&stage), Neighbour::new(&stage));
    assert_eq!(owner.ask("alloc 100"), "0");
    let handle = owner.ask("share");
    assert_eq!(guest.ask(&format!("open {handle}")), "0 5a");
    assert_eq!(owner.ask(&format!("open {handle}")), "201 00", "not by its owner");
    assert_eq!(guest.ask("info"), "876");
}

#[test]
fn a_forked_child_has_no_driver() {
    let stage = stage();
    let mut parent = Neighbour::new(&stage);
    assert_eq!(parent.ask("fork"), "3");
    assert_eq!(parent.ask("alloc 10"), "0");
}

#[test]
fn host_code_that_follows_a_device_pointer_dies() {
    let stage = stage();
    let mut program = Neighbour::new(&stage);
    assert_eq!(program.ask("alloc 10"), "0");
    assert_eq!(program.ask("touch"), "");
    assert_eq!(program.child.wait().unwrap().code(), None, "a signal ended it");
}
