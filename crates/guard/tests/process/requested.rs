//! Tests of requests from another process to release the idle memory of driver pools.

use std::fs;

use crate::runner::client::Client;
use crate::runner::dialogue::Dialogue;

const SIZE: u64 = 64 << 20;

/// A pool holds 64 MiB that nobody uses; then come a stop and these words, the first of which is a safe
/// point.
fn idle(words: &[&str]) -> (Client, Vec<String>) {
    let start = ["init", "retain:0", "stream", "pool:0"].map(str::to_owned);
    let fill = [format!("from-pool:{SIZE}:1:0"), "free-async:2:0".to_owned()];
    let rest = ["sync:0", "wait"].iter().chain(words).map(|word| (*word).to_owned());
    let words = start.into_iter().chain(fill).chain(rest).collect();
    (Client::new("runtime", ""), words)
}

fn start(client: &mut Client, words: &[String]) -> Dialogue {
    let folder = client.folder().to_owned();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut dialogue = Dialogue::start(client.command(&words), &folder);
    dialogue.hear("sync 0");
    dialogue
}

#[test]
fn idle_pool_memory_is_released_at_the_next_call_and_reported() {
    for (call, stated) in [
        ("sync:0", "sync 0"),
        ("alloc:4096", "alloc 0"),
        ("free-unknown:77", "free-unknown 1"),
        ("physical:2097152", "physical 0"),
    ] {
        let (mut client, words) = idle(&[call, "wait"]);
        let mut program = start(&mut client, &words);
        let before = program.card().allocated;
        assert!(before >= SIZE, "{call}");
        program.ask(7);
        assert_eq!(program.card().answered, 0, "nobody answers for a program that stands still");
        program.go_on();
        program.hear(stated);
        let (page, card) = (program.page(), program.card());
        assert_eq!((card.ask, card.answered, page.given_back), (7, 7, SIZE), "{call}");
        assert!(card.allocated <= before - SIZE + 2_097_152, "{call}");
        assert!(program.end().success());
    }
}

#[test]
fn second_release_request_is_answered_and_releases_nothing_more() {
    let (mut client, words) = idle(&["sync:0", "wait", "sync:0", "wait"]);
    let mut program = start(&mut client, &words);
    for (number, given_back) in [(1, SIZE), (2, SIZE)] {
        program.ask(number);
        program.go_on();
        program.hear("sync 0");
        let (page, card) = (program.page(), program.card());
        assert_eq!((card.answered, page.given_back), (number, given_back));
    }
    assert!(program.end().success());
}

#[test]
fn release_request_during_capture_is_answered_after_it() {
    let (mut client, words) = idle(&["capture:0", "alloc:4096", "wait", "end-capture:0", "sync:0", "wait"]);
    let mut program = start(&mut client, &words);
    program.ask(1);
    program.go_on();
    program.hear("alloc 0");
    let (page, card) = (program.page(), program.card());
    assert_eq!((card.answered, page.given_back), (0, 0));
    program.go_on();
    program.hear("sync 0");
    assert_eq!((program.card().answered, program.page().given_back), (1, SIZE));
    assert!(program.end().success());
}

#[test]
fn without_a_release_request_idle_pools_stay_untrimmed() {
    let (mut client, words) = idle(&["sync:0", "alloc:4096"]);
    let log = client.folder().join("log");
    let program = start(&mut client, &words);
    assert_eq!(program.page().given_back, 0);
    assert!(program.end().success());
    assert!(!fs::read_to_string(log).unwrap().contains("cuMemPoolTrimTo"));
}
