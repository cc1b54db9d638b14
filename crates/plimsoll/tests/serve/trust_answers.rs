//! Test that a request which its engine drops fails for its own client only.

use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::daemon::Setup;
use crate::http::{chat, chat_body, open, post, read};

#[test]
fn a_dropped_request_is_answered_502_and_the_engine_goes_on_serving_others() {
    let daemon =
        Setup::new().model("a", "256MiB", "fail=drop_at_depth:1000 events=40 event_ms=100", "").start();
    let process = chat(daemon.address, "a").json()["fake"]["pid"].clone();
    let stream = open(daemon.address, "POST", "/v1/chat/completions", Some(&chat_body("a", true)));
    let mut deep = chat_body("a", false);
    deep["messages"] = json!([{"role": "user", "content": "deep ".repeat(2000)}]);
    for _ in 0..2 {
        let refused = post(daemon.address, "/v1/chat/completions", &deep);
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert_eq!(refused.json()["error"]["code"], "no_answer");
        // A kill would follow two seconds after the first dropped request.
        thread::sleep(Duration::from_millis(1200));
        assert_eq!(chat(daemon.address, "a").json()["fake"]["pid"], process);
    }
    let whole = read(&stream);
    assert!(whole.whole && whole.text().contains("[DONE]"), "{}", whole.text());
}
