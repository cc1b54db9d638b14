//! Reads how much GPU memory each process holds, from the kernel's files `/proc/PID/fdinfo/FD` of descriptors
//! that are open on a GPU.
//!
//! The format is the kernel's (`drm-usage-stats.rst`): one key on each line, sizes in bytes, KiB or MiB.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::Bytes;

use super::files::CardFiles;

/// A real file has some thirty lines.
const MOST_LINES: usize = 512;

/// One client of a GPU, as one of its descriptors reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuClient {
    pub(super) driver: String,
    pub(super) address: Option<String>,
    /// Number of the client, the same on each of its descriptors.
    pub(super) number: Option<u64>,
    /// What the driver moved off the card, or put elsewhere at once.
    evicted: Option<Bytes>,
    regions: BTreeMap<String, RegionFigures>,
}

/// Three generations of keys for the memory of one region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RegionFigures {
    resident: Option<Bytes>,
    total: Option<Bytes>,
    memory: Option<Bytes>,
}

/// Memory of a client or a process, on the card and in the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GpuUse {
    pub(super) on_card: Option<Bytes>,
    pub(super) on_host: Option<Bytes>,
    /// The part of it that belongs on the card, where the driver says so.
    pub(super) evicted: Option<Bytes>,
}

impl GpuUse {
    /// The larger one of each: two reports on the same memory.
    pub(super) fn larger(self, other: Self) -> Self {
        Self {
            on_card: self.on_card.max(other.on_card),
            on_host: self.on_host.max(other.on_host),
            evicted: self.evicted.max(other.evicted),
        }
    }

    fn plus(self, other: Self) -> Self {
        let sum = |one: Option<Bytes>, other: Option<Bytes>| match (one, other) {
            (Some(one), Some(other)) => Some(saturating_sum(one, other)),
            (known, None) | (None, known) => known,
        };
        Self {
            on_card: sum(self.on_card, other.on_card),
            on_host: sum(self.on_host, other.on_host),
            evicted: sum(self.evicted, other.evicted),
        }
    }

    pub(super) fn sum(self) -> Option<Bytes> {
        match (self.on_card, self.on_host) {
            (Some(card), Some(host)) => Some(saturating_sum(card, host)),
            (known, None) | (None, known) => known,
        }
    }
}

pub(super) fn saturating_sum(one: Bytes, other: Bytes) -> Bytes {
    Bytes::new(one.get().saturating_add(other.get()))
}

impl GpuClient {
    /// `None` for a file that is not of a GPU.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut client = Self::default();
        for line in text.lines().take(MOST_LINES) {
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "drm-driver" => value.clone_into(&mut client.driver),
                "drm-pdev" => client.address = Some(value.to_owned()),
                "drm-client-id" => client.number = value.parse().ok(),
                // Older kernels print it below other names only, which say nothing of where it belongs.
                "amd-evicted-vram" => client.evicted = size(value),
                _ => client.take_region(key, value),
            }
        }
        (!client.driver.is_empty()).then_some(client)
    }

    fn take_region(&mut self, key: &str, value: &str) {
        let Some((kind, region)) = key.strip_prefix("drm-").and_then(|rest| rest.split_once('-')) else {
            return;
        };
        let figure: fn(&mut RegionFigures) -> &mut Option<Bytes> = match kind {
            "resident" => |region| &mut region.resident,
            "total" => |region| &mut region.total,
            "memory" => |region| &mut region.memory,
            _ => return,
        };
        if let Some(bytes) = size(value) {
            *figure(self.regions.entry(region.to_owned()).or_default()) = Some(bytes);
        }
    }

    /// What is resident is what is taken; older kernels state what was allocated.
    pub(super) fn usage(&self) -> GpuUse {
        let mut usage = GpuUse { evicted: self.evicted, ..GpuUse::default() };
        for (region, figures) in &self.regions {
            let bytes = figures.resident.or(figures.total).or(figures.memory);
            let one = if is_on_card(region) {
                GpuUse { on_card: bytes, ..GpuUse::default() }
            } else if is_on_host(region) {
                GpuUse { on_host: bytes, ..GpuUse::default() }
            } else {
                continue;
            };
            usage = usage.plus(one);
        }
        usage
    }
}

