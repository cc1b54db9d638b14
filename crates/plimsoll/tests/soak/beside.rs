//! Tests of `soak --beside`: which side fails in each order, and why, on a shared card.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::card::{Card, Daemon};
use crate::engine::Engine;
use crate::soak_in;

/// Short rounds of short prompts.
const LOAD: [&str; 6] = ["--clients", "2", "--round", "10", "--depths", "8"];

fn orders(json: &Value) -> [&Value; 2] {
    let orders = json["orders"].as_array().unwrap_or_else(|| panic!("{json:#}"));
    assert_eq!(orders.len(), 2, "{json:#}");
    [&orders[0], &orders[1]]
}

/// PyTorch with so many MiB of the card, for so many seconds.
fn torch(mib: u64, seconds: u64) -> String {
    let rows = mib * 64;
    format!(
        "python3 -c 'import time, torch; x = torch.ones({rows}, 4096, device=\"cuda\"); print(\"there\", flush=True); time.sleep({seconds})'"
    )
}

#[test]
fn the_default_program_gets_on_with_a_model_that_leaves_it_room() {
    let card = Card::new();
    let daemon = Daemon::start(&card);
    let page = card.path("beside.html").display().to_string();
    let arguments = [&LOAD[..], &["--html", &page, "--beside"]].concat();
    let (output, json) = soak_in(&card.variables(), &daemon.url, &arguments);
    assert_eq!(output.status.code(), Some(0), "{json:#}");
    for order in orders(&json) {
        assert_eq!(order["outcome"], "both got on", "{json:#}");
        assert_eq!(order["program"]["last_lines"][0], "holds 1 GiB", "{json:#}");
        assert!(order["server"]["answered"].as_u64().unwrap() >= 10, "{json:#}");
    }
    assert!(json["command"].as_str().unwrap().contains("import time, torch"));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Both programs worked in either order"), "{page}");
}

