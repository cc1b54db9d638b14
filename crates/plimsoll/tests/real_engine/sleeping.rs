//! Test of an engine that frees its memory while it is idle (`--sleep-idle-seconds`), and of a model that loads into it.

use crate::daemon::until;
use crate::fleet::{self, Fleet, Member};

/// Weights and cache are memory of the process, and all of it is written at the load.
const FLAGS: &str = "-c 98304 -cram 0 --load-mode none -ub 32";

#[test]
fn a_model_loads_beside_a_sleeping_one_whose_next_request_has_its_memory_back() {
    let members = [
        Member::new("alpha", "tiny", &format!("{FLAGS} --sleep-idle-seconds 1")),
        Member::new("beta", "tiny", FLAGS),
    ];
    // Room for one of them and a half.
    let fleet = Fleet::start(&members, "", |needs| needs[0] + needs[1] / 2);
    let daemon = &fleet.daemon;
    assert_eq!(fleet::chat(daemon.address, "alpha").status, 200);
    let held = || {
        let status = daemon.status();
        let models = status["models"].as_array().unwrap();
        let alpha = models.iter().find(|model| model["name"] == "alpha").unwrap();
        alpha["measured"][0]["bytes"].as_u64().unwrap_or(u64::MAX)
    };
    let claim = daemon.claimed();
    until("it holds a part of its claim", || held() < claim / 3);
    assert_eq!(daemon.claimed(), claim, "the claim stands while nothing wants it");
    assert_eq!(fleet::chat(daemon.address, "beta").status, 200);
    assert_eq!(daemon.running(), ["alpha", "beta"], "{}", daemon.talk());
    assert_eq!(fleet::chat(daemon.address, "alpha").status, 200);
    assert_eq!(daemon.running(), ["alpha"], "{}", daemon.talk());
    assert_eq!(daemon.talk().matches("INFO load alpha").count(), 1, "it was never stopped");
}
