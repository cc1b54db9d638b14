//! Tests of the reader of Plimsoll's own TOML format.

use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_config::{CardPart, Configuration, GuardMode, GuardSettings, Launch, ReclaimBeforeLoad};
use plimsoll_flags::ProgramKind;

fn parse(text: &str) -> Result<Configuration, String> {
    plimsoll_config::parse("plimsoll.toml", text, &|_| None).map_err(|error| error.to_string())
}

fn roster(text: &str) -> Configuration {
    parse(text).unwrap()
}

fn refusal(text: &str) -> String {
    parse(text).unwrap_err()
}

const WHOLE: &str = r#"
[serve]
listen = "127.0.0.1:8080"
api-keys = ["secret"]
api-key-files = ["/etc/keys"]
patience = "10s"
models-max = 3
reclaim-before-load = "sudo"
wait = "10m"

[engine]
command = ["/opt/llama/llama-server"]

[models.zephyr]
model = "/m/zephyr.gguf"
flags = "-c 8192 -ngl all"
memory = "6GiB"
aliases = ["z"]
tags = ["chat"]
env = { A = "b" }
ttl = "5m"
pin = true
preload = true
cards = ["GPU-1"]
load-timeout = "10m"
stop-timeout = "10s"
concurrency = 8
replicas = 3
max-requests = 1000
unlisted = true

[models.comfy]
cmd = "python 'main app.py' --port ${PORT}"
check = "/ready"
stop = ["kill", "${PID}"]
upstream-name = "flux"

[models.hub]
flags = ["-hf", "ggml-org/gemma-3-4b-it-GGUF"]
program = "/opt/ik/llama-server"
"#;

#[test]
fn every_key_is_read() {
    let roster = roster(WHOLE);
    let serve = &roster.serve;
    assert_eq!(serve.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert_eq!((serve.api_keys.len(), serve.api_key_files.len()), (1, 1));
    assert_eq!(serve.models_max, Some(3));
    assert_eq!((serve.patience, serve.wait), (Some(Duration::from_secs(10)), Some(Duration::from_secs(600))));
    assert_eq!(serve.reclaim_before_load, Some(ReclaimBeforeLoad::Sudo));
    assert_eq!(serve.engine, Some(vec!["/opt/llama/llama-server".to_owned()]));
    let [zephyr, comfy, hub] = &roster.models[..] else { panic!("three models") };
    assert_eq!(
        (zephyr.name.as_str(), &zephyr.aliases[..], &zephyr.tags[..]),
        ("zephyr", &["z".to_owned()][..], &["chat".to_owned()][..])
    );
    assert_eq!((zephyr.memory, zephyr.ttl), (Some(Bytes::gib(6)), Some(Duration::from_secs(300))));
    assert!(zephyr.pinned && zephyr.preload && zephyr.unlisted);
    assert_eq!((zephyr.concurrency, zephyr.max_requests, zephyr.replicas), (Some(8), Some(1000), Some(3)));
    assert_eq!(zephyr.cards, ["GPU-1"]);
    assert_eq!(zephyr.env, [("A".to_owned(), "b".to_owned())]);
    assert_eq!(zephyr.load_timeout, Some(Duration::from_secs(600)));
    assert_eq!(zephyr.stop_timeout, Some(Duration::from_secs(10)));
    let params = zephyr.launch.options().unwrap().params(ProgramKind::LlamaServer).unwrap();
    assert_eq!((params.model.as_deref(), params.context), (Some("/m/zephyr.gguf"), 8192));
    assert_eq!(comfy.upstream_name.as_deref(), Some("flux"));
    assert_eq!(comfy.launch.check(), Some("/ready"));
    assert!(
        matches!(&hub.launch, Launch::LlamaServer { program: Some(program), .. } if program == &["/opt/ik/llama-server"])
    );
    assert!(roster.warnings.is_empty());
}

#[test]
fn a_launch_writes_its_command_lines() {
    let roster = roster(WHOLE);
    let engine = roster.serve.engine.as_deref().unwrap();
    let [zephyr, comfy, _] = &roster.models[..] else { panic!("three models") };
    assert_eq!(
        zephyr.launch.command_line(engine, "zephyr", 5800, None).join(" "),
        "/opt/llama/llama-server --model /m/zephyr.gguf --ctx-size 8192 --n-gpu-layers all \
         --host 127.0.0.1 --port 5800 --alias zephyr"
    );
    assert_eq!(zephyr.launch.upstream(5800), "http://127.0.0.1:5800");
    assert_eq!(
        comfy.launch.command_line(engine, "comfy", 5801, None),
        ["python", "main app.py", "--port", "5801"]
    );
    let socket = zephyr.launch.command_line(engine, "zephyr", 5800, Some("/p/engine.sock"));
    assert!(socket.join(" ").contains("--host /p/engine.sock --port 5800"));
    assert!(
        matches!(&comfy.launch, Launch::Command { stop: Some(line), .. } if line.join(" ") == "kill ${PID}"),
        "{:?}",
        comfy.launch
    );
    assert_eq!(comfy.launch.upstream(5801), "http://127.0.0.1:5801");
}

#[test]
fn models_stand_in_the_order_of_the_file() {
    let roster = roster("[models.b]\nmodel='m'\n[models.a]\nmodel='n'\n");
    let names: Vec<&str> = roster.models.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["b", "a"]);
    assert_eq!(roster.models[1].origin.line(), Some(3));
}

