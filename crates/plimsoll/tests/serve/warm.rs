//! Tests of warm swaps: slots are saved before a model is stopped, and restored after its next load.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::daemon::{Daemon, Setup, fake_engine, until};
use crate::http::{self, post};

/// Bytes of the conversation; the fake engine counts four for a token.
const CONVERSATION: usize = 20_000;

/// Two models of which one fits, so that each request for one makes the other leave.
struct Swap {
    daemon: Daemon,
    home: TempDir,
}

/// `prompt_us=100`: the conversation takes half a second to compute.
fn swap(warm: &str, script: &str) -> Swap {
    in_home(tempfile::tempdir().expect("as the test has made it"), warm, script)
}

fn in_home(home: TempDir, warm: &str, script: &str) -> Swap {
    let mut config = format!("[serve]\n{warm}\n");
    for name in ["alpha", "beta"] {
        let file = home.path().join(format!("{name}.gguf"));
        if !file.exists() {
            plimsoll_specimens::write("tiny", &file, &plimsoll_specimens::Changes::default())
                .expect("as the test has made it");
        }
        config += &format!(
            "[models.{name}]\nmodel = '{}'\nmemory = '600MiB'\nhold = '0'\n\
             env = {{ PLIMSOLL_FAKE_ENGINE = 'prompt_us=100 {script}' }}\n",
            file.display()
        );
    }
    let daemon = Setup::new()
        .config(&config)
        .argument("--engine")
        .argument(&fake_engine().display().to_string())
        .variable("XDG_CACHE_HOME", &home.path().display().to_string())
        .start();
    Swap { daemon, home }
}

impl Swap {
    /// Asks `model` to go on with the conversation that begins with `name`.
    fn ask(&self, model: &str, name: &str, more: &str) -> Value {
        let first = format!("{name} {}", "sails the seas ".repeat(CONVERSATION / 15));
        let messages = json!([{"role": "user", "content": first}, {"role": "user", "content": more}]);
        let answer =
            post(self.daemon.address, "/v1/chat/completions", &json!({"model": model, "messages": messages}));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    }

    /// Tokens that the engine of `model`, which is loaded, has computed since its start.
    fn computed(&self, model: &str) -> u64 {
        let page = http::get(self.daemon.address, &format!("/upstream/{model}/metrics")).text();
        let line = page.lines().find_map(|line| line.strip_prefix("llamacpp:prompt_tokens_total "));
        line.unwrap_or_else(|| panic!("{page}")).parse().expect("as the test has made it")
    }

    /// The files of saved slots with this ending.
    fn files(&self, ending: &str) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.home.path().join("plimsoll/slots")).into_iter().flatten().flatten();
        folder
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|its| its == ending))
            .collect()
    }

    fn saved(&self, count: usize) {
        until(&format!("{count} slots are saved: {}", self.daemon.talk()), || {
            self.files("json").len() == count
        });
    }
}

#[test]
fn a_conversation_goes_on_after_a_swap_without_being_computed_again() {
    let swap = swap("warm = '1GiB'", "");
    swap.ask("alpha", "the ship", "and?");
    assert!(swap.computed("alpha") > 4000);
    swap.ask("beta", "another", "and?");
    swap.saved(1);
    swap.ask("alpha", "the ship", "and then?");
    assert!(swap.computed("alpha") < 100, "{}", swap.daemon.talk());
    swap.daemon.reported("alpha: restored");
    // The slot is saved again, and the file before holds nothing more.
    swap.ask("beta", "another", "and?");
    assert!(swap.computed("beta") < 100);
    until("each model has one", || swap.files("json").len() == 2 && swap.files("slot").len() == 2);
    let files = swap.files("slot");
    drop(swap.daemon);
    assert!(files.iter().all(|file| file.exists()), "they outlive the daemon");
}

#[test]
fn another_conversation_finds_nothing_and_a_later_daemon_finds_it_all() {
    let swap = swap("warm = '1GiB'", "");
    swap.ask("alpha", "the ship", "and?");
    swap.ask("beta", "the ship", "and?");
    swap.saved(1);
    swap.ask("alpha", "a fish", "and?");
    assert!(swap.computed("alpha") > 4000);
    swap.ask("beta", "the ship", "and?");
    until("all three conversations are saved", || swap.files("json").len() == 3);
    assert!(!swap.daemon.talk().contains("alpha: restored"), "{}", swap.daemon.talk());
    let Swap { daemon, home } = swap;
    drop(daemon);
    let swap = in_home(home, "warm = '1GiB'", "");
    swap.ask("alpha", "the ship", "and more?");
    assert!(swap.computed("alpha") < 100, "{}", swap.daemon.talk());
}

#[test]
fn a_damaged_file_is_refused_and_removed_and_the_prompt_is_computed_anew() {
    let swap = swap("warm = '1GiB'", "");
    swap.ask("alpha", "the ship", "and?");
    swap.ask("beta", "the ship", "and?");
    swap.saved(1);
    let file = swap.files("slot").pop().unwrap();
    let mut content = fs::read(&file).unwrap();
    content[9000] ^= 1;
    fs::write(&file, content).unwrap();
    let answer = swap.ask("alpha", "the ship", "and then?");
    assert_eq!(answer["choices"][0]["message"]["role"], "assistant");
    assert!(swap.computed("alpha") > 4000);
    swap.daemon
        .reported("a saved prompt cache was removed: the file's content has changed since it was saved");
    assert!(!file.exists());
}

#[test]
fn a_save_that_takes_longer_than_it_is_worth_delays_no_swap_and_is_not_tried_again() {
    let swap = swap("warm = '1GiB'", "save_ms=60000");
    swap.ask("alpha", "the ship", "and?");
    let begun = Instant::now();
    swap.ask("beta", "the ship", "and?");
    // Half a second for the prompt of beta, a quarter for the save, and the rest for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    swap.daemon.reported("alpha: the prompt cache of slot 0 was not saved within");
    swap.ask("alpha", "the ship", "and?");
    swap.ask("beta", "the ship", "and?");
    assert_eq!(
        swap.daemon.talk().matches("alpha: the prompt cache of slot 0 was not saved").count(),
        1,
        "{}",
        swap.daemon.talk()
    );
    assert!(swap.files("slot").is_empty());
}

#[test]
fn the_disk_bound_is_kept_and_a_slot_that_passes_it_is_given_up() {
    // A file of some 90 kB: two fit.
    let small = swap("warm = '200KiB'", "");
    for name in ["a", "b", "c", "d"] {
        small.ask("alpha", name, "and?");
        small.ask("beta", name, "and?");
    }
    until("the last two are left", || small.files("json").len() == 2);
    let occupied = || {
        small.files("slot").iter().chain(&small.files("json")).map(|it| fs::metadata(it).unwrap().len()).sum()
    };
    let occupied: u64 = occupied();
    assert!(occupied > 90_000 && occupied <= 200 << 10, "{occupied}");
    let large = swap("warm = '1MiB'", "slot_bytes=4096");
    large.ask("alpha", "the ship", "and?");
    large.ask("beta", "the ship", "and?");
    assert!(large.files("slot").is_empty());
}

#[test]
fn nothing_is_saved_unless_it_is_asked_for() {
    for warm in ["", "warm = '0'"] {
        let swap = swap(warm, "");
        swap.ask("alpha", "the ship", "and?");
        swap.ask("beta", "the ship", "and?");
        assert!(!swap.home.path().join("plimsoll/slots").exists());
        assert!(!http::get(swap.daemon.address, "/upstream/beta/fake/env").text().contains("slot-save-path"));
    }
}
