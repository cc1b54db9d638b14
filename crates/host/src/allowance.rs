//! Computes how much host memory a GPU driver can allocate, now and after reclaim.

use plimsoll_base::{Bytes, Order, Reason};

use super::{Chip, Driver, HostSnapshot, Release};

/// The kernel figure that limits a driver's request: free or available memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllowanceGate {
    /// Free memory only: page cache counts as used.
    Free,
    /// Available memory: the kernel reclaims page cache for the request.
    Available,
}

// DECISION: `now` is the largest request that succeeds without reclaim; `attainable` is that size after all
// clean file pages are dropped. Drivers that let the kernel reclaim are limited by MemAvailable, others by
// MemFree. Both exclude pages of the contiguous pool (CMA).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    pub gate: AllowanceGate,
    pub now: Bytes,
    /// At least `now`.
    pub attainable: Bytes,
    /// Says both numbers, and every limit with its arithmetic, the tightest first.
    pub reason: Reason,
}

/// One limit on allocatable memory, with its reason.
struct AllowanceBound {
    bytes: Bytes,
    /// Dropping page cache raises it.
    moves: bool,
    name: String,
    reason: Reason,
}

impl AllowanceBound {
    /// A limit that dropping page cache does not raise.
    fn fixed(bytes: Bytes, name: impl Into<String>, code: &'static str, text: String) -> Self {
        Self { bytes, moves: false, name: name.into(), reason: Reason::new(code, text).fact("bytes", bytes) }
    }
}

/// Computes the allocatable memory for `gate`, or for the gate of the machine's driver; `None` where
/// `/proc/meminfo` lacks the figures.
pub fn allowance(snapshot: &HostSnapshot, gate: Option<AllowanceGate>) -> Option<Allowance> {
    let (known, why) = usual_gate(snapshot);
    let gate = gate.unwrap_or(known);
    let available = available(snapshot)?;
    let mut bounds = vec![available];
    if gate == AllowanceGate::Free {
        bounds.push(free(snapshot)?);
    }
    // debugfs, so only for root; NvMap's figure includes its own caps.
    bounds.extend(kernels_word(snapshot));
    bounds.extend(cap(snapshot));
    bounds.extend(groups(snapshot));
    // The tightest limit decides, and is named first in the explanation.
    bounds.order_by_key(|bound| bound.bytes);
    let now = bounds.first()?.bytes;
    let attainable = bounds.iter().filter(|bound| !bound.moves).map(|bound| bound.bytes).min();
    // Limits that reclaim does not raise bound the result; a stale figure must not put it below `now`.
    let attainable = attainable.unwrap_or(now).max(now);
    let stated = format!("{now} can be allocated now, limited by {}", bounds.first()?.name);
    let mut reason = Reason::new("allowance", stated)
        .fact("now", now)
        .fact("attainable", attainable)
        .because_all(bounds.into_iter().map(|bound| bound.reason));
    // A gate that the caller chose has no evidence to show.
    if gate == known {
        reason = reason.because(why);
    }
    reason = reason.because_all(cap_of_unknown_size(snapshot));
    Some(Allowance { gate, now, attainable, reason })
}

/// The gate of this machine's driver, and the evidence for it.
fn usual_gate(snapshot: &HostSnapshot) -> (AllowanceGate, Reason) {
    let (gate, text) = match (snapshot.driver(), snapshot.release) {
        (None, _) => (
            AllowanceGate::Available,
            "no driver of this machine counts page cache as used: the kernel drops it for allocations"
                .to_owned(),
        ),
        (Some(Driver::NvidiaUnified), _) => (
            AllowanceGate::Free,
            format!(
                "the driver nvidia.ko on {} counts page cache as used: cudaMemGetInfo returns MemFree",
                snapshot.chip.map_or("this chip", Chip::name)
            ),
        ),
        (Some(Driver::Nvmap), Some(release)) if !release.gives_up_early() => (
            AllowanceGate::Available,
            format!("NvMap of {release} lets the kernel drop page cache for its requests"),
        ),
        (Some(Driver::Nvmap), Some(release)) => (
            AllowanceGate::Free,
            format!(
                "NvMap of {release} does not make the kernel drop page cache: an allocation fails while \
                page cache fills the memory"
            ),
        ),
        (Some(Driver::Nvmap), None) => (
            AllowanceGate::Free,
            "the release of Jetson Linux is unknown, so only free memory is counted".to_owned(),
        ),
    };
    (gate, Reason::new("gate", text))
}

