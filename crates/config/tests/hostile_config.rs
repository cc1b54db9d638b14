//! Tests of configuration readers with damaged input: a file is read or refused quickly, and a refusal names
//! a place.
//!
//! A deterministic mutator changes real files, so that mutants stay close to the grammar; it deletes,
//! repeats, swaps and inserts pieces of all formats.

use std::time::Duration;

use plimsoll_flags::{FlagOrigin, Options, ProgramKind};
use rustix::time::{ClockId, clock_gettime};

/// A few seconds in either profile.
const MUTANTS: usize = if cfg!(debug_assertions) { 40_000 } else { 200_000 };

const SEEDS: [(&str, &str); 3] = [
    (
        "a.ini",
        "version = 1\nmodel = d.gguf\n[*]\nc = 4096\n;plimsoll: wait = 10m\n[org/m:q4_k_m]\nno-mmap = yes\nngl=all\n\
         ts = 3,1 ; two\n;plimsoll: memory = 6GiB\n;plimsoll: env = A=b\n[b]\nmodel = \"x#y\"\nalias = a,b\nstop-timeout = 5\n",
    ),
    (
        "a.yaml",
        "macros:\n  s: llama-server --port ${PORT}\n  t: \"${s} -c 5\"\nx: &x {ttl: 5}\nmodels:\n  a: {<<: *x, cmd: '${t} -m ${MODEL_ID}'}\n  \
         \"b\":\n    cmd: |\n      # c\n      ${env.HOME}/s \\\n      --port ${PORT} 'q w'\n    aliases: [c]\n    filters: {setParamsByID: {d: {}}}\n\
         groups:\n  g: {persistent: true, members: [a]}\n",
    ),
    (
        "a.toml",
        "[serve]\nlisten = \"127.0.0.1:80\"\nwait = \"1h30m\"\n[engine]\ncommand = [\"s\", \"x\"]\n[models.a]\nmodel = 'm'\n\
         flags = \"-c 8192 -ts 1,2 -ot 'a=CPU'\"\nmemory = \"1.5GiB\"\nenv = {A = \"b\"}\n[models.\"b c\"]\ncmd = ['p', '${PORT}']\nconcurrency = 3\nmax-requests = 9\n\
         [keys.k]\nkey = \"sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\"\nmodels = [\"m-*\"]\nrights = [\"use\"]\n\
         requests-per-minute = 60\nexpires = \"2027-01-31T18:00:00Z\"\n",
    ),
];

const SPLICES: [&str; 24] = [
    "\u{feff}",
    "\0",
    "\r",
    "\r\n",
    "[",
    "]",
    "[*]\n",
    "\"",
    "'",
    "\\",
    "#",
    ";",
    "${",
    "}",
    "${PORT}",
    "&x ",
    "*x",
    "<<: ",
    "- ",
    "\t",
    "é\u{1F6A2}",
    "99999999999999999999",
    "-1",
    ";plimsoll: ",
];

/// xorshift64*: the same mutants on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(high).map_or(0, |high| high % bound.max(1))
    }

    /// A range of whole characters of `text`.
    fn range(&mut self, text: &str, longest: usize) -> std::ops::Range<usize> {
        let start = text.floor_char_boundary(self.below(text.len() + 1));
        let end = text.ceil_char_boundary((start + self.below(longest)).min(text.len()));
        start..end
    }
}

fn mutate(random: &mut Random, text: &mut String) {
    for _ in 0..=random.below(3) {
        let range = random.range(text, 12);
        match random.below(5) {
            0 => text.replace_range(range, ""),
            1 => {
                let splice = SPLICES[random.below(SPLICES.len())];
                text.insert_str(range.start, splice);
            }
            2 => {
                let piece = text[range.clone()].repeat(1 + random.below(9));
                text.insert_str(range.start, &piece);
            }
            3 => {
                let other = SEEDS[random.below(SEEDS.len())].1;
                let piece = &other[random.range(other, 40)];
                text.replace_range(range, piece);
            }
            _ => {
                let piece = text[range.clone()].to_owned();
                text.replace_range(range, "");
                let place = random.range(text, 1).start;
                text.insert_str(place, &piece);
            }
        }
    }
}

