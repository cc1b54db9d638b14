//! Hooks of Vulkan's memory functions, which count allocations and keep them within the budget.

use alloc::vec::Vec;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;

use ash::vk::{self, Handle};

use super::chain::structure;
use super::device::Device;
use super::heaps::{counts, heap_of, host_type};
use super::requests::StatedBuffer;
use super::shared::SHARED;
use super::table::find_device;
use crate::account::claim::ClaimOutcome;
use crate::account::spilled;
use crate::arm::armed;
use crate::driver::{CuResult, OUT_OF_MEMORY, SUCCESS};
use crate::ladder::{self, Attempt};
use crate::state::{CardIndex, card, ledger, page};
use crate::trace::{self, TraceEvent, TraceKind};

/// The memory of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemoryBlock {
    pub(super) size: u64,
    place: BlockPlace,
    /// Its number in the trace.
    pub(super) id: u64,
}

#[derive(Clone, Copy, Debug)]
enum BlockPlace {
    /// Heaps of these cards.
    Cards(CardSet),
    /// The host's heap, although it was requested on this card.
    Spilled(CardIndex),
    /// The host's heap, as the program requested.
    Host,
}

/// Guarded cards, a bit for each place on the page.
#[derive(Clone, Copy, Debug)]
struct CardSet(u32);

impl CardSet {
    fn of(cards: impl Iterator<Item = CardIndex>) -> Self {
        Self(cards.fold(0, |set, index| set | 1 << index.place()))
    }

    fn each(self) -> impl Iterator<Item = CardIndex> {
        CardIndex::all().filter(move |index| self.0 & 1 << index.place() != 0)
    }
}

impl MemoryBlock {
    /// Enters memory that the driver has given.
    fn new(size: u64, place: BlockPlace) -> Self {
        let block = Self { size, place, id: trace::number() };
        match place {
            BlockPlace::Cards(cards) => cards.each().for_each(|index| {
                card(index).allocations.fetch_add(1, Relaxed);
                block.event(index).emit(TraceKind::Alloc);
            }),
            BlockPlace::Spilled(index) => block.event(index).emit(TraceKind::Spill),
            BlockPlace::Host => {
                page().pin(size);
                TraceEvent::default().of(block.id, size).emit(TraceKind::Pin);
            }
        }
        block
    }

    /// Returns its bytes, if no other object has them.
    pub(super) fn gone(self) {
        if !SHARED.left(self) {
            return;
        }
        match self.place {
            BlockPlace::Cards(cards) => cards.each().for_each(|index| {
                ledger::give(index, self.size);
                self.event(index).emit(TraceKind::Free);
            }),
            BlockPlace::Spilled(index) => {
                spilled::give(index, self.size);
                self.event(index).emit(TraceKind::Free);
            }
            BlockPlace::Host => {
                page().unpin(self.size);
                TraceEvent::default().of(self.id, self.size).emit(TraceKind::Unpin);
            }
        }
    }

    fn event(self, index: CardIndex) -> TraceEvent {
        TraceEvent::on(index).of(self.id, self.size)
    }
}

impl Device {
    /// The guarded cards with these bits.
    fn on(&self, mask: u32) -> impl Iterator<Item = CardIndex> {
        let cards = self.cards.iter().take(32).enumerate();
        cards.filter(move |(bit, _)| mask & (1 << bit) != 0).filter_map(|(_, index)| *index)
    }

