//! Tests that error codes, limits and defaults in the book (`docs/`) are those of the program, and are stated
//! once.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::page::Page;
use super::{pages, repository};

/// Codes of answers to another host of a fleet, which no client gets.
const BETWEEN_HOSTS: &[&str] = &[
    "authority_failed",
    "bad_range",
    "bad_seat",
    "busy",
    "copy_in_progress",
    "digest_pending",
    "file_changed",
    "file_gone",
    "files_not_shared",
    "invalid_fleet_key",
    "no_authority",
    "no_certificate",
    "no_copy",
    "no_news",
    "no_such_file",
    "not_for_clients",
    "not_offered",
    "other_file",
    "revoked_certificate",
    "unknown_model",
    "wrong_port",
];

const STATUSES: &[(&str, &str)] = &[
    ("BAD_REQUEST", "400"),
    ("UNAUTHORIZED", "401"),
    ("FORBIDDEN", "403"),
    ("NOT_FOUND", "404"),
    ("METHOD_NOT_ALLOWED", "405"),
    ("REQUEST_TIMEOUT", "408"),
    ("PAYLOAD_TOO_LARGE", "413"),
    ("UNSUPPORTED_MEDIA_TYPE", "415"),
    ("UNPROCESSABLE_ENTITY", "422"),
    ("TOO_MANY_REQUESTS", "429"),
    ("INTERNAL_SERVER_ERROR", "500"),
    ("NOT_IMPLEMENTED", "501"),
    ("BAD_GATEWAY", "502"),
    ("SERVICE_UNAVAILABLE", "503"),
];

/// Words of `docs/limits.md` or `docs/scheduling.md`, and their definition in the sources.
const LIMITS: &[(&str, &str)] = &[
    ("| connections | 1024,", "connections: 1024,"),
    ("under 2352 files", "assert_eq!(borne_by(2352), 1024);"),
    (
        "| head of a request | 64 KiB, 100 lines, 30 s (10 s",
        "head: Bytes::kib(64), headers: 100, head_time: Duration::from_secs(30),",
    ),
    ("30 s (10 s without a required key)", "keyless_time: Duration::from_secs(10),"),
    ("| body | 100 MiB; 1 MiB for an order", "body: Bytes::mib(100),"),
    ("1 MiB for an order to the server itself", "const LONGEST_ORDER: Size = Size::mib(1);"),
    (
        "| time of a body | 10 s, and 1 s for each 16 KiB",
        "body_time: Duration::from_secs(10), body_rate: Bytes::kib(16),",
    ),
    ("whole answers of Ollama's API | 1 GiB", "bodies: Bytes::gib(1),"),
    (
        "| such an answer | 64 MiB; an engine's refusal 256 KiB",
        "const MOST_ANSWER: usize = 64 * 1024 * 1024;",
    ),
    ("an engine's refusal 256 KiB", "const SMALL: usize = 256 * 1024;"),
    (
        "| 16 384 messages, 256 images",
        "const MOST_MESSAGES: usize = 16 * 1024; const MOST_PARTS: usize = 256;",
    ),
    ("| an answer that its client does not read | 60 s", "const STALL: Duration = Duration::from_secs(60);"),
    ("| requests that wait for a model | 1024", "queue: 1024,"),
    ("| interim responses (1xx) of an engine | 128 KiB", "const MOST_INTERIM: usize = 128 * 1024;"),
];

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap()
}

/// All product sources, each run of white space as one space.
fn sources() -> String {
    fn add(folder: &Path, text: &mut String) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() && !path.ends_with("tests") {
                add(&path, text);
            } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
                text.extend(
                    fs::read_to_string(&path).unwrap().split_whitespace().flat_map(|word| [word, " "]),
                );
            }
        }
    }
    let mut text = String::new();
    for folder in fs::read_dir(repository().join("crates")).unwrap().map(|entry| entry.unwrap().path()) {
        let sources = folder.join("src");
        if sources.is_dir() {
            add(&sources, &mut text);
        }
    }
    text
}

