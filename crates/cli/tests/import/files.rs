//! Tests of imports of llama-swap's YAML and of presets: the TOML is read again and means the same.

use std::fs;
use std::path::Path;

use plimsoll_config::{Configuration, Launch};
use plimsoll_import::{ImportedConfiguration, import};

fn variable(name: &str) -> Option<String> {
    (name == "KEY").then(|| "abc".to_owned())
}

/// Imports a text as a file of this name.
fn imported(name: &str, text: &str) -> Result<ImportedConfiguration, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let cut = |text: &str| text.replace(&format!("{}/", folder.path().display()), "");
    let mut imported = import(&path, &variable).map_err(|error| cut(&error.to_string()))?;
    imported.toml = cut(&imported.toml);
    for warning in imported.changes.iter_mut().chain(&mut imported.cosmetic) {
        warning.text = cut(&warning.to_string());
    }
    Ok(imported)
}

fn read(toml: &str) -> Configuration {
    plimsoll_config::parse("plimsoll.toml", toml, &|_| None).unwrap()
}

fn reported(warnings: &[plimsoll_flags::Warning]) -> Vec<&str> {
    warnings.iter().map(|warning| warning.text.as_str()).collect()
}

#[test]
fn a_home_servers_llama_swap_file_becomes_toml_with_its_places() {
    let imported = imported("swap.yaml", include_str!("home.yaml")).unwrap();
    let expected = include_str!("home.toml");
    if std::env::var_os("UPDATE_IMPORT").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/import/home.toml"), &imported.toml)
            .unwrap();
    } else {
        assert_eq!(imported.toml, expected, "UPDATE_IMPORT=1 writes it");
    }
    assert_eq!((imported.models, imported.has_secrets), (5, true));
    let roster = read(&imported.toml);
    let planned = roster.models[0].launch.options().unwrap().to_argv().join(" ");
    assert_eq!(
        planned,
        "--model /models/qwen3-30b-a3b-q4_k_m.gguf --n-gpu-layers 99 --ctx-size 32768 --cache-type-k q8_0 \
         --cache-type-v q8_0"
    );
    assert!(
        matches!(&roster.models[1].launch, Launch::Command { argv, .. } if argv.contains(&"--ctx-sise".to_owned()))
    );
    assert_eq!(
        reported(&imported.cosmetic),
        [
            "swap.yaml:2: `startPort` has no effect; the operating system assigns a port to each engine",
            "swap.yaml:3: `logLevel` has no effect; choose the logged lines with --log-level, or \
                `log-level` under \
                [serve]",
            "swap.yaml:38: `sendLoadingState` has no effect; the progress of loading is shown in the model's status, \
                not in answers",
            "swap.yaml:45: `profiles` has no effect; profiles are not supported; llama-swap too starts without one",
        ]
    );
}

