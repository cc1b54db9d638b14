//! Tests that a configuration error lists all mistakes at once, each with its line.

use plimsoll_config::{ConfigMistakes, Configuration};

fn read(file: &str, text: &str) -> Result<Configuration, ConfigMistakes> {
    plimsoll_config::parse_all(file, text, &|_| None)
}

fn lines(file: &str, text: &str) -> Vec<String> {
    let mistakes = read(file, text).unwrap_err();
    std::iter::once(&*mistakes.first).chain(&mistakes.others).map(ToString::to_string).collect()
}

#[test]
fn a_toml_reports_unknown_keys_types_units_words_and_flags_together() {
    let text = r#"[serve]
lisen = "127.0.0.1:8080"
models-max = "x"
patience = "10 parsecs"
reserve = "512"
cards = ["name=A,total=8GiB", "24GB?"]
open = "yes"
[models.a]
mdoel = "a.gguf"
ttl = "5x"
flags = "--ctx-sise 4096 -c 64k"
priority = "urgent"
[models.b]
model = "b.gguf"
concurrency = 0
aliases = "one"
[models.c]
cmd = "server --port 1"
[models.d]
ttl = "1m"
[modles.e]
model = "e.gguf"
[keys.k]
models = ["a"]
"#;
    assert_eq!(
        lines("p.toml", text),
        [
            "p.toml:2: unknown key `lisen` in the file; did you mean `listen`?",
            "p.toml:3: invalid type: string \"x\", expected a whole number of at least 0; write the number, without quotes",
            "p.toml:4: `10 parsecs` is not a duration; write a duration such as 90s, 10m or 1h30m",
            "p.toml:5: `512` is a number of bytes; did you mean 512MiB?",
            "p.toml:6: `24GB?` is not a known card; describe the card by its own figures: name=24GB?,total=SIZE,cc=MAJOR.MINOR \
                (nvidia-smi --query-gpu=memory.total,compute_cap)",
            "p.toml:7: invalid type: string \"yes\", expected a boolean; write true or false, without quotes",
            "p.toml:9: unknown key `mdoel` in the file; did you mean `model`?",
            "p.toml:10: `5x` is not a duration; write a duration such as 90s, 10m or 1h30m",
            "p.toml:11: unknown flag `--ctx-sise`; did you mean --ctx-size?",
            "p.toml:11: `-c 64k`: llama-server reads this as 64; write `-c 65536`",
            "p.toml:12: `urgent` is not one of the allowed values; write high, normal or low",
            "p.toml:15: invalid value: integer `0`, expected a whole number of at least 1; write the number, without quotes",
            "p.toml:16: invalid type: string \"one\", expected a sequence; write a list, for example [\"a\", \"b\"]",
            "p.toml:18: the command does not use `${PORT}`, so its port is unknown; pass `${PORT}` to the command, or set \
                `proxy = \"http://127.0.0.1:…\"`",
            "p.toml:19: model `d` has no command; add `cmd`, or `model` and `flags`",
            "p.toml:21: unknown key `modles` in the file; did you mean `models`?",
            "p.toml:23: the section has no `key`; add the API key, or `sha256:` and its digest",
        ]
    );
}

#[test]
fn values_that_are_no_toml_hide_no_other_mistake() {
    let text = "[serve]\nwait = 10m\n[models.a]\nmodel = /models/a.gguf\nttl = \"x\"\nflags = '-c 8k'\n[models.b]\nmodel = 'b\npin = 1\n";
    let reported = lines("p.toml", text);
    let numbers: Vec<&str> = reported.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        numbers,
        ["p.toml:2", "p.toml:4", "p.toml:5", "p.toml:6", "p.toml:8", "p.toml:9"],
        "{reported:#?}"
    );
}

#[test]
fn after_a_torn_header_nothing_more_is_said() {
    for text in ["[models.a\nmodel = 'm'\nttl = 5\n", "cards = [\n'a'\n[models.a]\nmdoel = 'm'\n"] {
        assert_eq!(lines("p.toml", text).len(), 1, "{:?}", lines("p.toml", text));
    }
}

#[test]
fn partly_readable_config_still_lists_its_model_files() {
    let text = "[models.a]\nmodel = 'a.gguf'\nttl = 'x'\n[models.b]\nmodel = 'b.gguf'\nflags = '--odd'\n[models.c]\nflags = '-m c.gguf'\n";
    let mistakes = read("p.toml", text).unwrap_err();
    let files: Vec<String> = mistakes.rest.model_files().map(|setting| setting.origin.to_string()).collect();
    assert_eq!(files, ["p.toml:8", "p.toml:2", "p.toml:5"]);
}

#[test]
fn a_preset_reports_keys_values_and_settings_together() {
    let text = ";plimsoll: wait = soon\n[*]\nctx-sise = 5\n[a]\nmodel = a.gguf\nbatch-size = 2k\nodd = 1\n;plimsoll: ttl = x\n[b]\nthreads = 1\n;plimsoll: pni = on\n";
    let reported = lines("p.ini", text);
    let numbers: Vec<&str> = reported.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(numbers, ["p.ini:1", "p.ini:3", "p.ini:6", "p.ini:7", "p.ini:8", "p.ini:11"], "{reported:#?}");
}

#[test]
fn forty_mistakes_fill_the_screen_and_the_rest_are_counted() {
    let text: String =
        (0..200).map(|n| format!("[models.m{n}]\nmodel = 'm'\nflags = '--odd{n}'\n")).collect();
    let reported = read("p.toml", &text).unwrap_err().to_string();
    assert!(reported.starts_with("200 mistakes:") && reported.ends_with("and 160 more"), "{reported}");
}
