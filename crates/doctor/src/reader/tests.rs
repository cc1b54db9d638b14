//! Tests of all log line readers with damaged text: none may panic, and the facts stay bounded.
//!
//! A few thousand texts are tried by default; the environment variable `PLIMSOLL_FUZZ=1000000` tries a
//! million.

use std::time::Instant;

use crate::facts::{Facts, LineOrigin, LineSource, Quote};
use crate::formats::{hits, read_line, read_report, rows, rows_in};
use crate::line::{LONGEST_QUOTE, around, shortened};
use crate::{read_last_lines, sizes};

/// A reader, and lines that it reads when they are whole.
struct Trial {
    name: &'static str,
    seeds: &'static [&'static str],
    read: fn(&mut Facts, &str, usize),
}

const TRIALS: &[Trial] = &[
    Trial {
        name: "lines",
        seeds: &[
            "\x1b[0;31mMar 03 10:11:12 box llama-server[812]:\x1b[0m CUDA error: out of memory\r",
            "engine-1  | \u{fffd}\u{1b}",
        ],
        read: |_, text, at| {
            let line = around(text.as_bytes(), at % (text.len() + 1));
            assert!(shortened(&line).chars().count() <= LONGEST_QUOTE);
        },
    },
    Trial {
        name: "sizes",
        seeds: &[
            "allocating 805.50 MiB on device 0, 120,00 MB of 24GB",
            "size = 12,345,678 bytes; 18446744073709551615 B",
            "[9.5 GiB 3.1 GiB]",
        ],
        read: |_, text, _| {
            assert!(sizes::all(text).count() <= text.len());
            let _ =
                (sizes::after(text, "size"), sizes::count_after(text, "device "), sizes::behind(text, "of"));
        },
    },
    Trial {
        name: "search",
        seeds: &[
            "ggml: cudaMalloc failed: out of memory, failed to allocate compute pp buffers",
            "OOMKilled=true oom-kill: room",
        ],
        read: |_, text, at| {
            assert_eq!(rows_in(text).is_empty(), hits(text.as_bytes()).next().is_none());
            let _ = hits(&text.as_bytes()[at % (text.len() + 1)..]).count();
        },
    },
    Trial {
        name: "last lines",
        seeds: &[
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
            "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8 GiB of which 1.00 GiB is free.",
        ],
        read: |_, text, _| drop(read_last_lines(text.lines())),
    },
    Trial {
        name: "llama.cpp",
        seeds: &[
            "ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 126487552",
            "load_tensors:        CUDA0 model buffer size = 13995.99 MiB",
            "|   - CUDA0 (RTX 4090)   | 24080 = 1234 + (22000 = 17000 +    4000 +    1000) +         846 |",
            "level=INFO msg=\"kv cache\" device=CUDA0 size=\"1.5 GiB\"",
        ],
        read: line,
    },
    Trial {
        name: "PyTorch, vLLM, ollama",
        seeds: &[
            "Tried to allocate 1.86 GiB (GPU 0; 31.72 GiB total capacity; 24.58 GiB already allocated; 1.28 GiB free; 5.08 GiB cached)",
            "of which 115.69 MiB is free. Process 21422 has 23.57 GiB memory in use. Of the allocated memory 22.14 GiB is allocated by PyTorch, and 910.35 MiB is reserved by PyTorch but unallocated.",
            "Free memory on device cuda:0 (19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB)",
            "memory.available=\"[9.5 GiB]\" memory.required.full=\"11.0 GiB\" memory.weights.total=\"5.2 GiB\" memory.required.kv=\"2 GiB\"",
        ],
        read: line,
    },
    Trial {
        name: "machine",
        seeds: &[
            "MemTotal: 7802664 kB MemFree=41.52 MemAvailable: 5570560 kB free=66GB cache=51GB available=116GB",
            "Node 0, zone   Normal    12     8      6      4      3      2",
            "|    0   N/A  N/A      1234      C   python3            12345MiB |   12799MiB / 16280MiB |",
            "NVRM: Xid (PCI:0000:07:00): 31, pid=1, name=x RAM 2513/7620MB (lfb 1x4MB) Mem: 7.3Gi 544Mi 6.1Gi 18Mi 702Mi 6.6Gi",
            "# Linux for Tegra R36.4.7, kernel free=66GB",
        ],
        read: line,
    },
    Trial {
        name: "options",
        seeds: &[
            "--ctx-size 131072 -ub 8192 model size = 38.00 GiB --gpu-memory-utilization 0.9 tensor_parallel_size=2",
            "msg=\"inference compute\" total=\"24.0 GiB\" available=\"22.4 GiB\"",
        ],
        read: line,
    },
    Trial {
        name: "choices",
        seeds: &[
            "os.environ['CUDA_VISIBLE_DEVICES'] = \"0, 2,63\"; torch.cuda.set_device(3) --gpu-id 1",
            "HIP_VISIBLE_DEVICES is set to 1,\u{e9} -mg 0 .to('cuda:7')",
        ],
        read: report,
    },
    Trial {
        name: "figures",
        seeds: &[
            "Reserved but unallocated: 402.27 MiB, tried 1.0GB; 15.9 GiB reserved but only 9.2 GiB allocated",
            "GPU has 19.53 GiB total, 329.87 MiB free (\u{e9} 24 GiB capacity)",
        ],
        read: |facts, text, at| {
            if at.is_multiple_of(2) {
                facts.torch = None;
            }
            report(facts, text, at);
        },
    },
    Trial {
        name: "readings",
        seeds: &[
            "1. 453MB\n2. 751MB\n3. 1051MB\n",
            "8012 -> 8034 \u{2192} 8056 MiB",
            "run 1: 8.1 GB, run 2: 12.3 GB, run 3: 16.9 GB",
            "2x RTX 4090 24 GB, T4 x2",
            "# 396079 VLLM::EngineCor 1 114151137280 0\n| it leaks +7.96 MiB/req |",
        ],
        read: report,
    },
    Trial {
        name: "names",
        seeds: &[
            "DeepSeek 8x7B Q4_K_M on 4 x RTX 3090 with 64GB RAM",
            "a large model (147G) on a GPU with 98GB; l40s x 2, 7900 XTX",
        ],
        read: report,
    },
    Trial {
        name: "people's words",
        seeds: &[
            "The memory isn\u{2019}t released after each run, and another process still holds the GPU. It loads fine, but crashes on the first long prompt!",
            "\u{8bbe}\u{7f6e}\u{4e86}5\u{53f7}gpu\u{ff0c}\u{5374}\u{4f7f}\u{7528}0\u{53f7}\u{663e}\u{5b58}. gpu # 1 with id 0, the number 0",
        ],
        read: report,
    },
];

