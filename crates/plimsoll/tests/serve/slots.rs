//! Tests of llama-server's slots: it is sent as many requests as it works on at once.

use std::thread;

use serde_json::Value;

use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{self, chat};

fn view(daemon: &Daemon, key: &str) -> Value {
    daemon.status()["models"][0][key].clone()
}

/// Requests in flight and in the queue, of nine at once.
fn nine(flags: &str, script: &str) -> (Value, Value) {
    let text = format!(
        "[models.m]\nprogram = '{}'\nflags = '-m /dev/null {flags}'\nmemory = '256MiB'\n\
            env = {{ PLIMSOLL_FAKE_ENGINE = '{script} delay_ms=1500' }}\n",
        fake_engine().display()
    );
    let daemon = Setup::new().config(&text).start();
    assert_eq!(chat(daemon.address, "m").status, 200);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..9).map(|_| scope.spawn(|| chat(daemon.address, "m").status)).collect();
        until("all are here", || {
            [view(&daemon, "in_flight"), view(&daemon, "queued")]
                .iter()
                .filter_map(Value::as_u64)
                .sum::<u64>()
                == 9
        });
        let counts = (view(&daemon, "in_flight"), view(&daemon, "queued"));
        // A count of tokens takes no slot.
        let begun = std::time::Instant::now();
        let count = http::post(daemon.address, "/tokenize?model=m", &serde_json::json!({"content": "x"}));
        assert_eq!(count.status, 200, "{}", count.text());
        assert!(begun.elapsed() < std::time::Duration::from_millis(1000), "{:?}", begun.elapsed());
        assert!(clients.into_iter().all(|client| client.join().expect("a client") == 200));
        counts
    })
}

#[test]
fn as_many_requests_are_sent_as_the_flags_give_slots() {
    assert_eq!(nine("-np 2", "slots=2"), (2.into(), 7.into()));
}

#[test]
fn without_flags_the_engine_says_how_many_slots_it_has() {
    assert_eq!(nine("", "slots=3"), (3.into(), 6.into()));
}