    /// The bits of the cards on which memory with these parameters lies: one of them, or for heaps that have
    /// an instance on each card of a group, those of the mask.
    ///
    /// # Safety
    /// Parameters of Vulkan.
    unsafe fn mask(&self, heap: usize, params: &vk::MemoryAllocateInfo<'static>) -> u32 {
        if self.cards.len() < 2
            || !self.memory.memory_heaps[heap].flags.contains(vk::MemoryHeapFlags::MULTI_INSTANCE)
        {
            return 1;
        }
        // SAFETY: the caller's promise.
        let flags = unsafe { structure::<vk::MemoryAllocateFlagsInfo<'static>>(params.p_next) };
        let masked = flags.filter(|flags| flags.flags.contains(vk::MemoryAllocateFlags::DEVICE_MASK));
        masked.map_or(u32::MAX, |flags| flags.device_mask)
    }
}

/// What memory is requested for, as far as guard has to do with it.
enum Requested {
    /// Memory of cards with these bits.
    Cards(u32),
    /// Memory of the host.
    Host,
    /// Memory that another object of this process has, too.
    Shared(MemoryBlock),
    /// Nothing new, or nothing that the device has.
    Nothing,
}

/// # Safety
/// Parameters of Vulkan, or null.
unsafe fn requested(device: &Device, params: *const vk::MemoryAllocateInfo<'static>) -> Requested {
    // SAFETY: the caller's promise.
    let Some(params) = (unsafe { params.as_ref() }).filter(|_| armed()) else {
        return Requested::Nothing;
    };
    let Some(heap) = heap_of(&device.memory, params.memory_type_index) else {
        return Requested::Nothing;
    };
    // SAFETY: the caller's promise.
    if let Some(import) = unsafe { import(params.p_next) } {
        let shared = import.and_then(|descriptor| SHARED.joined(descriptor, params.allocation_size));
        return shared.map_or(Requested::Nothing, Requested::Shared);
    }
    if !counts(&device.memory, heap, device.integrated) {
        return Requested::Host;
    }
    // SAFETY: the caller's promise.
    let mask = unsafe { device.mask(heap, params) };
    if device.on(mask).next().is_some() { Requested::Cards(mask) } else { Requested::Nothing }
}

/// Memory that exists already: the descriptor by which it is imported, or none for a host's pointer, which
/// takes nothing.
///
/// # Safety
/// A chain of structures of Vulkan, or null.
unsafe fn import(chain: *const c_void) -> Option<Option<c_int>> {
    // SAFETY: the caller's promise.
    unsafe {
        let pointer = structure::<vk::ImportMemoryHostPointerInfoEXT<'static>>(chain);
        let file = structure::<vk::ImportMemoryFdInfoKHR<'static>>(chain);
        // A structure whose handle type is 0 is ignored, by Vulkan's rules.
        let file = file.filter(|import| !import.handle_type.is_empty()).map(|import| Some(import.fd));
        file.or_else(|| pointer.filter(|import| !import.handle_type.is_empty()).map(|_| None))
    }
}

/// `vkAllocateMemory`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn allocate(
    handle: vk::Device,
    params: *const vk::MemoryAllocateInfo<'static>,
    allocator: *const vk::AllocationCallbacks<'static>,
    created: *mut vk::DeviceMemory,
) -> vk::Result {
    let Some(device) = find_device(handle) else {
        return vk::Result::ERROR_INITIALIZATION_FAILED;
    };
    // SAFETY: the caller's promise, which the next layer gets as well.
    unsafe {
        let real = |params: *const _| (device.allocate)(handle, params, allocator, created);
        let (result, place) = match requested(&device, params) {
            Requested::Nothing => return real(params),
            Requested::Shared(block) => {
                let result = real(params);
                match result {
                    vk::Result::SUCCESS => device.blocks.insert((*created).as_raw(), block),
                    _ => block.gone(),
                }
                return result;
            }
            Requested::Host => (real(params), BlockPlace::Host),
            Requested::Cards(mask) => {
                let request = CardRequest { device: &device, handle, params: &*params, mask };
                let (outcome, place) = request.ask(|kind| {
                    let params = vk::MemoryAllocateInfo { memory_type_index: kind, ..*params };
                    code(real(&raw const params))
                });
                (result(outcome.code()), place)
            }
        };
        if result == vk::Result::SUCCESS {
            let block = MemoryBlock::new((*params).allocation_size, place);
            device.blocks.insert((*created).as_raw(), block);
        }
        result
    }
}

/// A request for memory of cards.
struct CardRequest<'a> {
    device: &'a Device,
    handle: vk::Device,
    params: &'a vk::MemoryAllocateInfo<'static>,
    mask: u32,
}

impl CardRequest<'_> {
    /// Requests memory through `real`, which takes a memory type, within the budget of each card.
    fn ask(&self, real: impl Fn(u32) -> CuResult) -> (ClaimOutcome, BlockPlace) {
        let (device, size, thread) = (self.device, self.params.allocation_size, thread());
        let mut cards = device.on(self.mask);
        let (first, others) = (cards.next(), cards);
        let others: Vec<CardIndex> = others.collect();
        let Some(first) = first else {
            return (ClaimOutcome::Failed(real(self.params.memory_type_index)), BlockPlace::Host);
        };
        let stated = device.requests.of(thread, size);
        let attempt =
            if stated.is_some_and(|stated| stated.is_refused) { Attempt::Again } else { Attempt::First };
        // Memory on several cards of a group has no common place on the host.
        let host = if others.is_empty() { self.host_type(stated) } else { None };
        let mut ask = || within(&others, size, || real(self.params.memory_type_index));
        let mut elsewhere = host.map(|kind| {
            let real = &real;
            move || real(kind)
        });
        let elsewhere = elsewhere.as_mut().map(|ask| -> &mut dyn FnMut() -> CuResult { ask });
        let outcome = ladder::ask_or(first, size, attempt, &mut ask, elsewhere);
        let place = match outcome {
            ClaimOutcome::Elsewhere => BlockPlace::Spilled(first),
            _ => BlockPlace::Cards(CardSet::of(device.on(self.mask))),
        };
        if matches!(outcome, ClaimOutcome::Failed(_)) {
            device.requests.refuse(thread, size);
        }
        (outcome, place)
    }

    /// The type of the host's memory in which the buffer may lie that this memory is for.
    fn host_type(&self, stated: Option<StatedBuffer>) -> Option<u32> {
        let device = self.device;
        // SAFETY: parameters of Vulkan.
        let dedicated = unsafe { structure::<vk::MemoryDedicatedAllocateInfo<'static>>(self.params.p_next) };
        let bits = match dedicated
            .map(|dedicated| dedicated.buffer)
            .filter(|buffer| *buffer != vk::Buffer::null())
        {
            Some(buffer) => {
                let mut stated = vk::MemoryRequirements::default();
                // SAFETY: the buffer is the program's, and the place is ours.
                unsafe { (device.requirements)(self.handle, buffer, &raw mut stated) };
                stated.memory_type_bits
            }
            None => stated?.bits,
        };
        host_type(&device.memory, self.params.memory_type_index, bits, device.integrated)
    }
}