#[test]
fn native_config_errors_carry_a_line_and_a_remedy() {
    for (text, message) in [
        (
            "[models.a]\nmodle = 'm'\n",
            "plimsoll.toml:2: unknown key `modle` in the file; did you mean `model`?",
        ),
        ("[server]\n", "plimsoll.toml:1: unknown key `server` in the file; did you mean `serve`?"),
        (
            "[models.a]\n\nc = 5\n",
            "plimsoll.toml:3: unknown key `c` in the file; did you mean `flags = \"--ctx-size …\"`?",
        ),
        (
            "[models.a]\nn_ctx = 5\n",
            "plimsoll.toml:2: unknown key `n_ctx` in the file; did you mean `flags = \"--ctx-size …\"`?",
        ),
        (
            "[models.a]\npath = 'm.gguf'\n",
            "plimsoll.toml:2: unknown key `path` in the file; did you mean `model`?",
        ),
        ("[models.a]\nqqqq = 5\n", "plimsoll.toml:2: unknown key `qqqq` in the file; remove it"),
        (
            "[models.qwen2.5-7b]\nmodel = 'm.gguf'\n",
            "plimsoll.toml:1: the name `qwen2.5-7b` contains a dot, which begins a sub-table in TOML; put it in quotes: \
                [models.\"qwen2.5-7b\"]",
        ),
        (
            "[models.Qwen 3]\nmodel = 'm.gguf'\n",
            "plimsoll.toml:1: unclosed table, expected `]`; close the bracket, and put a name with spaces in quotes: \
                [models.\"A NAME\"]",
        ),
        (
            "[models.a]\nmodel = ../m.gguf\n",
            "plimsoll.toml:2: invalid mantissa, expected digits; put text in quotes",
        ),
        (
            "[serve]\nlisten = true\n",
            "plimsoll.toml:2: write an address such as \"127.0.0.1:8080\" or \":8080\", a port, or a list of them",
        ),
        (
            "[models.a]\nmodel = 'm'\nttl = 'soon'\n",
            "plimsoll.toml:3: `soon` is not a duration; write a duration such as 90s, 10m or 1h30m",
        ),
        (
            "[models.a]\nmodel = 'm'\nmemory = 'much'\n",
            "plimsoll.toml:3: `much` is not a size; write a number with B, KiB, MiB, GiB or TiB, e.g. 24GiB or 24576MiB",
        ),
        (
            "[models.a]\nmodel = 'm'\n[models.b]\nflags = '-c 5'\n",
            "plimsoll.toml:3: model `b` has no command; add `cmd`, or `model` and `flags`",
        ),
        (
            "[models.a]\nmodel = 'm'\nflags = ['-c', '5',\n  '--ctx-sise', '5']\n",
            "plimsoll.toml:3: unknown flag `--ctx-sise`; did you mean --ctx-size?",
        ),
        (
            "[models.a]\ncmd = 'a \"b'\n",
            "plimsoll.toml:2: the command cannot be split into arguments: a quotation mark is not closed; \
                close the quotation mark, or put a backslash before it",
        ),
        (
            "[models.a]\ncmd = 'program'\n",
            "plimsoll.toml:2: the command does not use `${PORT}`, so its port is unknown; pass `${PORT}` to \
                the command, or set `proxy = \"http://127.0.0.1:…\"`",
        ),
        (
            "[models.a]\ncmd = 'p ${PORT}'\nmodel = 'm'\n",
            "plimsoll.toml:1: the model's section has `cmd` beside `model`, `flags` or `program`; keep only `cmd` \
                to start your own command, or only the other keys to start llama-server",
        ),
        (
            "[models.a]\nmodel='m'\n[models.b]\nmodel='n'\naliases=['a']\n",
            "plimsoll.toml:3: the name `a` is already used by `a` at plimsoll.toml:1; names and aliases must be \
                unique",
        ),
    ] {
        assert_eq!(refusal(text), message);
    }
    assert!(refusal("[models.a\n").starts_with("plimsoll.toml:1: "));
    for key in ["concurrency", "max-requests", "replicas"] {
        for value in ["0", "-1", "4294967296", "'1'"] {
            let text = format!("[models.a]\nmodel = 'm'\n{key} = {value}\n");
            assert!(refusal(&text).starts_with("plimsoll.toml:3: "), "{text}");
        }
    }
}