/// Statuses with the codes that the program answers with them, where a source names both together.
fn answered(sources: &str) -> BTreeSet<(&'static str, &str)> {
    let after = sources.split("StatusCode::").skip(1);
    let pairs = after.filter_map(|rest| {
        let (name, rest) = rest.split_once(", \"")?;
        let (_, status) = STATUSES.iter().find(|(known, _)| *known == name)?;
        let (code, _) = rest.split_once('"')?;
        let is_code = code.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_');
        is_code.then_some((*status, code))
    });
    pairs.filter(|(_, code)| !BETWEEN_HOSTS.contains(code)).collect()
}

#[test]
fn clients_has_every_error_code_beside_its_status() {
    let clients = read("docs/clients.md");
    let sources = sources();
    let answered = answered(&sources);
    assert!(answered.len() >= 30, "{answered:?}");
    let is_listed = |status: &str, code: &str| {
        let row = format!("| {status} |");
        clients.lines().any(|line| line.starts_with(&row) && line.contains(&format!("`{code}`")))
    };
    let missing: Vec<_> = answered.iter().filter(|(status, code)| !is_listed(status, code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_error_code_of_clients_is_one_of_the_program() {
    let sources = sources();
    let clients = read("docs/clients.md");
    let rows = clients.lines().filter(|line| line.starts_with("| 4") || line.starts_with("| 5"));
    let codes: Vec<&str> = rows
        .filter_map(|row| row.split('|').nth(2))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(codes.len() >= 40, "{codes:?}");
    let unknown: Vec<_> = codes.iter().filter(|code| !sources.contains(&format!("\"{code}\""))).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn every_limit_of_the_book_is_a_constant_of_the_program() {
    let (limits, sources) = (read("docs/limits.md"), sources());
    let wrong: Vec<_> = LIMITS
        .iter()
        .filter(|(words, definition)| !limits.contains(words) || !sources.contains(definition))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Keys of the reference with a default that has a number.
fn defaults(reference: &str) -> Vec<(String, String)> {
    let rows = reference.lines().filter_map(|line| {
        let key = line.strip_prefix("| `")?.split('`').next()?;
        let value = line.split_once("Default: `")?.1.split('`').next()?;
        value.contains(|letter: char| letter.is_ascii_digit()).then(|| (key.to_owned(), value.to_owned()))
    });
    rows.collect()
}

#[test]
fn a_default_stands_in_the_reference_alone() {
    let defaults = defaults(&read("docs/reference/configuration.md"));
    assert!(defaults.len() >= 8, "{defaults:?}");
    let mut twice = Vec::new();
    for path in pages() {
        let mut is_code = false;
        for line in &Page::read(&path).lines {
            is_code ^= line.starts_with("```");
            let repeats = |(key, value): &&(String, String)| {
                line.contains(&format!("`{key}` ({value}"))
                    || line.contains(&format!("`{key}`, {value} by default"))
            };
            twice.extend(
                defaults.iter().filter(repeats).filter(|_| !is_code).map(|found| (path.clone(), found)),
            );
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
}

/// Sentences of a page outside of code: paragraphs, list items and cells of tables.
fn sentences(page: &Page) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut is_code = false;
    for line in &page.lines {
        is_code ^= line.starts_with("```");
        let text = line.trim_start();
        let is_indented = line.starts_with("    ") && texts.last().is_some_and(String::is_empty);
        if is_code
            || is_indented
            || text.is_empty()
            || text.starts_with(['#', '<', '`']) && text.starts_with("```")
        {
            texts.push(String::new());
        } else if text.starts_with('|') {
            texts.extend(text.split('|').map(str::to_owned));
            texts.push(String::new());
        } else {
            if text.starts_with("- ") || text.starts_with(|first: char| first.is_ascii_digit()) {
                texts.push(String::new());
            }
            let last = texts.last_mut().expect("one text at least");
            *last += " ";
            *last += text;
        }
    }
    // A span of code counts as one word.
    let plain = texts.iter().map(|text| {
        let spans = text.split('`').enumerate();
        spans.map(|(at, part)| if at % 2 == 1 { "CODE" } else { part }).collect::<String>()
    });
    plain
        .flat_map(|text| text.split_inclusive([';', ':', '.', '?']).map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

#[test]
fn sentences_have_at_most_25_words() {
    let mut long = Vec::new();
    for path in pages() {
        for sentence in sentences(&Page::read(&path)) {
            if sentence.split_whitespace().count() > 25 {
                long.push(format!("{}: {sentence}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