#[test]
fn typical_mistakes_are_reported_with_line_and_remedy() {
    let imported = imported("swap.yaml", include_str!("home.yaml")).unwrap();
    let changes = reported(&imported.changes);
    assert_eq!(
        changes.iter().filter(|reported| reported.contains("is replaced by 127.0.0.1")).count(),
        1,
        "of flags none"
    );
    for expected in [
        "swap.yaml: llama-swap listens on all network interfaces, plimsoll serve on 127.0.0.1:8080; for other \
            machines set `listen = \":8080\"` and `api-keys` under [serve]",
        "swap.yaml: the values of ${env.KEY} are written into the file; change the file when a variable changes, \
            and keep secrets in `api-key-files`",
        "swap.yaml:10: `CUDA_VISIBLE_DEVICES=0` of `qwen3:30b` is left out: plimsoll chooses the cards; write `cards \
            = [\"GPU-…\"]` with the UUIDs of `nvidia-smi -L` to limit the model to some",
        "swap.yaml:23: models/coder.gguf of `coder` is relative to the folder in which plimsoll serve runs; write the \
            absolute path; `~` is not expanded",
        "swap.yaml:24: unknown flag `--ctx-sise`; did you mean --ctx-size? The plan ignores this flag, and the engine may not start with it",
        "swap.yaml:23: `--host 0.0.0.0` of `coder` is replaced by 127.0.0.1: the engine would listen on all interfaces, \
            so that other machines reach it without an API key; write `--host 127.0.0.1`, or remove it",
        "swap.yaml:29: the engine of `whisper` listens on all interfaces (`-p 9000:8080`), so that other machines reach it without an API key; write `-p 127.0.0.1:9000:8080`",
        "swap.yaml:29: stopping `whisper` ends the program that started the container, but maybe not the container; run \
            it with --rm and --init, and set `stop`, for example \"docker stop NAME\"",
        "swap.yaml:33: `whisper`, `tts` all listen on port 9000, so only one of them can be loaded at a time; pass `${PORT}` to \
            each command instead of a number",
    ] {
        assert!(changes.contains(&expected), "{expected}\nis none of\n{}", changes.join("\n"));
    }
    for (text, error) in [
        (
            "models:\n  a:\n\tcmd: p\n",
            "swap.yaml:3: tabs disallowed within this context (block indentation); a tab \
            indents the line: use spaces",
        ),
        (
            "models:\n  a:\n    cmd: llama-server --port 9000\n",
            "swap.yaml:2: `cmd` does not use `${PORT}`, and `proxy` \
            is not set; use `${PORT}` in `cmd`, or set `proxy`",
        ),
        (
            "models:\n  a: {cmd: p}\n  a: {cmd: q}\n",
            "swap.yaml:3: the key `a` is given twice; keep one of the two",
        ),
        (
            "models:\n  a:\n    cmd: p '${PORT}\n",
            "swap.yaml:3: the command cannot be split into arguments: a quotation \
            mark is not closed; close the quotation mark, or put a backslash before it",
        ),
        (
            "modles: {}\n",
            "swap.yaml:1: unknown key `modles` in a file without `models`; did you mean `models`?",
        ),
    ] {
        assert_eq!(self::imported("swap.yaml", text).unwrap_err(), error);
    }
}

#[test]
fn all_mistakes_of_a_file_are_reported_at_once_in_the_order_of_its_lines() {
    let text = "\
healthCheckTimeout: soon
models:
  a:
    cmd: llama-server --port ${PORT} -m ${missing}
    ttl: 5m
    env: [NAME]
  b:
    cmd: llama-server --port ${PORT} -m ${env.UNSET}
    concurrencyLimit: ${env.UNSET}
  c: {aliases: one}
  d: {cmd: 'p ${PORT}', unlisted: perhaps}
groups:
  g: {members: d}
";
    let reported = "\
10 mistakes:
  swap.yaml:1: `soon` is not a valid value for `healthCheckTimeout`; write a whole number of seconds, for example 300
  swap.yaml:4: macro `missing`: there is no such macro; declare the macro under `macros`, before the macros that use it
  swap.yaml:5: `5m` is not a valid value for `ttl`; write a whole number of seconds, for example 300
  swap.yaml:6: a variable has no `=`; write `NAME=VALUE`
  swap.yaml:8, 9 (2 times): macro `env.UNSET`: the variable is not set; set it in the environment of the server
  swap.yaml:10: model `c` has no command; add `cmd`
  swap.yaml:10: `one` is not a valid value for `aliases`; write a list of strings
  swap.yaml:11: `perhaps` is not a valid value for `unlisted`; write true or false
  swap.yaml:13: `d` is not a valid value for `members`; write a list of strings";
    assert_eq!(imported("swap.yaml", text).unwrap_err(), reported);
}

