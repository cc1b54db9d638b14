//! Test of a model that takes more memory of a simulated host than models may use.

use serde_json::{Value, json};

use crate::daemon::{Daemon, Setup, until};
use crate::http::{chat, post};

const MIB: u64 = 1 << 20;

fn claimed(daemon: &Daemon) -> u64 {
    let status = daemon.status();
    let shares = status["models"][0]["claim"].as_array().cloned().unwrap_or_default();
    shares.iter().filter_map(|share| share["bytes"].as_u64()).sum()
}

/// Status and reason of an answer; what differs from one failure to the next in spite of one cause is left
/// out.
fn refusal(answer: &crate::http::Answer) -> (u16, Value) {
    let error = answer.json()["error"].clone();
    (answer.status, json!([error["type"], error["message"], error["reason"]["code"]]))
}

#[test]
fn it_is_refused_each_time_with_both_figures_and_the_remedy() {
    // The engine keeps 100 MB from its first answer on.
    let script = "once_at=1 once=100000000";
    let daemon =
        Setup::with_cards(&["name=host,kind=host,total=64MiB"]).model("grows", "32MiB", script, "").start();
    assert_eq!(chat(daemon.address, "grows").status, 200);
    daemon.reported("of which models may use 64 MiB: its next load will be refused");
    until("the claim follows", || claimed(&daemon) > 90 * MIB);
    assert_eq!(chat(daemon.address, "grows").status, 200, "what runs goes on");
    let unloaded = post(daemon.address, "/models/unload", &json!({ "model": "grows" }));
    assert_eq!(unloaded.status, 200, "{}", unloaded.text());
    until("it is gone", || daemon.running().is_empty() && daemon.engines().is_empty());
    let first = chat(daemon.address, "grows");
    let text = first.text();
    assert_eq!(first.status, 413, "{text}");
    for words in ["64 MiB available", "more on each card than planned or declared", "allow models"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let loaded = post(daemon.address, "/models/load", &json!({ "model": "grows" }));
    assert!(loaded.status < 500, "{}", loaded.text());
    // The wait after a failed load was a second, after which the model was loaded all the same.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    for _ in 0..2 {
        assert_eq!(refusal(&chat(daemon.address, "grows")), refusal(&first));
    }
    assert!(daemon.engines().is_empty());
}
