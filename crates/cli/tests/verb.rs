//! Tests of terminal output (control characters, colours, lines) and of durations on the command line.

use std::io::Write;
use std::time::Duration;

use clap::builder::styling::AnsiColor;
use plimsoll_verb::report::own_lines;
use plimsoll_verb::terminal::{HostileWords, Printer, coloured};
use plimsoll_verb::time;

#[test]
fn only_lines_of_ours_begin_a_line_of_an_error() {
    for (text, shown) in [
        ("cannot read `a\nplimsoll: ok`\nhint: write it", "cannot read `a\\nplimsoll: ok`\nhint: write it"),
        ("2 mistakes:\n  f:1: x\n  f:2: y\nwarning: z", "2 mistakes:\n  f:1: x\n  f:2: y\nwarning: z"),
        ("ends\n", "ends\\n"),
    ] {
        assert_eq!(own_lines(text), shown);
    }
}

fn printed(pieces: &[&[u8]], has_colour: bool) -> String {
    let mut printer = Printer::new(Vec::new(), has_colour);
    pieces.iter().for_each(|piece| printer.write_all(piece).unwrap());
    String::from_utf8(printer.into_inner()).unwrap()
}

#[test]
fn escapes_are_shown_however_they_arrive() {
    let title = b"\x1b]0;owned\x07\x1b[2J\x1b[31mred\x7f\r";
    assert_eq!(printed(&[title], true), "\\u{1b}]0;owned\\u{7}\\u{1b}[2J\\u{1b}[31mred\\u{7f}\\r");
    // C1 as a character, in one piece and in two, and as a byte that is no character.
    assert_eq!(printed(&["\u{9b}2J".as_bytes()], true), "\\u{9b}2J");
    assert_eq!(printed(&[b"\xc2", b"\x9b2J"], true), "\\u{9b}2J");
    assert_eq!(printed(&[b"a\x9b2J\xff\xc3"], true), "a\\x9b2J\\xff");
    assert_eq!(printed(&["a\u{202e}b\u{2028}c".as_bytes()], true), "a\\u{202e}b\\u{2028}c");
    assert_eq!(printed(&["größer\n\tb\n".as_bytes()], false), "größer\n\tb\n");
}

#[test]
fn only_own_colours_are_sent_and_only_to_a_terminal() {
    let text = coloured("fits", AnsiColor::Green);
    let sent = printed(&[text.as_bytes()], true);
    assert!(
        sent.starts_with("\u{1b}[1m") && sent.ends_with("\u{1b}[0m") && sent.contains("fits"),
        "{sent:?}"
    );
    assert_eq!(printed(&[text.as_bytes()], false), "fits");
    let foreign = plimsoll_base::one_line(&text).into_owned();
    assert_eq!(printed(&[foreign.as_bytes()], true), "\\u{fdd0}fits\\u{fdd3}");
}

#[test]
fn words_of_the_command_line_stay_in_their_line_and_other_breaks_stay() {
    let words = ["./d/a\nb.gguf", "--card=x\ny", "plain", "\n", "\nhint: ", "c\td"];
    let words = HostileWords::of(words.into_iter().map(str::to_owned));
    for (text, shown) in [
        ("cannot read `./d/a\nb.gguf`\nhint: write it\n", "cannot read `./d/a\\nb.gguf`\nhint: write it\n"),
        ("d/a\nb.gguf and a\nb.gguf", "d/a\\nb.gguf and a\\nb.gguf"),
        ("x\ny: no card", "x\\ny: no card"),
        ("c\td\nplain\n", "c\\td\nplain\n"),
        ("two\nlines\n", "two\nlines\n"),
    ] {
        assert_eq!(words.shown(text), shown);
    }
}

#[test]
fn times_are_read_as_people_write_them() {
    for (text, seconds) in [("90", 90), ("90s", 90), ("30m", 1800), ("8h", 28_800), ("2d", 172_800)] {
        assert_eq!(time(text), Ok(Duration::from_secs(seconds)));
    }
    assert_eq!(time("500ms"), Ok(Duration::from_millis(500)));
    for text in ["", "0", "h", "8 h", "-1", "1y", "99999999999999999999d"] {
        assert!(time(text).is_err(), "{text}");
    }
}
