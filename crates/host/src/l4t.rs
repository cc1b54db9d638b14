//! Parses the release of Jetson Linux (L4T) from `/etc/nv_tegra_release`, and lists releases with memory
//! faults.

use std::fmt;
use std::str::FromStr;

use plimsoll_base::Bytes;

/// Release number of Jetson Linux, such as `R36.4.7`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Release {
    pub major: u32,
    pub minor: u32,
    pub patch: u32,
}

/// Fault of a release whose NvMap refuses large allocations even if memory is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmapFault {
    pub since: Release,
    /// The first release without it, where one is known.
    pub fixed_in: Option<Release>,
}

/// Reported sizes under R36.4.7: board memory, largest total that was granted, smallest request that failed.
/// An Orin Nano of 8 GB granted 3.84 GiB and refused 4 GiB with 5.36 GiB free; an Orin NX of 16 GB granted
/// 3.2 GB and refused 6.6 GB with 12.6 GB free.
const SEEN: [(Bytes, Bytes, Bytes); 2] = [
    (Bytes::mib(7620), Bytes::mib(3932), Bytes::mib(4096)),
    (Bytes::mib(15_650), Bytes::mib(3051), Bytes::mib(6294)),
];

// DECISION: the table holds only faults that NVIDIA has confirmed in public. The fix for CVE-2025-33182 and
// CVE-2025-33177 limits CUDA memory in R38.2.2, R36.4.7 and R35.6.3; the release notes of R36.5 and R35.6.4
// list this as fixed.
const FAULTS: [NvmapFault; 3] = [
    NvmapFault { since: Release::new(35, 6, 3), fixed_in: Some(Release::new(35, 6, 4)) },
    NvmapFault { since: Release::new(36, 4, 7), fixed_in: Some(Release::new(36, 5, 0)) },
    NvmapFault { since: Release::new(38, 2, 2), fixed_in: None },
];

impl Release {
    pub const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch }
    }

    /// Parses the file, whose first line is `# R36 (release), REVISION: 4.7, GCID: …, BOARD: …`.
    pub fn read(text: &str) -> Option<Self> {
        let line = text.lines().take(16).find(|line| line.contains("REVISION:"))?;
        let (head, tail) = line.split_once("REVISION:")?;
        let major = head.split_once('R')?.1.split_ascii_whitespace().next()?;
        let revision = tail.split(',').next()?.trim();
        format!("{major}.{revision}").parse().ok()
    }

    /// The cap of this release's NvMap, if it has one.
    pub fn nvmap_fault(self) -> Option<NvmapFault> {
        FAULTS.into_iter().find(|fault| fault.covers(self))
    }

    /// True if NvMap keeps out of the OOM path. It then fails where the kernel could have reclaimed, so free
    /// memory is the limit instead of available memory. Inferred from the same fix, which later releases
    /// keep.
    pub fn gives_up_early(self) -> bool {
        let same_line = FAULTS.iter().find(|fault| fault.since.major == self.major);
        // Lines with a fix date are compared; later majors are assumed to keep the behaviour.
        same_line.map_or(self.major > 38, |fault| self >= fault.since)
    }
}

impl NvmapFault {
    fn covers(self, release: Release) -> bool {
        // The fault is in one minor line; the next minor starts without or with it on its own.
        let same_minor = (self.since.major, self.since.minor) == (release.major, release.minor);
        let before_fix = self.fixed_in.is_none_or(|fixed| release < fixed);
        same_minor && release >= self.since && before_fix
    }

    /// The largest total that was granted and the smallest request that failed, on a board of this size.
    pub fn seen_on(self, total: Bytes) -> Option<(Bytes, Bytes)> {
        // Boards of one size differ by carve-outs for firmware, so 10 % either way is the same board.
        let near = |seen: Bytes| total >= seen.scaled(9, 10) && total <= seen.scaled(11, 10);
        let row = SEEN.into_iter().find(|(size, ..)| near(*size))?;
        Some((row.1, row.2))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// Error: a text contains no release number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a release of Jetson Linux; write it as R36.4.7")]
pub struct ParseReleaseError;

/// Reads `R36.4.7`, `36.4.7`, `r36.5` and `36.4`.
impl FromStr for Release {
    type Err = ParseReleaseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let text = text.strip_prefix(['R', 'r']).unwrap_or(text);
        let mut numbers = text.split('.').map(|part| part.parse().map_err(|_| ParseReleaseError));
        let major = numbers.next().ok_or(ParseReleaseError)??;
        let minor = numbers.next().ok_or(ParseReleaseError)??;
        let patch = numbers.next().transpose()?.unwrap_or(0);
        match numbers.next() {
            None => Ok(Self::new(major, minor, patch)),
            Some(_) => Err(ParseReleaseError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read() {
        let text = "# R36 (release), REVISION: 4.7, GCID: 42132812, BOARD: generic, EABI: aarch64, DATE: Thu Sep 18 22:54:44 UTC 2025\n\
            # KERNEL_VARIANT: oot\nTARGET_USERSPACE_LIB_DIR=nvidia\n";
        assert_eq!(Release::read(text), Some(Release::new(36, 4, 7)));
        let old = "# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t210ref, EABI: aarch64\n";
        assert_eq!(Release::read(old).map(|r| r.to_string()).as_deref(), Some("R32.7.1"));
        for text in [
            "",
            "REVISION:",
            "# R (release), REVISION: 4.7",
            "# R36 (release), REVISION: four",
            "# R1.2.3.4 REVISION: 5",
        ] {
            assert_eq!(Release::read(text), None, "{text}");
        }
    }

    #[test]
    fn the_cap_is_in_three_releases_and_no_neighbour() {
        for (release, capped) in [
            ("R35.6.2", false),
            ("R35.6.3", true),
            ("R35.6.4", false),
            ("R36.4.3", false),
            ("R36.4.4", false),
            ("R36.4.7", true),
            ("R36.5.0", false),
            ("R38.2.1", false),
            ("R38.2.2", true),
            ("R38.4.0", false),
            ("R39.2.0", false),
            ("R32.7.1", false),
        ] {
            let release: Release = release.parse().unwrap();
            assert_eq!(release.nvmap_fault().is_some(), capped, "{release}");
        }
    }

    #[test]
    fn free_memory_decides_from_the_fix_on() {
        for (release, early) in [
            ("R32.7.1", false),
            ("R35.6.2", false),
            ("R35.6.4", true),
            ("R36.4.4", false),
            ("R36.4.7", true),
            ("R36.5", true),
            ("R38.2.1", false),
            ("R39.2", true),
        ] {
            assert_eq!(release.parse::<Release>().unwrap().gives_up_early(), early, "{release}");
        }
    }

    #[test]
    fn nvmap_fault_sizes_are_known_only_for_reported_boards() {
        let fault = Release::new(36, 4, 7).nvmap_fault().unwrap();
        assert_eq!(fault.fixed_in, Some(Release::new(36, 5, 0)));
        let (given, refused) = fault.seen_on(Bytes::mib(7620)).unwrap();
        assert!(given < refused && given > Bytes::mib(3900));
        assert_eq!(fault.seen_on(Bytes::gib(61)), None);
    }
}
