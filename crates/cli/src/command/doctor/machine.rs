//! Collects evidence about a machine for `plimsoll doctor`: cards, processes, memory, limits and known driver
//! faults.
//!
//! The evidence comes from the live machine or from captured files.

use plimsoll_base::{Bytes, Reason};
use plimsoll_cards::{HostMemory, Machine, Reading, Sysroot};
use plimsoll_doctor::{LineSource, LogReader};
use plimsoll_host::{HostSnapshot, ProcTree, allowance};

use super::{Findings, cards};

/// Files whose lines are evidence without any change.
const FILES: [&str; 3] = ["proc/meminfo", "proc/buddyinfo", "etc/nv_tegra_release"];
/// Folder of logs in a captured tree; for the live machine the user names the log.
const LOGS: &str = "var/log";

pub(super) fn look(tree: &Sysroot) -> Findings {
    let mut reader = LogReader::new();
    let mut seen = Vec::new();
    let snapshot = HostSnapshot::gather(tree);
    let machine = plimsoll_cards::look_at(tree);
    seen.extend(cards::reasons(&machine, snapshot.driver().is_some() && !tree.is_live()));
    seen.extend(holders(&machine, plimsoll_cards::read_at(tree), None, &mut reader));
    // Without a driver a live machine has no card whose failure these files could explain.
    if snapshot.driver().is_some() || !tree.is_live() {
        feed(tree, &mut reader);
    }
    seen.push(memory(tree, &snapshot));
    let limits = tree.read("proc/self/limits").ok();
    seen.extend(limits.and_then(|limits| locked_limit(&limits, "a process of this user")));
    seen.extend(known_faults(tree, &snapshot));
    Findings { reader, seen, cards: cards::in_json(&machine), status: None }
}

fn feed(tree: &Sysroot, reader: &mut LogReader) {
    for path in FILES {
        if let Ok(bytes) = tree.read(path) {
            reader.feed(LineSource::Machine, &bytes);
        }
    }
    if tree.is_live() {
        return;
    }
    for name in tree.list(LOGS) {
        if let Ok(bytes) = tree.read(&format!("{LOGS}/{name}")) {
            reader.feed(LineSource::Log, &bytes);
        }
    }
}

/// Processes and their memory on each card. The rules report a process that has only a context on a second
/// card.
pub(super) fn holders(
    machine: &Machine,
    reading: Reading,
    examined: Option<u32>,
    reader: &mut LogReader,
) -> Vec<Reason> {
    let mut seen = Vec::new();
    for holder in reading.holders {
        let number = machine.names().iter().position(|card| card.id == holder.card.as_str());
        let number = number.and_then(|number| u64::try_from(number).ok()).unwrap_or_default();
        let name = holder.name.as_deref().unwrap_or("a process");
        let used = holder.used.map_or_else(|| "an unknown amount".to_owned(), |used| used.to_string());
        let who =
            if examined == Some(holder.pid) { "it".to_owned() } else { format!("{name} ({})", holder.pid) };
        let outside = holder.outside.map(|bytes| format!(", and {bytes} of host memory for that card"));
        let text = format!("card {number}: {who} holds {used}{}", outside.unwrap_or_default());
        let reason = Reason::new("holder", text).fact("card", number).fact("pid", u64::from(holder.pid));
        let sizes = [("used", holder.used), ("outside", holder.outside)].into_iter();
        let known = sizes.filter_map(|(name, bytes)| Some((name, bytes?)));
        seen.push(known.fold(reason, |reason, (name, bytes)| reason.fact(name, bytes)));
        // NVML gives no size for processes of another container or under WSL; the rules need one.
        if let Some(used) = holder.used {
            reader.holder(number, u64::from(holder.pid), name, used);
        }
    }
    seen
}

/// The amount that can be allocated now, with its arithmetic, and the block sizes of the free memory.
fn memory(tree: &Sysroot, snapshot: &HostSnapshot) -> Reason {
    let mut memory = match allowance(snapshot, None) {
        Some(allowance) => allowance.reason,
        None => host(tree.is_live()),
    };
    if let Some(blocks) = &snapshot.blocks {
        // NvMap prefers chunks of 64 KiB; a huge page needs 2 MiB.
        for size in [Bytes::kib(64), Bytes::mib(2)] {
            let pages = (size.get() / snapshot.page.get().max(1)).max(1);
            let order = usize::try_from(pages.trailing_zeros()).unwrap_or_default();
            let free = blocks.free_from(order, snapshot.page);
            // /proc/buddyinfo leaves out what each processor keeps at hand, so its sum is not MemFree.
            let whole = snapshot.memory.free.unwrap_or_else(|| blocks.free(snapshot.page));
            let text = format!("of {whole} of free memory, {free} are in blocks of {size} or more");
            memory = memory.because(Reason::new("blocks", text).fact("bytes", free));
        }
    }
    memory
}

/// The amount on a system without `/proc`.
fn host(is_live: bool) -> Reason {
    let text = match HostMemory::read().filter(|_| is_live) {
        Some(HostMemory { total, available, .. }) => {
            format!("{available} of {total} of host memory are available")
        }
        None => "the host's memory is unknown: /proc/meminfo is incomplete".to_owned(),
    };
    Reason::new("memory", text)
}

/// Locked-memory limit of `who`, from its file `limits`.
pub(super) fn locked_limit(limits: &[u8], who: &str) -> Option<Reason> {
    let text = String::from_utf8_lossy(limits);
    let line = text.lines().find(|line| line.starts_with("Max locked memory"))?;
    // Fields: `Max locked memory`, soft limit, hard limit, unit. The soft limit is what mlock(2) checks.
    let soft = line.split_whitespace().nth(3)?;
    let text = match soft.parse() {
        Ok(bytes) => format!("{who} may lock {} of memory (ulimit -l)", Bytes::new(bytes)),
        // `/proc/self/limits` writes `unlimited`, which does not parse as a number.
        Err(_) => format!("{who} may lock any amount of memory (ulimit -l)"),
    };
    Some(Reason::new("locked_memory", text))
}

/// Driver and board releases, with the faults that are known of them.
fn known_faults(tree: &Sysroot, snapshot: &HostSnapshot) -> Vec<Reason> {
    let mut seen = Vec::new();
    if let Some(release) = snapshot.release {
        let text = match release.nvmap_fault() {
            Some(fault) => format!(
                "{release} refuses large allocations no matter how much is free; {}",
                fault.fixed_in.map_or_else(
                    || "upgrade to a later release".to_owned(),
                    |fixed| format!("upgrade to {fixed} or later")
                )
            ),
            None => format!("the NvMap driver of {release} has no known fault"),
        };
        seen.push(Reason::new("release", text));
    }
    if let Ok(version) = tree.read("proc/driver/nvidia/version") {
        let text = String::from_utf8_lossy(&version).into_owned();
        seen.extend(text.lines().next().map(|line| Reason::new("driver", line.trim().to_owned())));
    }
    seen
}