#[test]
fn beside_a_mistake_stands_what_will_have_another_effect() {
    let text = "models:\n  a:\n    cmd: ${serve} -m a.gguf\n  b:\n    cmd: llama-server --port ${PORT} -m b.gguf\n    checkendpoint: /health\n";
    let imported = imported("swap.yaml", text).unwrap();
    assert_eq!(imported.models, 1, "the good one");
    let lines = reported(&imported.changes);
    let place = |words: &str| lines.iter().position(|line| line.contains(words)).expect(words);
    assert!(
        lines[place("`a` is not imported")].starts_with("swap.yaml:3: `a` is not imported: macro `serve`"),
        "{lines:?}"
    );
    assert!(place("`a` is not imported") < place("swap.yaml:6: unknown key `checkendpoint`"), "{lines:?}");
}

#[test]
fn groups_sets_filters_and_names_keep_their_meaning() {
    let text = "models:\n  a:\n    cmd: p ${PORT}\n    name: A \"x\"\n    description: d\n    filters:\n      stripParams: top_k\n      \
        setParams: {kw: {a: [1, ~, x]}, t: 0.5}\n      setParamsByID: {'${MODEL_ID}:hot': {t: 1}}\n  b: {cmd: 'p ${PORT}'}\n  c: {cmd: 'p ${PORT}'}\n\
        groups:\n  g: {persistent: true, members: [a, b]}\n  h: {swap: false, exclusive: false, persistent: true, members: [c]}\n\
        matrix: {sets: {s: a & b}}\n";
    let source = plimsoll_config::parse("swap.yaml", text, &|_| None).unwrap();
    let written = read(&imported("swap.yaml", text).unwrap().toml);
    for (one, other) in source.models.iter().zip(&written.models) {
        assert_eq!(
            (&one.title, &one.description, one.pinned),
            (&other.title, &other.description, other.pinned)
        );
        assert_eq!((&one.company, &one.aliases), (&other.company, &other.aliases));
        assert_eq!(
            (&one.filters.strip, &one.filters.set_by_name),
            (&other.filters.strip, &other.filters.set_by_name)
        );
    }
    // TOML has no null.
    assert_eq!(written.models[0].filters.set["kw"], serde_json::json!({"a": [1, "x"]}));
}

#[test]
fn unknown_memory_need_is_not_reported_for_engines_with_a_set_utilization() {
    let of = |cmd: &str| {
        let imported = imported("swap.yaml", &format!("models:\n  a: {{cmd: '{cmd}'}}\n")).unwrap();
        reported(&imported.changes).iter().any(|line| line.contains("the memory need of `a` is not known"))
    };
    assert!(of("vllm serve m --port ${PORT}"));
    assert!(!of("vllm serve m --port ${PORT} --gpu-memory-utilization 0.5"));
}

#[test]
fn equal_lines_are_one_line() {
    let models: String = (0..49)
        .map(|n| format!("  m{n}: {{cmd: 'llama-server --port ${{PORT}} -m /nowhere/{n}.gguf'}}\n"))
        .collect();
    let imported = imported("swap.yaml", &format!("models:\n{models}")).unwrap();
    let lines = reported(&imported.changes);
    let missing: Vec<&&str> = lines.iter().filter(|line| line.contains("not on this machine")).collect();
    assert_eq!(missing.len(), 1, "{lines:?}");
    assert!(
        missing[0].contains(
            "/nowhere/0.gguf of `m0`, /nowhere/1.gguf of `m1`, /nowhere/2.gguf of `m2` and 46 more"
        ),
        "{missing:?}"
    );
}

#[test]
fn thousands_of_mistakes_are_counted_and_the_first_are_shown() {
    let models: String = (0..3000).map(|number| format!("  m{number}: {{}}\n")).collect();
    let reported = imported("swap.yaml", &format!("models:\n{models}")).unwrap_err();
    assert!(reported.starts_with("3000 mistakes:\n  swap.yaml:2: model `m0` has no command"), "{reported}");
    assert!(reported.ends_with("\n  and 2960 more"), "{reported}");
    assert_eq!(reported.lines().count(), 42);
}

