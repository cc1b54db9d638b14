//! One line of tegrastats, JetPack 4 to 7 and Thor.
//!
//! The fields have changed order, spelling and number from release to release: `SWAP` before or after `CPU` or not at all, a
//! time stamp or none, `408/408` or `408mW/408mW/408mW` for a rail, one clock or a list of them, no load on Thor. So a line is
//! read word by word, each word by its own shape, and what has no known shape is passed over. The memory fields are the
//! same with and without root. `MB` and `kB` mean MiB and KiB.

use plimsoll_base::Bytes;

use super::fields::{leading_number, leading_size};

/// Longer lines are cut: a real one has under 1 KiB.
const LONGEST: usize = 8192;
/// Cores, sensors or rails that are kept of a line.
const MOST: usize = 256;

/// What a line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TegraStats {
    /// `MM-DD-YYYY HH:MM:SS` as it stands there, since JetPack 5.1.
    pub time: Option<String>,
    pub used: Bytes,
    pub total: Bytes,
    pub largest: Option<LargestFree>,
    pub swap: Option<Swap>,
    pub iram: Option<Iram>,
    /// Load of each core in percent; `None` for one that is off.
    pub cores: Vec<Option<u64>>,
    /// Load of the GPU in percent; Thor does not say.
    pub gpu_load: Option<u64>,
    /// Clocks of the GPU's parts in MHz; without root none are said.
    pub gpu_clocks: Vec<u64>,
    pub temperatures: Vec<Temperature>,
    pub rails: Vec<Rail>,
}

/// `lfb 132x4MB`: how many free blocks there are of the largest size that is free, up to order 10 and no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestFree {
    pub count: u64,
    pub size: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    pub used: Bytes,
    pub total: Bytes,
    pub cached: Option<Bytes>,
}

/// Memory of the boot processor, on the oldest boards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iram {
    pub used: Bytes,
    pub total: Bytes,
    pub largest: Option<Bytes>,
}

/// A sensor, in thousandths of a degree Celsius.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Temperature {
    pub sensor: String,
    pub milli: i64,
}

/// A supply, in milliwatts: now, and on average.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    pub name: String,
    pub now: u64,
    pub average: u64,
}

impl TegraStats {
    /// Reads a line; `None` if it is not one of tegrastats, which is one with `RAM used/total`.
    pub fn read(line: &str) -> Option<Self> {
        let line = cut(line.trim());
        let start = find_word(line, "RAM ")?;
        let (used, total, rest) = pair(&line[start + "RAM ".len()..])?;
        let mut stats = Self {
            time: time(&line[..start]),
            used,
            total,
            largest: parenthesis(rest, "lfb ").and_then(largest),
            swap: find_word(line, "SWAP ").and_then(|at| swap(&line[at + "SWAP ".len()..])),
            iram: find_word(line, "IRAM ").and_then(|at| iram(&line[at + "IRAM ".len()..])),
            cores: Vec::new(),
            gpu_load: None,
            gpu_clocks: Vec::new(),
            temperatures: Vec::new(),
            rails: Vec::new(),
        };
        stats.read_words(rest);
        Some(stats)
    }

    fn read_words(&mut self, text: &str) {
        let mut words = text.split_ascii_whitespace().peekable();
        while let Some(word) = words.next() {
            let value = words.peek().copied().unwrap_or_default();
            match word {
                "CPU" | "cpu" => self.cores = cores(value),
                "GR3D_FREQ" | "GR3D" => self.read_gpu(value),
                _ => {
                    self.temperatures
                        .extend(temperature(word).filter(|_| self.temperatures.len() < MOST));
                    self.rails
                        .extend(rail(word, value).filter(|_| self.rails.len() < MOST));
                }
            }
        }
    }

    /// `12%`, `12%@1300`, `12%@[1300,1300]`, `@[1000,1000,1000]`.
    fn read_gpu(&mut self, value: &str) {
        let (load, clocks) = value.split_once('@').unwrap_or((value, ""));
        self.gpu_load = load.strip_suffix('%').and_then(|load| load.parse().ok());
        let clocks = clocks.trim_matches(['[', ']']).split(',').take(MOST);
        self.gpu_clocks = clocks.filter_map(|clock| clock.parse().ok()).collect();
    }
}

