//! Fuzz tests of the parsers of `/proc`, `/sys` and tegrastats, with mutated files: none may panic.

use std::str::FromStr;

use plimsoll_base::Bytes;
use plimsoll_fuzz::mutants;
use plimsoll_host::{BuddyInfo, MemInfo, PageTypeInfo, Release, TegraStats, ZoneInfo, cgroup};

const MEMINFO: &[u8] = b"MemTotal:        7802664 kB\nMemFree:         3168256 kB\nMemAvailable:    5570560 kB\nActive(file): 614400 kB\nCmaFree: 204800 kB\n";
const BUDDYINFO: &[u8] = b"Node 0, zone      DMA      0      0      1      1      3 \nNode 0, zone   Normal    12     8      6      4      3      2     94 \n";
const PAGETYPES: &[u8] = b"Page block order: 9\nPages per block:  512\n\nNode    0, zone   Normal, type      Movable >100000 0 1 0 3685 0 0 0 0 6 2 \n\
    Number of blocks type     Unmovable      Movable          CMA \nNode 0, zone   Normal           90          300          100 \n";
const ZONEINFO: &[u8] = b"Node 0, zone   Normal\n  pages free     60000\n        boost    0\n        min      15900\n        low      19900\n        high     23900\n";
const TEGRA: &[u8] = b"12-01-2024 10:00:00 RAM 2548/7620MB (lfb 2x4MB) SWAP 0/3810MB (cached 0MB) CPU [1%@729,0%@729] GR3D_FREQ 0% cpu@45.2C";
const RELEASE: &[u8] = b"# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025\n";

#[test]
fn million_files_of_the_kernel() {
    let seeds = [MEMINFO, BUDDYINFO, PAGETYPES, ZONEINFO, TEGRA, RELEASE];
    let tokens: [&[u8]; 6] = [b"Node 0, zone", b" kB", b">100000", b"pages free", b"lfb ", b"RAM "];
    mutants(&seeds, &tokens, |mutant| {
        let text = String::from_utf8_lossy(mutant);
        let memory = MemInfo::read(&text);
        let _ = (memory.droppable(), memory.free_without_cma());
        let blocks = BuddyInfo::read(&text);
        let _ = blocks.free_from(9, Bytes::kib(4));
        let _ = PageTypeInfo::read(&text);
        let _ = ZoneInfo::read(&text);
        for line in text.lines() {
            let _ = TegraStats::read(line);
        }
        let _ = Release::from_str(&text);
    });
}

#[test]
fn million_control_groups_lead_to_no_file_outside_their_mount() {
    // A container's own processes name the groups below it.
    let groups: [&[u8]; 2] = [
        b"0::/user.slice/user-1000.slice/session-2.scope\n",
        b"12:pids:/docker/1\n5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/../1\n0::/\n",
    ];
    let tokens: [&[u8]; 5] = [b"0::/", b"memory:", b"/../", b"//./", b":"];
    let files = ["1073741824\n", "max", "inactive_file 18446744073709551615\ntotal_inactive_file 5", "x"];
    mutants(&groups, &tokens, |mutant| {
        let text = String::from_utf8_lossy(mutant);
        let mut read = 0;
        let found = cgroup::limits(&text, |path| {
            assert!(
                path.starts_with("sys/fs/cgroup/") && !path.split('/').any(|name| name == ".."),
                "{path}"
            );
            read += 1;
            Some(files[read % files.len()].to_owned())
        });
        assert!(found.iter().all(|limit| limit.room() <= limit.limit));
    });
}