/// llama-swap runs no shell either, but people write commands as for one.
#[test]
fn shell_syntax_in_commands_is_reported() {
    let text = "\
models:
  a:
    cmd: CUDA_VISIBLE_DEVICES=0 llama-server --port ${PORT} -m /a.gguf && echo done
  b:
    cmd: sh -c 'exec server --port ${PORT} > /tmp/log'
";
    let imported = imported("swap.yaml", text).unwrap();
    let changes = reported(&imported.changes);
    for expected in [
        "swap.yaml:2: no shell runs the command of `a`, so `&&` is an argument of the program; write `sh -c 'exec …'`, \
            or leave it out",
        "swap.yaml:2: no shell runs the command of `a`, so its program would be `CUDA_VISIBLE_DEVICES=…`; set the \
            variable in `env`",
    ] {
        assert!(changes.contains(&expected), "{expected}\nis none of\n{}", changes.join("\n"));
    }
    assert!(!changes.iter().any(|change| change.contains("command of `b`")), "{}", changes.join("\n"));
}

#[test]
fn a_file_that_is_not_on_this_machine_is_reported_and_one_that_is_there_is_not() {
    let text = "models:\n  a:\n    cmd: llama-server --port ${PORT} -m /no/such/a.gguf\n  b:\n    cmd: llama-server --port ${PORT} -m /dev/null\n";
    let imported = imported("swap.yaml", text).unwrap();
    let changes = reported(&imported.changes);
    let expected = "swap.yaml:2: the file /no/such/a.gguf of `a` is not on this machine; correct the path, unless the \
        configuration is for another machine";
    assert!(changes.contains(&expected), "{}", changes.join("\n"));
    assert!(!changes.iter().any(|change| change.contains("/dev/null")), "{}", changes.join("\n"));
}

#[test]
fn misspelt_keys_and_numbers_are_reported_with_what_was_meant() {
    let text = "\
healthChekTimeout: 3
models:
  a:
    cmd: llama-server -m /a.gguf -c 65536 --port ${PORT}
    ttll: 5
    concurencyLimit: 2
    descripton: x
    wholly-other: 1
  b:
    cmd: docker run x/llama-server -m /a.gguf -c 8192 --port ${PORT}
";
    let imported = imported("swap.yaml", text).unwrap();
    let changes = reported(&imported.changes);
    for expected in [
        "swap.yaml:1: unknown key `healthChekTimeout`; did you mean `healthCheckTimeout`?",
        "swap.yaml:5: unknown key `ttll`; did you mean `ttl`?",
        "swap.yaml:6: unknown key `concurencyLimit`; did you mean `concurrencyLimit`?",
        "swap.yaml:7: unknown key `descripton`; did you mean `description`?",
        "swap.yaml:8: unknown key `wholly-other`; remove it",
    ] {
        assert!(changes.contains(&expected), "{expected}\nis none of\n{}", changes.join("\n"));
    }
}

#[test]
fn a_number_with_a_unit_is_a_mistake_of_the_file_with_its_line() {
    let text = "models:\n  a:\n    cmd: llama-server -m /a.gguf -c 64k --port ${PORT}\n    ttll: 5\n  b:\n    cmd: docker run \
        x/llama-server -m /a.gguf -c 8k --port ${PORT}\n";
    let reported = imported("swap.yaml", text).unwrap_err().to_string();
    let expected = "\
2 mistakes:
  swap.yaml:3: `-c 64k`: llama-server reads this as 64; write `-c 65536`
  swap.yaml:6: `-c 8k`: llama-server reads this as 8; write `-c 8192`
warning: swap.yaml:4: unknown key `ttll`; did you mean `ttl`?";
    assert!(reported.starts_with(expected), "{reported}");
}

