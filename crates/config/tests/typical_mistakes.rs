//! Tests of typical mistakes in llama-swap's YAML: commands that were written for a shell, indents, ports.

fn reported(cmd: &str) -> Vec<String> {
    let text = format!("models:\n  a:\n    cmd: |\n      {cmd}\n");
    let mut roster = plimsoll_config::parse("a.yaml", &text, &|_| None).unwrap();
    roster.warnings.clear();
    roster.confine();
    roster.warn_of_shell_words();
    roster.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn words_of_a_shell_are_reported_with_what_to_write_instead() {
    let start = "a.yaml:2: no shell runs the command of `a`, so";
    let exec = "is an argument of the program; write `sh -c 'exec …'`, or leave it out";
    for (cmd, expected) in [
        ("llama-server --port ${PORT} &", format!("{start} `&` {exec}")),
        ("llama-server --port ${PORT} > /tmp/log", format!("{start} `>` {exec}")),
        ("llama-server --port ${PORT} 2>/dev/null", format!("{start} `2>/dev/null` {exec}")),
        ("cd /opt && x --port ${PORT}", format!("{start} `&&` {exec}")),
        (
            "llama-server --port ${PORT} # the port",
            format!(
                "{start} `#` and the words after it are arguments of the program; put the comment on a line of its own, in a `cmd: |`"
            ),
        ),
        (
            "LLAMA_ARG_HOST=0.0.0.0 llama-server --port ${PORT}",
            format!("{start} its program would be `LLAMA_ARG_HOST=…`; set the variable in `env`"),
        ),
        (
            "~/llama-server --port ${PORT}",
            format!(
                "{start} `~` in `~/llama-server` is not a home folder; write the whole path, in llama-swap's YAML as `${{env.HOME}}/…`"
            ),
        ),
    ] {
        assert_eq!(reported(cmd), [expected], "{cmd}");
    }
    for cmd in [
        "sh -c 'cd /opt && exec ./x --port ${PORT} > ~/log # text'",
        "ssh box ~/x --port ${PORT} && date",
        "/opt/a=b/x --port ${PORT} '#1'",
    ] {
        assert_eq!(reported(cmd), Vec::<String>::new(), "{cmd}");
    }
}

#[test]
fn a_setting_beside_its_model_is_reported_as_one() {
    let refused = |text: &str| plimsoll_config::parse_all("a.yaml", text, &|_| None).unwrap_err().to_string();
    assert_eq!(
        refused("models:\n  a:\n  cmd: llama-server --port ${PORT}\n  aliases: [b]\n"),
        "3 mistakes:\n  a.yaml:2: model `a` has no command; add `cmd`\n  a.yaml:3, 4 (2 times): this is a setting of \
            a model, but a model's name is expected here; indent it further than the model's name"
    );
    // A model may have the name of a setting.
    let named = "models:\n  cmd:\n    cmd: llama-server --port ${PORT}\n";
    assert_eq!(plimsoll_config::parse("a.yaml", named, &|_| None).unwrap().models[0].name, "cmd");
    let map = "models:\n  a:\n    cmd: llama-server --port ${PORT}\n    env:\n      A: 1\n";
    assert!(refused(map).ends_with("`env` is a map; write a list: `- NAME=VALUE`"), "{}", refused(map));
}

#[test]
fn requests_to_a_port_where_nobody_listens_are_reported_and_ports_of_several_models() {
    let reported = |models: &str| {
        let mut roster = plimsoll_config::parse("a.yaml", &format!("models:\n{models}"), &|_| None).unwrap();
        roster.notify_ports();
        roster.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let model = |name: &str, flags: &str, port: u16| {
        format!("  {name}:\n    cmd: llama-server -m /a.gguf {flags}\n    proxy: http://127.0.0.1:{port}\n")
    };
    for (flags, listens) in [
        ("--port 9000", 9000),
        ("", 8080),
        ("--port 9001 --port 9000", 9000),
        ("--port ${PORT} --port 9000", 9000),
    ] {
        let expected = format!(
            "a.yaml:2: requests for `a` go to port 9001, but its command listens on port {listens}; write `--port ${{PORT}}` \
             and leave `proxy` out"
        );
        assert_eq!(reported(&model("a", flags, 9001)), [expected], "{flags}");
    }
    assert!(reported(&model("a", "--port 9001", 9001)).is_empty());
    let by_variable = format!("{}    env: [LLAMA_ARG_PORT=9001]\n", model("a", "", 9001));
    assert!(reported(&by_variable).is_empty());
    let wrapped = "  a:\n    cmd: sh -c 'llama-server --port 1'\n    proxy: http://127.0.0.1:2\n";
    assert!(reported(wrapped).is_empty(), "a script may do anything");
    assert_eq!(
        reported(&(model("a", "--port 9000", 9000) + &model("b", "--port 9000", 9000))),
        [
            "a.yaml:5: `a`, `b` all listen on port 9000, so only one of them can be loaded at a time; pass `${PORT}` to each command instead \
          of a number"
        ]
    );
}

#[test]
fn beside_a_missing_variable_nothing_is_said_of_its_words() {
    let text =
        "models:\n  a:\n    cmd: llama-server -m /a.gguf --port ${PORT} ${env.NOPE}\n  b: llama-server\n";
    let mistakes = plimsoll_config::parse_all("a.yaml", text, &|_| None).unwrap_err();
    assert!(mistakes.rest.warnings.is_empty(), "{:?}", mistakes.rest.warnings);
    let reported = mistakes.to_string();
    assert!(reported.contains("a.yaml:3: macro `env.NOPE`: the variable is not set"), "{reported}");
    assert!(
        reported
            .contains("a.yaml:4: `llama-server` is not a valid value for `b`; write its settings below it"),
        "{reported}"
    );
}

#[test]
fn all_macros_of_a_chain_that_are_not_declared_are_reported_at_once() {
    let refused = |text: &str| plimsoll_config::parse_all("a.yaml", text, &|_| None).unwrap_err().to_string();
    let text = "macros:\n  base: ${bin} --port ${PORT}\n  run: ${base} ${flags} ${bin}\nmodels:\n  a:\n    cmd: ${run} -m ${file}\n";
    assert_eq!(
        refused(text),
        "a.yaml:6: macro `bin`, `flags`, `file`: there are no such macros; declare the macro under `macros`, before the \
         macros that use it"
    );
    let near =
        "macros:\n  server: x\n  context: 5\nmodels:\n  a:\n    cmd: ${servr} --port ${PORT} ${contxt}\n";
    assert!(
        refused(near).ends_with(
            "macro `servr`, `contxt`: there are no such macros; did you mean `${server}`, `${context}`?"
        ),
        "{}",
        refused(near)
    );
}

#[test]
fn the_names_of_other_servers_for_the_time_to_live_are_mapped_to_ours() {
    for name in ["unload_after", "timeout", "idle", "keep_alive", "idle-timeout"] {
        let toml = format!("[models.a]\nmodel = '/a.gguf'\n{name} = '5m'\n");
        let error = plimsoll_config::parse("a.toml", &toml, &|_| None).unwrap_err().to_string();
        assert!(
            error.contains(&format!("unknown key `{name}`")) && error.contains("did you mean `ttl`?"),
            "{error}"
        );
        let yaml = format!("models:\n  a:\n    cmd: x ${{PORT}}\n    {name}: 5\n");
        let warnings = plimsoll_config::parse("a.yaml", &yaml, &|_| None).unwrap().warnings;
        assert!(warnings[0].to_string().ends_with("did you mean `ttl`?"), "{}", warnings[0]);
    }
    let serve =
        plimsoll_config::parse("a.toml", "[serve]\ntimeout = '5m'\n", &|_| None).unwrap_err().to_string();
    assert!(!serve.contains("`ttl`"), "{serve}");
}

#[test]
fn a_missing_quotation_mark_is_reported_as_one() {
    for text in [
        "[keys.a]\nkey = \"secret-of-mine\n",
        "[keys.a]\nkey = 'secret-of-mine\n",
        "[serve]\nlisten = \"8080\n",
    ] {
        let error = plimsoll_config::parse("a.toml", text, &|_| None).unwrap_err().to_string();
        assert_eq!(error, "a.toml:2: a quotation mark is missing; close the quotation mark", "{text}");
    }
    let list =
        plimsoll_config::parse("a.toml", "[serve]\napi-keys = [\"secret-of-mine\n", &|_| None).unwrap_err();
    let reported =
        "a.toml:2: unclosed array, expected `]`; close the bracket, and the quotation marks of each entry";
    assert_eq!(list.to_string(), reported);
}
