//! Tests of guard during a process's life: forks, exec, unloaded libraries, and sudden ends.

use std::os::unix::process::ExitStatusExt;

use crate::runner::client::{Client, program};

const START: [&str; 3] = ["init", "retain:0", "alloc:600"];

#[test]
fn a_forked_child_is_left_alone_and_its_parent_goes_on() {
    let words =
        [&START[..], &["fork", "alloc:600", "free:0", "join", "alloc:600", "free:0", "alloc:600"]].concat();
    for client in [Client::new("dlsym", "budget=1000"), Client::new("runtime", "budget=1000")] {
        let run = client.run(&words);
        let parent: Vec<_> = run.lines.iter().skip_while(|line| !line.starts_with("fork")).cloned().collect();
        assert_eq!(parent, ["fork 0", "alloc 2", "free 0", "alloc 0"], "{:?} {}", run.lines, run.stated);
        assert_eq!(run.pages().len(), 1, "only who allocates has a page");
    }
}

#[test]
fn a_child_forked_before_the_driver_is_up_is_guarded_by_itself() {
    let words = [
        "fork",
        "init",
        "retain:0",
        "alloc:600",
        "alloc:600",
        "join",
        "init",
        "retain:0",
        "alloc:700",
        "alloc:700",
    ];
    let run = Client::new("dlsym", "budget=1000").run(&words);
    assert_eq!(
        run.lines,
        ["init 0", "retain 0", "alloc 0", "alloc 2", "fork 0", "init 0", "retain 0", "alloc 0", "alloc 2"],
        "{}",
        run.stated
    );
    assert_eq!(run.pages().len(), 2);
}

#[test]
fn another_program_in_the_same_process_starts_with_a_page_of_its_own() {
    let client = program("dlsym");
    let client = client.to_string_lossy();
    let words = [&START[..], &["exec", &client, "dlsym", "init", "retain:0", "alloc:300"]].concat();
    let run = Client::new("dlsym", "budget=1000").run(&words);
    assert_eq!(run.lines[3..], ["init 0", "retain 0", "alloc 0"], "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, 300);
}

#[test]
fn a_child_of_vfork_runs_another_program() {
    let run = Client::new("dlsym", "budget=1000")
        .run(&[&START[..], &["vfork-exec", "alloc:600", "alloc:300"]].concat());
    assert_eq!(run.lines[3..], ["vfork-exec 0", "alloc 2", "alloc 0"], "{}", run.stated);
}

#[test]
fn a_driver_that_is_closed_and_opened_again_is_still_guarded() {
    let run = Client::new("dlsym", "budget=1000")
        .run(&[&START[..], &["close", "enter", "alloc:600", "alloc:300"]].concat());
    assert_eq!(run.lines[3..], ["close 0", "enter 0", "alloc 2", "alloc 0"], "{}", run.stated);
}

#[test]
fn the_page_and_the_trace_of_a_process_killed_in_an_allocation_can_be_read() {
    for delay in [1000, 3000, 7000] {
        let die = format!("die-in-alloc:{delay}");
        let words = [&START[..], &[&die]].concat();
        let run = Client::new("dlsym", "budget=100000").driver("cards=1 total=1G latency=50").run(&words);
        assert_eq!(run.status.signal(), Some(libc::SIGKILL));
        let card = run.page().cards()[0];
        assert!(card.allocated == 600 || card.allocated == 600 + 4096, "{card:?}");
        assert_eq!(run.trace()[0].size, 600);
    }
}

#[test]
fn a_page_folder_that_is_not_there_is_said_and_budgets_hold() {
    let run = Client::new("dlsym", "budget=1000")
        .env("PLIMSOLL_GUARD_PAGES", "/nonexistent")
        .run(&[&START[..], &["alloc:600"]].concat());
    assert_eq!(run.lines[2..], ["alloc 0", "alloc 2"]);
    assert!(run.stated.contains("cannot create a shared-memory file in /nonexistent"), "{}", run.stated);
}

#[test]
fn nothing_is_written_to_a_file_that_took_the_number_of_a_closed_one() {
    let client = Client::new("dlsym", "budget=1000");
    let opened = client.folder().join("opened");
    // A refusal is a record of the trace and a line on stderr.
    let run = client.env("OPENED", &opened).run(&[
        "init",
        "retain:0",
        "alloc:600",
        "alloc:600",
        "daemonise",
        "alloc:600",
        "free:0",
    ]);
    assert_eq!(run.lines[2..], ["alloc 0", "alloc 2", "daemonise 0", "alloc 2", "free 0"]);
    assert_eq!(std::fs::read_to_string(opened).unwrap(), "");
}

#[test]
fn a_trace_never_goes_through_a_link() {
    let client = Client::of(std::path::Path::new("/bin/sh"), "-c").guarded("");
    let folder = client.folder().to_owned();
    let target = folder.join("target");
    std::fs::write(&target, "kept").unwrap();
    // The shell makes the link under its own number, and becomes the program.
    let script = format!(
        r#"ln -s {} {}.$$; exec "$0" dlsym init retain:0 alloc:600"#,
        target.display(),
        folder.join("trace").display()
    );
    let run = client.run(&[&script, &crate::runner::client::program("dlsym").to_string_lossy()]);
    assert_eq!(run.lines.last().unwrap(), "alloc 0", "{}", run.stated);
    assert_eq!(std::fs::read_to_string(target).unwrap(), "kept");
    assert_eq!(run.trace()[0].size, 600);
}
