//! Tests of the reader of llama-server's preset files. Every expected result was observed on llama-server
//! b10605.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_config::{Configuration, ConfiguredModel, GuardSettings, Launch};

fn parse(text: &str) -> Result<Configuration, String> {
    plimsoll_config::parse("models.ini", text, &|_| None).map_err(|error| error.to_string())
}

fn roster(text: &str) -> Configuration {
    parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err()
}

/// The flags of the only model, after `--model`.
fn flags_of(settings: &str) -> Vec<String> {
    argv(&roster(&format!("[a]\nmodel = /m.gguf\n{settings}")).models[0])
        .into_iter()
        .filter(|argument| argument != "--model" && argument != "/m.gguf")
        .collect()
}

fn argv(entry: &ConfiguredModel) -> Vec<String> {
    match &entry.launch {
        Launch::LlamaServer { options, .. } => options.to_argv(),
        Launch::Command { .. } => panic!("no flags"),
    }
}

fn names(roster: &Configuration) -> Vec<&str> {
    roster.models.iter().map(|entry| entry.name.as_str()).collect()
}

fn warnings(text: &str) -> Vec<String> {
    roster(text).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn version_is_skipped_anywhere() {
    let roster = roster("version = 1\n[a]\nversion = 2\nmodel = m\n");
    assert_eq!(names(&roster), ["a"]);
    assert_eq!(argv(&roster.models[0]), ["--model", "m"]);
}

#[test]
fn keys_before_the_first_section_are_a_model_called_default() {
    assert_eq!(names(&roster("model = m\n[a]\nmodel = n\n")), ["default", "a"]);
}

#[test]
fn the_star_section_holds_for_all_and_sections_win_over_it() {
    let roster = roster("[a]\nmodel = m\n[*]\nc = 10\nub = 64\n[b]\nmodel = n\nctx-size = 20\n");
    assert_eq!(argv(&roster.models[0]), ["--ctx-size", "10", "--model", "m", "--ubatch-size", "64"]);
    assert_eq!(argv(&roster.models[1]), ["--ctx-size", "20", "--model", "n", "--ubatch-size", "64"]);
}

#[test]
fn a_key_is_a_long_flag_a_short_one_a_negative_one_or_a_variable() {
    assert_eq!(
        flags_of("c = 1\nngl = 2\nno-mmap = on\nLLAMA_ARG_UBATCH = 3\n"),
        ["--no-mmap", "--ctx-size", "1", "--gpu-layers", "2", "--ubatch-size", "3"]
            .map(|argument| argument.replace("--gpu-layers", "--n-gpu-layers"))
    );
}

#[test]
fn an_unknown_key_refuses_the_file() {
    assert_eq!(
        refusal("[a]\nmodel = m\nctx-sise = 5\n"),
        "models.ini:3: unknown key `ctx-sise` in [a]; did you mean `ctx-size`?"
    );
    assert!(
        refusal("[a]\nverbose-prompt = on\n")
            .starts_with("models.ini:2: unknown key `verbose-prompt` in [a]")
    );
    assert!(refusal("[a]\n--ctx-size = 5\n").starts_with("models.ini:2: the line does not start with a key"));
}

#[test]
fn preset_lines_invalid_in_llama_server_are_rejected_with_their_line() {
    for (text, message) in [
        (
            "[a]\n model = m",
            "models.ini:2: the line is indented, which llama-server rejects; remove the spaces at the start of the line",
        ),
        ("\n [a]\nmodel = m", "models.ini:2: the line is indented"),
        ("[a]\nmodel = m \\\n  more\n", "models.ini:3: the line is indented"),
        ("[a]\nmodel: m", "models.ini:2: the key has no `=`"),
        (
            "[a]\nswa-full\n",
            "models.ini:2: the key has no `=`; write `key = value`; a flag without a value is `key = on`",
        ),
        ("[a] x\n", "models.ini:1: there is text after the section name"),
        ("[a\nmodel = m\n", "models.ini:1: the section name has no closing `]`; end it with `]`"),
        ("[]\n", "models.ini:1: the section has no name"),
        (
            "\u{feff}[a]\nmodel = m",
            "models.ini: the file cannot be read as text: the file starts with a byte order mark",
        ),
        ("[a]\nmodel = \0", "models.ini: the file cannot be read as text: the file contains a zero byte"),
    ] {
        let refusal = refusal(text);
        assert!(refusal.starts_with(message), "{text:?}: {refusal}");
    }
}

#[test]
fn line_ends_of_windows_and_no_line_end_at_the_end_are_fine() {
    assert_eq!(argv(&roster("[a]\r\nmodel = m\r\nc = 1").models[0]), ["--ctx-size", "1", "--model", "m"]);
}

#[test]
fn blanks_round_a_value_go_and_comments_are_skipped() {
    assert_eq!(flags_of("c  =\t5 \t; comment\n# another\n  ; indented\n\t\n"), ["--ctx-size", "5"]);
}

#[test]
fn quotes_and_backslashes_stay() {
    let text = "[a]\nmodel = \"C:\\new\\temp\"\n";
    assert_eq!(argv(&roster(text).models[0]), ["--model", "\"C:\\new\\temp\""]);
    assert_eq!(
        warnings(text),
        [
            "models.ini:2: the quotes around the value of `model` become part of the value; write the value without quotes"
        ]
    );
}

#[test]
fn a_comment_sign_cuts_a_value_and_that_is_said() {
    let text = "[a]\nmodel = m\nchat-template-kwargs = {\"x\":\"a#b\"}\n";
    assert_eq!(argv(&roster(text).models[0]), ["--chat-template-kwargs", "{\"x\":\"a", "--model", "m"]);
    assert!(
        warnings(text)[0]
            .starts_with("models.ini:3: `#b\"}` is not part of the value of `chat-template-kwargs`"),
        "{:?}",
        warnings(text)
    );
    assert_eq!(argv(&roster("[a]\nmodel = /m;1.gguf").models[0]), ["--model", "/m"]);
    assert!(warnings("[a]\nmodel = m ; why not\n").is_empty());
}

#[test]
fn of_two_keys_for_one_flag_the_later_letter_wins_not_the_later_line() {
    assert_eq!(flags_of("ctx-size = 256\nc = 128\n"), ["--ctx-size", "256"]);
    assert_eq!(flags_of("c = 1\nc = 2\n"), ["--ctx-size", "2"]);
    assert_eq!(
        warnings("[a]\nmodel = m\nctx-size = 256\nc = 128\n"),
        [
            "models.ini:4: `c` has no effect: `ctx-size` on line 3 overrides it; keep only one of the two settings"
        ]
    );
}

#[test]
fn of_two_sections_with_one_name_the_second_is_all() {
    let text = "[a]\nmodel = m\nc = 1\n[a]\nmodel = n\n";
    assert_eq!(argv(&roster(text).models[0]), ["--model", "n"]);
    assert_eq!(
        warnings(text),
        ["models.ini:1: the section [a] has no effect: the section of the same name on line 4 replaces it; \
            merge the two sections"]
    );
}

#[test]
fn a_name_loses_leading_blanks_and_its_tag_becomes_canonical() {
    for (header, name) in [
        ("[ my/model:q4_k_m ]", "my/model:Q4_K_M "),
        ("[x:ud-q4_k_xl]", "x:Q4_K_XL"),
        ("[x:v1.q8_0]", "x:Q8_0"),
        ("[x:latest]", "x:LATEST"),
        ("[plain-name]", "plain-name"),
    ] {
        assert_eq!(names(&roster(&format!("{header}\nmodel = m\n"))), [name], "{header}");
    }
    assert_eq!(
        warnings("[a ]\nmodel = m\n"),
        ["models.ini:1: the section name ends with a space: `a `; write `]` right after the name"]
    );
}

#[test]
fn truth_is_read_as_llama_server_reads_it() {
    for (setting, flags) in [
        ("mmap = on", &["--mmap"][..]),
        ("mmap = enabled", &["--mmap"]),
        ("mmap = off", &["--no-mmap"]),
        ("mmap = 0", &["--no-mmap"]),
        ("no-mmap = on", &["--no-mmap"]),
        ("no-mmap = false", &["--mmap"]),
        // Neither true nor false: the positive key passes as on, the negative one is turned round.
        ("mmap = no", &["--mmap"]),
        ("no-mmap = yes", &["--mmap"]),
        // The negative variable is no negative key.
        ("LLAMA_ARG_NO_MMAP = 1", &["--mmap"]),
        ("swa-full = on", &["--swa-full"]),
        ("swa-full = off", &[]),
        ("swa-full = no", &["--swa-full"]),
    ] {
        assert_eq!(flags_of(&format!("{setting}\n")), flags, "{setting}");
    }
}

#[test]
fn a_truth_that_becomes_its_opposite_is_said() {
    for (setting, becomes) in [
        ("mmap = no", "--mmap"),
        ("no-mmap = yes", "--mmap"),
        ("LLAMA_ARG_NO_MMAP = 1", "--mmap"),
        ("swa-full = no", "--swa-full"),
    ] {
        let warnings = warnings(&format!("[a]\nmodel = m\n{setting}\n"));
        assert!(
            warnings[0].starts_with(&format!("models.ini:3: `{setting}` becomes {becomes}")),
            "{warnings:?}"
        );
    }
    for setting in ["mmap = on", "no-mmap = 1", "no-mmap = off", "mmap = yes", "swa-full = off"] {
        let warnings = warnings(&format!("[a]\nmodel = m\n{setting}\n"));
        assert!(warnings.is_empty(), "{setting}: {warnings:?}");
    }
}

#[test]
fn a_flag_of_two_values_cannot_stand_in_a_preset() {
    assert_eq!(
        refusal("[a]\nmodel = m\ncontrol-vector-layer-range = 1 2\n"),
        "models.ini:3: `control-vector-layer-range` takes two values, which a preset cannot express; start \
            the model with `command` instead"
    );
}

#[test]
fn a_section_without_a_model_is_refused() {
    for text in ["[a]\n", "[a]\nc = 5\n", "[a]\nmodel =\n"] {
        assert_eq!(
            refusal(text),
            "models.ini:1: the section of model `a` names no model file; add `model = /path/to/model.gguf` or `hf-repo = user/repository`"
        );
    }
    assert_eq!(names(&roster("[*]\nmodel = m\n[a]\nc = 5\n")), ["a"]);
}

#[test]
fn a_section_named_as_a_repository_is_that_repository() {
    let text = "[ggml-org/gemma-3-4b-it-GGUF:Q4_K_M]\nc = 5\n";
    let name = "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M";
    assert_eq!(argv(&roster(text).models[0]), ["--ctx-size", "5", "--hf-repo", name]);
    assert_eq!(warnings(text).len(), 1);
}

#[test]
fn router_settings_in_a_preset_are_dropped_with_a_warning() {
    let text =
        "[*]\nmodels-max = 1\n[a]\nmodel = m\nhost = 0.0.0.0\nport = 1\napi-key = k\nssl-key-file = s\n";
    assert_eq!(argv(&roster(text).models[0]), ["--model", "m"]);
    let warnings = warnings(text);
    assert_eq!(warnings.len(), 5, "{warnings:?}");
    assert!(warnings.contains(
        &"models.ini:2: `models-max` has no effect in a section: it is a setting of the server; give this setting to `plimsoll serve` instead"
            .to_owned()
    ));
}

#[test]
fn preset_keys_and_names_go_to_the_entry_not_to_the_child() {
    let text = "[a]\nmodel = m\nload-on-startup = on\nstop-timeout = 30\nalias = b, c,,b,a\ntags = x,y\n\
                sleep-idle-seconds = 60\n";
    let entry = &roster(text).models[0];
    assert_eq!(argv(entry), ["--tags", "x,y", "--model", "m"]);
    assert!(entry.preload);
    assert_eq!(entry.stop_timeout, Some(Duration::from_secs(30)));
    assert_eq!(entry.ttl, Some(Duration::from_secs(60)));
    assert_eq!((entry.aliases.join(" "), entry.tags.join(" ")), ("b c".to_owned(), "x y".to_owned()));
    let bad = roster("[a]\nmodel = m\nstop-timeout = soon\n");
    assert_eq!(bad.models[0].stop_timeout, None);
    assert_eq!(
        bad.warnings[0].to_string(),
        "models.ini:3: `soon` is not a number of seconds; the default is used"
    );
}

#[test]
fn names_and_aliases_differ() {
    assert_eq!(
        refusal("[a]\nmodel = m\n[b]\nmodel = n\nalias = a\n"),
        "models.ini:3: the name `a` is already used by `a` at models.ini:1; names and aliases must be unique"
    );
}

#[test]
fn our_own_settings_stand_in_comments() {
    let text = "\
;plimsoll: listen = 127.0.0.1:9000
;plimsoll: wait = 10m
;plimsoll: reclaim-before-load = user
# plimsoll: ttl = 5m
[a]
model = m
;plimsoll: memory = 6GiB
;plimsoll: cards = GPU-1, GPU-2
;plimsoll: env = A=b=c
;plimsoll: pin = on
;plimsoll: load-timeout = 2m
[b]
model = n
; plimsoll: ttl = 0
";
    let roster = roster(text);
    assert_eq!(roster.serve.listen, ["127.0.0.1:9000".parse().unwrap()]);
    assert_eq!(roster.serve.wait, Some(Duration::from_secs(600)));
    assert_eq!(roster.serve.reclaim_before_load, Some(plimsoll_config::ReclaimBeforeLoad::User));
    let [a, b] = &roster.models[..] else { panic!("two models") };
    assert_eq!((a.memory, a.pinned), (Some(Bytes::gib(6)), true));
    assert_eq!(a.cards, ["GPU-1", "GPU-2"]);
    assert_eq!(a.env, [("A".to_owned(), "b=c".to_owned())]);
    assert_eq!((a.ttl, a.load_timeout), (Some(Duration::from_secs(300)), Some(Duration::from_secs(120))));
    assert_eq!(b.ttl, Some(Duration::ZERO));
    assert!(roster.warnings.is_empty());
}

#[test]
fn a_bad_setting_of_our_own_is_refused() {
    for (text, message) in [
        (
            "[a]\nmodel = m\n;plimsoll: memry = 6GiB\n",
            "models.ini:3: unknown key `memry` in `;plimsoll:`; did you mean `memory`?",
        ),
        (
            "[a]\nmodel = m\n;plimsoll: memory = much\n",
            "models.ini:3: `much` is not a valid value for `memory`; write a size such as 24GiB or 24576MiB",
        ),
        (
            "[a]\nmodel = m\n;plimsoll: ttl = soon\n",
            "models.ini:3: `soon` is not a valid value for `ttl`; write a duration such as 90s, 10m or 1h30m",
        ),
        (
            "[a]\nmodel = m\n;plimsoll: listen = 127.0.0.1:1\n",
            "models.ini:3: this Plimsoll setting applies to the server, not to a model; move the setting before the first section or into [*]",
        ),
        (
            ";plimsoll: reclaim-before-load = yes\n[a]\nmodel = m\n",
            "models.ini:1: `yes` is not a valid value for `reclaim-before-load`; write one of off, user, sudo and systemd",
        ),
        (
            "[a]\nmodel = m\n;plimsoll: memory 6GiB\n",
            "models.ini:3: this Plimsoll setting has no `=`; write `;plimsoll: key = value`",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn guard_settings_in_a_preset_apply_to_all_models_or_to_one() {
    let text = "[*]\n;plimsoll: guard = budget spill=1GiB\n[a]\nmodel = m\n[b]\nmodel = m\n;plimsoll: guard = observe wait=3s\n";
    let roster = roster(text);
    let [a, b] = &roster.models[..] else {
        panic!("two models");
    };
    assert_eq!(Some(a.guard), GuardSettings::read("budget spill=1GiB"));
    assert_eq!(Some(b.guard), GuardSettings::read("observe wait=3s spill=1GiB"));
    let wrong = refusal("[a]\nmodel = m\n;plimsoll: guard = budgett\n");
    assert!(
        wrong.starts_with(
            "models.ini:3: `budgett` is not a valid value for `guard`; write one of off, observe and budget"
        ),
        "{wrong}"
    );
}

#[test]
fn a_value_that_the_engine_would_refuse_is_reported_but_not_judged() {
    let text = "[a]\nmodel = m\nctk = q9\n";
    assert_eq!(argv(&roster(text).models[0]), ["--cache-type-k", "q9", "--model", "m"]);
    assert!(
        warnings(text)[0]
            .starts_with("models.ini:3: llama-server may refuse this flag: `q9` is not a valid value for")
    );
}

#[test]
fn an_entry_moved_in_its_file_is_the_same_entry() {
    let before = roster("[a]\nmodel = m\nc = 5\n");
    assert_eq!(before.models, roster("; moved\n\n[a]\nc = 5\nmodel = m\n").models);
    assert_ne!(before.models, roster("[a]\nmodel = m\nc = 6\n").models);
}

#[test]
fn a_blank_api_key_is_refused_with_its_line() {
    for (text, message) in [
        (
            "[*]\napi-key =\n[a]\nmodel = /m.gguf\n",
            "models.ini:2: `api-key` contains an empty API key, which would admit requests without a key; \
             write the key, or remove the entry",
        ),
        (
            "[a]\nmodel = /m.gguf\nLLAMA_API_KEY = ; none\n",
            "models.ini:3: `api-key` contains an empty API key, which would admit requests without a key; \
             write the key, or remove the entry",
        ),
        (
            ";plimsoll: api-key-file =\n[a]\nmodel = /m.gguf\n",
            "models.ini:1: `` is not a valid value for `api-key-file`; write the path of a file with one API key per line",
        ),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
}
