//! Tests of the screens of `plimsoll top`, drawn on a buffer in memory.

use plimsoll_base::{Bytes, Card};
use plimsoll_cards::{Holder, Machine, Reading};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::{Value, json};

use super::{TopCommand, TopEffect, TopScreen, TopVerb};

const GIB: u64 = 1 << 30;

fn status() -> Value {
    json!({
        "now": 100.0,
        "cards": [{
            "name": "RTX3090", "total": 24 * GIB, "capacity": 20 * GIB, "claimed": 12 * GIB, "free": 8 * GIB,
            "foreign": 2 * GIB,
            "holders": [
                { "run": 1, "model": "chat", "claim": 8 * GIB, "measured": 8 * GIB },
                { "run": 2, "model": "code", "claim": 4 * GIB, "measured": 2 * GIB },
            ],
        }],
        "models": [
            { "name": "chat", "state": "ready", "pinned": true, "claim": [{ "card": "GPU-1", "bytes": 8 * GIB }],
              "measured": [{ "card": "GPU-1", "bytes": 8 * GIB }], "in_flight": 2, "queued": 1, "last_used": 99.0 },
            { "name": "code", "state": "loading", "claim": [{ "card": "GPU-1", "bytes": 4 * GIB }],
              "in_flight": 0, "queued": 0, "last_used": null },
            { "name": "big", "state": "failed", "claim": [], "in_flight": 0, "queued": 0, "last_used": 40.0,
              "failed_at": 70.0, "last_failure": { "code": "x", "text": "big needs 30 GiB, and the card has 24" } },
        ],
    })
}

fn screen(status: &Value) -> TopScreen {
    let mut screen = TopScreen::new(false);
    screen.show_server(status, "http://x:1");
    screen
}

fn drawn(screen: &TopScreen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

fn press(screen: &mut TopScreen, key: KeyCode) -> Option<TopEffect> {
    screen.press(KeyEvent::new(key, KeyModifiers::NONE))
}

#[test]
fn a_server_is_bars_and_a_list() {
    let expected = "\
plimsoll top: http://x:1: 2 in progress, 1 waiting
RTX3090 ▒▒▒▒████████████████▓▓▓▓░░░░················│···· 14336 MiB of 24576 MiB

MODEL    STATE              CLAIMED    MEASURED   REQUESTS
chat     ready, pinned      8192 MiB   8192 MiB   2 running, 1 waiting
code     loading            4096 MiB   -          -
big      failed             -          -          -




q quit  ↑↓ select  s sort  / filter  l load  u unload  p pin";
    assert_eq!(drawn(&screen(&status()), 80, 12).join("\n"), expected);
}

#[test]
fn a_model_that_runs_has_no_note_of_its_last_failure() {
    let mut status = status();
    let failure = json!({ "text": "no room at the first try" });
    status["models"][0]["last_failure"] = failure.clone();
    status["models"][0]["failed_at"] = json!(10);
    assert!(!drawn(&screen(&status), 80, 12).join("\n").contains("no room"));
    status["models"][0]["state"] = json!("failed");
    assert!(drawn(&screen(&status), 80, 12).join("\n").contains("no room"));
}

/// Memory that is kept free looks like memory for models in the bar.
#[test]
fn a_yield_is_in_the_heading() {
    let mut status = status();
    status["cards"][0]["yield"] = json!({ "bytes": 6 * GIB, "lacks": 0 });
    assert_eq!(
        drawn(&screen(&status), 80, 12)[0],
        "plimsoll top: http://x:1: 2 in progress, 1 waiting; 6144 MiB kept free"
    );
}

#[test]
fn waits_and_marks_are_shown_below_and_once_each() {
    let mut whole = status();
    whole["models"][1]["outlook"] =
        json!({ "wait": { "since": 95.0, "reason": { "text": "chat has to leave" } } });
    whole["models"][1]["id"] = json!(7);
    let mark = |number: u64, at: f64, kind: &str, text: &str| json!({ "number": number, "at": at, "kind": kind, "model": 7, "text": text });
    whole["marks"] = json!([mark(1, 10.0, "load", "claims 4096 MiB"), mark(2, 97.0, "failed", "code died")]);
    let mut screen = screen(&whole);
    // A clock that goes on shows the same document again.
    screen.show_server(&whole, "http://x:1");
    let lines = drawn(&screen, 80, 24)[8..11].to_vec();
    assert_eq!(lines[0], "       waits  code for 5 s: chat has to leave");
    assert_eq!(lines[1], "     3 s ago  failed code died");
    assert!(lines[2].ends_with("ago  load code claims 4096 MiB"), "{lines:?}");
    whole["marks"] = json!([mark(3, 100.0, "ready", "")]);
    screen.show_server(&whole, "http://x:1");
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("0 s ago  ready code") && text.matches("failed code died").count() == 1, "{text}");
    whole["marks"] = json!([mark(1, 0.5, "load", "anew")]);
    screen.show_server(&whole, "http://x:1");
    let text = drawn(&screen, 80, 24).join("\n");
    assert!(text.contains("load code anew") && !text.contains("died"), "a server that started again: {text}");
}