fn available(snapshot: &HostSnapshot) -> Option<AllowanceBound> {
    let memory = &snapshot.memory;
    let bytes = memory.available_without_cma()?;
    let pool = memory.cma_free.unwrap_or_default();
    let stated = memory.available.unwrap_or_default();
    let mut text = format!("the kernel estimates that {stated} is available without swapping (MemAvailable)");
    if !pool.is_zero() {
        text += &format!(
            ", of which {pool} are in the contiguous pool (CmaFree), which drivers cannot use; {bytes} remain"
        );
    }
    // nvmap_dev.c: system_heap_free_mem takes a sixteenth off for page colouring, on Xavier alone.
    let colouring = snapshot.chip == Some(Chip::Tegra194);
    let bytes = if colouring { bytes.scaled(15, 16) } else { bytes };
    if colouring {
        text += &format!("; on Xavier, page colouring takes a sixteenth of that, so {bytes} remain");
    }
    let name = "the kernel's estimate of available memory";
    Some(AllowanceBound::fixed(bytes, name, "available", text))
}

fn free(snapshot: &HostSnapshot) -> Option<AllowanceBound> {
    let memory = &snapshot.memory;
    let (free, pool) = (memory.free?, memory.cma_free.unwrap_or_default());
    let (bytes, withheld) = match &snapshot.zones {
        Some(zones) if !zones.zones.is_empty() => {
            let kept = zones.deferred(snapshot.page);
            (
                zones.usable(snapshot.page),
                format!("{kept} that the kernel's watermarks and reserves withhold"),
            )
        }
        _ => (memory.free_without_cma()?, "an unknown part that the kernel's watermarks withhold".to_owned()),
    };
    let text = format!(
        "{free} are free (MemFree), less {pool} in the contiguous pool and {withheld}; {bytes} remain"
    );
    Some(AllowanceBound { moves: true, ..AllowanceBound::fixed(bytes, "free memory", "free", text) })
}

fn kernels_word(snapshot: &HostSnapshot) -> Option<AllowanceBound> {
    let bytes = snapshot.nvmap_allocatable?;
    let text = format!("NvMap itself reports {bytes} as available (iovmm/free_size)");
    Some(AllowanceBound::fixed(bytes, "NvMap's own figure", "nvmap_free_size", text))
}

/// A release with the cap, on a board of which its size is known.
fn cap(snapshot: &HostSnapshot) -> Option<AllowanceBound> {
    let release = snapshot.release?;
    let (given, refused) = release.nvmap_fault()?.seen_on(snapshot.memory.total?)?;
    let used = snapshot.memory.nvmap_used.unwrap_or_default();
    let bytes = given.saturating_sub(used);
    let mut text = format!(
        "NvMap of {release} refuses large allocations no matter how much is free; users of such boards \
            report that {given} in total succeeded and {refused} failed"
    );
    if !used.is_zero() {
        text += &format!("; {used} are in use (NvMapMemUsed), so {bytes} remain");
    }
    let mut bound =
        AllowanceBound::fixed(bytes, format!("the limit that {release} sets"), "nvmap_policy_cap", text);
    bound.reason = bound.reason.because(remedy(release));
    Some(bound)
}

fn cap_of_unknown_size(snapshot: &HostSnapshot) -> Option<Reason> {
    let release = snapshot.release?;
    let fault = release.nvmap_fault()?;
    let known = snapshot.memory.total.and_then(|total| fault.seen_on(total)).is_some();
    let text = format!(
        "NvMap of {release} refuses large allocations no matter how much is free; the limit for a board of \
            this size \
            is unknown"
    );
    (!known).then(|| Reason::new("nvmap_policy_cap", text).because(remedy(release)))
}

fn remedy(release: Release) -> Reason {
    let fixed = release.nvmap_fault().and_then(|fault| fault.fixed_in);
    let to = fixed.map_or_else(|| "a later release".to_owned(), |fixed| format!("{fixed} or later"));
    Reason::new("upgrade", format!("reclaiming memory does not help; upgrade to {to}"))
}