#[test]
fn whoever_comes_second_to_a_card_that_is_too_small_is_the_one_that_fails() {
    let card = Card::new();
    let daemon = Daemon::start(&card);
    let page = card.path("beside.html").display().to_string();
    // It stays until it is stopped, so that the model never has room.
    let program = torch(4096, 600);
    let arguments = [&LOAD[..], &["--for", "10s", "--html", &page, "--beside", &program]].concat();
    let (output, json) = soak_in(&card.variables(), &daemon.url, &arguments);
    assert_eq!(output.status.code(), Some(1), "{json:#}");
    let [server_first, program_first] = orders(&json);

    assert_eq!(server_first["outcome"], "the program failed", "{json:#}");
    let diagnosis = &server_first["program"]["diagnosis"];
    assert_eq!(
        (&diagnosis["schema"], &diagnosis["cause"]),
        (&"plimsoll.diagnosis/1".into(), &"foreign_process".into()),
        "{json:#}"
    );
    // By guard, to the byte, with the free memory beside it.
    let evidence = diagnosis["evidence"][0]["text"].as_str().unwrap();
    assert!(evidence.contains("4096 MiB") && evidence.contains("3584 MiB were free"), "{evidence}");
    assert_eq!(server_first["server"]["failed"], false);

    assert_eq!(program_first["outcome"], "the server failed", "{json:#}");
    assert_eq!(program_first["program"]["failed"], false);
    let server = &program_first["server"];
    assert_eq!((&server["answered"], &server["recovered"]), (&0.into(), &true.into()), "{json:#}");
    let failures = server["failures"].to_string();
    assert!(failures.contains("status 503") && failures.contains("tiny"), "{failures}");

    let page = fs::read_to_string(page).unwrap();
    for text in [
        "the program failed",
        "the server failed",
        "foreign_process",
        "the server answered again after the program ended",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[test]
fn a_model_that_has_no_room_left_to_grow_fails_in_flight_and_says_so() {
    let card = Card::new();
    // It loads beside the program's 4 GiB, and cannot grow by the GiB that a prompt of 512 tokens takes.
    let daemon = Daemon::of(&card, "3328MiB", "vram=3221225472 vram_per_token=2097152");
    let program = torch(4096, 600);
    let arguments =
        ["--clients", "2", "--round", "4", "--depths", "512", "--for", "10s", "--beside", &program];
    let (_, json) = soak_in(&card.variables(), &daemon.url, &arguments);
    let [server_first, program_first] = orders(&json);
    assert_eq!(server_first["outcome"], "the program failed", "{json:#}");
    assert_eq!(program_first["outcome"], "the server failed", "{json:#}");
    let failures = program_first["server"]["failures"].to_string();
    assert!(failures.contains("ran out of card memory"), "{json:#}");
}

#[test]
fn a_server_that_ends_is_told_from_the_program_and_by_the_end_of_its_log() {
    let card = Card::new();
    let log = card.path("engine.log");
    let engine = Engine::start_with("events=1 delay_ms=2", |command| {
        command.stderr(File::create(&log).unwrap());
    });
    // What ggml says when it ends, at a moment that the test chooses.
    let program = format!(
        "printf 'CUDA error: out of memory\\n  current device: 0, in function alloc at ggml-cuda.cu:435\\n  cuMemCreate(&handle, reserve_size, &prop, 0)\\n' >> {}; \
         kill -ABRT {}; sleep 1",
        log.display(),
        engine.pid()
    );
    let arguments = [&LOAD[..], &["--beside", &program]].concat();
    let (output, json) = soak_in(&card.variables(), &engine.url(), &arguments);
    assert_eq!(output.status.code(), Some(1));
    // The other order cannot be tried.
    let [order] = json["orders"].as_array().unwrap().as_slice() else { panic!("{json:#}") };
    assert_eq!(
        (&order["outcome"], &order["program"]["failed"]),
        (&"the server failed".into(), &false.into()),
        "{json:#}"
    );
    let server = &order["server"];
    assert_eq!((&server["processes_ended"], &server["recovered"]), (&1.into(), &false.into()), "{json:#}");
    assert!(server["diagnosis"]["evidence"].to_string().contains("out of memory"), "{json:#}");
    assert!(
        order["notes"].to_string().contains("the second order (program first) was not tried"),
        "{json:#}"
    );
}

#[test]
fn a_server_that_fails_by_itself_is_not_laid_at_the_programs_door() {
    let card = Card::new();
    let engine = Engine::start("fail=oom_at_depth:300 events=1");
    let mark = card.path("was started");
    let program = format!("touch '{}'", mark.display());
    let arguments = ["--depths", "1000", "--round", "4", "--beside", &program];
    let (output, _) = soak_in(&card.variables(), &engine.url(), &arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(told.contains("fails even without the second program"), "{told}");
    assert!(!mark.exists());
}

#[test]
fn without_guard_the_programs_own_words_are_judged() {
    let card = Card::new();
    let engine = Engine::start("events=1 delay_ms=2");
    let mut variables = card.variables();
    variables.push(("PLIMSOLL_GUARD_LIBRARY", String::new()));
    let program = "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB' >&2; exit 3";
    let arguments = [&LOAD[..], &["--beside", program]].concat();
    let (_, json) = soak_in(&variables, &engine.url(), &arguments);
    for order in orders(&json) {
        assert_eq!(order["program"]["status"], "ended with exit status 3", "{json:#}");
        let evidence = order["program"]["diagnosis"]["evidence"].to_string();
        assert!(evidence.contains("2.00 GiB"), "{json:#}");
    }
}

#[test]
fn the_program_and_what_it_started_end_with_the_soak() {
    let card = Card::new();
    let engine = Engine::start("events=1 delay_ms=2");
    let mark = card.path("pid");
    let program = format!("sleep 600 & echo $! > '{}'; wait", mark.display());
    let mut soak = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["soak", &engine.url(), "--beside", &program])
        .args(LOAD)
        .envs(card.variables())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = until("the program is there", || fs::read_to_string(&mark).ok()?.trim().parse::<u32>().ok());
    let terminate = Command::new("kill").arg(soak.id().to_string()).status();
    assert!(terminate.unwrap().success());
    assert_eq!(soak.wait().unwrap().code(), Some(1));
    until("its child is gone", || (!runs(pid)).then_some(()));
}

fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < limit, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A zombie that nobody waits for does not run.
fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}