/// `vram` (amdgpu), `vram0` (xe), `local0` (i915).
fn is_on_card(region: &str) -> bool {
    region.starts_with("vram") || region.starts_with("local")
}

/// `gtt` (amdgpu, xe), `system` (xe), `system0` and `stolen-system0` (i915), `stolen` (xe).
fn is_on_host(region: &str) -> bool {
    ["gtt", "system", "stolen-system", "stolen"].iter().any(|name| {
        region.strip_prefix(name).is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn size(text: &str) -> Option<Bytes> {
    let (number, unit) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let scale = match unit.trim() {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        _ => return None,
    };
    Bytes::new(number.parse().ok()?).checked_mul(scale)
}

/// Memory by process and by PCI address of the card.
///
/// A client counts once for its card, however many descriptors and processes have it: the first process by
/// number has it. A process that ended in the meantime has no files.
pub(super) fn processes(files: &impl CardFiles) -> BTreeMap<(u32, String), GpuUse> {
    let mut seen = BTreeSet::new();
    let mut used: BTreeMap<(u32, String), GpuUse> = BTreeMap::new();
    let mut pids: Vec<u32> = files.list("proc").iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        for descriptor in files.descriptors(pid) {
            let text = files.text(&format!("proc/{pid}/fdinfo/{descriptor}"));
            let Some(client) = text.as_deref().and_then(GpuClient::parse) else { continue };
            let Some(address) = client.address.clone() else { continue };
            let usage = client.usage();
            if let Some(number) = client.number
                && !seen.insert((address.clone(), number))
            {
                continue;
            }
            let sum = used.entry((pid, address)).or_default();
            *sum = match client.number {
                Some(_) => sum.plus(usage),
                // Kernels before 5.19 number no client, so two descriptors may report the same memory.
                None => sum.larger(usage),
            };
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_keys_are_preferred_and_units_are_read() {
        let client = GpuClient::parse(
            "pos:\t0\nflags:\t02100002\ndrm-driver:\tamdgpu\ndrm-client-id:\t24\ndrm-pdev:\t0000:c4:00.0\n\
             drm-memory-vram:\t9999 KiB\ndrm-total-vram:\t8 MiB\ndrm-resident-vram:\t5348 KiB\n\
             drm-memory-gtt:\t25258000 KiB\ndrm-memory-cpu:\t1 KiB\ndrm-shared-vram:\t4 KiB\n\
             drm-engine-gfx:\t123456 ns\namd-evicted-vram:\t7 KiB\n",
        )
        .unwrap();
        assert_eq!((client.address.as_deref(), client.number), (Some("0000:c4:00.0"), Some(24)));
        let usage = client.usage();
        assert_eq!(usage.on_card, Some(Bytes::kib(5348)));
        assert_eq!(usage.on_host, Some(Bytes::kib(25_258_000)));
        assert_eq!(usage.evicted, Some(Bytes::kib(7)));
    }

    #[test]
    fn intels_regions_are_recognised_by_their_names() {
        let usage = |lines: &str| GpuClient::parse(&format!("drm-driver: x\n{lines}")).unwrap().usage();
        let xe = usage("drm-resident-vram0: 3 MiB\ndrm-resident-system: 1 MiB\ndrm-resident-gtt: 2 MiB\n");
        assert_eq!((xe.on_card, xe.on_host), (Some(Bytes::mib(3)), Some(Bytes::mib(3))));
        let i915 =
            usage("drm-resident-local0: 4 MiB\ndrm-total-system0: 1 MiB\ndrm-total-stolen-local0: 9\n");
        assert_eq!((i915.on_card, i915.on_host), (Some(Bytes::mib(4)), Some(Bytes::mib(1))));
        assert_eq!(usage("drm-engine-render: 5 ns\n"), GpuUse::default());
        assert_eq!(GpuClient::parse("pos: 0\nflags: 02\n"), None);
    }

    #[test]
    fn sizes_that_are_none_are_unknown() {
        for text in ["", "x", "-1", "5 GiB", "5KiB", "99999999999999999999", "18446744073709551615 MiB"] {
            assert_eq!(size(text), None, "{text}");
        }
    }
}
