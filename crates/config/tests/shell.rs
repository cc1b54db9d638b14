//! Tests of commands that were written for a shell.

#![allow(clippy::unwrap_used)]

fn told(cmd: &str) -> Vec<String> {
    let text = format!("models:\n  a:\n    cmd: |\n      {cmd}\n");
    let mut roster = plimsoll_config::parse("a.yaml", &text, &|_| None).unwrap();
    roster.warnings.clear();
    roster.confine();
    roster.tell_shell_words();
    roster.warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn words_of_a_shell_are_told_with_what_to_write_instead() {
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
                "{start} `#` and what follows it are arguments of the program; begin a line of a `cmd: |` with the comment"
            ),
        ),
        (
            "LLAMA_ARG_HOST=0.0.0.0 llama-server --port ${PORT}",
            format!("{start} its program would be `LLAMA_ARG_HOST=…`; set the variable in `env`"),
        ),
        (
            "~/llama-server --port ${PORT}",
            format!(
                "{start} `~` in `~/llama-server` is no home folder; write the whole path, in llama-swap's YAML as `${{env.HOME}}/…`"
            ),
        ),
    ] {
        assert_eq!(told(cmd), [expected], "{cmd}");
    }
    for cmd in [
        "sh -c 'cd /opt && exec ./x --port ${PORT} > ~/log # text'",
        "ssh box ~/x --port ${PORT} && date",
        "/opt/a=b/x --port ${PORT} '#1'",
    ] {
        assert_eq!(told(cmd), Vec::<String>::new(), "{cmd}");
    }
}

#[test]
fn a_setting_beside_its_model_is_told_as_one() {
    let refused =
        |text: &str| plimsoll_config::parse_each("a.yaml", text, &|_| None).unwrap_err().to_string();
    assert_eq!(
        refused("models:\n  a:\n  cmd: llama-server --port ${PORT}\n  aliases: [b]\n"),
        "3 mistakes:\n  a.yaml:2: model `a` has no command; add `cmd`\n  a.yaml:3: a setting of a model stands where a \
         model's name belongs; indent it further than the model's name\n  a.yaml:4: a setting of a model stands where a \
         model's name belongs; indent it further than the model's name"
    );
    // A model may have the name of a setting.
    let named = "models:\n  cmd:\n    cmd: llama-server --port ${PORT}\n";
    assert_eq!(plimsoll_config::parse("a.yaml", named, &|_| None).unwrap().models[0].name, "cmd");
    let map = "models:\n  a:\n    cmd: llama-server --port ${PORT}\n    env:\n      A: 1\n";
    assert!(
        refused(map).ends_with("is not a valid value for `env`; write a list: `- NAME=VALUE`"),
        "{}",
        refused(map)
    );
}
