//! Tests that an engine sees exactly its own cards, and that the daemon uses none.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::built::built;
use crate::daemon::{Daemon, Setup, fake_engine};
use crate::http::{chat, get};

const CARDS: [&str; 4] = ["GPU-aaaa", "GPU-bbbb", "GPU-cccc", "GPU-dddd"];

const GIB: u64 = 1 << 30;

/// A daemon that sees four cards of 24 GiB through fake-nvml.
pub(crate) fn four_cards(setup: Setup) -> Daemon {
    cards(setup, &[24 * GIB; 4])
}

#[test]
fn a_variable_that_chooses_cards_is_reported_as_left_out() {
    let yaml = "models:\n  a:\n    cmd: /bin/true ${PORT}\n    env: [CUDA_VISIBLE_DEVICES=0]\n";
    let daemon = four_cards(Setup::with_cards(&[]).named("swap.yaml").config(yaml));
    daemon.reported("swap.yaml:2: `CUDA_VISIBLE_DEVICES=0` of `a` is left out: plimsoll chooses the cards; write `cards = ");
    // Of a card that is only described, no driver knows a UUID, and the variable has its effect.
    let daemon = Setup::with_cards(&["3060"]).named("swap.yaml").config(yaml).start();
    assert!(!daemon.talk().contains("is left out"), "{}", daemon.talk());
}

/// A daemon that sees cards of 24 GiB with so much of it free.
fn cards(setup: Setup, free: &[u64]) -> Daemon {
    let cards: Vec<Value> = free
        .iter()
        .enumerate()
        .map(|(n, free)| {
            json!({"uuid": CARDS[n], "name": "Fake 24G", "total": 24 * GIB, "free": free,
                   "cc": [8, 9], "pci": format!("00000000:0{n}:00.0")})
        })
        .collect();
    let library = built("libnvidia_ml.so", "fake-nvml");
    setup
        .variable("PLIMSOLL_NVML", &library.to_string_lossy())
        .variable("PLIMSOLL_FAKE_NVML_CARDS", &Value::from(cards).to_string())
        .start()
}

fn seen(daemon: &Daemon, model: &str) -> Value {
    assert_eq!(chat(daemon.address, model).status, 200);
    get(daemon.address, &format!("/upstream/{model}/fake/env")).json()["env"].clone()
}

#[test]
fn a_program_that_names_no_cards_sees_one_although_it_would_fit_on_two_at_once() {
    let daemon = cards(
        Setup::with_cards(&[])
            .model("a", "16GiB", "", "")
            .model("b", "16GiB", "", "")
            .model("c", "12GiB", "", "")
            .model("v", "12GiB", "", ""),
        &[24 * GIB; 2],
    );
    for model in ["a", "b"] {
        assert_eq!(chat(daemon.address, model).status, 200);
    }
    // Each card has room for half of it.
    let shown = seen(&daemon, "c")["CUDA_VISIBLE_DEVICES"].as_str().expect("it is set").to_owned();
    assert!(["GPU-aaaa", "GPU-bbbb"].contains(&shown.as_str()), "{shown}");
    assert_eq!(daemon.running().len(), 2, "another one left for it");
}

