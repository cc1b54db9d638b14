//! Tests of one memory budget for all processes that a command starts: shared claims, ends of processes, and
//! reported memory.

use std::path::Path;
use std::process::Command;

use plimsoll_wire::tree::{FILE, SLOTS, SlotOwner, TreeLedger};

use crate::runner::artefact;
use crate::runner::client::{Client, Run, program, set_budget, tree};
use crate::runner::dialogue::Dialogue;

const OPTIONS: &str = "budget=1000";
const START: [&str; 2] = ["init", "retain:0"];

/// The program as one of those that share this folder.
fn of_tree(client: Client, folder: &Path) -> Client {
    let client = client.env("PLIMSOLL_GUARD_PAGES", folder);
    client.env("PLIMSOLL_GUARD_TRACE", folder.join("trace"))
}

/// A process that takes so much and waits.
fn holding(folder: &Path, words: &[&str]) -> Dialogue {
    let mut client = of_tree(Client::new("dlsym", OPTIONS), folder);
    Dialogue::start(client.command(&[&START, words].concat()), folder)
}

/// A process of the same tree, from its start to its end.
fn alongside(folder: &Path, words: &[&str]) -> Run {
    let client = of_tree(Client::new("dlsym", OPTIONS), folder);
    client.run(&[&START, words].concat())
}

fn stated(run: &Run) -> &[String] {
    &run.lines[START.len()..]
}

#[test]
fn two_processes_share_a_budget_and_the_one_that_passes_it_alone_is_shown_who_holds_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["alloc:600", "wait", "alloc:400", "free:0", "alloc:400", "wait"];
    let mut first = holding(folder.path(), &words);
    assert_eq!(first.hear("alloc"), "0");
    let second = alongside(folder.path(), &["alloc:600", "alloc:400", "alloc:1", "free:1", "alloc:300"]);
    assert_eq!(stated(&second), ["alloc 2", "alloc 0", "alloc 2", "free 0", "alloc 0"]);
    let who = format!("; process {} of this run holds 600 B", first.process());
    assert!(second.stated.contains("600 B of a budget of 1000 B allocated"), "{}", second.stated);
    assert!(second.stated.contains(&who), "{}", second.stated);
    first.go_on();
    assert_eq!(first.hear("alloc"), "0", "the other one is gone, and so is its share");
    assert_eq!((first.hear("free"), first.hear("alloc")), ("0".to_owned(), "0".to_owned()));
    assert_eq!(tree(folder.path()).peak, 1000);
    first.go_on();
    assert!(first.end().success());
}

#[test]
fn memory_info_of_a_process_is_the_remainder_of_the_tree() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = holding(folder.path(), &["alloc:600", "wait"]);
    assert_eq!(first.hear("alloc"), "0");
    let second = alongside(folder.path(), &["info", "total:0", "alloc:100", "info"]);
    assert_eq!(stated(&second), ["info 0 400 1000", "total 0 1000", "alloc 0", "info 0 300 1000"]);
    first.kill();
    let third = alongside(folder.path(), &["info"]);
    assert_eq!(stated(&third), ["info 0 1000 1000"], "the dead hold nothing");
    assert_eq!(tree(folder.path()).peak, 700);
}

#[test]
fn the_share_of_a_process_that_is_killed_is_free_at_once_for_those_who_were_there_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = holding(folder.path(), &["alloc:600", "wait"]);
    assert_eq!(first.hear("alloc"), "0");
    let mut second = holding(folder.path(), &["alloc:600", "wait", "alloc:1000"]);
    assert_eq!(second.hear("alloc"), "2");
    // Nobody has waited for it: it is a zombie.
    first.kill();
    second.go_on();
    assert_eq!(second.hear("alloc"), "0");
    assert!(second.end().success());
    assert_eq!(tree(folder.path()).peak, 1000);
}

#[test]
fn processes_that_race_for_the_budget_take_all_of_it_and_never_more() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["wait", "race:2:1", "wait"];
    let mut racers: Vec<_> = (0..3).map(|_| holding(folder.path(), &words)).collect();
    for racer in &mut racers {
        assert_eq!(racer.hear("retain"), "0");
        racer.go_on();
    }
    let taken = racers.iter_mut().map(|racer| {
        let stated = racer.hear("race");
        let (code, count) = stated.split_once(' ').unwrap();
        assert_eq!(code, "0");
        count.parse::<u64>().unwrap()
    });
    assert_eq!(taken.sum::<u64>(), 1000);
    assert_eq!(tree(folder.path()).peak, 1000);
    for racer in racers {
        assert!(racer.end().success());
    }
}

