//! Tests of every way in which a program looks up the driver's functions: each leads to guard, and other
//! functions are not affected.

use std::process::Command;

use crate::runner::artefact;
use crate::runner::client::{Client, DOORS};

/// Within a budget of 1000 bytes the second of these is refused.
const WORDS: [&str; 6] = ["init", "retain:0", "alloc:600", "alloc:600", "free:0", "alloc:600"];
const REFUSED: [&str; 6] = ["init 0", "retain 0", "alloc 0", "alloc 2", "free 0", "alloc 0"];

#[test]
fn every_door_leads_through_guard() {
    for door in DOORS {
        let run = Client::new(door, "budget=1000").run(&WORDS);
        assert_eq!(run.lines, REFUSED, "{door}: {}", run.stated);
        assert_eq!(run.page().cards()[0].allocated, 600, "{door}");
    }
}

#[test]
fn every_door_leads_through_guard_when_all_symbols_are_bound_at_once() {
    for door in DOORS {
        let run = Client::new(door, "budget=1000").env("LD_BIND_NOW", "1").run(&WORDS);
        assert_eq!(run.lines, REFUSED, "{door}: {}", run.stated);
    }
}

#[test]
fn a_driver_that_gives_other_addresses_than_dlsym_is_known_by_name_and_version() {
    for door in ["runtime", "runtime11", "thread"] {
        let run = Client::new(door, "budget=1000").driver("cards=1 total=1G distinct=1").run(&WORDS);
        assert_eq!(run.lines, REFUSED, "{door}: {}", run.stated);
    }
}

#[test]
fn a_newer_cuda_with_the_same_functions_is_guarded_and_nothing_is_said() {
    let driver = "cards=1 total=1G distinct=1 driver=15000";
    let run = Client::new("runtime", "budget=1000").driver(driver).env("CLIENT_CUDA", "15000").run(&WORDS);
    assert_eq!(run.lines, REFUSED, "{}", run.stated);
    assert!(!run.stated.contains("knows CUDA"), "{}", run.stated);
}

#[test]
fn a_function_that_a_newer_cuda_has_changed_is_the_drivers_own_and_is_said_once() {
    let driver = "cards=1 total=1G driver=15000 renewed=cuMemAlloc:14000,cuMemGetInfo:14000";
    let words = [&WORDS[..], &["info"]].concat();
    let run = Client::new("runtime", "budget=1000").driver(driver).env("CLIENT_CUDA", "15000").run(&words);
    assert_eq!(run.lines[..4], ["init 0", "retain 0", "alloc 0", "alloc 0"], "{}", run.stated);
    assert_eq!(run.stated.matches("guard knows CUDA up to").count(), 1, "{}", run.stated);
    assert_eq!(run.page().cards()[0].allocated, 0);
    // A program that asks for what guard knows is guarded by the same driver.
    let run = Client::new("runtime", "budget=1000").driver(driver).run(&WORDS);
    assert_eq!(run.lines, REFUSED, "{}", run.stated);
    assert!(!run.stated.contains("guard knows CUDA"), "{}", run.stated);
}

#[test]
fn another_preload_behind_us_still_stands_in_front_of_dlsym() {
    let version = if cfg!(target_arch = "aarch64") { "\"GLIBC_2.17\"" } else { "\"GLIBC_2.2.5\"" };
    let flag = format!("-DVERSION={version}");
    let second = artefact::program("second.c", &["-shared", "-fPIC", "-ldl", &flag]);
    let run = Client::new("dlsym", "budget=1000").preload(second.clone()).run(&WORDS);
    assert_eq!(run.lines, REFUSED, "{}", run.stated);
    // It is asked for every name that is not ours, as if we were not there.
    assert!(run.stated.contains("second: asked for cuDeviceGetCount"), "{}", run.stated);
    // In front of us it takes dlsym away by asking for glibc's version of it; ELF imports are ours all the
    // same, and nothing loops.
    let first = |door: &str| Client::bare(door).preload(second.clone()).guarded("budget=1000").run(&WORDS);
    assert_eq!(first("link").lines, REFUSED);
    assert_eq!(first("dlsym").lines.len(), WORDS.len());
    assert_eq!(first("runtime").lines.len(), WORDS.len());
}

#[test]
fn names_that_are_not_ours_mean_what_they_always_meant() {
    let program = artefact::program("next.c", &["-ldl"]);
    let run = |preload: bool| {
        let mut command = Command::new(&program);
        command.env_clear().env("PLIMSOLL_GUARD", "");
        if preload {
            command.env("LD_PRELOAD", artefact::guard());
        }
        let output = command.output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(run(true), run(false));
    assert!(
        run(true).ends_with("cuInit: absent, said\ncuMemAlloc_v2: absent, said\nlibrary 0\n"),
        "{}",
        run(true)
    );
}

#[test]
fn a_program_without_a_driver_gets_the_usual_error() {
    let words = ["init"];
    let empty = tempfile::tempdir().unwrap();
    let guarded = Client::new("dlsym", "").env("LD_LIBRARY_PATH", empty.path()).run(&words);
    let bare = Client::bare("dlsym").env("LD_LIBRARY_PATH", empty.path()).run(&words);
    assert_eq!((guarded.lines, guarded.status.code()), (bare.lines, bare.status.code()));
    assert_eq!(guarded.stated, "");
}

#[test]
fn a_driver_that_looks_itself_up_in_another_library_is_not_led_back_to_us() {
    // WSL's libcuda.so.1 is such a one.
    let inner = artefact::cuda().join("libcuda.so.1");
    let flags = ["-shared", "-fPIC", "-ldl", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic"];
    let outer =
        artefact::program("outer.c", &[&flags[..], &[&format!("-DINNER=\"{}\"", inner.display())]].concat());
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(outer, folder.path().join("libcuda.so.1")).unwrap();
    let run =
        Client::new("dlsym", "budget=1000").env("LD_LIBRARY_PATH", folder.path()).run(&["init", "init"]);
    assert_eq!(run.lines, ["init 0", "init 0"], "{}", run.stated);
}

#[test]
fn without_its_variable_guard_does_nothing() {
    let run = |guarded: bool| {
        let client = Client::bare("runtime");
        let client = if guarded { client.preload(artefact::guard().to_owned()) } else { client };
        client.run(&WORDS)
    };
    let (with, without) = (run(true), run(false));
    assert_eq!((with.calls(), &with.lines), (without.calls(), &without.lines));
    assert_eq!(with.page_count(), 0);
}

#[test]
fn a_rust_program_meets_the_same_guard() {
    let program = artefact::rust_program("loader.rs");
    let run = Client::of(&program, "runtime").guarded("budget=1000").run(&["600", "600"]);
    assert_eq!(run.lines, ["0", "2"], "{}", run.stated);
}
