//! Tests of the keys of `[serve]`: each is read, and an error names the line and the remedy.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_config::{GuardSettings, ServeSettings};

fn read(file: &str, text: &str) -> Result<ServeSettings, String> {
    let read = plimsoll_config::parse(file, text, &|_| None);
    read.map(|configuration| configuration.serve).map_err(|error| error.to_string())
}

#[test]
fn toml_and_preset_say_the_same_of_the_server() {
    let toml = r#"
[serve]
open = true
cards = ["name=A,total=20GiB", "name=B,total=1GiB,kind=host"]
reserve = "512MiB"
log-file = "engines.log"
ask = "1500ms"
allow-origins = ["https://chat.example:3000", "*"]
"#;
    let preset = "\
;plimsoll: open = on
;plimsoll: card = name=A,total=20GiB
;plimsoll: card = name=B,total=1GiB,kind=host
;plimsoll: reserve = 512MiB
;plimsoll: log-file = engines.log
;plimsoll: ask = 1500ms
;plimsoll: allow-origin = https://chat.example:3000
;plimsoll: allow-origin = *
";
    let serve = read("a.toml", toml).unwrap();
    assert_eq!(serve, read("a.ini", preset).unwrap());
    assert_eq!((serve.open, serve.cards.len(), serve.reserve), (true, 2, Some(Bytes::mib(512))));
    assert_eq!((serve.log_file, serve.ask), (Some("engines.log".into()), Some(Duration::from_millis(1500))));
    let guarded = read("a.toml", "[serve.guard]\nmode = \"budget\"\nreuse = true\n").unwrap();
    assert_eq!(Some(guarded.guard), GuardSettings::read("budget reuse"));
    assert_eq!(read("a.toml", "[serve]\nask = \"0\"\nreserve = \"0\"\n").unwrap().ask, Some(Duration::ZERO));
}

#[test]
fn a_wrong_value_of_the_server_is_reported_with_its_line_and_a_remedy() {
    for (line, reported) in [
        (
            "reserve = 3",
            "invalid type: integer `3`, expected a string; write a size with its unit, in quotes: \"8GiB\" or \"512MiB\"",
        ),
        ("reserve = 3GiB", "string values must be quoted, expected literal string; put the value in quotes"),
        ("reserve = \"512\"", "`512` is a number of bytes; did you mean 512MiB?"),
        (
            "reserve = \"3XB\"",
            "`3XB` is not a size; write a number with B, KiB, MiB, GiB or TiB, e.g. 24GiB or 24576MiB",
        ),
        (
            "open = \"yes\"",
            "invalid type: string \"yes\", expected a boolean; write true or false, without quotes",
        ),
        (
            "guard = \"budget\"",
            "invalid type: string \"budget\", expected a table; write for example { mode = \"budget\" }",
        ),
        ("ask = \"500\"", "`500` is not a time of at most 1h with its unit; write for example 500ms"),
        ("ask = \"2h\"", "`2h` is not a time of at most 1h with its unit; write for example 500ms"),
        ("log-file = \" \"", "` ` is not the path of a file; write for example engines.log"),
        ("reserv = \"1GiB\"", "unknown key `reserv` in the file; did you mean `reserve`?"),
        ("card = [\"a\"]", "unknown key `card` in the file; did you mean `cards`?"),
        ("engine = \"a\"", "unknown key `engine` in the file; did you mean `command` under `[engine]`?"),
        (
            "cards = \"A\"",
            "invalid type: string \"A\", expected a sequence; write a list, for example [\"a\", \"b\"]",
        ),
        (
            "cards = [\"name=A\"]",
            "the description of card `name=A` lacks the key `total`; write for example \
                name=RTX4090,total=24GiB,cc=8.9",
        ),
        (
            "allow-origins = [\"chat.example\"]",
            "`chat.example` is not the origin of a web page; write https://host or https://host:port without a \
                path, localhost for every port of this machine, or * for all",
        ),
        (
            "cards = [\"name=A,total=1GiB\", \"name=A,total=2GiB\"]",
            "`name=A,total=2GiB` repeats an earlier entry; keep one of the two",
        ),
        ("open = true\nopen = false", "`open` is given twice; keep one of the two"),
    ] {
        let place = 2 + line.matches('\n').count();
        assert_eq!(read("p.toml", &format!("[serve]\n{line}\n")), Err(format!("p.toml:{place}: {reported}")));
    }
    // A text of a list is named with its own line.
    let list = "[serve]\nallow-origins = [\n  \"*\",\n  \"http://a/b\",\n]\n";
    assert!(read("p.toml", list).unwrap_err().starts_with("p.toml:4: `http://a/b` is not"));
}