#[test]
fn a_tab_is_named_with_its_own_line() {
    for (text, line) in [
        ("models:\n  a:\n    cmd: p ${PORT}\n\tttl: 5\n", 4),
        ("models:\n  a:\n    cmd: p\n      ${PORT}\n\n \tttl: 5\n", 6),
        ("models:\n\ta:\n    cmd: p ${PORT}\n", 2),
        ("models:\n  a:\n    cmd: |\n      p\n\t--x\n", 5),
    ] {
        let error = imported("swap.yaml", text).unwrap_err();
        assert!(
            error.starts_with(&format!("swap.yaml:{line}: ")) && error.ends_with("use spaces"),
            "{error}"
        );
    }
}

#[test]
fn a_preset_keeps_every_setting_with_its_own_line() {
    let preset = "\
version = 1
;plimsoll: card = name=A,total=20GiB,cc=8.6
;plimsoll: reserve = 1GiB
;plimsoll: guard = observe reuse
[*]
c = 8192
[chat]
m = /models/chat.gguf
alias = gpt-4o
ctk = q8_0
[org/repo:q4_k_m]
load-on-startup = true
models-max = 2
[embed]
model = models/embed.gguf
embeddings = on
sleep-idle-seconds = 90
;plimsoll: memory = 600MiB
";
    let imported = imported("presets.ini", preset).unwrap();
    assert_eq!(
        imported.toml,
        "\
# Imported from presets.ini by plimsoll import.

[serve]
cards = [\"name=A,total=21474836480B,free=21474836480B,cc=8.6\"]
reserve = \"1GiB\"

[models.chat]  # presets.ini:7
model = \"/models/chat.gguf\"
flags = [
  \"--ctx-size\", \"8192\",  # presets.ini:6
  \"--cache-type-k\", \"q8_0\",  # presets.ini:10
]
aliases = [\"gpt-4o\"]
guard = { mode = \"observe\", reuse = true }

[models.\"org/repo:Q4_K_M\"]  # presets.ini:11
flags = [
  \"--ctx-size\", \"8192\",  # presets.ini:6
  \"--hf-repo\", \"org/repo:Q4_K_M\",  # presets.ini:11
]
preload = true
guard = { mode = \"observe\", reuse = true }

[models.embed]  # presets.ini:14
model = \"models/embed.gguf\"
flags = [
  \"--embeddings\",  # presets.ini:16
  \"--ctx-size\", \"8192\",  # presets.ini:6
]
memory = \"600MiB\"
ttl = \"90s\"
guard = { mode = \"observe\", reuse = true }
"
    );
    let (ours, theirs) = (read(&imported.toml), plimsoll_config::parse("p.ini", preset, &|_| None).unwrap());
    assert_eq!(ours.serve, theirs.serve);
    for (ours, mut theirs) in ours.models.into_iter().zip(theirs.models) {
        let params = |launch: &Launch| {
            launch.options().unwrap().params(plimsoll_flags::ProgramKind::LlamaServer).unwrap()
        };
        assert_eq!(params(&ours.launch), params(&theirs.launch));
        theirs.launch = ours.launch.clone();
        assert_eq!(ours, theirs);
    }
    let changes = reported(&imported.changes);
    assert!(
        changes.iter().any(|reported| reported.starts_with("presets.ini:13: `models-max` has no effect")),
        "{changes:?}"
    );
    assert!(changes.iter().any(|reported| reported.contains("and not by --models-max")), "{changes:?}");
}

#[test]
fn no_key_of_the_format_is_forgotten_by_the_writer() {
    let schema: serde_json::Value = serde_json::from_str(&plimsoll_config::schema()).unwrap();
    let source = include_str!("../../../import/src/toml.rs");
    for table in ["Serve", "ModelTable", "GuardTable"] {
        for key in schema["$defs"][table]["properties"].as_object().unwrap().keys() {
            assert!(source.contains(&format!("(\"{key}\", ")), "{table}: {key}");
        }
    }
}

#[test]
fn names_and_values_of_any_kind_stay_what_they_are() {
    let odd = "models:\n  \"a\\\"b\\u007f\\n [x]\":\n    cmd: \"p 'x y' '\\\\\\\"' ${PORT}\"\n    env: [\"A B=\\u007f=c\"]\n    aliases: [\"é🚢\"]\n";
    let imported = imported("a.yaml", odd).unwrap();
    let (ours, theirs) = (read(&imported.toml), plimsoll_config::parse("a.yaml", odd, &|_| None).unwrap());
    assert_eq!(ours.models, theirs.models);
}

#[test]
fn an_engine_that_needs_its_command_keeps_it() {
    for (cmd, more) in [
        ("sh -c 'llama-server -m a.gguf --port ${PORT}'", ""),
        ("docker run x/llama-server -m a.gguf --port ${PORT}", ""),
        ("llama-server -m a.gguf --port ${PORT} --api-key k", ""),
        ("llama-server -m a.gguf --port ${PORT} --slot-save-path /tmp/${PORT}", ""),
        ("llama-server -m a.gguf --port ${PORT}", "checkEndpoint: /v1/models"),
        ("llama-server -m a.gguf --port ${PORT}", "cmdStop: kill ${PID}"),
        ("llama-server -m a.gguf --port 9000", "proxy: http://127.0.0.1:9001"),
        ("llama-server --port ${PORT}", ""),
    ] {
        let text = format!("models:\n  a:\n    cmd: {cmd}\n    {more}\n");
        let ours = read(&imported("a.yaml", &text).unwrap().toml).models.remove(0);
        let theirs = plimsoll_config::parse("a.yaml", &text, &|_| None).unwrap().models.remove(0);
        assert_eq!(ours, theirs, "{text}");
    }
    let fixed = "models:\n  a:\n    cmd: nice llama-server -m /a.gguf --port 9000\n    proxy: http://127.0.0.1:9000\n";
    let imported = imported("a.yaml", fixed).unwrap();
    assert!(
        imported.toml.contains("program = \"nice llama-server\"\nmodel = \"/a.gguf\"\n"),
        "{}",
        imported.toml
    );
    assert!(
        reported(&imported.changes)
            .iter()
            .any(|reported| reported.contains("in place of the --host and --port of its command"))
    );
}

#[test]
fn unknown_and_unreadable_sources_are_rejected() {
    for (name, text, reported) in [
        (
            "plimsoll.toml",
            "",
            "plimsoll.toml is in Plimsoll's own format already; start it with `plimsoll serve`",
        ),
        (
            "a.txt",
            "",
            "a.txt: the format of the file is not known; its name must end in .ini, .yaml, .yml or .toml",
        ),
        (
            "a.yaml",
            "models: {a: {cmd: 'p ${env.NO}'}}",
            "a.yaml:1: macro `env.NO`: the variable is not set; set it in \
            the environment of the server",
        ),
    ] {
        assert_eq!(imported(name, text).unwrap_err(), reported);
    }
    let long = imported("a.yaml", &" ".repeat(2 << 20)).unwrap_err();
    assert!(long.contains("it is longer than 1 MiB"), "{long}");
    assert!(import(Path::new("/no/such.yaml"), &|_| None).unwrap_err().to_string().contains("No such file"));
}

#[test]
fn million_files_are_refused_or_become_toml_that_is_read() {
    let seeds: [&[u8]; 2] = [
        include_bytes!("home.yaml"),
        b"[*]\nc = 1\n[a]\nm = x\n;plimsoll: env = A=b\n[b]\nhf-repo = u/v\nalias = c,d\n",
    ];
    let folder = tempfile::tempdir().unwrap();
    plimsoll_fuzz::mutants(
        &seeds,
        &[b"${PORT}", b"[models.\"", b"\"\"\"", b"cmd: ", b"llama-server -m a"],
        |mutant| {
            // Half of the mutants for each reader.
            let path = folder.path().join(if mutant.len() % 2 == 0 { "a.yaml" } else { "a.ini" });
            fs::write(&path, mutant).unwrap();
            if let Err(error) = import(&path, &variable) {
                assert!(!matches!(error, plimsoll_import::ImportError::Write(_)), "{error}: {mutant:?}");
            }
        },
    );
}
