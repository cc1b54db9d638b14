//! Fuzz tests of the parsers of configurations, flags, sizes, card descriptions and guard's options, with
//! mutated input: none may panic.

use std::str::FromStr;

use plimsoll_base::{Bytes, Card};
use plimsoll_flags::{Options, ProgramKind};
use plimsoll_fuzz::{LONGEST, mutants};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const TOML: &[u8] = b"[serve]\nlisten = \"127.0.0.1:80\"\nwait = \"1h30m\"\napi-keys = [\"k\"]\n[engine]\ncommand = [\"s\", \"x\"]\n[models.a]\n\
    model = 'm'\nflags = \"-c 8k -ts 1,2 -ot 'a=CPU'\"\nmemory = \"1.5GiB\"\nenv = {A = \"b\"}\n[models.\"b c\"]\ncmd = ['p', '${PORT}']\nconcurrency = 3\n";
const INI: &[u8] = b"version = 1\nmodel = d.gguf\n[*]\nc = 4096\n;plimsoll: wait = 10m\n[org/m:q4_k_m]\nno-mmap = yes\nngl=all\nts = 3,1 ; two\n\
    ;plimsoll: memory = 6GiB\n;plimsoll: env = A=b\n[b]\nmodel = \"x#y\"\nalias = a,b\nstop-timeout = 5\n";
const YAML: &[u8] = b"macros:\n  s: llama-server --port ${PORT}\n  t: \"${s} -c 5\"\nx: &x {ttl: 5}\nmodels:\n  a: {<<: *x, cmd: '${t} -m ${MODEL_ID}'}\n  \
    \"b\":\n    cmd: |\n      # c\n      ${env.HOME}/s \\\n      --port ${PORT} 'q w'\n    aliases: [c]\ngroups:\n  g: {persistent: true, members: [a]}\n";
const TOKENS: [&[u8]; 14] = [
    b"[[",
    b"]]",
    b"&x ",
    b"*x",
    b"<<: ",
    b"- ",
    b"${",
    b"${PORT}",
    b"${env.HOME}",
    b";plimsoll: ",
    b"[*]\n",
    b"1.5GiB",
    b"'''",
    b"\"\"\"",
];

fn configuration(name: &str, seed: &[u8]) {
    mutants(&[seed, TOML, INI, YAML], &TOKENS, |mutant| {
        let _ = plimsoll_config::parse(name, &text(mutant), &|_| Some("/home/u".to_owned()));
    });
}

#[test]
fn mutants_are_many_and_the_same_each_time() {
    let created = || {
        let mut all = Vec::new();
        mutants(&[b"key = value", b"[a]\nb = 1"], &[b"="], |mutant| all.push(mutant.to_vec()));
        all
    };
    let (first, mut second) = (created(), created());
    assert_eq!(first, second);
    assert!(first.iter().all(|mutant| mutant.len() <= LONGEST));
    second.sort();
    second.dedup();
    assert!(second.len() > first.len() / 2, "{} of {}", second.len(), first.len());
}

#[test]
fn million_toml_configurations() {
    configuration("a.toml", TOML);
}

#[test]
fn million_preset_configurations() {
    configuration("a.ini", INI);
}

#[test]
fn million_llama_swap_configurations() {
    configuration("a.yaml", YAML);
}

#[test]
fn million_command_lines() {
    let seeds: [&[u8]; 3] = [
        b"-m a.gguf -c 8192 -ngl 99 -ts 3,1 -ctk q8_0 -fa on -np 4",
        b"--model=b.gguf --override-tensor blk\\.[0-9]+=CPU,exps=CUDA0 --n-cpu-moe 7 --device CUDA0,CUDA1 --split-mode row",
        b"-hf org/m:Q4 --lora x --mmproj p.gguf -md d.gguf --threads-http 3 --no-mmap --kv-unified",
    ];
    let tokens: [&[u8]; 8] = [b" -c ", b" -ot ", b"=", b",", b" --", b" -ngl all", b" auto", b"blk.0"];
    mutants(&seeds, &tokens, |mutant| {
        let argv: Vec<String> = text(mutant).split(' ').map(str::to_owned).collect();
        if let Ok(options) = Options::from_argv(&argv) {
            let _ = options.params(ProgramKind::LlamaServer);
            let _ = options.to_argv();
        }
    });
}

#[test]
fn million_sizes_and_cards() {
    let seeds: [&[u8]; 3] =
        [b"1.5GiB", b"name=H200,total=143771MiB,free=1B,cc=9.0,kind=gpu,pool=vmm", b"512m"];
    let tokens: [&[u8]; 6] = [b"kind=host,", b"free=", b"KiB", b"EiB", b".", b",,"];
    mutants(&seeds, &tokens, |mutant| {
        let text = text(mutant);
        let _ = Bytes::from_str(&text);
        if let Ok(card) = Card::from_str(&text) {
            assert!(card.free <= card.total, "{text}");
        }
    });
}

#[test]
fn million_lines_of_guard_options() {
    let seeds: [&[u8]; 2] = [
        b"budget=1024 need=512 pool=ours spill=1 wait=5 keep=7 chunk=2097152 reuse contexts=leave",
        b"card=GPU-01234567-89ab-cdef-0123-456789abcdef:4294967296:1024 hide_vmm reclaim on_oom=managed",
    ];
    mutants(&seeds, &[b"GPU-", b";", b"=", b"budget="], |mutant| {
        let text = text(mutant);
        let _ = plimsoll_wire::options::GuardOptions::read(&text);
        let _ = plimsoll_wire::options::Uuid::read(&text);
    });
}