#[test]
fn a_preset_refuses_the_same_values() {
    for (line, reported) in [
        ("reserve = 512", "`512` is not a valid value for `reserve`; write a size such as 512MiB"),
        ("ask = 500", "`500` is not a valid value for `ask`; write a time with its unit, such as 500ms"),
        ("log-file =", "`` is not a valid value for `log-file`; write the path of a file"),
        ("open = perhaps", "`perhaps` is not a valid value for `open`; write on or off"),
    ] {
        assert_eq!(read("p.ini", &format!(";plimsoll: {line}\n")), Err(format!("p.ini:1: {reported}")));
    }
    assert!(read("p.ini", ";plimsoll: card = name=A\n").unwrap_err().contains("lacks the key `total`"));
    assert!(read("p.ini", "\n;plimsoll: allow-origin = a\n").unwrap_err().starts_with("p.ini:2: "));
}

#[test]
fn a_value_of_any_length_is_refused_in_a_short_line() {
    let long = "9".repeat(900_000);
    for line in [
        format!("reserve = \"{long}\""),
        format!("ask = \"{long}s\""),
        format!("log-file = \"{long}\""),
        format!("cards = [\"name={long},total=1GiB\"]"),
        format!("allow-origins = [\"https://{long}\"]"),
        format!("listen = \"{long}\""),
    ] {
        let reported = read("p.toml", &format!("[serve]\n{line}\n")).unwrap_err();
        assert!(
            reported.starts_with("p.toml:2: ") && reported.len() < 400,
            "{} bytes: {reported:.300}",
            reported.len()
        );
    }
}

#[test]
fn names_and_addresses_are_read_alike_in_both_formats() {
    let toml = "[serve]\nlisten = ['127.0.0.1:1', '[::1]:2']\ndefault = 'a'\nstrict-names = true\nautoload = false\n\
        [models.b]\nmodel = 'm'\naliases = ['a', 'claude-*']\n";
    let preset = ";plimsoll: listen = 127.0.0.1:1,[::1]:2\n;plimsoll: default = a\n;plimsoll: strict-names = on\n\
        ;plimsoll: autoload = off\n[a]\nmodel = m\n";
    let serve = read("a.toml", toml).unwrap();
    assert_eq!(serve, read("a.ini", preset).unwrap());
    assert_eq!((serve.listen.len(), serve.default.as_deref(), serve.autoload), (2, Some("a"), Some(false)));
    assert!(read("a.toml", "[serve]\nlisten = '127.0.0.1:1,8080'\n").is_ok());
    assert!(
        serve.differ_since(&ServeSettings::default()) == ["`listen` under [serve]"],
        "a reload applies the others"
    );
    for (text, reported) in [
        ("[serve]\ndefault = 'zz'\n", "`default = \"zz\"` names no model of the file"),
        ("[serve]\nlisten = ['8080', 'x']\n", "`x` is not an address to listen on"),
        ("[serve]\nlisten = true\n", "a port, or a list of them"),
        ("[serve]\nautoload = 'no'\n", "write true or false"),
    ] {
        let error = read("a.toml", text).unwrap_err();
        assert!(error.contains(reported), "{error}");
    }
}

