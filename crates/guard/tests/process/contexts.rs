//! Tests of CUDA contexts on cards that the plan does not name.

use plimsoll_wire::page::Refusal;

use crate::runner::client::{Client, Run};

const UUIDS: &str = "GPU-00000000-0000-0000-0000-00000000000a,GPU-00000000-0000-0000-0000-00000000000b";
const PLANNED: &str = "card=GPU-00000000-0000-0000-0000-00000000000a";

fn run(door: &str, options: &str) -> Run {
    let words = ["init", "retain:0", "alloc:10", "retain:1", "create:1", "alloc:10"];
    let driver = format!("cards=2 total=1G uuids={UUIDS}");
    Client::new(door, options).driver(&driver).run(&words)
}

#[test]
fn a_context_outside_the_plan_is_refused_and_said_with_the_stack_that_asked() {
    for door in ["link", "runtime"] {
        let run = run(door, &format!("{PLANNED} contexts=refuse"));
        assert_eq!(
            run.lines[1..],
            ["retain 0", "alloc 0", "retain 46", "create 46", "alloc 0"],
            "{}",
            run.stated
        );
        let wanted = "a CUDA context on card 1 (GPU-00000000-0000-0000-0000-00000000000b), which this \
            program may not use, was refused";
        assert_eq!(run.stated.matches(wanted).count(), 1, "{}", run.stated);
        assert!(
            run.stated.contains("#0 ") && run.stated.contains("client"),
            "the caller is named: {}",
            run.stated
        );
        assert!(!run.calls().iter().any(|call| call.contains("Retain") && call.contains("dev=1")));
        let page = run.page();
        assert_eq!(page.ooms().filter(|oom| oom.refusal == Refusal::Context && oom.card == 1).count(), 2);
    }
}

#[test]
fn or_only_reported() {
    let run = run("runtime", &format!("{PLANNED} contexts=report"));
    assert_eq!(run.lines[1..], ["retain 0", "alloc 0", "retain 0", "create 0", "alloc 0"]);
    assert!(run.stated.contains("which this program may not use, was opened"), "{}", run.stated);
    assert_eq!(run.page().oom_count, 0);
}

#[test]
fn or_left_alone() {
    let run = run("runtime", PLANNED);
    assert_eq!((run.lines[3].as_str(), run.stated.as_str()), ("retain 0", ""));
}
