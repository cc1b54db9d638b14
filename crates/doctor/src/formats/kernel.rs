//! Reader of host memory figures in logs: `/proc/meminfo`, `/proc/buddyinfo` and the output of `free`.

use plimsoll_base::Bytes;
use plimsoll_host::BuddyInfo;

use crate::facts::Facts;
use crate::pattern::Pattern;
use crate::sizes::{after, all, behind};

pub(super) fn read(facts: &mut Facts, pattern: Pattern, text: &str) {
    match pattern {
        Pattern::Meminfo => meminfo(facts, text),
        Pattern::Buddyinfo => facts.add_blocks(BuddyInfo::read(text)),
        Pattern::FreeCommand => free_command(facts, text),
        // `amdgpu: 98304M of VRAM memory ready`: `amdgpu_ttm.c:amdgpu_ttm_init`.
        Pattern::KernelVram => {
            let before =
                text.split("M of VRAM memory ready").next().and_then(|before| before.split(' ').next_back());
            let size = before.and_then(|mib| mib.parse::<u32>().ok()).map(|mib| Bytes::mib(mib.into()));
            facts.kernel_vram = facts.kernel_vram.max(size);
        }
        _ => {}
    }
}

fn meminfo(facts: &mut Facts, text: &str) {
    let host = &mut facts.host;
    for (key, field) in [
        ("memtotal", &mut host.total),
        ("memfree", &mut host.free),
        ("memavailable", &mut host.available),
        ("sunreclaim", &mut host.slab_unreclaimable),
        ("cmafree", &mut host.cma_free),
    ] {
        *field = own_word(text, key).or(*field);
    }
    // vLLM's snapshot: `free=66GB cache=51GB available=116GB`.
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
    // `SwapCached:` ends in the same word.
    if text.trim_start().starts_with("Cached:") {
        host.cached = after(text, "cached:").or(host.cached);
    } else if text.contains("Cached=") {
        host.cached = own_word(text, "cached").or(host.cached);
    }
}

/// The size after `key`, if `key` is not the end of another word, as in `NvMapMemFree`.
fn own_word(text: &str, key: &str) -> Option<Bytes> {
    let at = text.len() - behind(text, key)?.len() - key.len();
    let glued = text[..at].ends_with(|c: char| c.is_ascii_alphanumeric());
    let size = after(text, key).filter(|size| *size >= Bytes::kib(1));
    size.or_else(|| bare_gib(text, key)).filter(|_| !glued)
}

/// `MemFree=41.52`: bytes and KiB have no fraction, so a bare number with one is in GiB.
fn bare_gib(text: &str, key: &str) -> Option<Bytes> {
    let rest = behind(text, key)?.trim_start_matches([' ', '=', ':']);
    let digits = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
    let size = all(&format!("{digits} GiB")).map(|(size, _)| size).next();
    size.filter(|_| digits.contains('.'))
}

/// `Mem: 7.3Gi 544Mi 6.1Gi 18Mi 702Mi 6.6Gi`: total, used, free, shared, buff/cache, available.
fn free_command(facts: &mut Facts, text: &str) {
    let Some(rest) = behind(text, "mem:") else { return };
    let sizes: Vec<Bytes> = all(rest).map(|(size, _)| size).collect();
    // Older versions of `free` print no last column, and their second line starts with another word.
    if let [total, _, free, _, cached, available] = sizes[..] {
        let host = &mut facts.host;
        host.total = Some(total);
        host.free = Some(free);
        host.cached = Some(cached);
        host.available = Some(available);
    }
}
