//! Tests of the reader of llama-swap's YAML configuration.

use std::time::Duration;

use plimsoll_config::{Configuration, Launch};
use plimsoll_flags::ProgramKind;

fn environment(name: &str) -> Option<String> {
    match name {
        "HOME" => Some("/home/u".to_owned()),
        "TTL" => Some("42".to_owned()),
        "LINES" => Some("a\nb".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Configuration, String> {
    plimsoll_config::parse("config.yaml", text, &environment).map_err(|error| error.to_string())
}

fn roster(text: &str) -> Configuration {
    parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err()
}

fn warnings(text: &str) -> Vec<String> {
    roster(text).warnings.iter().map(ToString::to_string).collect()
}

fn argv(roster: &Configuration, model: usize) -> Vec<String> {
    match &roster.models[model].launch {
        Launch::Command { argv, .. } => argv.clone(),
        Launch::LlamaServer { .. } => panic!("no command"),
    }
}

const WHOLE: &str = r#"
healthCheckTimeout: 300
globalTTL: 600
unloadTimeout: 20
apiKeys: [secret]
macros:
  bin: /opt/llama-server
  server: ${bin} --host 127.0.0.1 --port ${PORT}
  context: 8192
models:
  # the first
  "qwen":
    cmd: |
      # a comment with ${unknown}
      ${server} -m ${env.HOME}/qwen.gguf \
        -c ${context} -ngl all
      -ctk 'q8_0' -ctv "q8_0"
    aliases: [q, "qwen-latest"]
    env:
      - CUDA_VISIBLE_DEVICES=0
    ttl: ${env.TTL}
    unlisted: true
    useModelName: upstream
    concurrencyLimit: 3
  second:
    macros:
      context: 4096
    cmd: ${server} -m /m/${MODEL_ID}.gguf -c ${context}
    ttl: 0
  docker:
    cmd: docker run --name ${MODEL_ID} -p 9000:8080 image
    cmdStop: docker stop ${MODEL_ID} ${PID}
    proxy: http://127.0.0.1:9000
    checkEndpoint: none
hooks:
  on_startup:
    preload: [q, nobody]
groups:
  forever:
    persistent: true
    swap: false
    members: [second]
"#;

#[test]
fn a_whole_file_is_read() {
    let roster = roster(WHOLE);
    let [qwen, second, docker] = &roster.models[..] else { panic!("three models") };
    assert_eq!(
        argv(&roster, 0).join(" "),
        "/opt/llama-server --host 127.0.0.1 --port ${PORT} -m /home/u/qwen.gguf -c 8192 -ngl all -ctk q8_0 -ctv q8_0"
    );
    assert_eq!(
        argv(&roster, 1).join(" "),
        "/opt/llama-server --host 127.0.0.1 --port ${PORT} -m /m/second.gguf -c 4096"
    );
    assert_eq!(qwen.aliases, ["q", "qwen-latest"]);
    assert_eq!(qwen.env, [("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned())]);
    assert_eq!(qwen.ttl, Some(Duration::from_secs(42)));
    assert_eq!(second.ttl, Some(Duration::ZERO));
    assert_eq!(docker.ttl, Some(Duration::from_secs(600)));
    assert!(qwen.unlisted && qwen.preload && !qwen.pinned && second.pinned);
    assert_eq!(qwen.upstream_name.as_deref(), Some("upstream"));
    assert_eq!((qwen.concurrency, second.concurrency), (Some(3), None));
    assert_eq!(qwen.load_timeout, Some(Duration::from_secs(300)));
    assert_eq!(qwen.stop_timeout, Some(Duration::from_secs(20)));
    assert_eq!(roster.serve.api_keys, ["secret"]);
    assert_eq!(docker.launch.check(), None);
    assert_eq!(docker.launch.upstream(1), "http://127.0.0.1:9000");
    assert_eq!(qwen.launch.upstream(1), "http://127.0.0.1:1");
    assert!(
        matches!(&docker.launch, Launch::Command { stop: Some(line), .. } if line.join(" ") == "docker stop docker ${PID}"),
        "{:?}",
        docker.launch
    );
}

#[test]
fn a_llama_server_in_a_command_is_planned_from_its_flags() {
    let roster = roster(WHOLE);
    let params = roster.models[0].launch.options().unwrap().params(ProgramKind::LlamaServer).unwrap();
    assert_eq!((params.model.as_deref(), params.context), (Some("/home/u/qwen.gguf"), 8192));
    assert_eq!(params.cache_key.name, "q8_0");
    assert!(roster.models[2].launch.options().is_none());
}

#[test]
fn ineffective_llama_swap_keys_are_warned_of_with_their_line() {
    assert_eq!(
        warnings(WHOLE),
        ["config.yaml:37: `nobody` is not a model; remove this name from `preload`",].map(str::to_owned)
    );
    let text = "startPort: 9000\nlogLevel: debug\nmodles: {}\nmodels:\n  a:\n    cmd: p ${PORT}\n    name: A\n    \
                cdm: x\n    filters:\n      stripParams: top_k\n      setParamsByID:\n        b: {top_k: 1}\n";
    assert_eq!(
        warnings(text),
        [
            "config.yaml:1: `startPort` has no effect; the operating system assigns a port to each engine",
            "config.yaml:2: `logLevel` has no effect; choose the logged lines with --log-level, or \
                `log-level` under [serve]",
            "config.yaml:3: unknown key `modles`; did you mean `models`?",
            "config.yaml:8: unknown key `cdm`; remove it",
        ]
    );
    let cosmetic: Vec<bool> = roster(text).warnings.iter().map(|warning| warning.is_cosmetic).collect();
    assert_eq!(cosmetic, [true, true, false, false]);
    assert_eq!(roster(text).models[0].aliases, ["b"]);
}

#[test]
fn a_file_whose_models_are_misspelt_is_refused_and_an_empty_one_is_not() {
    for (text, line) in [("model:\n  a: {cmd: p}\n", 1), ("logLevel: debug\nmodles: {}\n", 2)] {
        let error = refusal(text);
        assert!(error.starts_with(&format!("config.yaml:{line}: unknown key `")), "{error}");
        assert!(error.ends_with("did you mean `models`?"), "{error}");
    }
    assert!(roster("").models.is_empty() && roster("macros: {}\n").models.is_empty());
}

#[test]
fn a_flag_of_a_long_command_is_reported_with_its_own_line() {
    let text = "\
macros:
  srv: llama-server --port ${PORT} -b 4k
models:
  a:
    cmd: |
      ${srv}
      # -c 8k is too much
      -m a.gguf
      -c 8k --ctx-sise 4
    ttl: 1
  b:
    cmd: llama-server --port ${PORT} \"-c\" 2k
  c:
    cmd: llama-server --port ${PORT} -c 2048
groups:
  g: {members: [a, b, c], persistent: true}
";
    let reported = plimsoll_config::parse_all("config.yaml", text, &|_| None).unwrap_err();
    let warnings: Vec<String> = reported.rest.warnings.iter().map(ToString::to_string).collect();
    let unknown = "config.yaml:9: unknown flag `--ctx-sise`; did you mean --ctx-size? The plan ignores this flag, and the \
        engine may not start with it";
    assert!(warnings.contains(&unknown.to_owned()), "{warnings:?}");
    // A model that is refused is a model all the same.
    assert!(!warnings.iter().any(|warning| warning.contains("is not a model")), "{warnings:?}");
    let reported = reported.to_string();
    let expected = "\
3 mistakes:
  config.yaml:6: `-b 4k`: llama-server reads this as 4; write `-b 4096`
  config.yaml:9: `-c 8k`: llama-server reads this as 8; write `-c 8192`
  config.yaml:12: `-c 2k`: llama-server reads this as 2; write `-c 2048`
";
    assert!(reported.starts_with(expected), "{reported}");
    // At its start the server serves the others.
    let each = plimsoll_config::parse_each("config.yaml", text, &|_| None).unwrap();
    assert_eq!(
        each.models.iter().map(|model| (&model.name[..], model.pinned)).collect::<Vec<_>>(),
        [("c", false)]
    );
    assert_eq!(each.refused.len(), 2);
}

#[test]
fn a_misspelt_member_of_a_group_is_reported_with_the_model_that_is_meant() {
    let text = "models:\n  coder:\n    cmd: p ${PORT}\ngroups:\n  g:\n    members: [codr, other]\n    swap: false\n    exclusive: false\n";
    let reported = warnings(text);
    assert!(
        reported.contains(&"config.yaml:6: `codr` is not a model; did you mean `coder`?".to_owned()),
        "{reported:?}"
    );
    assert!(
        reported
            .contains(&"config.yaml:6: `other` is not a model; remove this name from the group".to_owned()),
        "{reported:?}"
    );
}

#[test]
fn a_proxy_with_another_port_than_the_command_is_reported() {
    let reported =
        |proxy: &str| warnings(&format!("models:\n  a:\n    cmd: p ${{PORT}}\n    proxy: {proxy}\n"));
    assert_eq!(
        reported("http://127.0.0.1:9001"),
        [
            "config.yaml:4: requests go to http://127.0.0.1:9001, but `cmd` listens on `${PORT}`; leave `proxy` out, or \
            write `${PORT}` as its port"
        ]
    );
    assert_eq!(reported("http://127.0.0.1:${PORT}"), [""; 0]);
}

#[test]
fn macros_are_put_in_from_the_last_to_the_first() {
    let text = "macros:\n  a: 1\n  b: ${a}${a}\nmodels:\n  m:\n    cmd: p ${b} ${PORT}\n";
    assert_eq!(argv(&roster(text), 0), ["p", "11", "${PORT}"]);
    let forward = "macros:\n  a: ${b}\n  b: 1\nmodels:\n  m:\n    cmd: p ${a} ${PORT}\n";
    assert_eq!(
        refusal(forward),
        "config.yaml:6: macro `b`: there is no such macro; declare the macro under `macros`, before the macros that use it"
    );
}

#[test]
fn llama_swap_errors_carry_a_line_and_a_remedy() {
    for (text, message) in [
        (
            "models:\n  a:\n    cmd: p ${PORT} ${x}\n",
            "config.yaml:3: macro `x`: there is no such macro; declare the macro under `macros`, before the macros that use it",
        ),
        (
            "models:\n  a:\n    cmd: p ${PORT} ${PID}\n",
            "config.yaml:3: macro `PID`: there is no such macro; declare the macro under `macros`, before the macros that use it",
        ),
        (
            "macros:\n  server: llama-server\nmodels:\n  a:\n    cmd: ${servr} --port ${PORT}\n",
            "config.yaml:5: macro `servr`: there is no such macro; did you mean `${server}`?",
        ),
        (
            "models:\n  a:\n    cmd: p ${port}\n",
            "config.yaml:3: macro `port`: there is no such macro; did you mean `${PORT}`?",
        ),
        (
            "models:\n  a:\n    cmd: ${env.NO} ${PORT}\n",
            "config.yaml:3: macro `env.NO`: the variable is not set; set it in the environment of the server",
        ),
        (
            "models:\n  a:\n    cmd: ${env.LINES} ${PORT}\n",
            "config.yaml:3: macro `env.LINES`: the variable has more than one line, or more than 64 KiB; set this variable to one short line",
        ),
        ("macros:\n  PORT: 1\n", "config.yaml:2: macro `PORT`: the name is reserved; choose another"),
        (
            "macros:\n  a b: 1\n",
            "config.yaml:2: macro `a b`: the name is not valid; use up to 63 letters, digits, `_` and `-`",
        ),
        (
            "macros:\n  a: x${a}\n",
            "config.yaml:2: macro `a`: the macro contains itself; remove the macro from its own value",
        ),
        (
            "macros:\n  a: [1]\n",
            "config.yaml:2: macro `a`: the value is not a string, number or boolean; write one value",
        ),
        ("models:\n  a:\n    proxy: http://x\n", "config.yaml:2: model `a` has no command; add `cmd`"),
        (
            "models:\n  a:\n    cmd: p\n",
            "config.yaml:2: `cmd` does not use `${PORT}`, and `proxy` is not set; use `${PORT}` in `cmd`, or set `proxy`",
        ),
        (
            "models:\n  a:\n    cmd: p\n    proxy: http://x:${PORT}\n",
            "config.yaml:4: `proxy` uses `${PORT}` but `cmd` does not; pass `${PORT}` to the command",
        ),
        (
            "models:\n  a:\n    cmd: p\n    proxy: https://x\n",
            "config.yaml:2: `proxy` begins with https://, but engines are reached only by http://; write `http://HOST:PORT`, for example \
                `http://127.0.0.1:${PORT}`",
        ),
        (
            "models:\n  a:\n    cmd: p 'x ${PORT}\n",
            "config.yaml:3: the command cannot be split into arguments: a quotation mark is not closed; \
                close the quotation mark, or put a backslash before it",
        ),
        (
            "models:\n  a:\n    cmd: p ${PORT}\n    ttl: -5\n",
            "config.yaml:4: `-5` is not a valid value for `ttl`; write a whole number of seconds, for example 300",
        ),
        (
            "models:\n  a:\n    cmd: p ${PORT}\n    unlisted: maybe\n",
            "config.yaml:4: `maybe` is not a valid value for `unlisted`; write true or false",
        ),
        (
            "models:\n  a:\n    cmd: p ${PORT}\n    aliases: b\n",
            "config.yaml:4: `b` is not a valid value for `aliases`; write a list of strings",
        ),
        (
            "models:\n  a:\n    cmd: p ${PORT}\n    env: [A]\n",
            "config.yaml:4: a variable has no `=`; write `NAME=VALUE`",
        ),
        ("models: [a]\n", "config.yaml:1: `models` is a list; write a map"),
        ("just text\n", "config.yaml:1: the file is not a YAML mapping; write `models:`"),
        ("apiKeys: ['a b']\n", "config.yaml:1: an API key contains a space; write the key without spaces"),
        (
            "models:\n  a:\n    cmd: p ${PORT}\n  b:\n    cmd: p ${PORT}\n    aliases: [a]\n",
            "config.yaml:4: the name `a` is already used by `a` at config.yaml:2; names and aliases must be unique",
        ),
    ] {
        assert_eq!(refusal(text), message, "{text}");
    }
    for (text, reported) in [
        (
            "a: [1\nb: 2\n",
            "config.yaml:2: illegal placement of ':' indicator; check the indentation and the quotation marks",
        ),
        ("a: 1\na: 2\n", "config.yaml:2: the key `a` is given twice; keep one of the two"),
        (
            "models:\n  a:\n\tcmd: p\n",
            "config.yaml:3: tabs disallowed within this context (block indentation); a tab indents the line: use spaces",
        ),
        (
            "models:\n  a:\n    cmd: 'p\n    ttl: 5\n",
            "config.yaml:4: invalid indentation in multiline quoted scalar; a quotation mark is not closed: close it, \
                or put the text in the other kind",
        ),
        (
            "models:\n  a:\n    cmd: p: q\n",
            "config.yaml:3: mapping values are not allowed in this context; check the indentation, and put quotation \
                marks around text that contains `: `",
        ),
        ("a: 1\n---\nb: 2\n", "config.yaml:2: budget breached: Documents { documents: 2 }; split the file"),
    ] {
        assert_eq!(refusal(text), reported);
    }
}

#[test]
fn a_blank_api_key_is_refused_with_its_line() {
    for key in ["''", "' '", "\"\\t\"", "${env.EMPTY}"] {
        let text = format!("healthCheckTimeout: 300\napiKeys:\n  - secret\n  - {key}\n");
        let empty = |name: &str| (name == "EMPTY").then(String::new);
        let error = plimsoll_config::parse("config.yaml", &text, &empty).unwrap_err();
        assert_eq!(
            error.to_string(),
            "config.yaml:4: `apiKeys` contains an empty API key, which would admit requests without a key; \
             write the key, or remove the entry",
            "{key}"
        );
    }
}

#[test]
fn the_port_may_stand_in_a_variable_too() {
    let roster = roster("models:\n  a:\n    cmd: p ${PORT}\n    env: ['URL=http://x:${PORT}']\n");
    assert_eq!(roster.models[0].environment(7), [("URL".to_owned(), "http://x:7".to_owned())]);
}

#[test]
fn keys_of_clients_are_not_shown_when_debugging() {
    let roster = roster("apiKeys: [very-secret]\n");
    assert!(!format!("{roster:?}").contains("very-secret"));
}

#[test]
fn an_empty_file_is_an_empty_roster() {
    for text in ["", "# nothing\n", "models:\n", "models: {}\n"] {
        assert_eq!(roster(text), Configuration::default(), "{text:?}");
    }
}

#[test]
fn anchors_and_merges_work() {
    let text = "x-base: &base\n  ttl: 5\nmodels:\n  a:\n    <<: *base\n    cmd: p ${PORT}\n";
    assert_eq!(roster(text).models[0].ttl, Some(Duration::from_secs(5)));
    assert!(warnings(text).is_empty());
}

#[test]
fn macros_that_double_and_double_are_stopped() {
    let mut text = String::from("macros:\n  m0: 0123456789\n");
    for level in 1..60 {
        text += &format!("  m{level}: ${{m{0}}}${{m{0}}}\n", level - 1);
    }
    text += "models:\n  a:\n    cmd: p ${m59} ${PORT}\n";
    assert!(refusal(&text).contains("expands to more than 64 KiB"), "{}", refusal(&text));
}

#[test]
fn aliases_that_double_and_double_are_stopped() {
    let mut text = String::from("x0: &x0 [a, a, a, a, a, a, a, a]\n");
    for level in 1..30 {
        text += &format!("x{level}: &x{level} [*x{0}, *x{0}, *x{0}, *x{0}]\n", level - 1);
    }
    assert!(parse(&text).is_err());
}
