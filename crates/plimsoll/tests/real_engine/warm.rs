//! Test of a warm swap with a real llama.cpp: 8000 cached tokens are saved with their model and restored.
//!
//! The engine does not compute them again.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use plimsoll_specimens::Changes;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::fleet::need;
use crate::child::program;
use crate::daemon::{Daemon, Setup, until};
use crate::http;

const TOKENS: u64 = 8000;
/// Deep enough that 8000 tokens take far longer than a load. The context of both slots is 12288.
const LAYERS: u32 = 10;
const FLAGS: &str = "--threads 1 -c 24576 -np 2";

struct Swap {
    daemon: Daemon,
    home: TempDir,
}

/// Two models of which one fits.
fn swap(warm: &str) -> Swap {
    let home = tempfile::tempdir().unwrap();
    let mut config = format!("[serve]\n{warm}\n");
    let mut needs = Vec::new();
    for (name, layers) in [("alpha", LAYERS), ("beta", 4)] {
        let file = home.path().join(format!("{name}.gguf"));
        let changes = Changes {
            layers: Some(layers),
            context: Some(16_384),
            dense: true,
            seed: Some(7),
            ..Changes::default()
        };
        plimsoll_specimens::write("tiny", &file, &changes).unwrap();
        needs.push(need(&file, FLAGS));
        config += &format!("[models.{name}]\nmodel = '{}'\nflags = '{FLAGS}'\nhold = '0'\n", file.display());
    }
    let card =
        format!("name=budget,kind=host,total={}B", needs[0].max(needs[1]) + needs[0].min(needs[1]) / 2);
    let daemon = Setup::with_cards(&[&card])
        .config(&config)
        .argument("--engine")
        .argument(&program().display().to_string())
        .variable("XDG_CACHE_HOME", &home.path().display().to_string())
        .start();
    Swap { daemon, home }
}

impl Swap {
    fn address(&self) -> SocketAddr {
        self.daemon.address
    }

    /// An answer to the long prompt, the time to its first token, and the tokens that the engine computed for
    /// it.
    fn ask(&self) -> (String, Duration, u64) {
        let prompt: Vec<u64> = (0..TOKENS).map(|n| 3 + (n * 7919) % 200).collect();
        let body = json!({
            "model": "alpha", "prompt": prompt, "n_predict": 12, "temperature": 0, "stream": true, "cache_prompt": true,
            "ignore_eos": true,
        });
        let begun = Instant::now();
        let mut stream = http::open(self.address(), "POST", "/completion", Some(&body));
        let (mut text, mut first) = (Vec::new(), None);
        let mut piece = [0; 4096];
        loop {
            let read = stream.read(&mut piece).unwrap();
            text.extend_from_slice(&piece[..read]);
            let events = String::from_utf8_lossy(&text);
            if events.contains("\"content\"") {
                first.get_or_insert_with(|| begun.elapsed());
            }
            if read == 0 {
                break;
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let events: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        let answer: String = events.iter().filter_map(|event| event["content"].as_str()).collect();
        // A chunk may end in the last event, which is long.
        let computed = text.split("\"prompt_n\":").nth(1).unwrap_or_else(|| panic!("{text}"));
        let computed: String = computed.chars().take_while(char::is_ascii_digit).collect();
        (answer, first.unwrap(), computed.parse().unwrap())
    }

    /// Makes alpha leave, and waits until its slot is stored.
    fn away(&self, saved: usize) {
        let answer = super::fleet::chat(self.address(), "beta");
        assert_eq!(answer.status, 200, "{}", answer.text());
        until("the slot is stored", || self.files("json").len() >= saved);
    }

    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.home.path().join("plimsoll/slots")).into_iter().flatten().flatten();
        folder
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|its| its == ending))
            .collect()
    }
}

#[test]
fn long_a_prompt_of_8000_tokens_comes_back_in_a_fifth_of_its_time_and_damage_is_refused() {
    let cold = swap("");
    let (expected, _, computed) = cold.ask();
    assert_eq!(computed, TOKENS);
    cold.away(0);
    let (again, anew, _) = cold.ask();
    assert_eq!(again, expected);
    drop(cold);

    let warm = swap("warm = '4GiB'");
    assert_eq!(warm.ask().0, expected);
    // What the engine answers from its cache: it computes the last token alone, which rounds otherwise than
    // in a batch.
    let (expected_again, _, cached) = warm.ask();
    assert!(cached < 64, "{cached}");
    warm.away(1);
    let (answer, back, computed) = warm.ask();
    let size = fs::metadata(&warm.files("slot")[0]).unwrap().len();
    println!(
        "{TOKENS} tokens, {size} bytes: {:.2} s to the first token anew, {:.2} s restored, {computed} computed",
        anew.as_secs_f64(),
        back.as_secs_f64()
    );
    println!(
        "{}",
        warm.daemon.talk().lines().filter(|line| line.contains(" slot ")).collect::<Vec<_>>().join("\n")
    );
    assert_eq!(answer, expected_again, "the same answer as if it had stayed");
    assert!(computed < 64, "{computed}");
    assert!(back * 5 <= anew, "{back:?} {anew:?}");

    warm.away(1);
    let file = warm.files("slot").pop().unwrap();
    let mut state = OpenOptions::new().read(true).write(true).open(&file).unwrap();
    let mut byte = [0];
    state.seek(SeekFrom::Start(size / 2)).unwrap();
    state.read_exact(&mut byte).unwrap();
    state.seek(SeekFrom::Start(size / 2)).unwrap();
    state.write_all(&[!byte[0]]).unwrap();
    let (answer, _, computed) = warm.ask();
    assert_eq!((answer, computed), (expected, TOKENS));
    warm.daemon
        .reported("a saved prompt cache was removed: the file's content has changed since it was saved");
    assert!(!file.exists());
}
