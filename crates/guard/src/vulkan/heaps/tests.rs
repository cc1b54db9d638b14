use super::*;

const LOCAL: u32 = MemoryPropertyFlags::DEVICE_LOCAL.as_raw();
const MAPPED: u32 = MemoryPropertyFlags::HOST_VISIBLE.as_raw() | MemoryPropertyFlags::HOST_COHERENT.as_raw();
const CACHED: u32 = MemoryPropertyFlags::HOST_CACHED.as_raw();
const PROTECTED: u32 = MemoryPropertyFlags::PROTECTED.as_raw();

/// Heaps with their sizes, those of the card first, and types with their flags and heaps.
fn memory(card: &[u64], host: &[u64], types: &[(u32, u32)]) -> vk::PhysicalDeviceMemoryProperties {
    let mut memory = vk::PhysicalDeviceMemoryProperties {
        memory_heap_count: u32::try_from(card.len() + host.len()).unwrap(),
        memory_type_count: u32::try_from(types.len()).unwrap(),
        ..Default::default()
    };
    for (heap, size) in card.iter().chain(host).enumerate() {
        memory.memory_heaps[heap].size = *size;
        if heap < card.len() {
            memory.memory_heaps[heap].flags = MemoryHeapFlags::DEVICE_LOCAL;
        }
    }
    for (place, (flags, heap)) in memory.memory_types.iter_mut().zip(types) {
        *place = vk::MemoryType { property_flags: MemoryPropertyFlags::from_raw(*flags), heap_index: *heap };
    }
    memory
}

/// A Radeon whose small window is a heap of its own: card, window, host.
fn radeon() -> vk::PhysicalDeviceMemoryProperties {
    memory(&[900, 100], &[5000], &[(LOCAL, 0), (MAPPED, 2), (LOCAL | MAPPED, 1), (MAPPED | CACHED, 2)])
}

fn sizes_of(memory: &vk::PhysicalDeviceMemoryProperties) -> Vec<u64> {
    memory.memory_heaps.iter().map(|heap| heap.size).take_while(|size| *size > 0).collect()
}

#[test]
fn heaps_of_the_card_count_and_on_an_integrated_one_every_heap() {
    assert_eq!((total(&radeon(), false), total(&radeon(), true)), (1000, 6000));
    assert!(counts(&radeon(), 1, false) && !counts(&radeon(), 2, false) && !counts(&radeon(), 3, true));
    assert_eq!((heap_of(&radeon(), 2), heap_of(&radeon(), 4)), (Some(1), None));
}

#[test]
fn sizes_together_are_the_budget_and_never_grow() {
    let limited = |budget, integrated| {
        let mut memory = radeon();
        limit_sizes(&mut memory, integrated, budget);
        sizes_of(&memory)
    };
    assert_eq!(limited(500, false), [450, 50, 5000]);
    assert_eq!(limited(501, false), [451, 50, 5000]);
    assert_eq!(limited(2000, false), [900, 100, 5000]);
    assert_eq!(limited(600, true), [90, 10, 500]);
}

/// Budgets and usages of three heaps after the limit, with the bytes that are left.
fn limited(budgets: [u64; 3], usages: [u64; 3], budget: u64, headroom: u64) -> Vec<(u64, u64, u64)> {
    let mut memory = radeon();
    limit_sizes(&mut memory, false, budget);
    let widen = |figures: [u64; 3]| {
        let mut all = [0; vk::MAX_MEMORY_HEAPS];
        all[..3].copy_from_slice(&figures);
        all
    };
    let (mut budgets, mut usages) = (widen(budgets), widen(usages));
    limit_budgets(&memory, false, &mut budgets, &mut usages, headroom);
    let figures =
        budgets.iter().zip(&usages).map(|(budget, usage)| (*budget, *usage, budget.saturating_sub(*usage)));
    figures.take(3).collect()
}

#[test]
fn the_smaller_of_the_budgets_rest_and_the_cards_is_left() {
    let usual = limited([900, 100, 5000], [300, 0, 7], 500, 200);
    assert_eq!(usual, [(450, 278, 172), (28, 0, 28), (5000, 7, 4993)]);
    // The card itself has less: others hold the rest.
    assert_eq!(limited([310, 0, 5000], [300, 0, 0], 500, 200)[0], (310, 300, 10));
}

#[test]
fn a_budget_is_never_below_the_usage_and_never_nothing() {
    for (budgets, usages, headroom) in
        [([900, 100, 5000], [0; 3], 0), ([900, 100, 5000], [900, 100, 0], 0), ([100, 1, 1], [900, 9, 9], 77)]
    {
        for (budget, usage, _) in limited(budgets, usages, 500, headroom).into_iter().take(2) {
            assert!(budget >= usage && budget > 0, "{budget} {usage}");
        }
    }
}

#[test]
fn a_driver_without_budgets_is_left_alone() {
    assert_eq!(limited([0; 3], [0; 3], 500, 200), [(0, 0, 0); 3]);
}

#[test]
fn a_buffer_goes_to_memory_of_the_host_that_it_may_lie_in_and_that_behaves_the_same() {
    let of = |kind, bits| host_type(&radeon(), kind, bits, false);
    assert_eq!((of(0, 0b1111), of(0, 0b1000), of(0, 0b0101)), (Some(1), Some(3), None));
    assert_eq!(of(2, 0b1111), Some(1));
    // Where the host's memory is the card's there is no other place.
    assert_eq!(host_type(&radeon(), 0, 0b1111, true), None);
    let odd =
        memory(&[9], &[9], &[(LOCAL, 0), (MAPPED | PROTECTED, 1), (LOCAL | MAPPED | CACHED, 0), (MAPPED, 1)]);
    assert_eq!((host_type(&odd, 0, 0b1111, false), host_type(&odd, 2, 0b1111, false)), (Some(3), None));
}
