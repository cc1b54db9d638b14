//! The card, the kernel and the host's memory, as single lines of any log tell them.

use plimsoll_base::Bytes;
use plimsoll_host::{BuddyInfo, Release, TegraStats};

use super::named;
use crate::evidence::{Evidence, Holder, Quote, Usage};
use crate::saying::Saying;
use crate::sizes::{after, all, behind, count, count_after};

const MOST: usize = 64;

pub(super) fn read(evidence: &mut Evidence, saying: Saying, text: &str, quote: &Quote) {
    match saying {
        Saying::CardSize => card(evidence, text),
        Saying::CardFree => card_at_start(evidence, text),
        Saying::Xid => xid(evidence, text, quote),
        Saying::Meminfo => meminfo(evidence, text),
        Saying::Buddyinfo => buddyinfo(evidence, text),
        Saying::Tegrastats => tegrastats(evidence, text),
        Saying::FreeCommand => free_command(evidence, text),
        Saying::SmiProcess => holder(evidence, text, quote),
        Saying::Release => evidence.release = release(text).or(evidence.release),
        Saying::CardUsed => usage(evidence, text, quote),
        Saying::CardTotals => totals(evidence, text),
        _ => {}
    }
}

/// `VRAM: 45490 MiB`, `24 GB VRAM`.
fn card(evidence: &mut Evidence, text: &str) {
    let total = after(text, "vram: ")
        .or_else(|| after(text, "vram "))
        .filter(|size| *size >= Bytes::mib(256))
        .or_else(|| {
            let named = all(text).find(|(_, behind)| {
                let word = behind.trim_start().to_ascii_lowercase();
                word.starts_with("vram") || word.starts_with("of vram") || word.starts_with("gpu")
            });
            named.map(|(size, _)| size)
        });
    if let Some(total) = total
        && evidence.cards.len() < MOST
    {
        evidence.cards.push(total);
    }
}

/// `using device CUDA0 (NVIDIA GeForce RTX 3090) - 6210 MiB free`, `CUDA0 : NVIDIA GeForce RTX 3090 (24123 MiB, 23755 MiB free)`; the emptiest of several.
fn card_at_start(evidence: &mut Evidence, text: &str) {
    let mut before = None;
    for (size, behind) in all(text) {
        let behind = behind.trim_start();
        let free = ["free", "of free", "memory:  ->"]
            .iter()
            .any(|words| behind.starts_with(words));
        if free && !text.contains("CPU") {
            evidence.card_free = evidence.card_free.max(Some(size));
            // The plan of a fit stands before what is free, and is no total.
            let before = before.filter(|_| behind.starts_with("free"));
            // A total that was printed outweighs a name: it may be a part of the card.
            let named = || named::card(text).filter(|_| evidence.cards.is_empty());
            let total = before.or_else(named).filter(|total| *total >= size);
            evidence
                .cards
                .extend(total.filter(|_| evidence.cards.len() < MOST));
            return;
        }
        before = Some(size);
    }
}

/// `NVRM: Xid (PCI:0000:07:00): 31, pid=…`, and `Xid 79` as people write it.
fn xid(evidence: &mut Evidence, text: &str, quote: &Quote) {
    let code = behind(text, "xid (")
        .and_then(|rest| rest.split_once("): "))
        .and_then(|(_, rest)| count(rest))
        .or_else(|| count_after(text, "xid"));
    if let Some(code) = code.filter(|code| *code < 1000)
        && evidence.xids.len() < MOST
    {
        evidence.xids.push((code, quote.clone()));
    }
}

fn meminfo(evidence: &mut Evidence, text: &str) {
    let host = &mut evidence.host;
    for (key, field) in [
        ("memtotal", &mut host.total),
        ("memfree", &mut host.free),
        ("memavailable", &mut host.available),
        ("sunreclaim", &mut host.slab_unreclaimable),
        ("cmafree", &mut host.cma_free),
    ] {
        *field = own_word(text, key).or(*field);
    }
    // `free=66GB cache=51GB available=116GB`
    if let (Some(free), Some(available)) = (after(text, "free="), after(text, "available="))
        && text.contains("cache=")
    {
        host.free = Some(free);
        host.available = Some(available);
    }
    if let (Some(free), Some(available)) = (own_word(text, "memfree"), own_word(text, "memavailable")) {
        host.highest_free = host.highest_free.max(Some(free));
        if host.lowest.is_none_or(|(lowest, _)| free < lowest) {
            host.lowest = Some((free, available));
        }
    }
    if text.trim_start().starts_with("Cached:") {
        host.cached = after(text, "cached:").or(host.cached);
    } else if text.contains("Cached=") {
        host.cached = own_word(text, "cached").or(host.cached);
    }
}

