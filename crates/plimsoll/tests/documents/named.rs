//! Tests of the commands in the documentation's sentences, tables and indented blocks: each runs as written.
//!
//! Real names replace placeholders in capitals.

use std::collections::BTreeSet;

use super::page::Page;
use super::room::Room;
use super::{pages, repository};

/// Command of the pages, the words to run for it where it has capitals, and the status it ends with.
///
/// In this order, so that the server stops last.
const NAMED: &[(&str, &str, i32)] = &[
    ("serve CONFIG --check", "serve plimsoll.toml --check --card kind=host,total=64GiB", 0),
    ("serve llama-swap.yaml", "serve llama-swap.yaml --check --card kind=host,total=64GiB", 0),
    ("serve --print-unit --user", "", 0),
    ("doctor FILE…", "doctor server.log", 0),
    ("doctor -", "doctor - < server.log", 0),
    ("doctor -- CMD", "doctor -- true", 0),
    ("doctor --pid PID", "doctor --pid $$", 0),
    ("import ollama", "", 0),
    ("completions bash", "", 0),
    ("man ~/.local/share/man/man1", "man man1", 0),
    ("plan MODEL FLAGS", "plan l8.gguf --card 3090 -c 4096", 0),
    ("plan -- llama-server -m l8.gguf -c 65536", "plan --card 3090 -- llama-server -m l8.gguf -c 65536", 0),
    // There is no hub and no server in this room.
    ("plan -hf USER/REPO", "plan -hf user/repo", 2),
    ("plan https://HOST/model.gguf", "plan http://127.0.0.1:9/model.gguf", 2),
    ("run --budget 4GiB", "run --budget 4GiB -- true", 0),
    ("measure soak URL", "measure soak http://127.0.0.1:8080 --requests 4 --round 2 --model chat", 3),
    ("engine remove", "", 0),
    ("ps [--json]", "ps --json", 0),
    ("ps", "", 0),
    ("status [--json] [--watch]", "status --json", 0),
    ("status", "", 0),
    ("load MODEL", "load chat", 0),
    ("pin MODEL [--for 1h]", "pin chat --for 1h", 0),
    ("unpin MODEL", "unpin chat", 0),
    ("yield SIZE [--card CARD] [--for 2h]", "yield 1MiB --card host --for 2h", 0),
    ("yield 8GiB --for 2h", "", 0),
    ("yield --end", "", 0),
    ("reload", "", 0),
    ("logs [MODEL] [--follow]", "logs chat", 0),
    ("unload MODEL", "unload chat", 0),
    ("unload --all", "", 0),
    ("stop", "", 0),
];

/// Commands that need a terminal, a network, another user or a card, and the file of the test that runs each.
const ELSEWHERE: &[(&str, &str)] = &[
    ("top", "crates/plimsoll/tests/serve/top.rs"),
    ("download USER/REPO:QUANT", "crates/plimsoll/tests/serve/downloads.rs"),
    ("engine install", "crates/plimsoll/tests/real_engine"),
    ("quickstart", "crates/plimsoll/tests/real_engine"),
    ("measure calibrate", "crates/plimsoll/tests/plan/calibrate.rs"),
    ("plan --exact -- FLAGS", "crates/plimsoll/tests/real_engine/exact.rs"),
    ("reclaim", "crates/plimsoll/tests/reclaim.rs"),
    ("serve CONFIG", "crates/plimsoll/tests/documents/room.rs"),
    ("serve CONFIG --fleet etcd://10.0.0.1,10.0.0.2,10.0.0.3", "crates/plimsoll/tests/fleet"),
    ("serve FOLDER", "crates/plimsoll/tests/serve/folder.rs"),
    ("serve ~/models", "crates/plimsoll/tests/serve/folder.rs"),
    ("init FOLDER", "crates/plimsoll/tests/serve/folder.rs"),
    ("init ~/models", "crates/plimsoll/tests/serve/folder.rs"),
    ("fleet init --fleet lab", "crates/plimsoll/tests/fleet/certificates.rs"),
    ("fleet ps", "crates/plimsoll/tests/fleet/files.rs"),
    ("serve --print-unit", "crates/plimsoll/tests/serve/service_manager.rs"),
    ("bugreport plimsoll.toml", "crates/plimsoll/tests/bugreport.rs"),
    ("plan --formulas --json", "python/tests/test_plimsoll.py"),
    ("doctor --json", "python/tests/test_plimsoll.py"),
];

/// What stands between `plimsoll` and the end of the command, a pipe or a redirection.
fn commands_of_all_pages() -> BTreeSet<String> {
    let all = pages();
    let commands = all.iter().flat_map(|path| super::named_commands(&Page::read(path)));
    commands.map(|command| command.trim().trim_end_matches('\\').trim().to_owned()).collect()
}

/// A verb alone is the name of a command, unless it needs no more.
fn is_run(command: &str) -> bool {
    command.contains(' ') || NAMED.iter().any(|(named, ..)| *named == command)
}

#[test]
fn every_command_that_is_named_runs() {
    let elsewhere = |command: &String| ELSEWHERE.iter().any(|(named, _)| named == command);
    let listed = |command: &String| NAMED.iter().any(|(named, ..)| named == command);
    let left: Vec<String> = commands_of_all_pages()
        .into_iter()
        .filter(|command| is_run(command) && !listed(command) && !elsewhere(command))
        .collect();
    assert!(left.is_empty(), "no test runs {left:#?}");
    for (command, file) in ELSEWHERE {
        let verb = command.split(' ').next().unwrap();
        assert!(repository().join(file).exists(), "{file} for {verb}");
    }
    let mut room = Room::furnished(&Page::read(&repository().join("docs/migrate.md")));
    room.serve("plimsoll serve plimsoll.toml");
    let mut wrong = Vec::new();
    for (named, as_run, expected) in NAMED {
        let words = if as_run.is_empty() { named } else { as_run };
        let (status, output) = room.run(&format!("PLIMSOLL_URL=http://127.0.0.1:8080 plimsoll {words}"));
        if status != Some(*expected) {
            wrong.push(format!("`plimsoll {words}` ended with {status:?}: {output}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