#[test]
fn each_child_names_only_its_own_cards_by_uuid() {
    let daemon = four_cards(
        Setup::with_cards(&[])
            .model("one", "20GiB", "", "cards = [\"GPU-bbbb\"]")
            .model("two", "40GiB", "", "cards = [\"GPU-aaaa\", \"GPU-dddd\"]")
            .model("any", "10GiB", "", ""),
    );
    let one = seen(&daemon, "one");
    assert_eq!(one["CUDA_VISIBLE_DEVICES"], "GPU-bbbb");
    assert_eq!(one["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    assert_eq!(seen(&daemon, "two")["CUDA_VISIBLE_DEVICES"], "GPU-aaaa,GPU-dddd");
    assert_eq!(seen(&daemon, "any")["CUDA_VISIBLE_DEVICES"], "GPU-cccc", "the only card with room");
    assert_eq!(daemon.running(), ["any", "one", "two"]);
}

#[test]
fn the_daemon_maps_neither_libcuda_nor_the_library_that_maps_it() {
    let daemon = four_cards(Setup::with_cards(&[]).model("one", "1GiB", "", ""));
    assert_eq!(chat(daemon.address, "one").status, 200);
    assert_eq!(
        daemon.status()["cards"].as_array().map(Vec::len),
        Some(5),
        "four cards and the host are seen"
    );
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", daemon.pid())).expect("it runs");
    for library in ["libcuda", "nvidia_ml", "nvidia-ml"] {
        assert!(!maps.contains(library), "{maps}");
    }
}

/// A preset with one model `m` of a gibibyte and these lines.
fn preset(lines: &str) -> Setup {
    let engine = fake_engine();
    Setup::with_cards(&[]).named("models.ini").config(&format!(
        ";plimsoll: engine = {}\n[m]\nhf-repo = user/m\n;plimsoll: memory = 1GiB\n{lines}\n",
        engine.display()
    ))
}

/// The cards that `m` sees, and what its command line gives `flag`.
fn sent(daemon: &Daemon, flag: &str) -> (String, Option<String>) {
    let answer = chat(daemon.address, "m");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let seen = get(daemon.address, "/upstream/m/fake/env").json();
    let argv: Vec<&str> = seen["argv"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let at = argv.iter().position(|word| *word == flag);
    let value = at.and_then(|at| argv.get(at + 1)).map(|value| (*value).to_owned());
    let cards = seen["env"]["CUDA_VISIBLE_DEVICES"].as_str().expect("it is set");
    (cards.to_owned(), value)
}

#[test]
fn a_model_that_its_flags_keep_off_the_cards_sees_none_by_any_runtime() {
    for (lines, sees) in [
        ("device = none", false),
        ("device = none\nn-gpu-layers = 0", false),
        (";plimsoll: env = LLAMA_ARG_DEVICE=none", false),
        // llama.cpp computes large batches on a card all the same.
        ("n-gpu-layers = 0", true),
        // These use a card in spite of the flag.
        ("device = none\nmodel-draft = /dev/null", true),
        ("device = none\nmmproj = /dev/null", true),
        ("device = none\noverride-tensor = blk=CUDA0", true),
    ] {
        let daemon = four_cards(preset(&format!("no-mmproj = true\n{lines}")));
        let answer = chat(daemon.address, "m");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let environment = get(daemon.address, "/upstream/m/fake/env").json()["env"].clone();
        let cards = environment["CUDA_VISIBLE_DEVICES"].as_str().expect("it is set");
        assert_eq!(!cards.is_empty(), sees, "{lines}");
        for (variable, nothing) in [
            ("ROCR_VISIBLE_DEVICES", ""),
            ("HIP_VISIBLE_DEVICES", "-1"),
            ("GGML_VK_VISIBLE_DEVICES", ""),
            ("ONEAPI_DEVICE_SELECTOR", "*:cpu"),
        ] {
            assert_eq!(environment[variable], nothing, "{lines}");
        }
    }
}

/// What the cards say of claims, by UUID.
/// Claims on each card, and on the host beside them.
fn claims(daemon: &Daemon) -> Vec<u64> {
    let status = daemon.status();
    let cards = status["cards"].as_array().expect("cards").iter();
    cards.filter_map(|card| card["claimed"].as_u64()).collect()
}

const FILLED: [u64; 2] = [199 << 20, 24 * GIB];

#[test]
fn a_model_goes_to_the_card_that_its_flags_name_whatever_fills_the_other() {
    for lines in [
        "device = CUDA1",
        "dev = CUDA1",
        "LLAMA_ARG_DEVICE = CUDA1",
        ";plimsoll: env = LLAMA_ARG_DEVICE=CUDA1",
    ] {
        let daemon = cards(preset(lines), &FILLED);
        let (cards, device) = sent(&daemon, "--device");
        assert_eq!(cards, "GPU-bbbb", "{lines}");
        assert!(device.is_none_or(|device| device == "CUDA0"), "{lines}");
        assert_eq!(claims(&daemon), [0, GIB, 0], "{lines}");
    }
}

#[test]
fn a_planned_model_claims_nothing_on_a_card_that_its_flags_do_not_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let model = folder.path().join("l8.gguf");
    plimsoll_specimens::write("l8", &model, &plimsoll_specimens::Changes::default())
        .expect("the folder is ours");
    let engine = folder.path().join("llama-server");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && exec echo 'version: 1.0 (build 10605, commit abc)'\nexec '{}' \"$@\"\n",
        fake_engine().display()
    );
    std::fs::write(&engine, script).expect("the folder can be written");
    let runnable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&engine, runnable).expect("it is ours");
    let setup = Setup::with_cards(&[]).named("models.ini").config(&format!(
        ";plimsoll: engine = {}\n[m]\nmodel = {}\nctx-size = 4096\ndevice = CUDA1\n",
        engine.display(),
        model.display()
    ));
    let daemon = cards(setup, &FILLED);
    assert_eq!(sent(&daemon, "--device"), ("GPU-bbbb".to_owned(), Some("CUDA0".to_owned())));
    let claims = claims(&daemon);
    assert!(claims[0] == 0 && claims[1] > 4 * GIB, "{claims:?}");
    daemon.reported("planned");
}

