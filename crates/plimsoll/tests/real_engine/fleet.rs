//! Test setup: three models for a real llama.cpp, with a memory budget for two of them.

use std::net::SocketAddr;
use std::path::Path;

use plimsoll_specimens::Changes;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::child::{plimsoll, program};
use crate::daemon::{Daemon, Setup};
use crate::http;
use crate::http::Answer;

/// The build of the engine that the tests install, as `plimsoll engine list` tells it.
const ENGINE: &str = "llama.cpp@11549";
/// One thread: threads that spin while they wait for each other take minutes on a busy machine.
const FLAGS: &str = "--threads 1 -c 2048 -np 2";

/// Asks for a few words: without a limit a model of random weights may talk until its context is full.
pub(crate) fn chat(address: SocketAddr, model: &str) -> Answer {
    let mut body = http::chat_body(model, false);
    body["max_tokens"] = json!(4);
    http::post(address, "/v1/chat/completions", &body)
}

/// A model as it is configured.
pub(crate) struct Member {
    pub(crate) name: &'static str,
    /// The shape of the synthetic model, and its layers where they are not the shape's own.
    pub(crate) shape: &'static str,
    pub(crate) layers: Option<u32>,
    pub(crate) flags: String,
}

impl Member {
    pub(crate) fn new(name: &'static str, shape: &'static str, more: &str) -> Self {
        Self { name, shape, layers: None, flags: format!("{FLAGS} {more}") }
    }
}

/// Two that chat and one that embeds.
pub(crate) fn three() -> [Member; 3] {
    [
        Member::new("alpha", "tiny", ""),
        Member::new("beta", "tiny", ""),
        Member::new("gamma", "tiny-embed", "--embeddings"),
    ]
}

/// A daemon with its models; the folder holds their files.
pub(crate) struct Fleet {
    pub(crate) daemon: Daemon,
    _folder: TempDir,
}

impl Fleet {
    /// Serves `members` from a budget that holds the two largest, and not a third.
    pub(crate) fn with_room_for_two(members: &[Member]) -> Self {
        Self::start(members, "", |mut needs| {
            needs.sort_unstable();
            needs[needs.len() - 2..].iter().sum::<u64>() + needs[0] / 2
        })
    }

    /// Serves `members` from a budget that follows from what each will take; `more` is further configuration.
    pub(crate) fn start(members: &[Member], more: &str, budget: impl FnOnce(Vec<u64>) -> u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = more.to_owned();
        let mut needs = Vec::new();
        for member in members {
            let file = folder.path().join(format!("{}.gguf", member.name));
            let changes = Changes { layers: member.layers, ..Changes::default() };
            plimsoll_specimens::write(member.shape, &file, &changes).unwrap();
            needs.push(need(&file, &member.flags));
            let (name, file, flags) = (member.name, file.display(), &member.flags);
            config += &format!("[models.{name}]\nmodel = \"{file}\"\nflags = \"{flags}\"\n");
        }
        let card = format!("name=budget,kind=host,total={}B", budget(needs));
        let daemon = Setup::with_cards(&[&card])
            .config(&config)
            .argument("--engine")
            .argument(&program().display().to_string())
            .start();
        Self { daemon, _folder: folder }
    }
}

/// The bytes that `plimsoll plan` says the model takes at most.
pub(crate) fn need(file: &Path, flags: &str) -> u64 {
    let card = "name=budget,kind=host,total=16GiB";
    let output = plimsoll()
        .args(["plan", "--json", "--engine", ENGINE, "--card", card, "--", "--model"])
        .arg(file)
        .args(flags.split_whitespace())
        .output()
        .unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    plan["cards"][0]["peak"].as_u64().unwrap()
}
