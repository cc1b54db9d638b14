//! Test of many clients that wait for one load, more than llama-server has threads for connections.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fleet;
use super::fleet::{Fleet, three};
use crate::daemon::until;
use crate::http;

/// llama-server gives up on an idle connection after 5 s: nobody may have waited for that.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
const CLIENTS: usize = 24;
const BURSTS: usize = 3;

#[test]
fn nobody_who_waited_for_a_load_waits_for_a_thread_that_an_idle_connection_holds() {
    let fleet = Fleet::start(&three()[..1], "", |needs| needs[0]);
    let daemon = &fleet.daemon;
    let address = daemon.address;
    let requested = move || {
        let answer = fleet::chat(address, "alpha");
        assert_eq!(answer.status, 200, "{}", answer.text());
        Instant::now()
    };
    for _ in 0..BURSTS {
        let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(requested)).collect();
        let mut ends: Vec<Instant> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        ends.sort();
        let between = ends[CLIENTS - 1] - ends[0];
        assert!(between < KEEP_ALIVE, "{between:?} from the first answer to the last");
        http::post(address, "/unload", &Value::Null);
        until("it is unloaded", || daemon.engines().is_empty());
    }
}
