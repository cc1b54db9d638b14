//! Parser of the memory field in a line of tegrastats, for JetPack 4 to 7 and Thor.
//!
//! In this field, `MB` and `kB` mean MiB and KiB.

use plimsoll_base::Bytes;

use super::fields::{leading_number, leading_size};

/// Longer lines are cut: a real one has under 1 KiB.
const LONGEST: usize = 8192;

/// Memory of the board when the line was printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TegraStats {
    pub used: Bytes,
    pub total: Bytes,
}

impl TegraStats {
    /// Reads a line; `None` if it is not one of tegrastats, which is one with `RAM used/total`.
    pub fn read(line: &str) -> Option<Self> {
        let line = line.trim();
        // Logs of strangers: a line without end must not be searched to its end.
        let line = &line[..line.floor_char_boundary(LONGEST)];
        // At the start of a word: old boards report `IRAM 0/252kB` as well.
        let mut starts = line.match_indices("RAM ").map(|(at, _)| at);
        let start = starts.find(|at| *at == 0 || line.as_bytes()[at - 1].is_ascii_whitespace())?;
        pair(&line[start + "RAM ".len()..])
    }
}

/// `388/3984MB`: both numbers have the unit behind the second.
fn pair(text: &str) -> Option<TegraStats> {
    let (used, rest) = leading_number(text)?;
    let rest = rest.strip_prefix('/')?;
    let (total, _) = leading_size(rest)?;
    let (number, _) = leading_number(rest)?;
    // The unit is the factor of the second number. Where that is 0 no unit can be derived, and 0 has none.
    let unit = total.get().checked_div(number).unwrap_or(1);
    let used = Bytes::new(used.checked_mul(unit)?);
    Some(TegraStats { used, total })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_the_lines_of_every_release() {
        for (line, used, total) in [
            (
                "RAM 388/3984MB (lfb 779x4MB) IRAM 0/252kB(lfb 252kB) CPU [1%@1734,off,0%@1734,2%] SWAP 149/1024MB (cached 7MB)",
                388,
                3984,
            ),
            (
                "RAM 408/15823MB (lfb 1x512kB) SWAP 0/7911MB (cached 0MB) CPU [0%@2265] EMC_FREQ 0%@2133 GR3D_FREQ 5%@1377",
                408,
                15_823,
            ),
            (
                "08-10-2026 21:39:51 RAM 2513/7620MB (lfb 1x4MB) SWAP 25/3810MB (cached 0MB) CPU [11%@729,6%@729] GR3D_FREQ 0%",
                2513,
                7620,
            ),
            (
                "07-25-2026 09:08:28 RAM 20642/62817MB (lfb 1x2MB) CPU [1%@1497,2%@1497] GR3D_FREQ 12%@[1300,1301]",
                20_642,
                62_817,
            ),
            ("RAM 3312/125772MB (lfb 26x4MB) CPU [0%@972] GR3D_FREQ @[1000,1000,1000]", 3312, 125_772),
            (
                "Jul 3 10:00:01 orin tegrastats[77]: 07-03-2026 10:00:01 RAM 1/2MB (lfb 0x4MB) cpu [1%,off]@102 GR3D 7%@76",
                1,
                2,
            ),
            ("IRAM 0/252kB(lfb 252kB) RAM 1/2MB", 1, 2),
            ("RAM 2513/7620MB (lfb 1x4", 2513, 7620),
            ("RAM 0/0MB (lfb", 0, 0),
        ] {
            let stats = TegraStats::read(line).unwrap_or_else(|| panic!("{line}"));
            assert_eq!((stats.used, stats.total), (Bytes::mib(used), Bytes::mib(total)), "{line}");
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for line in
            ["", "RAM", "RAM x/yMB", "IRAM 0/252kB(lfb 252kB)", "DRAM 1/2MB", "RAM 1/18446744073709551615GB"]
        {
            assert_eq!(TegraStats::read(line), None, "{line}");
        }
        assert!(TegraStats::read(&format!("RAM 1/2MB {}é", "x".repeat(8181))).is_some());
    }
}