/// Runs mutants of one seed; returns how many were read.
fn attack(file: &str, seed: &str) -> usize {
    let mut random = Random(0x5EED_0001);
    let mut text = seed.to_owned();
    let mut read = 0;
    assert!(plimsoll_config::parse(file, seed, &|_| Some("/home/u".to_owned())).is_ok(), "{file}");
    for round in 0..MUTANTS {
        if round % 3 == 0 {
            seed.clone_into(&mut text);
        }
        mutate(&mut random, &mut text);
        match plimsoll_config::parse(file, &text, &|_| Some("/home/u".to_owned())) {
            Ok(roster) => {
                read += 1;
                for entry in &roster.models {
                    let line = entry.launch.command_line(&["engine".to_owned()], &entry.name, 1, None);
                    assert!(!line.iter().any(|argument| argument.contains('\0')));
                }
            }
            Err(error) => {
                let message = error.to_string();
                assert!(matches!(error.origin, FlagOrigin::File { .. }), "{message}");
                assert!(message.len() < 1000, "{message}");
            }
        }
    }
    read
}

#[test]
fn no_mutant_of_a_preset_panics() {
    let (file, seed) = SEEDS[0];
    assert!(attack(file, seed) > MUTANTS / 200);
}

#[test]
fn no_mutant_of_a_llama_swap_file_panics() {
    let (file, seed) = SEEDS[1];
    assert!(attack(file, seed) > MUTANTS / 200);
}

#[test]
fn no_mutant_of_our_own_file_panics() {
    let (file, seed) = SEEDS[2];
    assert!(attack(file, seed) > MUTANTS / 200);
}

#[test]
fn no_command_line_panics() {
    let words = [
        "-c",
        "-ts",
        "-ot",
        "-fa",
        "--spec-type",
        "-ngl",
        "-np",
        "--lora-scaled",
        "--control-vector-layer-range",
        "8k",
        "-1",
        "1,2,,3/4",
        "a=b,c",
        "99999999999",
        "\"a,b\",c",
        "é",
        "",
        "=",
        ",",
        "1e999",
        "nan",
        "--ctx_size",
        "-",
        "--",
    ];
    let mut random = Random(0x5EED_0002);
    for _ in 0..MUTANTS {
        let argv: Vec<String> =
            (0..random.below(8)).map(|_| words[random.below(words.len())].to_owned()).collect();
        if let Ok(options) = Options::from_argv(&argv) {
            if let Err(error) = options.params(ProgramKind::LlamaServer) {
                assert!(error.to_string().starts_with("command line: "));
            }
            options.remarks();
        }
    }
}

/// Processor time of this thread, which a busy machine does not prolong.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("a time after zero")
}

#[test]
fn the_largest_file_is_read_or_refused_in_a_moment() {
    let longest = 1 << 20;
    let fill = |piece: &str| piece.repeat(longest / piece.len());
    for (file, text) in [
        ("a.ini", fill("[a]\n")),
        ("a.ini", fill("[a")),
        ("a.ini", format!("[a]\nmodel = {}", fill("x#"))),
        ("a.ini", (0..longest / 16).map(|n| format!("[m{n}]\nc = 1\n")).take(60_000).collect()),
        ("a.yaml", fill("[")),
        ("a.yaml", fill("a: ")),
        ("a.yaml", fill("- a\n")),
        ("a.yaml", format!("models:\n  a:\n    cmd: {}", fill("${a}"))),
        ("a.toml", fill("[")),
        ("a.toml", fill("a=1\n")),
        ("a.toml", format!("a = {}", fill("["))),
        ("a.toml", format!("[models.a]\nflags = '{}'", fill("-c "))),
        ("a.toml", fill("x").repeat(2)),
        ("a.toml", (0..longest / 16).map(|n| format!("k{n} = 1\n")).collect()),
        ("a.toml", (0..longest / 16).map(|n| format!("k{n} = x\n")).collect()),
        ("a.toml", (0..longest / 24).map(|n| format!("[models.m{n}]\nx = 1\n")).collect()),
        ("a.toml", format!("x = [{}]", fill("'',"))),
        ("a.toml", format!("a{}.b = 1", fill(".a"))),
        ("a.ini", format!("[*]\n{}", (0..40_000).map(|n| format!("k{n} = 1\n[m{n}]\n")).collect::<String>())),
        (
            "a.ini",
            format!(
                "{}{}",
                fill(";plimsoll: x = 1\n").split_at(longest / 2).0,
                fill("[m]\n").split_at(longest / 2).0
            ),
        ),
    ] {
        let start = now();
        let _ = plimsoll_config::parse(file, &text, &|_| None);
        let took = now() - start;
        assert!(took < Duration::from_secs(10), "{file}: {took:?}: {}…", &text[..20]);
    }
}