#[test]
fn a_name_is_doubled_beside_a_model_with_a_wrong_flag_too() {
    let text = "[models.a]\nmodel='m'\nflags='-c 4k'\n[models.b]\nmodel='n'\naliases=['a']\n\
        [models.c]\nmodel='o'\naliases=['b']\n";
    let mistakes = plimsoll_config::parse_all("p.toml", text, &|_| None).unwrap_err().to_string();
    for reported in
        ["`-c 4k`", "p.toml:4: the name `a` is already used by `a`", "p.toml:7: the name `b` is already"]
    {
        assert!(mistakes.contains(reported), "{mistakes}");
    }
}

#[test]
fn reserved_flags_are_dropped_with_a_warning() {
    let roster = roster("[models.a]\nmodel = 'm'\nflags = '--port 1 -c 8192'\n");
    assert_eq!(roster.models[0].launch.options().unwrap().to_argv(), ["--model", "m", "--ctx-size", "8192"]);
    let warnings: Vec<String> = roster.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "plimsoll.toml:3: Plimsoll chooses the flag --port itself and ignores this value; `listen` under [serve] is the server's own address",
        ]
    );
}

#[test]
fn a_command_that_is_a_llama_server_is_planned_from_its_flags() {
    let roster = roster(
        "[models.a]\ncmd = 'taskset -c 0-7 /opt/llama-server -m x.gguf --port ${PORT} --odd thing -c 5'\n",
    );
    let options = roster.models[0].launch.options().unwrap();
    assert_eq!(options.to_argv(), ["--model", "x.gguf", "--ctx-size", "5"]);
    assert_eq!(roster.warnings.len(), 1, "{:?}", roster.warnings);
}

/// Run with `UPDATE_SCHEMA=1` to write it.
#[test]
fn the_published_schema_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/config.schema.json");
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, plimsoll_config::schema()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(
        published == plimsoll_config::schema() && published == plimsoll_config::PUBLISHED_SCHEMA,
        "docs/reference/config.schema.json is stale: run UPDATE_SCHEMA=1 cargo test -p plimsoll-config native"
    );
}

#[test]
fn guard_settings_are_read_from_a_table_of_the_model() {
    let text = r#"
[models.a]
model = "/m/a.gguf"
[models.a.guard]
mode = "budget"
reclaim = true
wait = "1500ms"
spill = "4GiB"
pool = "ours"
on-oom = "managed"
contexts = "refuse"
"#;
    let params = roster(text).models[0].guard;
    let words = "budget reclaim wait=2 spill=4GiB pool=ours on-oom=managed contexts=refuse";
    assert_eq!(Some(params), GuardSettings::read(words));
    assert_eq!(params.mode(), GuardMode::Budget);
    let wrong = text.replace("\"ours\"", "\"best\"");
    assert!(refusal(&wrong).contains("plimsoll.toml:9"), "{}", refusal(&wrong));
}

#[test]
fn a_blank_api_key_is_refused_with_its_line() {
    for key in ["", " ", "\\t"] {
        assert_eq!(
            refusal(&format!("[serve]\napi-keys = [\n  \"secret\",\n  \"{key}\",\n]\n")),
            "plimsoll.toml:4: `api-keys` contains an empty API key, which would admit requests without a \
                key; \
             write the key, or remove the entry",
            "{key:?}"
        );
    }
}

#[test]
fn the_example_in_the_packaged_configuration_is_read_once_its_marks_are_off() {
    let packaged = include_str!("../../../packaging/plimsoll.toml");
    let example: String = packaged
        .lines()
        .skip_while(|line| !line.starts_with("# ["))
        .map(|line| format!("{}\n", line.trim_start_matches(['#', ' '])))
        .collect();
    let configuration = roster(&example);
    assert!(configuration.serve.listen.len() == 1 && configuration.models.len() == 1, "{example}");
    assert!(roster(packaged).models.is_empty());
}

