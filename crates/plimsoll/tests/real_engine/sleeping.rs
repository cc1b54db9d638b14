//! Test of an engine that frees its memory while idle (`--sleep-idle-seconds`), and of another model that
//! uses this memory.

use plimsoll_specimens::Changes;

use super::fleet;
use crate::child::program;
use crate::daemon::{Setup, until};

/// Weights and cache are memory of the process, and all of it is written at the load: some 400 MiB.
const FLAGS: &str = "--threads 1 -np 2 -c 786432 -cram 0 --load-mode none -ub 32";

#[test]
fn a_model_loads_beside_a_sleeping_one_whose_next_request_has_its_memory_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiny.gguf");
    plimsoll_specimens::write("tiny", &file, &Changes::default()).unwrap();
    let section = |name: &str, more: &str| {
        format!("[models.{name}]\nmodel = \"{}\"\nflags = \"{FLAGS} {more}\"\n", file.display())
    };
    // Room for one of them and a half.
    let card = format!("name=host,kind=host,total={}B", fleet::need(&file, FLAGS) / 2 * 3);
    let daemon = Setup::with_cards(&[&card])
        .config(&(section("alpha", "--sleep-idle-seconds 4") + &section("beta", "")))
        .argument("--engine")
        .argument(&program().display().to_string())
        .start();
    assert_eq!(fleet::chat(daemon.address, "alpha").status, 200);
    let occupied = || {
        let status = daemon.status();
        let models = status["models"].as_array().unwrap();
        let alpha = models.iter().find(|model| model["name"] == "alpha").unwrap();
        alpha["measured"][0]["bytes"].as_u64().unwrap_or_default()
    };
    let claim = daemon.claimed();
    until("it was measured while awake", || occupied() > claim / 2);
    until("it holds a part of its claim", || occupied() < claim / 3);
    assert!(daemon.claimed() >= claim, "the claim stands while nothing wants it");
    assert_eq!(fleet::chat(daemon.address, "beta").status, 200);
    assert_eq!(daemon.running(), ["alpha", "beta"], "{}", daemon.talk());
    assert_eq!(fleet::chat(daemon.address, "alpha").status, 200);
    assert_eq!(daemon.running(), ["alpha"], "{}", daemon.talk());
    assert_eq!(daemon.talk().matches("INFO load alpha").count(), 1, "it was never stopped");
}
