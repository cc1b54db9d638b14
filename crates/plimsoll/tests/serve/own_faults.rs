//! Tests of engines on AMD's cards: crashes, recovery, and memory that is kept free for other programs
//! (yields).

use serde_json::json;

use super::own_cards::{FIRST, GIB, Machine, UNIQUE, with_model};
use super::storm::storm;
use crate::daemon::{Daemon, until};
use crate::http::{chat, post};

fn one_card() -> Machine {
    Machine::new().amd(1, FIRST, "1002:744C", Some(UNIQUE), [24, 16])
}

/// A model of 4 GiB on Vulkan whose engine has this fault once, and another one beside it.
fn with_fault(machine: &Machine, fault: &str) -> Daemon {
    let lists = "[ \"$1\" = --list-devices ] && [ \"$GGML_VK_VISIBLE_DEVICES\" = 0 ] && \
         echo '  Vulkan0: AMD Radeon RX 7900 XTX (RADV NAVI31) (1 MiB, 1 MiB free)'\n\
         [ \"$1\" = --list-devices ] && exit";
    let vulkan = machine.engine("vulkan", &["vulkan"], lists);
    let once = machine.folder().join("once");
    let script = format!("env = {{ PLIMSOLL_FAKE_ENGINE = \"fail={fault} fail_once={}\" }}", once.display());
    let setup = with_model(machine.setup(), "good", &vulkan, 4, "");
    with_model(setup, "bad", &vulkan, 4, &script).start()
}

fn process(daemon: &Daemon, model: &str) -> Option<u64> {
    let answer = chat(daemon.address, model);
    (answer.status == 200).then(|| answer.json()["fake"]["pid"].as_u64().expect("a pid"))
}

#[test]
fn an_engine_on_vulkan_that_fails_each_request_is_replaced_though_its_health_is_well() {
    let machine = one_card();
    let daemon = with_fault(&machine, "poisoned:2");
    let (good, bad) = (process(&daemon, "good"), process(&daemon, "bad"));
    assert!(bad.is_some() && process(&daemon, "bad") == bad);
    until("another process answers", || process(&daemon, "bad").is_some_and(|other| Some(other) != bad));
    assert_eq!(process(&daemon, "good"), good);
}

#[test]
fn an_engine_on_a_card_of_amds_that_runs_out_of_memory_is_tried_again_and_served() {
    let machine = one_card();
    let daemon = with_fault(&machine, "oom_at_load");
    assert!(process(&daemon, "good").is_some());
    assert!(process(&daemon, "bad").is_some(), "{}", daemon.talk());
    daemon.reported("bad ran out of memory while loading");
}

#[test]
fn models_leave_a_card_of_amds_for_another_program_and_come_back() {
    let machine = one_card();
    let hip = machine.engine("hip", &["hip"], "");
    let setup = with_model(machine.setup(), "a", &hip, 8, "");
    let daemon = with_model(setup, "b", &hip, 8, "").start();
    assert!(process(&daemon, "a").is_some() && process(&daemon, "b").is_some());
    let order = json!({"size": 24 * GIB, "card": FIRST});
    assert_eq!(post(daemon.address, "/api/yield", &order).status, 200);
    until("both are gone", || daemon.running().is_empty() && daemon.claimed() == 0);
    assert_eq!(chat(daemon.address, "a").status, 503);
    let url = format!("http://{}", daemon.address);
    let end = crate::child::plimsoll().args(["yield", "--end"]).env("PLIMSOLL_URL", url).status();
    assert!(end.expect("it runs").success());
    until("it is loaded again", || process(&daemon, "a").is_some());
}

#[test]
fn a_storm_of_faults_on_a_card_of_amds_leaves_nothing_behind() {
    let machine = one_card();
    let hip = machine.engine("hip", &["hip"], "");
    storm(machine.setup(), 10, |setup, name, script, more| {
        let env = format!("env = {{ PLIMSOLL_FAKE_ENGINE = \"{script}\" }}\n{more}");
        with_model(setup, name, &hip, 1, &env)
    });
}
