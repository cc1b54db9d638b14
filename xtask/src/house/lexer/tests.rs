//! Tests of the Rust lexer.

use super::*;

fn texts(source: &str) -> Vec<&str> {
    lex(source).tokens.iter().map(|token| token.text).collect()
}

#[test]
fn strings_hide_what_looks_like_code() {
    assert_eq!(
        texts(r##"a("{ // no", r#"}"/*"#, b"\"{", c"x", br"\", "")"##),
        [
            "a",
            "(",
            "\"{ // no\"",
            ",",
            "r#\"}\"/*\"#",
            ",",
            "b\"\\\"{\"",
            ",",
            "c\"x\"",
            ",",
            "br\"\\\"",
            ",",
            "\"\"",
            ")"
        ]
    );
}

#[test]
fn characters_are_told_from_lifetimes() {
    assert_eq!(
        texts(r"'a' 'b 'static '\'' '{' '\u{7d}' b'{' &'_ str"),
        ["'a'", "'b", "'static", r"'\''", "'{'", r"'\u{7d}'", "b", "'{'", "&", "'_", "str"]
    );
}

#[test]
fn numbers_end_before_a_range_or_a_method() {
    assert_eq!(texts("0..4"), ["0", ".", ".", "4"]);
    assert_eq!(texts("1.5e3+1.max(2)"), ["1.5e3", "+", "1", ".", "max", "(", "2", ")"]);
    assert_eq!(texts("r#type::r0"), ["r#type", "::", "r0"]);
}

#[test]
fn comments_have_kinds_and_lines() {
    let source = "//! in\n/// out\nfn a() {} // beside\n//// plain\n/* a /* b */\n c */ x\n/** doc */";
    let lexed = lex(source);
    let kinds: Vec<_> = lexed.comments.iter().map(|c| (c.kind, c.line, c.is_first)).collect();
    assert_eq!(
        kinds,
        [
            (CommentKind::Inner, 1, true),
            (CommentKind::Outer, 2, true),
            (CommentKind::Plain, 3, false),
            (CommentKind::Plain, 4, true),
            (CommentKind::Plain, 5, true),
            (CommentKind::Outer, 7, true),
        ]
    );
    assert_eq!(lexed.comments[4].text, " a /* b */\n c ");
    let x = lexed.tokens.last().unwrap();
    assert_eq!((x.text, x.line), ("x", 6));
}

#[test]
fn literals_of_several_lines_count_them() {
    let lexed = lex("let a = \"b\nc\n\";\nd");
    let literal = lexed.tokens[3];
    assert_eq!((literal.line, literal.end_line), (1, 3));
    assert_eq!(lexed.tokens.last().unwrap().line, 4);
}

#[test]
fn damaged_input_ends() {
    for source in ["\"a", "r#\"a\"", "/* /* */", "'", "'\\", "b", "r#", "é'ä"] {
        lex(source);
    }
}
