//! Tests of models on a server: they are planned before the engine downloads them, and a failing server
//! delays nothing.

use std::io::Read;
use std::process::Command;

use fake_hub::{FakeHub, Fault, HostedFile};

use crate::daemon::{Setup, command_line, fake_engine};
use crate::http::chat;

const CARD: &str = "name=RTX3060,total=12GiB,free=11GiB,cc=8.6";

fn hosted(fault: Fault) -> FakeHub {
    let draft = plimsoll_specimens::shape("l8").expect("a shape").files(1).remove(0);
    let file = HostedFile::of(&draft).with(fault);
    FakeHub::start(vec![("user/model-GGUF", "m-Q4_K_M.gguf", file)]).expect("a port")
}

/// What `serve --check` says of two models of the hub at `address`.
fn checked(address: &str) -> (String, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("models.ini");
    let engine = fake_engine();
    let text = format!(
        "version = 1\n;plimsoll: engine = {}\n[one]\nhf-repo = user/model-GGUF\nctx-size = 8192\n\
         [two]\nhf-repo = user/model-GGUF:Q4_K_M\nctx-size = 16384\n",
        engine.display()
    );
    std::fs::write(&file, text).expect("the folder can be written");
    let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["serve", "--check", "--card", CARD])
        .arg(&file)
        .env("HF_ENDPOINT", address)
        .env("HOME", folder.path())
        .env_remove("XDG_CACHE_HOME")
        .output()
        .expect("plimsoll runs");
    let stated = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (stated(&run.stdout), stated(&run.stderr))
}

#[test]
fn a_model_of_the_hub_is_planned_before_it_is_downloaded() {
    let hub = hosted(Fault::None);
    let (stated, log) = checked(&hub.address);
    let line = |name: &str| stated.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line("one").contains("6315 MiB planned"), "{stated}{log}");
    assert!(line("two").contains("planned"), "{stated}{log}");
}

#[test]
fn without_the_hub_the_need_is_unknown_and_the_reason_is_logged_once_for_many_models() {
    let (stated, log) = checked("http://127.0.0.1:9");
    assert!(stated.contains("models one, two") && stated.contains("memory need unknown"), "{stated}");
    assert!(log.contains("cannot be reached") && log.contains("a moment ago"), "{log}");
    let gated = hosted(Fault::Gated);
    let (stated, log) = checked(&gated.address);
    assert!(stated.contains("memory need unknown") && log.contains("HF_TOKEN"), "{stated}{log}");
}

#[test]
fn a_model_on_a_server_that_never_answers_keeps_no_other_model_waiting() {
    // It takes connections and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", silent.local_addr().expect("an address"));
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in silent.incoming().flatten() {
            let _ = stream.read(&mut [0; 1]);
            open.push(stream);
        }
    });
    let daemon = Setup::new()
        .named("models.ini")
        .config(&format!(
            "version = 1\n;plimsoll: engine = {}\n[far]\nhf-repo = user/model-GGUF\n\
             [near]\nmodel = /dev/null\n;plimsoll: memory = 100MiB\n",
            fake_engine().display()
        ))
        .variable("HF_ENDPOINT", &address)
        .start();
    let answer = crate::http::chat(daemon.address, "near");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// `plimsoll serve -hf` of this name, over the hub at `address`.
fn serving(address: &str, name: &str) -> Setup {
    let setup = Setup::with_cards(&[CARD]).variable("HF_ENDPOINT", address);
    setup.argument("--engine").argument(&fake_engine().to_string_lossy()).argument("-hf").argument(name)
}

#[test]
fn a_model_of_the_hub_is_served_with_flags_that_fit_and_fetched_by_its_engine() {
    let (hub, name) = (hosted(Fault::None), "user/model-GGUF:Q4_K_M");
    let daemon = serving(&hub.address, name).start();
    daemon.reported(&format!("{name}: -c 32768"));
    let answer = chat(daemon.address, name);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let engine = daemon.engines()[0];
    let line = command_line(engine);
    for flags in [&format!("--hf-repo {name}")[..], "--ctx-size 32768", "--parallel 1"] {
        assert!(line.contains(flags), "{line}");
    }
    // The engine asks the hub that the plan was made of.
    let environment = std::fs::read(format!("/proc/{engine}/environ")).expect("the engine runs");
    assert!(String::from_utf8_lossy(&environment).contains(&format!("HF_ENDPOINT={}", hub.address)));
    assert!(hub.requested().0 < 32 << 20, "the header alone");
    // A reload neither asks the hub again nor chooses other flags.
    let asked = hub.requests().len();
    daemon.signal("HUP");
    daemon.reported("read again");
    assert_eq!((hub.requests().len(), daemon.engines()), (asked, vec![engine]));
}

#[test]
fn a_model_of_a_hub_that_cannot_be_reached_is_served_and_the_reason_is_reported() {
    let daemon = serving("http://127.0.0.1:9", "user/model-GGUF").start();
    daemon.reported("user/model-GGUF: -np 1: no other flag is chosen, since its header is not known: ");
    daemon.reported("cannot be reached");
    let answer = chat(daemon.address, "user/model-GGUF");
    assert_eq!(answer.status, 200, "{}", answer.text());
}
