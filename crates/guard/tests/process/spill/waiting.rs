//! Tests that a refused allocation waits for memory (rung 3 of guard's ladder): for another process to end,
//! and for the daemon to make room.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_wire::page::{Page, PageSnapshot, Refusal};

use super::run::{MIB, Run};
use crate::runner::client::set_budget;

/// A process starts and asks well within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The first page that appears in a folder.
fn page_in(folder: &Path) -> File {
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        let pages = std::fs::read_dir(folder).expect("the folder is there").flatten();
        let page = pages.map(|entry| entry.path()).find(|path| {
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            path.extension().is_some_and(|kind| kind == "page") && !hidden
        });
        if let Some(page) = page {
            return File::options().read(true).write(true).open(page).expect("a page can be opened");
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("no page in {}", folder.display());
}

fn snapshot(page: &File) -> PageSnapshot {
    let mut bytes = vec![0; Page::SIZE];
    page.read_exact_at(&mut bytes, 0).expect("a page is whole");
    PageSnapshot::read(&bytes).expect("a page of this version")
}

/// Waits for a request for room, and gives it to `answer`.
fn daemon(folder: &Path, answer: impl FnOnce(&File, (u64, u32, u64))) {
    let page = page_in(folder);
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        if let Some(room_request) = snapshot(&page).room_request {
            return answer(&page, room_request);
        }
        thread::sleep(Duration::from_millis(2));
    }
    panic!("no request for room");
}

fn write(page: &File, value: u64, offset: usize) {
    page.write_all_at(&value.to_le_bytes(), offset as u64).expect("a page can be written");
}

#[test]
fn a_neighbour_that_frees_in_time_is_waited_for() {
    let run = Run::steps("total=1G", "wait=20");
    let shared = run.pages().join("cards");
    let shared = format!("total=1G shared={}", shared.display());
    let run = Run::steps(&shared, "wait=20");
    let neighbour = Run::steps(&shared, "");
    thread::scope(|scope| {
        let holding = scope.spawn(|| neighbour.run("alloc:a:800 nap:a:1500 free:a"));
        let page = page_in(&neighbour.pages());
        while snapshot(&page).cards()[0].allocated < 800 * MIB {
            thread::sleep(Duration::from_millis(5));
        }
        let ran = run.run("alloc:b:500 free:b");
        assert_eq!(ran.stated(), ["0", "0"], "{}", ran.errors);
        assert_eq!(ran.card().ooms, 0);
        let _ = holding.join();
    });
}

#[test]
fn waiting_ends_in_time_and_a_request_larger_than_the_card_is_not_waited_for() {
    let run = Run::steps("total=1G taken=700M", "wait=1");
    let started = Instant::now();
    let ran = run.run("alloc:a:500");
    assert_eq!(ran.stated(), ["2"]);
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(ran.ooms()[0].refusal, Refusal::Driver);
    assert!(ran.calls("cuMemAlloc_v2").len() < 30);
    let run = Run::steps("total=1G", "wait=60");
    assert_eq!(run.run("alloc:a:2000").stated(), ["2"]);
}

#[test]
fn a_daemon_that_raises_the_budget_is_heard() {
    let run = Run::steps("total=2G", &format!("budget={} reclaim", 512 * MIB));
    let folder = run.pages();
    thread::scope(|scope| {
        scope.spawn(|| {
            daemon(&folder, |page, (number, card, bytes)| {
                assert_eq!((number, card, bytes), (1, 0, 600 * MIB));
                set_budget(&folder, 1024 * MIB);
                write(page, number, Page::ROOM_REQUEST_ANSWERED_OFFSET);
            });
        });
        let ran = run.run("alloc:a:600 free:a");
        assert_eq!(ran.stated(), ["0", "0"], "{}", ran.errors);
        assert!(ran.errors.contains("plimsoll serve was asked to make room for 600 MiB"));
    });
}

/// Each of them that was waited for would take 2 s.
const ROOM_REQUESTS: usize = 30;

#[test]
fn a_daemon_that_answers_without_room_ends_the_wait_at_once() {
    let run = Run::steps("total=2G", &format!("budget={} reclaim", 512 * MIB));
    let folder = run.pages();
    thread::scope(|scope| {
        scope.spawn(|| {
            // This request, and all that will come.
            daemon(&folder, |page, _| write(page, u64::MAX, Page::ROOM_REQUEST_ANSWERED_OFFSET))
        });
        let took = refused(&run);
        assert!(took < Duration::from_secs(30), "{took:?}");
    });
}

#[test]
fn a_silent_daemon_is_waited_for_once() {
    let run = Run::steps("total=2G", &format!("budget={} reclaim", 512 * MIB));
    let took = refused(&run);
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(30), "{took:?}");
}

/// How long a program takes that asks for more than its budget again and again.
fn refused(run: &Run) -> Duration {
    let started = Instant::now();
    let ran = run.run(&["alloc:a:600"; ROOM_REQUESTS].join(" "));
    assert_eq!(ran.stated(), ["2"; ROOM_REQUESTS]);
    started.elapsed()
}
