//! Computes which Vulkan memory heaps count against a budget, and how much of them is left to report.

use ash::vk::{self, MemoryHeapFlags, MemoryPropertyFlags};

/// One figure of each heap.
pub(super) type HeapFigures = [u64; vk::MAX_MEMORY_HEAPS];

/// True if memory of this heap is the card's. Where the card uses the host's memory, every heap is.
pub(super) fn counts(memory: &vk::PhysicalDeviceMemoryProperties, heap: usize, integrated: bool) -> bool {
    heap < heap_count(memory)
        && (integrated || memory.memory_heaps[heap].flags.contains(MemoryHeapFlags::DEVICE_LOCAL))
}

/// The heap of a memory type; None for a type that the device does not have.
pub(super) fn heap_of(memory: &vk::PhysicalDeviceMemoryProperties, kind: u32) -> Option<usize> {
    let kind = usize::try_from(kind).ok().filter(|kind| *kind < type_count(memory))?;
    usize::try_from(memory.memory_types[kind].heap_index).ok().filter(|heap| *heap < heap_count(memory))
}

/// Bytes of all heaps that count.
pub(super) fn total(memory: &vk::PhysicalDeviceMemoryProperties, integrated: bool) -> u64 {
    sizes(memory, integrated).iter().fold(0, |sum, size| sum.saturating_add(*size))
}

/// Lowers the sizes of heaps that count, so that their sum is at most `budget`.
pub(super) fn limit_sizes(memory: &mut vk::PhysicalDeviceMemoryProperties, integrated: bool, budget: u64) {
    let shares = shares(&sizes(memory, integrated), budget);
    for (heap, share) in shares.into_iter().enumerate() {
        if counts(memory, heap, integrated) {
            memory.memory_heaps[heap].size = share;
        }
    }
}

/// Lowers the budgets of heaps that count, so that at most `headroom` bytes are left in all of them. `memory`
/// has the sizes that the program is told.
pub(super) fn limit_budgets(
    memory: &vk::PhysicalDeviceMemoryProperties,
    integrated: bool,
    budgets: &mut HeapFigures,
    usages: &mut HeapFigures,
    headroom: u64,
) {
    let mut left = [0; vk::MAX_MEMORY_HEAPS];
    for (heap, left) in left.iter_mut().enumerate() {
        if counts(memory, heap, integrated) {
            *left = budgets[heap].saturating_sub(usages[heap]);
        }
    }
    for (heap, left) in shares(&left, headroom).into_iter().enumerate() {
        // A driver without this extension has left the figures alone.
        if counts(memory, heap, integrated) && budgets[heap] > 0 {
            // Never a budget below the usage, nor of 0 (VK_EXT_memory_budget): ggml subtracts without a sign.
            let usage = usages[heap].min(memory.memory_heaps[heap].size.saturating_sub(left));
            budgets[heap] = usage.saturating_add(left).max(1);
            usages[heap] = budgets[heap] - left;
        }
    }
}

/// The memory type of the host in which a buffer of these types may lie instead of in `kind`.
pub(super) fn host_type(
    memory: &vk::PhysicalDeviceMemoryProperties,
    kind: u32,
    bits: u32,
    integrated: bool,
) -> Option<u32> {
    // Only what a host's memory may have more: it must be mapped as the program expects, and behave the same.
    const MORE: MemoryPropertyFlags = MemoryPropertyFlags::from_raw(
        MemoryPropertyFlags::HOST_VISIBLE.as_raw()
            | MemoryPropertyFlags::HOST_COHERENT.as_raw()
            | MemoryPropertyFlags::HOST_CACHED.as_raw(),
    );
    let wanted =
        memory.memory_types[usize::try_from(kind).ok()?].property_flags & !MemoryPropertyFlags::DEVICE_LOCAL;
    (0..memory.memory_type_count.min(u32::BITS)).find(|other| {
        let Some(heap) = heap_of(memory, *other) else { return false };
        let flags = memory.memory_types[usize::try_from(*other).unwrap_or(0)].property_flags;
        bits & (1 << other) != 0
            && !counts(memory, heap, integrated)
            && flags.contains(wanted | MemoryPropertyFlags::HOST_VISIBLE)
            && (MORE | wanted).contains(flags)
    })
}

/// Divides `most` in the proportion of `figures`, none of which grows. The sum is exact.
fn shares(figures: &HeapFigures, most: u64) -> HeapFigures {
    let sum = figures.iter().fold(0_u128, |sum, figure| sum + u128::from(*figure));
    if sum <= u128::from(most) {
        return *figures;
    }
    let part = |figure: u64| u64::try_from(u128::from(figure) * u128::from(most) / sum).unwrap_or(0);
    let mut parts = figures.map(part);
    // What rounding has left goes to the largest, which has room for it.
    let given: u64 = parts.iter().sum();
    if let Some((_, largest)) = figures.iter().zip(&mut parts).max_by_key(|(figure, _)| **figure) {
        *largest += most - given;
    }
    parts
}

fn sizes(memory: &vk::PhysicalDeviceMemoryProperties, integrated: bool) -> HeapFigures {
    let mut sizes = [0; vk::MAX_MEMORY_HEAPS];
    for (heap, size) in sizes.iter_mut().enumerate() {
        if counts(memory, heap, integrated) {
            *size = memory.memory_heaps[heap].size;
        }
    }
    sizes
}

fn heap_count(memory: &vk::PhysicalDeviceMemoryProperties) -> usize {
    usize::try_from(memory.memory_heap_count).unwrap_or(0).min(vk::MAX_MEMORY_HEAPS)
}

fn type_count(memory: &vk::PhysicalDeviceMemoryProperties) -> usize {
    usize::try_from(memory.memory_type_count).unwrap_or(0).min(vk::MAX_MEMORY_TYPES)
}

#[cfg(test)]
mod tests;