/// The size behind `key` where it is not the end of another word, as in `NvMapMemFree`.
fn own_word(text: &str, key: &str) -> Option<Bytes> {
    let at = text.len() - behind(text, key)?.len() - key.len();
    let glued = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let size = after(text, key).filter(|size| *size >= Bytes::kib(1));
    size.or_else(|| bare_gib(text, key)).filter(|_| !glued)
}

/// `MemFree=41.52`: bytes have no fraction, so that a bare one is of GiB.
fn bare_gib(text: &str, key: &str) -> Option<Bytes> {
    let rest = behind(text, key)?.trim_start_matches([' ', '=', ':']);
    let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let fraction = digits.contains('.');
    all(&format!("{digits} GiB"))
        .map(|(size, _)| size)
        .next()
        .filter(|_| fraction)
}

/// Zones of one reading are of one machine; a later reading of the same zones takes their place.
fn buddyinfo(evidence: &mut Evidence, text: &str) {
    for zone in BuddyInfo::read(text).zones {
        let zones = &mut evidence.blocks.zones;
        let same = zones
            .iter()
            .position(|other| (other.node, &other.zone) == (zone.node, &zone.zone));
        match same {
            Some(at) => zones[at] = zone,
            None if zones.len() < MOST => zones.push(zone),
            None => {}
        }
    }
}

fn tegrastats(evidence: &mut Evidence, text: &str) {
    // What the kernel itself says is more than used from total.
    if let Some(stats) = TegraStats::read(text)
        && !evidence.says(Saying::Meminfo)
    {
        evidence.host.total = Some(stats.total);
        evidence.host.available = Some(stats.total.saturating_sub(stats.used));
    }
}

/// `Mem: 7.3Gi 544Mi 6.1Gi 18Mi 702Mi 6.6Gi`: total, used, free, shared, buff/cache, available.
fn free_command(evidence: &mut Evidence, text: &str) {
    let Some(rest) = behind(text, "mem:") else { return };
    let sizes: Vec<Bytes> = all(rest).map(|(size, _)| size).collect();
    if let [total, _, free, _, cached, available] = sizes[..] {
        let host = &mut evidence.host;
        host.total = Some(total);
        host.free = Some(free);
        host.cached = Some(cached);
        host.available = Some(available);
    }
}

/// `|    0   N/A  N/A      1234      C   python3            12345MiB |`: card, process, kind, name, memory.
fn holder(evidence: &mut Evidence, text: &str, quote: &Quote) {
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !matches!(*word, "|" | "N/A"))
        .collect();
    // Type is C, G or C+G, which no other table of nvidia-smi has.
    let [card, pid, kind, .., name, _] = words[..] else {
        return;
    };
    // NVML's word for a process that has no name any more.
    if matches!(name, "Error" | "Found]" | "[N/A]" | "-") && matches!(kind, "C" | "G" | "C+G" | "M+C") {
        evidence.note(Saying::Nameless, quote);
    }
    if let Some((used, _)) = all(text).last()
        && matches!(kind, "C" | "G" | "C+G" | "M+C")
        && evidence.holders.len() < MOST
    {
        evidence.holders.push(Holder {
            card: card.parse().ok(),
            pid: pid.parse().ok(),
            name: name.to_owned(),
            used,
            quote: quote.clone(),
        });
    }
}

/// TensorFlow's `Total memory: 7.92GiB` and `Free memory: 190.31MiB`, of each card before it takes anything.
fn totals(evidence: &mut Evidence, text: &str) {
    if let Some(total) = after(text, "total memory: ")
        .or_else(|| after(text, "totalmemory: "))
        .filter(|size| *size >= Bytes::mib(256))
        && evidence.cards.len() < MOST
    {
        evidence.cards.push(total);
    }
    evidence.card_free = evidence
        .card_free
        .max(after(text, "free memory: ").or_else(|| after(text, "freememory: ")));
}

/// `| N/A   36C    P0    41W / 300W |  12799MiB / 16280MiB |      0%      Default |`.
fn usage(evidence: &mut Evidence, text: &str, quote: &Quote) {
    let cells = text.split('|').find(|cell| cell.contains("MiB /"));
    let sizes: Vec<Bytes> = cells.into_iter().flat_map(all).map(|(size, _)| size).collect();
    if let [used, total] = sizes[..]
        && used <= total
        && evidence.usage.as_ref().is_none_or(|fullest| used > fullest.used)
    {
        let quote = quote.clone();
        evidence.usage = Some(Usage { used, total, quote });
    }
}

/// The line of `/etc/nv_tegra_release`, `L4T 36.4.7` or `R36.4.7`.
fn release(text: &str) -> Option<Release> {
    Release::read(text).or_else(|| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
        let releases = words.filter_map(|word| word.trim_end_matches('.').parse::<Release>().ok());
        releases
            .into_iter()
            .find(|release| (32..=39).contains(&release.major))
    })
}
