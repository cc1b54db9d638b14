//! Tests of the parsers with damaged files of `/proc`, `/sys` and `/etc` and damaged tegrastats lines.
//!
//! They are deterministic. `PLIMSOLL_FUZZ=1000000 cargo test -p plimsoll-host --release --test
//! hostile_machine` is the long run.

use plimsoll_base::Bytes;
use plimsoll_host::{
    AllowanceGate, Baseline, BuddyInfo, Chip, FutileSteps, HostSnapshot, MemInfo, PageTypeInfo, Privileges,
    ProcTree, ReclaimGoal, Release, TegraStats, Unseen, ZoneInfo, allowance, cgroup, course, nvmap,
};

/// Text, and what reads it.
struct Parser {
    name: &'static str,
    seed: &'static str,
    read: fn(&str),
}

const PAGE: Bytes = Bytes::kib(4);

const PARSERS: &[Parser] = &[
    Parser {
        name: "meminfo",
        seed: "MemTotal:        7802664 kB\nMemFree:         3168256 kB\nMemAvailable:    5570560 kB\nActive(file): 614400 kB\n\
               Inactive(file): 1843200 kB\nMapped: 204800 kB\nCmaFree: 204800 kB\nHugePages_Total: 4\n",
        read: |text| {
            let memory = MemInfo::read(text);
            let _ = (
                memory.droppable(),
                memory.free_without_cma(),
                memory.available_without_cma(),
                memory.unwritten(),
            );
        },
    },
    Parser {
        name: "buddyinfo",
        seed: "Node 0, zone      DMA      0      0      1      1      3 \n\
               Node 0, zone   Normal    12     8      6      4      3      2      1      1      1      0      1     20     94 \n",
        read: |text| {
            let blocks = BuddyInfo::read(text);
            for order in [0, 4, 9, 39, 64, usize::MAX] {
                let _ = (blocks.free_from(order, PAGE), blocks.blocks(order));
            }
        },
    },
    Parser {
        name: "pagetypeinfo",
        seed: "Page block order: 9\nPages per block:  512\n\nNode    0, zone   Normal, type      Movable >100000 0 1 0 3685 0 0 0 0 6 2 \n\
               Node    0, zone   Normal, type          CMA 0 0 50\n\nNumber of blocks type     Unmovable      Movable          CMA \n\
               Node 0, zone   Normal           90          300          100 \n",
        read: |text| {
            let _ = PageTypeInfo::read(text);
        },
    },
    Parser {
        name: "zoneinfo",
        seed: "Node 0, zone   Normal\n  pages free     60000\n        boost    0\n        min      15900\n        low      19900\n\
               \x20       high     23900\n        managed  5691000\n        protection: (0, 22178, 0, 0)\n      nr_free_cma  30000\n",
        read: |text| {
            let zones = ZoneInfo::read(text);
            let _ = (zones.usable(PAGE), zones.deferred(PAGE));
        },
    },
    Parser {
        name: "cgroup",
        seed: "9:name=systemd:/\n4:memory:/docker/0123456789abcdef\n0::/user.slice/app.scope\n",
        read: |text| {
            let _ = cgroup::limits(text, |_| Some(text.to_owned()));
            let _ = cgroup::stat_value(text, "memory");
        },
    },
    Parser {
        name: "tegrastats",
        seed: "08-10-2026 21:39:51 RAM 2513/7620MB (lfb 1x4MB) SWAP 25/3810MB (cached 0MB) IRAM 0/252kB(lfb 252kB) CPU [11%@729,off] \
               EMC_FREQ 3%@3199 GR3D_FREQ 12%@[1300,1301] cpu@51.218C/51.2C tj@-256C VDD_IN 4744mW/6179mW/6179mW POM_5V_IN 2570/2600",
        read: |text| {
            for line in text.lines() {
                let _ = TegraStats::read(line);
            }
        },
    },
    Parser {
        name: "nv_tegra_release",
        seed: "# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic, EABI: aarch64\n# KERNEL_VARIANT: oot\n",
        read: |text| {
            if let Some(release) = Release::read(text) {
                let _ = (release.gives_up_early(), release.to_string());
                let _ = release.nvmap_fault().and_then(|fault| fault.seen_on(Bytes::gib(8)));
            }
        },
    },
    Parser {
        name: "nvmap",
        seed: "Max allocatable IOVMM memory: 5493489664 bytes\n",
        read: |text| {
            let _ = nvmap::most_allocatable(text);
        },
    },
    Parser {
        name: "board",
        seed: "nvidia,p3767-0005\0nvidia,tegra234\0Model: \t NVIDIA GB10\n",
        read: |text| {
            let bytes = text.as_bytes();
            let _ = (Chip::of_compatible(bytes), Chip::of_information(text));
        },
    },
];

