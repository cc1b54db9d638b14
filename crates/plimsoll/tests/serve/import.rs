//! Tests of `plimsoll import` as a command: its output files, its messages, and that `serve` accepts the
//! result.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::daemon::fake_engine;

fn plimsoll(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let run: Output = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(words)
        .current_dir(folder)
        .env("PLIMSOLL_NVML", "")
        .output()
        .expect("plimsoll runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (run.status.code(), text(&run.stdout), text(&run.stderr))
}

#[test]
fn an_import_writes_once_says_what_differs_and_is_served() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name);
    let engine = fake_engine().display().to_string();
    let yaml = format!(
        "logLevel: info\napiKeys: [secret]\nmodels:\n  a:\n    cmd: {engine} --port ${{PORT}}\n    filters: {{stripParams: x}}\n"
    );
    std::fs::write(at("swap.yaml"), yaml).expect("the folder can be written");
    let import = |more: &[&str]| plimsoll(folder.path(), &[&["import", "swap.yaml"], more].concat());

    let (status, toml, reported) = import(&[]);
    assert_eq!(status, Some(0), "{reported}");
    assert!(toml.contains("[models.a]  # swap.yaml:4\n") && !reported.contains("[models"), "{toml}");
    let (changes, cosmetic) = reported.split_once("\ncosmetic:\n").expect("both lists");
    assert!(changes.starts_with("1 model imported from swap.yaml\n\nbehaviour changes:\n"), "{reported}");
    assert!(toml.contains("strip") && !changes.contains("stripParams"), "{toml}{reported}");
    assert!(cosmetic.contains("swap.yaml:1: `logLevel` has no effect"), "{reported}");
    assert!(cosmetic.contains("keep it private"), "{reported}");

    assert_eq!(import(&["-o", "out.toml"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(at("out.toml")).ok().as_deref(), Some(toml.as_str()));
    let mode = at("out.toml").metadata().map(|file| file.permissions().mode() & 0o777);
    assert_eq!(mode.ok(), Some(0o600), "it holds a key");
    let again = import(&["-o", "out.toml"]);
    assert_eq!(
        (again.0, again.2.as_str()),
        (Some(2), "plimsoll: out.toml exists already; --force replaces it\n")
    );
    std::fs::write(at("out.toml"), "old and longer than the new text ".repeat(100))
        .expect("it can be written");
    assert_eq!(import(&["-o", "out.toml", "--force"]).0, Some(0));
    assert_eq!(std::fs::read_to_string(at("out.toml")).ok().as_deref(), Some(toml.as_str()));

    let check = ["serve", "out.toml", "--check", "--card", "name=host,kind=host,total=1GiB"];
    let (status, models, reported) = plimsoll(folder.path(), &check);
    assert_eq!(status, Some(0), "{reported}");
    assert!(models.contains("model a"), "{models}");
}

#[test]
fn failed_imports_exit_with_a_status_and_a_remedy() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file =
        |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("it can be written");
    file("a.yaml", "models:\n  a:\n\tcmd: p\n");
    file("b.yaml", "models: {}\n");
    file("c.txt", "");
    for (words, status, reported) in [
        (&["a.yaml"][..], 2, "plimsoll: a.yaml:3: tabs disallowed"),
        (&["c.txt"], 2, "its name must end in .ini"),
        (&["none.yaml"], 2, "name llama-swap's YAML, a preset of llama-server (.ini) or `ollama`"),
        (&["."], 2, "there is no store of Ollama in /"),
        (&["b.yaml", "--force"], 2, "--output"),
        (
            &["b.yaml", "-o", "b.yaml", "--force"],
            2,
            "b.yaml is also the source of the import; choose another file with --output",
        ),
        (&["b.yaml", "-o", "no/such/folder.toml"], 1, "cannot write `no/such/folder.toml`"),
    ] {
        let (code, printed, stated) = plimsoll(folder.path(), &[&["import"], words].concat());
        assert_eq!((code, printed.as_str()), (Some(status), ""), "{words:?}: {stated}");
        assert!(stated.contains(reported), "{words:?}: {stated}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("b.yaml")).ok().as_deref(), Some("models: {}\n"));
}

#[test]
fn a_command_of_llama_server_runs_the_given_engine_where_the_path_has_none() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    plimsoll_specimens::write("tiny", &folder.path().join("m.gguf"), &plimsoll_specimens::Changes::default())
        .expect("the model can be written");
    let yaml = "models:\n  a:\n    cmd: llama-server --port ${PORT} -m m.gguf -c 512\n";
    std::fs::write(folder.path().join("swap.yaml"), yaml).expect("the folder can be written");
    let check = |more: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["serve", "swap.yaml", "--check", "--card", "name=host,kind=host,total=1GiB"])
            .args(more)
            .current_dir(folder.path())
            .env("PLIMSOLL_NVML", "")
            .env("PATH", "/nowhere")
            .env("HOME", folder.path())
            .env_remove("XDG_DATA_HOME")
            .output()
            .expect("plimsoll runs");
        (run.status.code(), String::from_utf8_lossy(&run.stdout).into_owned())
    };
    let (status, stated) = check(&[]);
    // The plan needs no engine, and its figures are those of the newest build.
    let reported = " planned; cannot be started: a could not be started: no engine was found: there is no llama-server on PATH";
    assert!(status == Some(1) && stated.contains(reported), "{stated}");
    assert!(stated.contains("; hint: `plimsoll engine install`") && !stated.contains("\\n"), "{stated}");
    let figure = |stated: &str| {
        let line =
            stated.lines().find_map(|line| line.strip_prefix("model a  ")).expect("its line").to_owned();
        line.split(" planned").next().expect("a figure").to_owned()
    };
    let without = figure(&stated);
    assert!(without.ends_with(" MiB") && stated.contains("weights"), "{stated}");
    let engine = fake_engine().display().to_string();
    let (status, stated) = check(&["--engine", &engine]);
    assert!(status == Some(0) && figure(&stated) == without, "{stated}");
    // Both mistakes are told at once.
    std::fs::write(folder.path().join("swap.yaml"), yaml.replace("m.gguf", "none.gguf")).expect("as before");
    let (status, stated) = check(&[]);
    assert!(status == Some(1) && stated.contains("No such file"), "{stated}");
    assert!(stated.contains("no engine was found"), "{stated}");
}