#[test]
fn every_size_of_terminal_is_drawn() {
    let mut screen = screen(&status());
    screen.say("a message");
    for (width, height) in [(1, 1), (3, 2), (40, 12), (80, 24), (200, 60), (500, 3), (2, 200)] {
        assert_eq!(drawn(&screen, width, height).len(), usize::from(height));
    }
    let narrow = drawn(&screen, 40, 12).join("\n");
    assert!(narrow.contains("chat     ready, pinned") && !narrow.contains("REQUESTS"), "{narrow}");
}

#[test]
fn keys_select_sort_and_filter() {
    let mut screen = screen(&status());
    assert_eq!(press(&mut screen, KeyCode::Down), Some(TopEffect::Draw));
    press(&mut screen, KeyCode::Down);
    press(&mut screen, KeyCode::Char('k'));
    assert_eq!(screen.selected_row().unwrap().name, "code");
    for _ in 0..9 {
        press(&mut screen, KeyCode::Char('j'));
    }
    assert_eq!(screen.selected_row().unwrap().name, "big");
    assert!(drawn(&screen, 80, 20).join("\n").contains("big needs 30 GiB, and the card has 24"));
    for (order, first) in [("by memory", "chat"), ("last used first", "chat"), ("", "chat")] {
        press(&mut screen, KeyCode::Char('s'));
        assert!(drawn(&screen, 80, 20)[0].contains(order));
        assert_eq!(screen.rows()[0].name, first);
    }
    for key in "/CODE".chars().map(KeyCode::Char) {
        press(&mut screen, key);
    }
    assert_eq!(screen.rows().len(), 1);
    assert!(drawn(&screen, 80, 20)[19].starts_with("filter: CODE_"));
    // A row that the filter hides is not selected.
    assert_eq!(screen.selected_row().unwrap().name, "code");
    press(&mut screen, KeyCode::Enter);
    assert!(drawn(&screen, 80, 20)[0].ends_with("filter CODE"));
    press(&mut screen, KeyCode::Char('/'));
    press(&mut screen, KeyCode::Esc);
    assert_eq!(screen.rows().len(), 3);
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Some(TopEffect::Quit));
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.press(interrupt), Some(TopEffect::Quit));
}

#[test]
fn an_unload_says_its_consequence_first() {
    let mut screen = screen(&status());
    let send = |verb| Some(TopEffect::Send(TopCommand { verb, model: "chat".to_owned() }));
    assert_eq!(press(&mut screen, KeyCode::Char('u')), Some(TopEffect::Draw));
    let question =
        "unload chat: frees 8192 MiB once its 2 current answers are finished. y to unload, any other key to";
    let lines = drawn(&screen, 100, 20);
    assert_eq!((&*lines[18], &*lines[19]), (question, "keep it"), "all of it is read");
    assert_eq!(press(&mut screen, KeyCode::Char('n')), Some(TopEffect::Draw));
    press(&mut screen, KeyCode::Char('u'));
    assert_eq!(press(&mut screen, KeyCode::Char('y')), send(TopVerb::Unload));
    assert_eq!(press(&mut screen, KeyCode::Char('l')), send(TopVerb::Load));
    assert_eq!(press(&mut screen, KeyCode::Char('p')), send(TopVerb::Unpin));
}