fn line(facts: &mut Facts, text: &str, at: usize) {
    read_line(facts, rows()[at % rows().len()].pattern, text, &quote(text, at));
}

fn report(facts: &mut Facts, text: &str, at: usize) {
    let source = if at.is_multiple_of(2) { LineSource::Log } else { LineSource::Context };
    read_report(facts, &LineOrigin { source, file: None }, text.as_bytes());
}

fn quote(text: &str, at: usize) -> Quote {
    let source = if at.is_multiple_of(5) { LineSource::Context } else { LineSource::Log };
    Quote::new(&LineOrigin { source, file: None }, u64::try_from(at % 40).unwrap_or_default(), text)
}

/// SplitMix64: the same texts everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(end.max(1)).unwrap_or(1)).unwrap_or_default()
    }
}

const WORDS: &[&str] = &[
    "18446744073709551615",
    "99999999999.9999999 GiB",
    "-1",
    "\0",
    "\u{e9}",
    "\u{2192}",
    "->",
    "(",
    ")",
    "=",
    "|",
    ":",
    "x",
    "GiB",
    "MiB",
    "k",
    "\"",
    "[",
    "\n",
    " ",
    "gpu 0",
    "0",
    "..",
    "\u{1b}[",
];

/// One or two seeds, cut, overwritten, doubled and swapped at a few places; also what is not UTF-8 has become
/// U+FFFD.
fn damaged(seeds: &[&str], dice: &mut Dice) -> String {
    let mut bytes = seeds[dice.below(seeds.len())].as_bytes().to_vec();
    if dice.below(3) == 0 {
        bytes.extend_from_slice(seeds[dice.below(seeds.len())].as_bytes());
    }
    for _ in 0..=dice.below(6) {
        let (at, to) = (dice.below(bytes.len()), dice.below(bytes.len()));
        let (from, to) = (at.min(to), at.max(to));
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] = u8::try_from(dice.below(256)).unwrap_or_default(),
            2 => drop(bytes.splice(at..at, WORDS[dice.below(WORDS.len())].bytes())),
            3 => drop(bytes.drain(from..to)),
            4 if bytes.len() < 4096 => bytes.extend_from_within(from..to),
            _ if to < bytes.len() => bytes.swap(from, to),
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn no_reader_of_a_log_can_be_hurt_alone() {
    let rounds = std::env::var("PLIMSOLL_FUZZ").ok().and_then(|rounds| rounds.parse().ok());
    let rounds: usize = rounds.unwrap_or(2000);
    for trial in TRIALS {
        let started = Instant::now();
        let mut dice = Dice(0);
        let mut facts = Facts::default();
        for seed in trial.seeds {
            (trial.read)(&mut facts, seed, 0);
        }
        for _ in 0..rounds {
            let text = damaged(trial.seeds, &mut dice);
            (trial.read)(&mut facts, &text, dice.below(1 << 16));
            assert!(facts.is_bounded(), "{}: {facts:?}", trial.name);
        }
        println!("{}: {rounds} damaged texts, {:.1} s", trial.name, started.elapsed().as_secs_f64());
    }
}