#[test]
fn a_flag_that_the_plan_leaves_out_is_reported_beside_the_figure() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    plimsoll_specimens::write("tiny", &folder.path().join("m.gguf"), &plimsoll_specimens::Changes::default())
        .expect("the model can be written");
    let engine = fake_engine().display().to_string();
    let check = |flags: &str| {
        let yaml = format!("models:\n  a:\n    cmd: llama-server --port ${{PORT}} -m m.gguf {flags}\n");
        std::fs::write(folder.path().join("c.yaml"), yaml).expect("the folder can be written");
        let check = ["serve", "c.yaml", "--check", "--card", "kind=host,total=10GiB", "--engine", &engine];
        let (status, stated, _) = plimsoll(folder.path(), &check);
        assert_eq!(status, Some(0), "{stated}");
        stated.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let stated = check("--ctxsize 2048");
    let reported = "planned warning: c.yaml:3: unknown flag `--ctxsize`; did you mean --ctx-size? The plan ignores this flag, and the engine may not start with it";
    assert!(stated.contains(reported), "{stated}");
    assert!(!check("--ctx-size 2048").contains("warning"));
}

#[test]
fn an_engine_that_can_be_run_is_asked_whether_it_knows_a_flag() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().expect("a temporary folder");
    plimsoll_specimens::write("tiny", &folder.path().join("m.gguf"), &plimsoll_specimens::Changes::default())
        .expect("the model can be written");
    let engine = folder.path().join("llama-server");
    // No shell script: one of those may start the engine elsewhere, and is not asked.
    let help = "#!/usr/bin/env python3\nprint('--model FILE\\n--ctx-size N\\n--brand-new N')\n";
    std::fs::write(&engine, help).expect("the folder can be written");
    std::fs::set_permissions(&engine, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let yaml = format!(
        "models:\n  a:\n    cmd: {0} --port ${{PORT}} -m m.gguf --ctx-sise 5\n\
         \x20 b:\n    cmd: {0} --port ${{PORT}} -m m.gguf --brand-new 5\n",
        engine.display()
    );
    std::fs::write(folder.path().join("c.yaml"), yaml).expect("the folder can be written");
    let check = ["serve", "c.yaml", "--check", "--card", "kind=host,total=10GiB"];
    let (status, out, error) = plimsoll(folder.path(), &check);
    assert_eq!(status, Some(1), "{out}{error}");
    let reported = "planned; cannot be loaded: c.yaml:3: unknown flag `--ctx-sise`; did you mean --ctx-size? The engine does not know this flag";
    assert!(out.contains(reported), "{out}");
    assert_eq!(
        (out + &error).matches("unknown flag").count(),
        1,
        "told once, and no word of a flag that it knows"
    );
}

