//! Tests of the check for commands whose engine would listen on the network.

use plimsoll_config::{Configuration, Launch};

fn confined(cmd: &str, more: &str) -> Configuration {
    let text = format!("models:\n  a:\n    cmd: |\n      {cmd}\n{more}");
    let mut roster = plimsoll_config::parse("a.yaml", &text, &|_| None).unwrap();
    roster.confine();
    roster
}

fn argv(roster: &Configuration) -> String {
    match &roster.models[0].launch {
        Launch::Command { argv, .. } => argv.join(" "),
        Launch::LlamaServer { .. } => panic!("no command"),
    }
}

fn reported(roster: &Configuration) -> Vec<String> {
    roster
        .warnings
        .iter()
        .map(ToString::to_string)
        .filter(|text| text.contains("listen") || text.contains("replaced"))
        .collect()
}

const REST: &str = "-m /a.gguf --port ${PORT}";

#[test]
fn a_llama_server_listens_on_the_loopback_whatever_its_command_says() {
    let open = |host: &str, on: &str| {
        format!(
            "a.yaml:2: `--host {host}` of `a` is replaced by 127.0.0.1: the engine would listen on {on}, so that other machines reach it without an API key; write `--host 127.0.0.1`, or remove it"
        )
    };
    for (start, given, host, on) in [
        ("llama-server", "--host 0.0.0.0", "0.0.0.0", "all interfaces"),
        ("/opt/ik-llama-server", "--host ::", "::", "all interfaces"),
        ("llama-server", "--host '0.0.0.0'", "0.0.0.0", "all interfaces"),
        ("llama-server", "\"--host\" \"[::]\"", "[::]", "all interfaces"),
        ("llama-server", "--host ''", "", "all interfaces"),
        ("llama-server", "--host 0", "0", "all interfaces"),
        ("nice -n 5 llama-server", "--host 192.168.1.5", "192.168.1.5", "`192.168.1.5`"),
        ("llama-server", "--host box.lan", "box.lan", "`box.lan`"),
        ("llama-server", "--host ::ffff:0.0.0.0", "::ffff:0.0.0.0", "all interfaces"),
    ] {
        let roster = confined(&format!("{start} {given} {REST}"), "");
        assert_eq!(argv(&roster), format!("{start} --host 127.0.0.1 {REST}"));
        assert_eq!(reported(&roster), [open(host, on)]);
    }
    let joined = confined(&format!("llama-server --host=0.0.0.0 {REST}"), "");
    assert_eq!(argv(&joined), format!("llama-server --host=127.0.0.1 {REST}"));
    assert!(reported(&joined)[0].contains("`--host=0.0.0.0` of `a` is replaced"), "{:?}", reported(&joined));
    // Of two, the last one counts.
    let twice = |first, last| confined(&format!("llama-server --host {first} --host {last} {REST}"), "");
    let both = format!("llama-server --host 127.0.0.1 --host 127.0.0.1 {REST}");
    assert_eq!(argv(&twice("127.0.0.1", "0.0.0.0")), both);
    assert_eq!(reported(&twice("127.0.0.1", "0.0.0.0")), [open("0.0.0.0", "all interfaces")]);
    assert_eq!(argv(&twice("0.0.0.0", "127.0.0.1")), both);
    assert!(reported(&twice("0.0.0.0", "127.0.0.1")).is_empty());
}

#[test]
fn an_address_where_the_router_does_not_look_is_replaced_too() {
    for host in ["::1", "127.0.0.2", "127.1"] {
        let roster = confined(&format!("llama-server --host {host} {REST}"), "");
        assert_eq!(argv(&roster), format!("llama-server --host 127.0.0.1 {REST}"));
        let reached = "replaced by 127.0.0.1: plimsoll serve reaches engines at that address only";
        assert!(reported(&roster)[0].contains(reached), "{:?}", reported(&roster));
    }
    for host in ["127.0.0.1", "localhost", "/run/a.sock"] {
        let line = format!("llama-server --host {host} {REST}");
        let roster = confined(&line, "");
        assert_eq!((argv(&roster), reported(&roster)), (line, vec![]));
    }
    // Half a flag is the engine's to refuse.
    let line = format!("llama-server {REST} --host");
    assert_eq!(argv(&confined(&line, "")), line);
}

#[test]
fn the_variable_of_llama_server_counts_as_its_flag_does() {
    let own = "    env: [LLAMA_ARG_HOST=0.0.0.0]\n";
    let host = |roster: &Configuration| roster.models[0].env[0].1.clone();
    let roster = confined(&format!("llama-server {REST}"), own);
    assert_eq!(host(&roster), "127.0.0.1");
    assert!(reported(&roster)[0].contains("`LLAMA_ARG_HOST=0.0.0.0` of `a` is replaced by 127.0.0.1"));
    // The flag overrides it.
    assert!(reported(&confined(&format!("llama-server --host 127.0.0.1 {REST}"), own)).is_empty());
    let prefixed = confined(&format!("env A=1 LLAMA_ARG_HOST=:: llama-server {REST}"), "");
    assert_eq!(argv(&prefixed), format!("env A=1 LLAMA_ARG_HOST=127.0.0.1 llama-server {REST}"));
    assert_eq!(reported(&prefixed).len(), 1);
    let script = confined("/opt/start.sh ${PORT}", own);
    assert_eq!(host(&script), "0.0.0.0", "nobody knows what a script does with it");
    assert!(
        reported(&script)[0].contains(
            "listens on all interfaces (`LLAMA_ARG_HOST=0.0.0.0`), so that other machines reach it"
        )
    );
    assert!(reported(&confined("docker run -p 127.0.0.1:${PORT}:80 x", own)).is_empty());
}