/// Limits of containers: of every request where the kernel lets go of cache by itself, and of a driver's
/// where it is charged.
fn groups(snapshot: &HostSnapshot) -> Vec<AllowanceBound> {
    // NvMap before that fix allocates outside any memory cgroup.
    let uncharged = |release: Release| !release.gives_up_early();
    if snapshot.driver() == Some(Driver::Nvmap) && snapshot.release.is_some_and(uncharged) {
        return Vec::new();
    }
    let total = snapshot.memory.total.unwrap_or(Bytes::MAX);
    // A limit at or above the machine's memory never binds; v1 writes a huge number for none.
    let binding = snapshot.limits.iter().filter(|limit| limit.limit < total);
    let bound = |limit: &super::CgroupLimit| {
        let (bytes, group) = (limit.room(), &limit.group);
        let text = format!(
            "the memory limit of cgroup /{group} is {}; {} are in use, page cache not counted, so {bytes} \
                remain",
            limit.limit, limit.used
        );
        AllowanceBound::fixed(bytes, format!("the limit of cgroup /{group}"), "container_limit", text)
    };
    binding.map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::tests::Written;
    use super::*;

    const MEMINFO: &str =
        "MemTotal: 7802664 kB\nMemFree: 3168256 kB\nMemAvailable: 5570560 kB\nCmaFree: 204800 kB\n";
    const COMPATIBLE: &str = "nvidia,p3767-0005\0nvidia,tegra234\0";
    const ZONES: &str =
        "Node 0, zone Normal\n pages free 792064\n low 10240\n protection: (0, 0)\n nr_free_cma 51200\n";

    fn on(files: &[(&str, &str)]) -> Allowance {
        allowance(&HostSnapshot::gather(&Written::of(files)), None).unwrap()
    }

    fn orin(release: &str) -> Allowance {
        let text = format!("# R{} (release), REVISION: {}, GCID: 1\n", &release[..2], &release[3..]);
        on(&[
            ("proc/meminfo", MEMINFO),
            ("proc/zoneinfo", ZONES),
            ("proc/device-tree/compatible", COMPATIBLE),
            ("etc/nv_tegra_release", &text),
        ])
    }

    #[test]
    fn an_early_release_goes_by_available_memory_without_the_contiguous_pool() {
        let allowance = orin("36.4.3");
        assert_eq!((allowance.gate, allowance.now), (AllowanceGate::Available, Bytes::mib(5440 - 200)));
        assert_eq!(allowance.attainable, allowance.now);
    }

    #[test]
    fn a_late_release_goes_by_free_memory_and_the_difference_is_for_reclaim() {
        let allowance = orin("36.5.0");
        assert_eq!((allowance.gate, allowance.now), (AllowanceGate::Free, Bytes::mib(3094 - 200 - 40)));
        assert_eq!(allowance.attainable, Bytes::mib(5240));
        assert!(allowance.reason.text.ends_with("limited by free memory"), "{}", allowance.reason);
    }

    #[test]
    fn a_capped_release_is_capped_and_an_upgrade_is_the_remedy() {
        let allowance = orin("36.4.7");
        assert_eq!(allowance.attainable, Bytes::mib(3932));
        let stated = allowance.reason.to_string();
        assert!(stated.contains("upgrade to R36.5.0 or later"), "{stated}");
        assert!(!stated.contains("1075072515"), "{stated}");
    }

    #[test]
    fn page_cache_counts_as_used_on_gb10_and_not_on_a_server() {
        let spark = ("proc/driver/nvidia/gpus/000f:01:00.0/information", "Model: NVIDIA GB10\n");
        assert_eq!(on(&[("proc/meminfo", MEMINFO), spark]).now, Bytes::mib(2894));
        let server = on(&[("proc/meminfo", MEMINFO)]);
        assert_eq!((server.gate, server.now), (AllowanceGate::Available, Bytes::mib(5240)));
    }

    #[test]
    fn a_containers_limit_binds_and_one_beyond_the_machine_does_not() {
        let files = |limit: &'static str| {
            [
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "0::/app\n"),
                ("sys/fs/cgroup/app/memory.max", limit),
                ("sys/fs/cgroup/app/memory.current", "536870912\n"),
            ]
        };
        let bound = on(&files("1073741824\n"));
        assert_eq!((bound.now, bound.attainable), (Bytes::mib(512), Bytes::mib(512)));
        assert!(bound.reason.text.contains("/sys/fs/cgroup/app"), "{}", bound.reason);
        assert_eq!(on(&files("9223372036854771712\n")).now, Bytes::mib(5240));
    }

    #[test]
    fn the_kernels_own_figure_is_a_limit_and_nothing_is_made_of_nothing() {
        let free_size =
            ("sys/kernel/debug/nvmap/iovmm/free_size", "Max allocatable IOVMM memory: 1048576 bytes\n");
        assert_eq!(on(&[("proc/meminfo", MEMINFO), free_size]).now, Bytes::mib(1));
        assert_eq!(allowance(&HostSnapshot::gather(&Written::of(&[])), None), None);
    }
}