/// Calls `ask` with `size` bytes of each of these cards claimed.
fn within(cards: &[CardIndex], size: u64, ask: impl FnOnce() -> CuResult) -> CuResult {
    let claimed = cards.iter().take_while(|index| ledger::take(**index, size)).count();
    let result = if claimed == cards.len() { ask() } else { OUT_OF_MEMORY };
    for index in &cards[..claimed] {
        if result == SUCCESS {
            ledger::confirm(*index, size);
        } else {
            ledger::take_back(*index, size);
        }
    }
    result
}

/// Vulkan's result as a code of the ladder, which knows one code for memory that ran out.
fn code(result: vk::Result) -> CuResult {
    match result {
        vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => OUT_OF_MEMORY,
        other => other.as_raw(),
    }
}

fn result(code: CuResult) -> vk::Result {
    match code {
        OUT_OF_MEMORY => vk::Result::ERROR_OUT_OF_DEVICE_MEMORY,
        other => vk::Result::from_raw(other),
    }
}

/// The calling thread, as libc names it: cheaper than the kernel's number.
fn thread() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::pthread_self() }
}

/// `vkFreeMemory`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn free(
    handle: vk::Device,
    memory: vk::DeviceMemory,
    allocator: *const vk::AllocationCallbacks<'static>,
) {
    let Some(device) = find_device(handle) else { return };
    // Taken out first: afterwards another thread may get the same handle.
    let block = device.blocks.remove(memory.as_raw());
    // SAFETY: the caller's promise.
    unsafe { (device.free)(handle, memory, allocator) };
    if let Some(block) = block {
        block.gone();
    }
    ladder::answer();
}

/// `vkGetMemoryFdKHR`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn export(
    handle: vk::Device,
    params: *const vk::MemoryGetFdInfoKHR<'static>,
    descriptor: *mut c_int,
) -> vk::Result {
    let Some(device) = find_device(handle) else { return vk::Result::ERROR_INITIALIZATION_FAILED };
    let Some(real) = device.export else { return vk::Result::ERROR_EXTENSION_NOT_PRESENT };
    // SAFETY: the caller's promise.
    unsafe {
        let result = real(handle, params, descriptor);
        if result == vk::Result::SUCCESS
            && let Some(block) = device.blocks.find((*params).memory.as_raw())
        {
            SHARED.exported(block, *descriptor);
        }
        result
    }
}

/// `vkGetBufferMemoryRequirements`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn requirements(
    handle: vk::Device,
    buffer: vk::Buffer,
    stated: *mut vk::MemoryRequirements,
) {
    let Some(device) = find_device(handle) else { return };
    // SAFETY: the caller's promise.
    unsafe {
        (device.requirements)(handle, buffer, stated);
        device.requests.state(thread(), (*stated).size, (*stated).memory_type_bits);
    }
}

/// `vkGetBufferMemoryRequirements2`.
///
/// # Safety
/// As of Vulkan.
pub(super) unsafe extern "system" fn requirements_2(
    handle: vk::Device,
    requested: *const vk::BufferMemoryRequirementsInfo2<'static>,
    stated: *mut vk::MemoryRequirements2<'static>,
) {
    let Some(device) = find_device(handle) else { return };
    let Some(query) = device.requirements_2 else { return };
    // SAFETY: the caller's promise.
    unsafe {
        query(handle, requested, stated);
        let stated = (*stated).memory_requirements;
        device.requests.state(thread(), stated.size, stated.memory_type_bits);
    }
}