#[test]
fn host_memory_shortage_fails_the_check_with_status_1() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    plimsoll_specimens::write("l8", &folder.path().join("m.gguf"), &plimsoll_specimens::Changes::default())
        .expect("the model can be written");
    let engine = fake_engine().display().to_string();
    let check = |flags: &str, more: &[&str]| {
        let toml = format!("[models.a]\nmodel = 'm.gguf'\nflags = '{flags}'\n");
        std::fs::write(folder.path().join("c.toml"), toml).expect("the folder can be written");
        let check =
            ["serve", "c.toml", "--check", "--card", "name=Big,total=90000GiB,cc=9.0", "--engine", &engine];
        let (status, stated, _) = plimsoll(folder.path(), &[&check[..], more].concat());
        (status, stated.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    // A KV cache of petabytes in host memory, which no machine has.
    let huge = "-c 2000000000 -nkvo";
    let (status, stated) = check(huge, &[]);
    assert_eq!(status, Some(1), "{stated}");
    assert!(stated.contains("of host memory are needed, but the machine has only"), "{stated}");
    let (status, stated) = check(huge, &["--json"]);
    assert!(status == Some(1) && stated.contains("\"fits\": false"), "{stated}");
    let (status, stated) = check("-c 1024", &[]);
    assert!(status == Some(0) && !stated.contains("host memory are needed"), "{stated}");
}

#[test]
fn the_context_that_a_refusal_advises_fits_beside_the_prompt_cache() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    plimsoll_specimens::write("l8", &folder.path().join("m.gguf"), &plimsoll_specimens::Changes::default())
        .expect("the model can be written");
    let engine = fake_engine().display().to_string();
    let check = |more: &str| {
        let toml = format!("[models.a]\nmodel = 'm.gguf'\n{more}\n");
        std::fs::write(folder.path().join("c.toml"), toml).expect("the folder can be written");
        let check = ["serve", "c.toml", "--check", "--card", "kind=host,total=10GiB", "--engine", &engine];
        let (status, stated, _) = plimsoll(folder.path(), &check);
        (status, stated)
    };
    let (status, stated) = check("flags = '-c 65536'");
    assert_eq!(status, Some(1), "{stated}");
    let advised =
        stated.split("use a context of ").nth(1).and_then(|rest| rest.split(' ').next()).expect(&stated);
    let (status, stated) = check(&format!("flags = '-c {advised}'"));
    assert_eq!(status, Some(0), "{advised}: {stated}");
    let (status, stated) = check("flags = '-c 65536'\ntoo-large = 'lower-context'");
    assert_eq!(status, Some(0), "{stated}");
}