#[test]
fn a_bad_flag_refuses_its_model_and_no_other() {
    for (file, text, refused) in [
        (
            "a.toml",
            "[models.ok]\nmodel = 'm'\n[models.bad]\nmodel = 'm'\naliases = ['x']\nflags = '--no-such-flag 1'\n",
            "a.toml:6: unknown flag `--no-such-flag`",
        ),
        (
            "a.toml",
            "[models.ok]\nmodel = 'm'\n[models.bad]\nmodel = 'm'\nflags = '-c'\n",
            "a.toml:5: -c needs a value",
        ),
        (
            "a.toml",
            "[models.ok]\nmodel = 'm'\n[models.bad]\nmodel = 'm'\nflags = '-c 64k'\n",
            "a.toml:5: `-c 64k`: llama-server reads this as 64; write `-c 65536`",
        ),
        (
            "a.toml",
            "[models.ok]\nmodel = 'm'\n[models.bad]\ncmd = 'llama-server -m m --port ${PORT} -c 64k'\n",
            "a.toml:4: `-c 64k`: llama-server reads this as 64; write `-c 65536`",
        ),
        (
            "a.yaml",
            "models:\n  ok: {cmd: 'p ${PORT}'}\n  bad: {cmd: 'llama-server --port ${PORT} -ngl 9x'}\n",
            "a.yaml:3: `-ngl 9x`: llama-server reads this as 9; write the number in full, without a unit",
        ),
        (
            "a.ini",
            "[bad]\nmodel = m\nctx-size = 64k\n[ok]\nmodel = m\n",
            "a.ini:3: `ctx-size = 64k`: llama-server reads this as 64; write `ctx-size = 65536`",
        ),
        (
            "a.ini",
            "[bad]\nmodel = m\nno-such-key = 1\n[ok]\nmodel = m\n",
            "a.ini:3: unknown key `no-such-key` in [bad]",
        ),
    ] {
        let each = plimsoll_config::parse_each(file, text, &|_| None).unwrap();
        assert_eq!(each.models.iter().map(|model| &model.name[..]).collect::<Vec<_>>(), ["ok"], "{text}");
        let [bad] = &each.refused[..] else { panic!("{text}") };
        assert!(bad.name == "bad" && bad.error.to_string().starts_with(refused), "{}", bad.error);
        // All or nothing, for `--check` and other programs.
        assert_eq!(plimsoll_config::parse(file, text, &|_| None).unwrap_err(), bad.error);
    }
    for bad in [
        "model = 'm'\nttll = '1m'",
        "ttl = '1m'",
        "model = m",
        "model = 'm'\nguard = {mode = 'x'}",
        "cmd = 'x'",
    ] {
        let text = format!("[models.ok]\nmodel = 'm'\n[models.bad]\n{bad}\n[models.\"o.k\"]\nmodel = 'm'\n");
        let each = plimsoll_config::parse_each("a.toml", &text, &|_| None).unwrap();
        assert_eq!((each.models.len(), each.refused.len()), (2, 1), "{text}");
        assert!(each.refused[0].error.to_string().starts_with("a.toml:"), "{}", each.refused[0].error);
    }
    let no_section =
        plimsoll_config::parse_each("a.toml", "models.bad = 5\n[models.ok]\nmodel = 'm'\n", &|_| None);
    assert_eq!(no_section.unwrap().refused[0].name, "bad");
    // What is wrong with a setting of the server is no matter of one model.
    for text in ["[serve]\nlistenn = '1'\n[models.a]\nmodel = 'm'\n", "[modles.a]\nmodel = 'm'\n"] {
        assert!(plimsoll_config::parse_each("a.toml", text, &|_| None).is_err(), "{text}");
    }
    let global =
        plimsoll_config::parse_each("a.ini", "[*]\nno-such-key = 1\n[a]\nmodel = m\n", &|_| None).unwrap();
    assert!(global.models.is_empty() && global.refused.len() == 1);
}