/// SplitMix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % (end.max(1) as u64)).unwrap_or(0)
    }
}

const WORDS: &[&str] = &[
    "18446744073709551615",
    "-1",
    "99999999999999999999",
    "Node 0, zone",
    "\0",
    "é",
    "\u{2028}",
    ":",
    "%",
    "@",
    "[",
    "]",
    "/",
    "(lfb ",
    "kB",
    "0",
    "..",
    "\n",
    " ",
    "RAM ",
    "type ",
    "REVISION:",
    "R",
];

/// Cuts, overwrites, inserts, doubles or swaps a few places.
fn damage(seed: &str, dice: &mut Dice) -> String {
    let mut bytes = seed.as_bytes().to_vec();
    for _ in 0..=dice.below(6) {
        let (at, to) = (dice.below(bytes.len()), dice.below(bytes.len()));
        let (from, to) = (at.min(to), at.max(to));
        match dice.below(6) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] = dice.next().to_le_bytes()[0],
            2 => {
                let word = WORDS[dice.below(WORDS.len())].bytes();
                bytes.splice(at..at, word);
            }
            3 => {
                bytes.drain(from..to);
            }
            4 if bytes.len() < 4096 => {
                let part = bytes[from..to].to_vec();
                bytes.splice(at..at, part);
            }
            _ if to < bytes.len() => bytes.swap(from, to),
            _ => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn rounds() -> usize {
    let requested = std::env::var("PLIMSOLL_FUZZ").ok();
    requested.and_then(|text| text.parse().ok()).unwrap_or(5_000)
}

#[test]
fn damaged_files_of_every_kind_do_no_harm() {
    for (number, parser) in PARSERS.iter().enumerate() {
        let mut dice = Dice(number as u64);
        (parser.read)(parser.seed);
        for _ in 0..rounds() {
            (parser.read)(&damage(parser.seed, &mut dice));
        }
        eprintln!("{}: {} damaged texts", parser.name, rounds());
    }
}

/// Every file of the tree is damaged in its own way.
struct Damaged(std::cell::RefCell<Dice>);

impl ProcTree for Damaged {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unseen> {
        let mut dice = self.0.borrow_mut();
        let name = match path.rsplit('/').next().unwrap_or_default() {
            "free_size" => "nvmap",
            "compatible" | "information" => "board",
            "memory.max" | "memory.current" => return Ok(dice.next().to_string().into_bytes()),
            name => name,
        };
        let parser = PARSERS.iter().find(|parser| parser.name == name).ok_or(Unseen::Missing)?;
        match dice.below(8) {
            0 => Err(Unseen::Forbidden),
            1 => Ok(parser.seed.as_bytes().to_vec()),
            _ => Ok(damage(parser.seed, &mut dice).into_bytes()),
        }
    }

    fn list(&self, _: &str) -> Vec<String> {
        vec!["0000:01:00.0".to_owned()]
    }

    fn page(&self) -> Option<Bytes> {
        None
    }
}

#[test]
fn damaged_machine_files_yield_a_consistent_allowance_or_none() {
    let tree = Damaged(std::cell::RefCell::new(Dice(7)));
    for _ in 0..rounds() / 5 {
        let snapshot = HostSnapshot::gather(&tree);
        for gate in [None, Some(AllowanceGate::Free), Some(AllowanceGate::Available)] {
            let Some(allowance) = allowance(&snapshot, gate) else {
                continue;
            };
            assert!(allowance.now <= allowance.attainable, "{snapshot:?}");
            for order in [None, Some(9), Some(usize::MAX)] {
                let ground = Baseline::of(&snapshot, &allowance, order, Bytes::gib(1), Bytes::gib(1));
                let goal = ReclaimGoal { need: Bytes::gib(3), order };
                let powers = Privileges { root: true, force: true };
                let _ = course(&ground, goal, powers, &FutileSteps::default());
            }
        }
    }
}