fn cut(line: &str) -> &str {
    let mut end = line.len().min(LONGEST);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

/// Where `word` stands at the beginning of a word, so that `RAM ` is not found in `IRAM `.
fn find_word(line: &str, word: &str) -> Option<usize> {
    line.match_indices(word)
        .map(|(at, _)| at)
        .find(|at| *at == 0 || line.as_bytes()[at - 1].is_ascii_whitespace())
}

/// The last two words in front of `RAM` are date and time; a journal may have put more before them.
fn time(before: &str) -> Option<String> {
    let mut words = before.split_ascii_whitespace().rev();
    let (clock, date) = (words.next()?, words.next()?);
    let shaped = |text: &str, mark: u8, marks: usize| {
        let bytes = text.as_bytes();
        bytes.iter().all(|b| b.is_ascii_digit() || *b == mark)
            && bytes.iter().filter(|b| **b == mark).count() == marks
    };
    (shaped(clock, b':', 2) && shaped(date, b'-', 2)).then(|| format!("{date} {clock}"))
}

/// `388/3984MB`: both numbers have the unit behind the second.
fn pair(text: &str) -> Option<(Bytes, Bytes, &str)> {
    let (used, rest) = leading_number(text)?;
    let rest = rest.strip_prefix('/')?;
    let (total, rest) = leading_size(rest)?;
    let (number, _) = leading_number(text.split_once('/')?.1)?;
    // The unit is what the second number was multiplied by; none of anything has every unit.
    let unit = total.get().checked_div(number).unwrap_or(1);
    Some((Bytes::new(used.checked_mul(unit)?), total, rest))
}

/// What follows `key` in the parenthesis that comes next, which may or may not have a space before it.
fn parenthesis<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let inside = text.trim_start().strip_prefix('(')?;
    inside.split(')').next()?.strip_prefix(key)
}

fn largest(text: &str) -> Option<LargestFree> {
    let (count, rest) = leading_number(text)?;
    let (size, _) = leading_size(rest.strip_prefix('x')?)?;
    Some(LargestFree { count, size })
}

fn swap(text: &str) -> Option<Swap> {
    let (used, total, rest) = pair(text)?;
    let cached = parenthesis(rest, "cached ").and_then(leading_size);
    Some(Swap {
        used,
        total,
        cached: cached.map(|(cached, _)| cached),
    })
}

fn iram(text: &str) -> Option<Iram> {
    let (used, total, rest) = pair(text)?;
    let largest = parenthesis(rest, "lfb ").and_then(leading_size);
    Some(Iram {
        used,
        total,
        largest: largest.map(|(largest, _)| largest),
    })
}

/// `[1%@1734,off,3%]`.
fn cores(value: &str) -> Vec<Option<u64>> {
    let Some(inside) = value.strip_prefix('[').and_then(|value| value.split(']').next()) else {
        return Vec::new();
    };
    let load = |core: &str| core.split('%').next().and_then(|load| load.parse().ok());
    inside.split(',').take(MOST).map(load).collect()
}

/// `cpu@51.218C`, `CPU@41.5C`, `cpu@52.968C/52.968C`, `tj@-256C` for a sensor that is off.
fn temperature(word: &str) -> Option<Temperature> {
    let (sensor, value) = word.split_once('@')?;
    let value = value.split('/').next()?.strip_suffix('C')?;
    let (negative, value) = value
        .strip_prefix('-')
        .map_or((false, value), |value| (true, value));
    let (whole, part) = value.split_once('.').unwrap_or((value, ""));
    let digits: String = part.chars().chain("000".chars()).take(3).collect();
    let milli: i64 = whole
        .parse::<i64>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(digits.parse().ok()?)?;
    let usable =
        !sensor.is_empty() && !whole.starts_with(['+', '-']) && digits.bytes().all(|b| b.is_ascii_digit());
    usable.then(|| Temperature {
        sensor: sensor.to_owned(),
        milli: if negative { -milli } else { milli },
    })
}