#[test]
fn a_command_is_checked_and_sized_as_a_program_of_its_kind() {
    let read = |text: &str| {
        let model = roster(&format!("[models.a]\n{text}\n")).models.remove(0);
        (model.launch.check().map(str::to_owned), model.part())
    };
    let (flag, beyond) = ("--gpu-memory-utilization", plimsoll_vllm::CONTEXT);
    let half = CardPart { millionths: 500_000, flag, cards: 1, beyond, alongside: None };
    for (text, check, part) in [
        ("cmd = 'koboldcpp --port ${PORT}'", Some("/api/v1/model"), None),
        ("cmd = 'sd-server --listen-port ${PORT}'", Some("/v1/models"), None),
        ("cmd = 'vllm serve m --port ${PORT} --gpu-memory-utilization 0.5'", Some("/health"), Some(half)),
        ("cmd = 'start.sh ${PORT} --gpu-memory-utilization 0.5'", Some("/health"), None),
        ("cmd = 'start.sh ${PORT} --gpu-memory-utilization 0.5'\nkind = 'vllm'", Some("/health"), Some(half)),
        ("cmd = 'start.sh ${PORT}'\nkind = 'comfyui'", Some("/system_stats"), None),
        ("cmd = 'koboldcpp ${PORT}'\nkind = 'comfyui'\ncheck = '/own'", Some("/own"), None),
        ("cmd = 'koboldcpp ${PORT}'\ncheck = 'none'", None, None),
    ] {
        assert_eq!(read(text), (check.map(str::to_owned), part), "{text}");
    }
    let unknown = refusal("[models.a]\ncmd = 'x ${PORT}'\nkind = 'vlm'\n");
    assert!(unknown.starts_with("plimsoll.toml:3: ") && unknown.contains("vllm"), "{unknown}");
}

#[test]
fn a_port_is_an_address_to_listen_on() {
    assert_eq!(roster("[serve]\nlisten = 8090\n").serve.listen, ["127.0.0.1:8090".parse().unwrap()]);
    for wrong in ["listen = 99999", "listen = -1", "listen = 8090.5"] {
        let text = format!("[serve]\n{wrong}\n");
        assert!(plimsoll_config::parse("a.toml", &text, &|_| None).is_err(), "{wrong}");
    }
}

#[test]
fn a_list_of_flags_with_a_value_in_the_same_word_is_refused_with_its_division() {
    let text = "[models.a]\nmodel = 'm.gguf'\nflags = ['-c 8192']\n";
    let roster = plimsoll_config::parse_each("plimsoll.toml", text, &|_| None).unwrap();
    let refused = roster.refused[0].error.to_string();
    assert_eq!(
        refused,
        "plimsoll.toml:3: unknown flag `-c 8192`; write flag and value as two arguments: \"-c\", \"8192\""
    );
}

#[test]
fn a_model_may_spill_and_a_wrong_size_or_a_contradicting_key_is_named() {
    let model = "[models.m]\nmodel = '/m.gguf'\n";
    let spill = |line: &str| roster(&format!("{model}{line}")).models[0].spill;
    assert_eq!(spill("spill = '8GiB'"), Some(Bytes::gib(8)));
    assert_eq!(spill("spill = '0'"), None);
    assert_eq!(spill(""), None);
    assert_eq!(spill("spill = '8GiB'\nguard = { mode = 'budget', reclaim = true }"), Some(Bytes::gib(8)));
    for wrong in ["8", "lots", "", "-1GiB"] {
        let stated = refusal(&format!("{model}spill = '{wrong}'"));
        assert!(stated.starts_with("plimsoll.toml:3: "), "{wrong}: {stated}");
    }
    for (lines, named) in [
        ("memory = '9GiB'", "`memory`"),
        ("guard = { mode = 'off' }", "`mode = \"off\"`"),
        ("guard = { mode = 'observe' }", "`mode = \"observe\"`"),
        ("guard = { spill = '1GiB' }", "in its `guard`"),
        ("guard = { budget = '1GiB' }", "`budget`"),
        ("guard = { need = '1GiB' }", "`need`"),
        ("guard = { keep = '1GiB' }", "`keep`"),
        ("guard = { on-oom = 'managed' }", "`on-oom`"),
    ] {
        let stated = refusal(&format!("{model}spill = '8GiB'\n{lines}"));
        assert!(stated.starts_with("plimsoll.toml:3: ") && stated.contains(named), "{lines}: {stated}");
        assert!(stated.contains("remove `spill`"), "{lines}: {stated}");
    }
    for (cmd, named) in [
        ("vllm serve x --port ${PORT}", "another program"),
        (
            "docker run -v /opt:/opt -p ${PORT}:8080 ghcr.io/ggml-org/llama.cpp:server -m /opt/m.gguf",
            "container",
        ),
    ] {
        let stated = refusal(&format!("[models.m]\ncmd = '{cmd}'\nspill = '8GiB'"));
        assert!(stated.contains(named) && stated.contains("remove `spill`"), "{cmd}: {stated}");
    }
    let elsewhere =
        "[models.m]\ncmd = 'ssh far llama-server -m /m.gguf'\nproxy = 'http://far:8080'\nspill = '8GiB'";
    assert!(refusal(elsewhere).contains("another host"), "{}", refusal(elsewhere));
}