#[test]
fn cards_without_a_model_have_bars_where_their_figures_are_known() {
    let mut status = status();
    status["other_cards"] = json!([
        { "name": "Arc B580", "total": 12 * GIB, "used": 3 * GIB, "free": 9 * GIB },
        { "name": "Radeon", "total": null, "used": null, "free": null },
    ]);
    let text = drawn(&screen(&status), 80, 12).join("\n");
    assert!(text.contains("Arc B580") && text.contains("3072 MiB of 12288 MiB"), "{text}");
    assert!(!text.contains("Radeon"), "{text}");
}

#[test]
fn a_machine_without_a_server_shows_its_processes() {
    let gib = |count: u64| Bytes::new(count << 30);
    let card = json!({
        "id": "GPU-1", "kind": "cuda", "name": "RTX3090", "uuid": null, "total": gib(24), "free": gib(10),
        "compute_capability": null, "legacy_pool": false,
    });
    let card: Card = serde_json::from_value(card).unwrap();
    let id = card.id.clone();
    let machine = Machine {
        cards: vec![card],
        kernel_cards: Vec::new(),
        host: None,
        unified: false,
        driver: None,
        notes: Vec::new(),
    };
    let holder = Holder {
        card: id.clone(),
        pid: 7,
        used: Some(gib(9)),
        outside: None,
        evicted: None,
        name: Some("python".to_owned()),
    };
    let reading = Reading { free: vec![(id, gib(10))], holders: vec![holder], ..Reading::default() };
    let mut screen = TopScreen::new(true);
    screen.show_machine(&machine, &reading);
    let text = drawn(&screen, 80, 12).join("\n");
    assert!(text.contains("python   7          9216 MiB    RTX"), "{text}");
    assert!(text.contains("14336 MiB of 24576 MiB") && !text.contains("unload"), "{text}");
    assert_eq!(press(&mut screen, KeyCode::Char('u')), None);
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    assert!(terminal.backend().buffer().content().iter().any(|cell| cell.fg == Color::Cyan));
}

#[test]
fn a_host_of_a_fleet_shows_where_models_lie() {
    let mut status = status();
    let host = |name: &str, models: Value| json!({ "name": name, "capacity": 8_u64 << 30, "models": models });
    let name = screen(&status).rows().iter().find(|row| !row.is_loaded).map(|row| row.name.clone()).unwrap();
    let there = json!([{ "model": name, "need": 2_u64 << 30 }]);
    let hosts = [host("box-1", json!([])), host("box-2", there)];
    status["fleet"] = json!({ "host": "box-1", "store_answers": false, "hosts": hosts, "more": 3 });
    let text = drawn(&screen(&status), 160, 24);
    assert!(text[0].contains("fleet of 5, store unreachable"), "{text:?}");
    let bars: Vec<_> = text.iter().filter(|line| line.contains("2048 MiB of 8192 MiB")).collect();
    assert!(bars.len() == 1 && bars[0].starts_with("box-2"), "{text:?}");
    assert!(text.iter().any(|line| line.contains(&name) && line.contains("on box-2")), "{text:?}");
}

#[test]
fn hostile_text_and_figures_change_nothing_but_text() {
    let name = format!("\u{1b}[2J\r\n\u{202e}{}", "x".repeat(10 << 20));
    let model = json!({
        "name": name, "state": name, "claim": [{ "bytes": u64::MAX }], "measured": [{ "bytes": -1 }],
        "in_flight": u64::MAX, "queued": u64::MAX, "last_used": -1e300, "failed_at": -1e308,
        "last_failure": { "text": name },
    });
    let card = json!({
        "name": name, "total": 5, "capacity": u64::MAX, "foreign": u64::MAX,
        "holders": [{ "claim": u64::MAX, "measured": 3 }, 7],
    });
    for status in [
        json!(null),
        json!([1]),
        json!({
            "now": "x", "cards": [card, null, {}], "models": [model.clone(), model.clone(), 1],
            "marks": [{ "number": u64::MAX, "at": 1e308, "kind": name, "text": name }, 7, {}],
            "fleet": { "host": 1, "store_answers": true, "more": u64::MAX, "hosts": [7, {}, {
                "name": name, "capacity": 1, "models": [3, { "model": name, "need": u64::MAX }],
            }] },
        }),
    ] {
        let mut screen = screen(&status);
        let text = drawn(&screen, 80, 24).join("");
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\r']), "{text:?}");
        press(&mut screen, KeyCode::Char('u'));
        drawn(&screen, 80, 24);
    }
}