/// `VDD_IN 4744mW/6179mW`, `POM_5V_IN 2570/2570`, `VDD_GPU_SOC 5139mW/5139mW/5139mW`.
fn rail(name: &str, value: &str) -> Option<Rail> {
    let is_name =
        name.starts_with(|c: char| c.is_ascii_alphabetic()) && !matches!(name, "RAM" | "SWAP" | "IRAM");
    let watts = |text: &str| text.strip_suffix("mW").unwrap_or(text).parse().ok();
    let mut numbers = value.split('/').map(watts);
    let (now, average) = (numbers.next()??, numbers.next()??);
    is_name.then(|| Rail {
        name: name.to_owned(),
        now,
        average,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> TegraStats {
        TegraStats::read(line).unwrap_or_else(|| panic!("{line}"))
    }

    fn lfb(count: u64, size: Bytes) -> Option<LargestFree> {
        Some(LargestFree { count, size })
    }

    #[test]
    fn jetpack_4_has_iram_and_swap_after_the_cores() {
        let stats = read(
            "RAM 388/3984MB (lfb 779x4MB) IRAM 0/252kB(lfb 252kB) CPU [1%@1734,off,0%@1734,2%] SWAP 149/1024MB (cached 7MB) \
             EMC_FREQ 0%@1600 GR3D_FREQ 0%@998 APE 25 PLL@40C CPU@41.5C PMIC@100C thermal@40.75C POM_5V_IN 2570/2600 POM_5V_GPU 0/0",
        );
        assert_eq!((stats.used, stats.total), (Bytes::mib(388), Bytes::mib(3984)));
        assert_eq!(stats.largest, lfb(779, Bytes::mib(4)));
        let iram = Iram {
            used: Bytes::ZERO,
            total: Bytes::kib(252),
            largest: Some(Bytes::kib(252)),
        };
        assert_eq!(stats.iram, Some(iram));
        let swap = Swap {
            used: Bytes::mib(149),
            total: Bytes::gib(1),
            cached: Some(Bytes::mib(7)),
        };
        assert_eq!(stats.swap, Some(swap));
        assert_eq!(stats.cores, [Some(1), None, Some(0), Some(2)]);
        assert_eq!(
            (stats.gpu_load, stats.gpu_clocks.as_slice()),
            (Some(0), &[998][..])
        );
        assert_eq!(stats.temperatures.len(), 4);
        assert_eq!(
            stats.temperatures[1],
            Temperature {
                sensor: "CPU".to_owned(),
                milli: 41_500
            }
        );
        assert_eq!(
            stats.rails[0],
            Rail {
                name: "POM_5V_IN".to_owned(),
                now: 2570,
                average: 2600
            }
        );
        assert_eq!(stats.time, None);
    }

    #[test]
    fn jetpack_5_xavier_has_swap_before_the_cores_and_small_blocks_in_kb() {
        let stats = read(
            "RAM 408/15823MB (lfb 1x512kB) SWAP 0/7911MB (cached 0MB) CPU [0%@2265] EMC_FREQ 0%@2133 GR3D_FREQ 5%@1377",
        );
        assert_eq!(stats.largest, lfb(1, Bytes::kib(512)));
        assert_eq!(stats.swap.unwrap().total, Bytes::mib(7911));
        assert_eq!(stats.gpu_load, Some(5));
    }

    #[test]
    fn jetpack_6_orin_has_a_time_and_no_clock_without_root() {
        let stats = read(
            "08-10-2026 21:39:51 RAM 2513/7620MB (lfb 1x4MB) SWAP 25/3810MB (cached 0MB) CPU [11%@729,6%@729] GR3D_FREQ 0% \
             cpu@51.218C tj@51.718C cv0@-256C VDD_IN 4744mW/6179mW VDD_SOC 1470mW/1514mW",
        );
        assert_eq!(stats.time.as_deref(), Some("08-10-2026 21:39:51"));
        assert_eq!(
            (stats.used, stats.largest),
            (Bytes::mib(2513), lfb(1, Bytes::mib(4)))
        );
        assert_eq!((stats.gpu_load, stats.gpu_clocks.len()), (Some(0), 0));
        assert_eq!(stats.temperatures[2].milli, -256_000);
        assert_eq!(stats.rails.len(), 2);
    }

    #[test]
    fn jetpack_7_has_no_swap_three_figures_of_a_rail_and_a_list_of_clocks() {
        let stats = read(
            "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [1%@1497,2%@1497] EMC_FREQ 3%@3199 GR3D_FREQ 12%@[1300,1301] \
             NVENC0 off VIC off cpu@52.968C/52.968C VDD_GPU_SOC 5139mW/5140mW/5141mW",
        );
        assert_eq!((stats.swap, stats.largest), (None, lfb(1, Bytes::mib(2))));
        assert_eq!(
            (stats.gpu_load, stats.gpu_clocks.as_slice()),
            (Some(12), &[1300, 1301][..])
        );
        assert_eq!(stats.temperatures[0].milli, 52_968);
        assert_eq!(
            stats.rails,
            [Rail {
                name: "VDD_GPU_SOC".to_owned(),
                now: 5139,
                average: 5140
            }]
        );
    }

    #[test]
    fn thor_does_not_say_how_busy_its_gpu_is() {
        let stats = read("RAM 3312/125772MB (lfb 26x4MB) CPU [0%@972] GR3D_FREQ @[1000,1000,1000]");
        assert_eq!((stats.gpu_load, stats.gpu_clocks.len()), (None, 3));
    }

    #[test]
    fn a_journals_prefix_and_the_oldest_spelling_are_read() {
        let stats = read(
            "Jul 3 10:00:01 orin tegrastats[77]: 07-03-2026 10:00:01 RAM 1/2MB (lfb 0x4MB) cpu [1%,off]@102 GR3D 7%@76",
        );
        assert_eq!(stats.time.as_deref(), Some("07-03-2026 10:00:01"));
        assert_eq!((stats.cores.len(), stats.gpu_load), (2, Some(7)));
    }

    #[test]
    fn what_is_no_such_line_is_refused_and_half_a_line_gives_half() {
        for line in [
            "",
            "RAM",
            "RAM x/yMB",
            "IRAM 0/252kB(lfb 252kB)",
            "DRAM 1/2MB",
            "RAM 1/18446744073709551615GB",
        ] {
            assert_eq!(TegraStats::read(line), None, "{line}");
        }
        let stats = read("RAM 2513/7620MB (lfb 1x4");
        assert_eq!(stats.largest.map(|lfb| lfb.count), Some(1));
        assert_eq!(read("RAM 0/0MB (lfb").largest, None);
        assert!(TegraStats::read(&format!("RAM 1/2MB {}é", "x".repeat(8181))).is_some());
    }
}