#[test]
fn another_program_runs_as_it_is_written_and_is_warned_of() {
    for (cmd, words, remedy) in [
        (
            "vllm serve m --host 0.0.0.0 --port ${PORT}",
            "all interfaces (`--host 0.0.0.0`)",
            "write `--host 127.0.0.1`",
        ),
        ("vllm serve m --port ${PORT}", "all interfaces (its default)", "add `--host 127.0.0.1`"),
        (
            "docker run --net=host vllm/vllm-openai --port ${PORT}",
            "all interfaces (its default)",
            "add `--host 127.0.0.1`",
        ),
        ("python -m x --host=:: --port ${PORT}", "all interfaces (`--host ::`)", "write `--host 127.0.0.1`"),
        (
            "python -m x --host 10.0.0.7 --port ${PORT}",
            "`10.0.0.7` (`--host 10.0.0.7`)",
            "write `--host 127.0.0.1`",
        ),
        (
            "python ComfyUI/main.py --listen --port ${PORT}",
            "all interfaces (`--listen 0.0.0.0`)",
            "write `--listen 127.0.0.1`",
        ),
        (
            "uvicorn a:b --bind 0.0.0.0:${PORT}",
            "all interfaces (`0.0.0.0:${PORT}`)",
            "write 127.0.0.1 instead",
        ),
        (
            "sh -c 'exec llama-server --host 0.0.0.0 --port ${PORT}'",
            "all interfaces (`--host 0.0.0.0`)",
            "write `--host 127.0.0.1`",
        ),
        (
            "docker run -p 0.0.0.0:${PORT}:80 x",
            "all interfaces (`-p 0.0.0.0:${PORT}:80`)",
            "write `-p 127.0.0.1:${PORT}:80`",
        ),
        (
            "docker run --rm -p ${PORT}:80 x",
            "all interfaces (`-p ${PORT}:80`)",
            "write `-p 127.0.0.1:${PORT}:80`",
        ),
        (
            "podman run --publish=[::]:${PORT}:80/tcp x",
            "all interfaces (`-p [::]:${PORT}:80/tcp`)",
            "write `-p 127.0.0.1:${PORT}:80/tcp`",
        ),
        (
            "docker run -p10.0.0.7:${PORT}:80 x",
            "`10.0.0.7` (`-p 10.0.0.7:${PORT}:80`)",
            "write `-p 127.0.0.1:${PORT}:80`",
        ),
        (
            "docker run --network host x/llama-server --host 0.0.0.0 --port ${PORT}",
            "all interfaces (`--host 0.0.0.0`)",
            "write `--host 127.0.0.1`",
        ),
    ] {
        let roster = confined(cmd, "");
        assert_eq!(argv(&roster), cmd.replace('\'', ""));
        let open = "so that other machines reach it without an API key";
        let expected = format!("a.yaml:2: the engine of `a` listens on {words}, {open}; {remedy}");
        assert_eq!(reported(&roster), [expected], "{cmd}");
    }
}

#[test]
fn a_command_that_opens_nothing_is_not_warned_of() {
    for cmd in [
        "vllm serve m --host 127.0.0.1 --port ${PORT}",
        "vllm serve m --host=localhost --port ${PORT}",
        "python -m x --host 0.0.0.0 --host 127.0.0.1 --port ${PORT}",
        "python -m x --api http://0.0.0.0:1 --allow 0.0.0.0/0 --port ${PORT}",
        "docker run -p 127.0.0.1:${PORT}:80 x --host 0.0.0.0",
        "docker run -p 127.0.0.1:${PORT}:80 x/llama-server -m /a.gguf --host 0.0.0.0 -p hello:you",
        "sh -c 'docker run -p 127.0.0.1:${PORT}:80 x --host 0.0.0.0'",
        "docker run -p 127.0.0.1:${PORT}:80 vllm/vllm-openai --model m",
        "docker run --publish [::1]:${PORT}:80 x",
        "docker compose up x --port ${PORT}",
        "/opt/start.sh ${PORT}",
        "whisper-server --port ${PORT}",
    ] {
        let roster = confined(cmd, "");
        assert!(reported(&roster).is_empty(), "{cmd}: {:?}", reported(&roster));
        assert_eq!(argv(&roster), cmd.replace('\'', ""));
    }
}

#[test]
fn a_command_in_toml_is_confined_alike_and_an_engine_of_flags_is_left_alone() {
    let text = "[models.a]\ncmd = 'llama-server --host 0.0.0.0 -m /a.gguf --port ${PORT}'\n[models.b]\nmodel = '/b.gguf'\n";
    let mut roster = plimsoll_config::parse("a.toml", text, &|_| None).unwrap();
    roster.confine();
    assert_eq!(argv(&roster), "llama-server --host 127.0.0.1 -m /a.gguf --port ${PORT}");
    assert_eq!(reported(&roster).len(), 1);
}
