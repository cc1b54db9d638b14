//! Tests that the planner in WebAssembly answers byte for byte as the native one does.
//!
//! `cargo xtask site --check` builds the module, and names it in `PLIMSOLL_SITE_WASM`. One process of Node.js
//! holds all conversations.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_site::Session;

use super::cases::{Case, fuzzed, recorded};
use super::session::converse;

const MODULE: &str = "PLIMSOLL_SITE_WASM";

/// Messages of all cases to a native session, each with its reply.
fn conversations(cases: &[Case]) -> Vec<(Vec<u8>, String)> {
    let (mut session, mut all) = (Session::default(), Vec::new());
    for case in cases {
        converse(case, &mut |message| {
            let reply = session.reply(message);
            all.push((message.to_vec(), reply.clone()));
            reply
        });
    }
    all
}

/// The replies of the module to the same messages; each is written with its length before it.
fn replies(module: &Path, messages: &[(Vec<u8>, String)]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let [input, output] = ["messages", "replies"].map(|name| folder.path().join(name));
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap().to_le_bytes();
    let framed: Vec<u8> = messages.iter().flat_map(|(one, _)| [&length(one)[..], one].concat()).collect();
    fs::write(&input, framed).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/site/converse.mjs");
    let status = Command::new("node").arg(script).args([module, &input, &output]).status().unwrap();
    assert!(status.success(), "{status}");
    let bytes = fs::read(output).unwrap();
    let (mut rest, mut all) = (bytes.as_slice(), Vec::new());
    while let Some((length, more)) = rest.split_first_chunk::<4>() {
        let (reply, more) = more.split_at(usize::try_from(u32::from_le_bytes(*length)).unwrap());
        all.push(String::from_utf8(reply.to_vec()).unwrap());
        rest = more;
    }
    all
}

/// Compares the module with the native planner; the native half is run in any case.
fn compared(cases: &[Case]) {
    let native = conversations(cases);
    assert!(native.len() >= 2 * cases.len());
    let Some(module) = env::var_os(MODULE).map(PathBuf::from) else {
        println!("no module of WebAssembly is compared: `cargo xtask site --check` builds one");
        return;
    };
    let replies = replies(&module, &native);
    assert_eq!(replies.len(), native.len());
    for ((message, native), reply) in native.iter().zip(&replies) {
        assert_eq!(reply, native, "{}", String::from_utf8_lossy(&message[..message.len().min(300)]));
    }
    let plans = native.iter().filter(|(_, reply)| reply.contains("plimsoll.plan/1")).count();
    println!("{} conversations, {} replies, {plans} plans: equal to the byte", cases.len(), native.len());
}

#[test]
fn long_recorded_rows_have_the_same_bytes_in_webassembly() {
    compared(&recorded());
}

#[test]
fn damaged_headers_have_the_same_bytes_in_webassembly() {
    compared(&fuzzed(100));
}

#[test]
fn long_ten_thousand_damaged_headers_have_the_same_bytes_in_webassembly() {
    compared(&fuzzed(10_000));
}
