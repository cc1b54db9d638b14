//! Tests of file copies from another host: resumption, faults of the other host, and files in the way.

use std::cell::{Cell, RefCell};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use plimsoll_hub::{CopyCalls, FileCopy, HostFault, HubError, HubFailure};
use tempfile::TempDir;

const PART: u64 = 1000;

fn content() -> Vec<u8> {
    (0..4500_u32).map(|number| u8::try_from(number * 7 % 251).unwrap()).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A copy of the content into a folder of its own.
fn copy() -> (TempDir, FileCopy) {
    let folder = tempfile::tempdir().unwrap();
    let bytes = content();
    let copy = FileCopy::new(folder.path().join("m.gguf"), bytes.len() as u64, &sha256(&bytes)).unwrap();
    (folder, copy)
}

fn part_of(start: u64, length: u64) -> Vec<u8> {
    content()[usize::try_from(start).unwrap()..usize::try_from(start + length).unwrap()].to_vec()
}

fn run(
    copy: &FileCopy,
    mut fetch: impl FnMut(u64, u64) -> Result<Vec<u8>, HubFailure>,
) -> Result<(), HubFailure> {
    let mut fetch = |start, length| fetch(start, length).map_err(|failure| failure.of("h1"));
    let calls = CopyCalls { fetch: &mut fetch, accept: &|_| Ok(()), goes_on: &|_| true };
    copy.run(PART, calls).map_err(|error| error.failure)
}

fn honest(start: u64, length: u64) -> Result<Vec<u8>, HubFailure> {
    Ok(part_of(start, length))
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn part_path(folder: &Path) -> PathBuf {
    let part = names(folder).into_iter().find(|name| name.ends_with("plimsoll-part")).unwrap();
    folder.join(part)
}

#[test]
fn a_file_arrives_part_by_part_and_nothing_is_left_beside_it() {
    let (folder, copy) = copy();
    let requested = RefCell::new(Vec::new());
    FileCopy::check(std::slice::from_ref(&copy)).unwrap();
    run(&copy, |start, length| {
        requested.borrow_mut().push((start, length));
        honest(start, length)
    })
    .unwrap();
    assert_eq!(requested.into_inner(), [(0, 1000), (1000, 1000), (2000, 1000), (3000, 1000), (4000, 500)]);
    assert_eq!(fs::read(copy.path()).unwrap(), content());
    assert_eq!(names(folder.path()), ["m.gguf"]);
}

#[test]
fn a_copy_that_was_cancelled_goes_on_where_it_was() {
    let (folder, copy) = copy();
    let mut fetch = |start, length| honest(start, length).map_err(|failure| failure.of("h1"));
    let calls = CopyCalls { fetch: &mut fetch, accept: &|_| Ok(()), goes_on: &|done| done < 2000 };
    let cancelled = copy.run(PART, calls);
    assert!(matches!(cancelled, Err(HubError { failure: HubFailure::Cancelled, .. })), "{cancelled:?}");
    assert!(copy.has_begun() && fs::symlink_metadata(copy.path()).is_err());
    assert_eq!(fs::metadata(part_path(folder.path())).unwrap().len(), 2000);
    let first = Cell::new(None);
    run(&copy, |start, length| {
        first.set(first.get().or(Some(start)));
        honest(start, length)
    })
    .unwrap();
    assert_eq!(first.get(), Some(2000));
    assert_eq!(fs::read(copy.path()).unwrap(), content());
}

#[test]
fn every_lie_of_a_host_costs_it_the_copy_and_leaves_no_file() {
    type Lie = fn(u64, u64) -> Result<Vec<u8>, HubFailure>;
    let lies: [(&str, Lie, bool); 6] = [
        ("wrong bytes", |_, length| Ok(vec![7; usize::try_from(length).unwrap()]), false),
        (
            "wrong bytes at the end",
            |start, length| match start {
                4000 => Ok(vec![7; 500]),
                _ => honest(start, length),
            },
            false,
        ),
        ("nothing", |_, _| Ok(Vec::new()), true),
        ("more than was asked for", |_, length| Ok(vec![7; usize::try_from(length + 1).unwrap()]), true),
        ("parts of the end", |start, length| Ok(part_of(start.min(100), length)), false),
        ("what is no part", |_, _| Err(HubFailure::Host(HostFault::Lies("200".to_owned()))), true),
    ];
    for (name, lie, keeps_part) in lies {
        let (folder, copy) = copy();
        let ended = run(&copy, lie).unwrap_err();
        let is_reported = if keeps_part {
            matches!(ended, HubFailure::WrongRange(_) | HubFailure::Host(HostFault::Lies(_)))
        } else {
            matches!(ended, HubFailure::WrongFile(_))
        };
        assert!(is_reported, "{name}: {ended}");
        assert!(fs::symlink_metadata(copy.path()).is_err(), "{name}");
        assert_eq!(names(folder.path()).len(), usize::from(keeps_part), "{name}");
        copy.discard();
        assert!(names(folder.path()).is_empty(), "{name}");
        run(&copy, honest).unwrap();
    }
}

#[test]
fn a_host_that_falls_silent_is_asked_again_and_then_the_next_one_goes_on() {
    let (folder, copy) = copy();
    let tries = Cell::new(0);
    let ended = run(&copy, |start, length| match start {
        0 => honest(start, length),
        _ => {
            tries.set(tries.get() + 1);
            Err(HubFailure::Host(HostFault::Silent("cut".to_owned())))
        }
    });
    assert!(matches!(ended, Err(HubFailure::Host(HostFault::Silent(_)))), "{ended:?}");
    assert_eq!((tries.get(), fs::metadata(part_path(folder.path())).unwrap().len()), (5, 1000));
    run(&copy, |start, length| if start == 0 { Err(HubFailure::NoRanges) } else { honest(start, length) })
        .unwrap();
}

#[test]
fn copy_refused_by_validation_is_removed_despite_its_digest() {
    let (folder, copy) = copy();
    let mut fetch = |start, length| honest(start, length).map_err(|failure| failure.of("h1"));
    let accept = |path: &Path| {
        assert_eq!(fs::read(path).unwrap(), content());
        Err("its header is another".to_owned())
    };
    let calls = CopyCalls { fetch: &mut fetch, accept: &accept, goes_on: &|_| true };
    let refused = copy.run(PART, calls).unwrap_err();
    assert!(refused.to_string().contains("its header is another"), "{refused}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn nothing_that_lies_in_the_way_is_written_over() {
    let put: [fn(&Path); 4] = [
        |path| fs::write(path, "precious").unwrap(),
        |path| fs::create_dir(path).unwrap(),
        |path| symlink("/dev/null", path).unwrap(),
        |path| symlink("nowhere", path).unwrap(),
    ];
    for put in put {
        let (folder, copy) = copy();
        put(copy.path());
        let before = fs::symlink_metadata(copy.path()).unwrap();
        let checked = FileCopy::check(std::slice::from_ref(&copy)).unwrap_err();
        assert!(matches!(checked.failure, HubFailure::InTheWay), "{checked}");
        let ended = run(&copy, |_, _| panic!("nothing is fetched"));
        assert!(matches!(ended, Err(HubFailure::InTheWay)), "{ended:?}");
        let after = fs::symlink_metadata(copy.path()).unwrap();
        assert_eq!((before.len(), before.file_type()), (after.len(), after.file_type()));
        // What comes while the copy runs stays as well.
        fs::remove_file(copy.path()).or_else(|_| fs::remove_dir(copy.path())).unwrap();
        let ended = run(&copy, |start, length| {
            if start == 4000 {
                put(copy.path());
            }
            honest(start, length)
        });
        assert!(matches!(ended, Err(HubFailure::InTheWay)), "{ended:?}");
        let after = fs::symlink_metadata(copy.path()).unwrap();
        assert_eq!(before.file_type(), after.file_type());
        drop(folder);
    }
}

#[test]
fn a_link_in_place_of_what_has_come_is_not_followed() {
    let (folder, copy) = copy();
    let mut fetch = |start, length| honest(start, length).map_err(|failure| failure.of("h1"));
    let calls = CopyCalls { fetch: &mut fetch, accept: &|_| Ok(()), goes_on: &|done| done < 1000 };
    copy.run(PART, calls).unwrap_err();
    let (part, victim) = (part_path(folder.path()), folder.path().join("victim"));
    fs::write(&victim, "precious").unwrap();
    fs::remove_file(&part).unwrap();
    symlink(&victim, &part).unwrap();
    let ended = run(&copy, honest);
    assert!(matches!(ended, Err(HubFailure::Disk(_))), "{ended:?}");
    fs::remove_file(&part).unwrap();
    fs::create_dir(&part).unwrap();
    assert!(matches!(run(&copy, honest), Err(HubFailure::Disk(_))));
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn only_one_process_writes_a_file() {
    let (_folder, copy) = copy();
    let other = copy.clone();
    let requested = Cell::new(false);
    run(&copy, |start, length| {
        if !requested.replace(true) {
            let second = run(&other, |_, _| panic!("nothing is fetched twice"));
            assert!(matches!(second, Err(HubFailure::Busy)), "{second:?}");
        }
        honest(start, length)
    })
    .unwrap();
}

#[test]
fn a_disk_without_room_and_a_folder_that_is_not_there_are_reported_before_anything_comes() {
    let (folder, copy) = copy();
    let digest = copy.digest().to_owned();
    let huge = FileCopy::new(folder.path().join("huge"), 1 << 60, &digest).unwrap();
    let small = FileCopy::check(&[copy.clone(), huge.clone()]).unwrap_err();
    assert!(matches!(small.failure, HubFailure::NoSpace { .. }), "{small}");
    let two = FileCopy::new(folder.path().join("other"), u64::MAX, &digest).unwrap();
    assert!(FileCopy::check(&[huge, two]).is_err(), "their sum is no small number");
    let nowhere = FileCopy::new(folder.path().join("none/m.gguf"), 5, &digest).unwrap();
    let missing = FileCopy::check(std::slice::from_ref(&nowhere)).unwrap_err();
    assert!(matches!(missing.failure, HubFailure::Disk(_)), "{missing}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn malformed_digests_give_no_copy_and_stale_parts_are_removed() {
    let (folder, copy) = copy();
    let of = |digest: &str| FileCopy::new(folder.path().join("m.gguf"), 5, digest);
    for wrong in ["", "abc", &"g".repeat(64), &"../".repeat(22), &"é".repeat(32), &"a".repeat(65)] {
        assert!(of(wrong).is_none(), "{wrong}");
    }
    let other = of(&"a".repeat(64)).unwrap();
    assert!(matches!(run(&other, |_, _| Ok(vec![1; 5])), Err(HubFailure::WrongFile(_))));
    run(&other, |_, _| Err(HubFailure::NoRanges)).unwrap_err();
    let kept = [".m.gguf.notes", ".m.gguf.0123.plimsoll-part", ".n.gguf.0123456789abcdef.plimsoll-part"];
    kept.iter().for_each(|name| fs::write(folder.path().join(name), "mine").unwrap());
    run(&copy, honest).unwrap();
    let mut left = [&kept[..], &["m.gguf"]].concat();
    left.sort_unstable();
    assert_eq!(names(folder.path()), left);
}
