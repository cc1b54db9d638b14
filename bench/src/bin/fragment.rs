//! Test program for `plimsoll reclaim`: it fills memory with page cache and fragments it, or holds anonymous
//! memory.
//!
//! DECISION: fragments are made of page cache only. An empty file is read page by page, so that each page is
//! a separate block; then every other page is dropped. After that, nearly half of memory is free, hardly any
//! of it in large blocks. The kernel can reclaim the rest at any time, so no program runs out of memory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use plimsoll_base::Bytes;
use plimsoll_host::{HostSnapshot, OrderBlocks, ProcTree, Unseen};
use rustix::fs::{Advice, fadvise};

const PAGE: u64 = 4096;
/// Pages between two looks at what is left.
const STRIDE: u64 = 8192;

#[derive(Debug, Parser)]
#[command(about = "Fill memory with page cache in pieces, or hold anonymous memory")]
struct Line {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Read FILE, which is made as large as memory, until fewer than BLOCKS blocks of ORDER are free; drop
    /// every other page
    Fill {
        file: PathBuf,
        #[arg(long, default_value_t = 9)]
        order: usize,
        #[arg(long, default_value_t = 8)]
        blocks: u64,
        /// Give up after so many seconds
        #[arg(long, default_value_t = 80)]
        within: u64,
    },
    /// Touch MIB of anonymous memory, say how much of it came in huge pages, and hold it for SECONDS
    Hold { mib: usize, seconds: u64 },
}

fn main() -> ExitCode {
    let result = match Line::parse().verb {
        Verb::Fill { file, order, blocks, within } => fill(&file, order, blocks, Duration::from_secs(within)),
        Verb::Hold { mib, seconds } => hold(mib, Duration::from_secs(seconds)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "fragment: {error}");
            ExitCode::FAILURE
        }
    }
}

fn fill(path: &Path, order: usize, blocks: u64, within: Duration) -> io::Result<()> {
    let end = Instant::now() + within;
    let pages = kilobytes("/proc/meminfo", "MemTotal:")? * 1024 / PAGE;
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(pages * PAGE)?;
    // Without it the kernel reads ahead in large blocks.
    fadvise(&file, 0, None, Advice::Random)?;
    let mut read = 0;
    while read < pages && (read % STRIDE != 0 || free_blocks(order)? >= blocks) {
        file.read_exact_at(&mut [0], read * PAGE)?;
        read += 1;
        if read % STRIDE == 0 && Instant::now() > end {
            return Err(io::Error::other("out of time while reading"));
        }
    }
    for page in (0..read).step_by(2) {
        fadvise(&file, page * PAGE, NonZeroU64::new(PAGE), Advice::DontNeed)?;
        if page % STRIDE == 0 && Instant::now() > end {
            return Err(io::Error::other("out of time while dropping"));
        }
    }
    let mib = |pages: u64| (pages * PAGE) >> 20;
    let left = free_blocks(order)?;
    writeln!(
        io::stdout(),
        "read {} MiB page by page and dropped every other page; {left} blocks of order {order} are free",
        mib(read)
    )
}

/// Requests of this order that could be met, as `plimsoll reclaim` counts them.
fn free_blocks(order: usize) -> io::Result<u64> {
    let snapshot = HostSnapshot::gather(&Here);
    let pieces = OrderBlocks::of(&snapshot, order)
        .ok_or_else(|| io::Error::other("/proc/buddyinfo cannot be read"))?;
    Ok(pieces.whole.get() / (snapshot.page.get() << order))
}

/// The files of this machine.
struct Here;

impl ProcTree for Here {
    fn read(&self, path: &str) -> Result<Vec<u8>, Unseen> {
        fs::read(Path::new("/").join(path)).map_err(|_| Unseen::Unreadable)
    }

    fn list(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn page(&self) -> Option<Bytes> {
        None
    }
}

fn hold(mib: usize, time: Duration) -> io::Result<()> {
    let mut memory = vec![0_u8; mib << 20];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    let huge = kilobytes("/proc/self/smaps_rollup", "AnonHugePages:")? >> 10;
    writeln!(io::stdout(), "holding {mib} MiB, {huge} MiB of it in huge pages")?;
    std::thread::sleep(time);
    // Nothing may take the memory for unused before its time.
    std::hint::black_box(&memory);
    Ok(())
}

fn kilobytes(path: &str, key: &str) -> io::Result<u64> {
    let text = fs::read_to_string(path)?;
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok());
    value.ok_or_else(|| io::Error::other(format!("no {key} in {path}")))
}