#[test]
fn a_variable_that_names_a_card_is_renumbered_for_the_child() {
    let daemon = cards(preset(";plimsoll: env = LLAMA_ARG_DEVICE=CUDA1"), &FILLED);
    assert_eq!(sent(&daemon, "--device"), ("GPU-bbbb".to_owned(), None));
    let seen = get(daemon.address, "/upstream/m/fake/env").json();
    assert_eq!(seen["env"]["LLAMA_ARG_DEVICE"], "CUDA0");
}

#[test]
fn one_card_by_its_number_is_that_card_and_the_first_of_the_child() {
    let daemon = cards(preset("split-mode = none\nmain-gpu = 1"), &FILLED);
    assert_eq!(sent(&daemon, "--main-gpu"), ("GPU-bbbb".to_owned(), Some("0".to_owned())));
    assert_eq!(claims(&daemon), [0, GIB, 0]);
}

#[test]
fn a_list_of_cards_is_taken_as_it_is_and_nothing_beside_it() {
    let daemon = four_cards(preset("device = CUDA3,CUDA1"));
    assert_eq!(sent(&daemon, "--device"), ("GPU-bbbb,GPU-dddd".to_owned(), Some("CUDA1,CUDA0".to_owned())));
    let claims = claims(&daemon);
    assert_eq!((claims[0], claims[2]), (0, 0));
    assert_eq!(claims[1] + claims[3], GIB);
}

#[test]
fn shares_by_hand_choose_the_cards_that_get_one() {
    let daemon = four_cards(preset("tensor-split = 0,3,0,1"));
    assert_eq!(sent(&daemon, "--tensor-split"), ("GPU-bbbb,GPU-dddd".to_owned(), Some("3,1".to_owned())));
}

#[test]
fn a_card_that_is_not_there_is_named_with_its_line_and_those_that_are() {
    let daemon = cards(preset("device = CUDA2"), &FILLED);
    let answer = chat(daemon.address, "m").text();
    for words in [
        "models.ini:5: -dev names `CUDA2`, but the number of cards is 2; use CUDA0 to CUDA1",
        "the cards are CUDA0 Fake 24G GPU-aaaa, CUDA1 Fake 24G GPU-bbbb",
    ] {
        assert!(answer.contains(words), "{answer}");
    }
    daemon.reported("-dev names `CUDA2`");
}

/// A preset whose engine is a Vulkan build that sees two cards of one name and, between them, a processor.
fn vulkan(folder: &std::path::Path, lines: &str) -> Setup {
    let engine = folder.join("llama-server");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --list-devices ] || exec '{}' \"$@\"\n\
         case \"$GGML_VK_VISIBLE_DEVICES\" in\n0|2) echo '  Vulkan0: Fake 24G (24576 MiB, 24000 MiB free)';;\n\
         1) echo '  Vulkan0: llvmpipe (LLVM 22.1.8, 256 bits) (24105 MiB, 22039 MiB free)';;\n\
         *) echo 'Invalid device index'; exit 1;;\nesac\n",
        fake_engine().display()
    );
    std::fs::write(&engine, script).expect("the folder can be written");
    std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    Setup::with_cards(&[]).named("models.ini").config(&format!(
        ";plimsoll: engine = {}\n[m]\nhf-repo = user/m\n;plimsoll: memory = 1GiB\n{lines}\n",
        engine.display()
    ))
}

#[test]
fn a_vulkan_build_sees_its_cards_by_vulkans_own_numbers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let both = "tensor-split = 1,1";
    let daemon = cards(vulkan(folder.path(), both), &[24 * GIB; 2]);
    assert_eq!(seen(&daemon, "m")["GGML_VK_VISIBLE_DEVICES"], "0,2");
}

#[test]
fn a_vulkan_build_is_refused_a_card_that_cannot_be_distinguished_from_its_neighbour() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = cards(vulkan(folder.path(), ""), &[24 * GIB; 2]);
    let answer = chat(daemon.address, "m");
    assert_ne!(answer.status, 200);
    assert!(answer.text().contains("GGML_VK_VISIBLE_DEVICES in the model's `env`"), "{}", answer.text());
    assert!(daemon.engines().is_empty(), "nothing computes on the processor instead");
    drop(daemon);
    // What the user says holds.
    let named = ";plimsoll: env = GGML_VK_VISIBLE_DEVICES=2";
    let daemon = cards(vulkan(folder.path(), named), &[24 * GIB; 2]);
    assert_eq!(seen(&daemon, "m")["GGML_VK_VISIBLE_DEVICES"], "2");
}