#[test]
fn forty_processes_one_after_the_other_leave_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = holding(folder.path(), &["alloc:100", "wait", "alloc:900"]);
    assert_eq!(first.hear("alloc"), "0");
    let client = program("dlsym").display().to_string();
    let script = "for i in $(seq 40); do \"$0\" dlsym init retain:0 alloc:900; done";
    let shell = Client::of(Path::new("/bin/sh"), "-c").guarded(OPTIONS);
    let shell = of_tree(shell, folder.path()).env("PATH", "/usr/bin:/bin");
    let run = shell.run(&[script, &client]);
    let taken = run.lines.iter().filter(|line| *line == "alloc 0").count();
    assert_eq!(taken, 40, "{:?} {}", run.lines, run.stated);
    assert_eq!(tree(folder.path()).peak, 1000);
    first.go_on();
    assert_eq!(first.hear("alloc"), "0");
}

#[test]
fn a_child_that_becomes_another_program_is_of_the_tree_and_starts_with_nothing() {
    let client = program("dlsym");
    let client = client.to_string_lossy();
    let words = [
        &["alloc:600", "fork", "exec", &client, "dlsym"][..],
        &["init", "retain:0", "alloc:500", "alloc:400", "join", "alloc:400"],
    ];
    let run = Client::new("dlsym", OPTIONS).run(&[&START[..], &words.concat()].concat());
    let parent = ["alloc 0", "init 0", "retain 0", "alloc 2", "alloc 0"];
    assert_eq!(stated(&run)[..5], parent, "{:?} {}", run.lines, run.stated);
    assert_eq!(stated(&run).last().unwrap(), "alloc 0", "{:?}", run.lines);
    let words = ["alloc:600", "exec", &client, "dlsym", "init", "retain:0", "alloc:1000"];
    let run = Client::new("dlsym", OPTIONS).run(&[&START[..], &words].concat());
    assert_eq!(stated(&run).last().unwrap(), "alloc 0", "{}", run.stated);
}

#[test]
fn a_budget_that_the_daemon_changes_is_every_processs() {
    let folder = tempfile::tempdir().unwrap();
    let words = ["alloc:600", "wait", "alloc:600", "wait", "alloc:1"];
    let mut first = holding(folder.path(), &words);
    assert_eq!(first.hear("alloc"), "0");
    set_budget(folder.path(), 2000);
    let second = alongside(folder.path(), &["info", "alloc:1300"]);
    assert_eq!(stated(&second), ["info 0 1400 2000", "alloc 0"], "it came later");
    first.go_on();
    assert_eq!(first.hear("alloc"), "0");
    set_budget(folder.path(), 1000);
    first.go_on();
    assert_eq!(first.hear("alloc"), "2");
    assert!(first.end().success());
}

#[test]
fn process_without_card_use_leaves_no_files() {
    let client = Client::of(Path::new("/bin/sh"), "-c").guarded(OPTIONS);
    let folder = client.folder().to_owned();
    let mut client = client.env("PATH", "/usr/bin:/bin");
    let output = client.command(&["true; (true); sleep 0"]).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 0);
}

#[test]
fn a_ledger_that_cannot_be_shared_is_said_and_the_process_keeps_to_its_budget_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(FILE)).unwrap();
    let run = alongside(folder.path(), &["alloc:600", "alloc:600", "alloc:400"]);
    assert_eq!(stated(&run), ["alloc 0", "alloc 2", "alloc 0"]);
    let why = format!("cannot share the ledger of allocations in {} (error 21)", folder.path().display());
    assert!(run.stated.contains(&why), "{}", run.stated);
    assert!(run.stated.contains("the budget applies to this process alone"), "{}", run.stated);
}

#[test]
fn one_process_more_than_there_are_slots_keeps_to_its_budget_alone() {
    let folder = tempfile::tempdir().unwrap();
    let full = TreeLedger::default();
    for number in 1..=u32::try_from(SLOTS).unwrap() {
        // Of another name space: nobody can tell whether they live.
        full.enter(SlotOwner::new(number, 1), 7, |_, _| false).unwrap();
    }
    // SAFETY: a ledger is plain numbers, as many bytes as it is long.
    let bytes = unsafe { std::slice::from_raw_parts((&raw const full).cast::<u8>(), TreeLedger::SIZE) };
    std::fs::write(folder.path().join(FILE), bytes).unwrap();
    let run = alongside(folder.path(), &["alloc:600", "alloc:600", "alloc:400"]);
    assert_eq!(stated(&run), ["alloc 0", "alloc 2", "alloc 0"]);
    let why = "the shared ledger of allocations is full (256 processes or 16 other cards); the budget applies to this process alone";
    assert!(run.stated.contains(why), "{}", run.stated);
}

#[test]
fn without_a_budget_a_tree_is_counted_and_its_peak_is_what_it_held_at_a_time() {
    let client = program("dlsym").display().to_string();
    let script =
        "\"$0\" dlsym init retain:0 alloc:500 free:0 alloc:400; \"$0\" dlsym init retain:0 alloc:300";
    let shell = Client::of(Path::new("/bin/sh"), "-c").guarded("");
    let folder = shell.folder().to_owned();
    let mut shell = shell;
    let done: &mut Command = shell.command(&[script, &client]);
    assert!(done.output().unwrap().status.success());
    assert_eq!((tree(&folder).budget, tree(&folder).peak), (None, 500));
    assert!(artefact::guard().exists());
}
