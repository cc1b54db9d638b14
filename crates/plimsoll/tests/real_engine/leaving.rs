//! Test of a client that disconnects in the middle of a stream.

use std::io::Read;

use serde_json::json;

use super::fleet;
use super::fleet::{Fleet, Member};
use crate::daemon::until;
use crate::http;

/// Deep enough that a whole answer takes far longer than the test waits.
const LAYERS: u32 = 96;

#[test]
fn the_engine_stops_computing_for_a_client_that_left() {
    let members = [Member { layers: Some(LAYERS), ..Member::new("alpha", "tiny", "-c 4096 -np 1") }];
    let fleet = Fleet::start(&members, "", |needs| needs[0]);
    let address = fleet.daemon.address;
    let slot = || http::get(address, "/slots?model=alpha").json()[0].clone();
    let mut body = http::chat_body("alpha", true);
    body["max_tokens"] = json!(4000);
    body["ignore_eos"] = json!(true);
    let mut stream = http::open(address, "POST", "/v1/chat/completions", Some(&body));
    stream.read_exact(&mut [0; 64]).unwrap();
    // A load that takes long has its first comments before the engine is working on the request.
    until("the slot computes", || slot()["is_processing"] == true);
    drop(stream);
    until("the slot is idle again", || slot()["is_processing"] == false);
    until("the engine tells that it was cut short", || http::get(address, "/logs").text().contains("cancel"));
    assert_eq!(fleet::chat(address, "alpha").status, 200);
}
