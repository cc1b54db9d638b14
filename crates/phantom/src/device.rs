//! The registry "CUDA" and its devices, as the engine calls them.
//!
//! Source: `ggml-cuda.cu:ggml_backend_cuda_reg, ggml_backend_cuda_device_interface @ b10605`.

use alloc::boxed::Box;
use core::ffi::{c_char, c_int};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{
    DEVICE_SLOTS, Device, Event, Function, GPU, Handle, INTEGRATED_GPU, Properties, Registry, Tensor,
};
use crate::phantom::{self, CardState, Phantom};
use crate::probe::Version;
use crate::tensor::View;
use crate::{backend, support};

pub(crate) fn registry(version: Version) -> Registry {
    Registry {
        version: version.number(),
        table: [
            registry_name as Function,
            device_count as Function,
            device_at as Function,
            procedure as Function,
        ],
        context: null_mut(),
    }
}

/// A device that is not linked to its card yet.
pub(crate) fn unlinked() -> Device {
    const TABLE: [Function; DEVICE_SLOTS] = [null(); DEVICE_SLOTS];
    let mut device = Device {
        table: TABLE,
        registry: null_mut(),
        context: null_mut(),
    };
    device.table = [
        name as Function,
        description as Function,
        free_and_total as Function,
        kind as Function,
        properties as Function,
        backend::init as Function,
        memory as Function,
        host_memory as Function,
        // buffer_from_host_ptr
        null(),
        supports_op as Function,
        supports_memory as Function,
        offload_op as Function,
        event_new as Function,
        event_free as Function,
        event_synchronize as Function,
    ];
    device
}

extern "C" fn registry_name(_: *mut Registry) -> *const c_char {
    c"CUDA".as_ptr()
}

/// # Safety
/// The registry that we gave the engine, which points at the plugin.
unsafe fn phantom_of<'a>(registry: *mut Registry) -> Option<&'a Phantom> {
    // SAFETY: the caller's promise.
    unsafe { registry.as_ref()?.context.cast::<Phantom>().as_ref() }
}

unsafe extern "C" fn device_count(registry: *mut Registry) -> usize {
    // SAFETY: the engine passes our registry.
    unsafe { phantom_of(registry) }.map_or(0, |phantom| phantom.cards.len())
}

unsafe extern "C" fn device_at(registry: *mut Registry, index: usize) -> *mut Device {
    // SAFETY: as above.
    let card = unsafe { phantom_of(registry) }.and_then(|phantom| phantom.cards.get(index));
    card.map_or(null_mut(), |card| (&raw const card.device).cast_mut())
}

/// Always null: the functions that CUDA offers here concern computation only.
extern "C" fn procedure(_: *mut Registry, _: *const c_char) -> Function {
    null()
}

/// # Safety
/// One of our devices, each of which points at its card, or null.
pub(crate) unsafe fn card_of<'a>(device: *mut Device) -> Option<&'a CardState> {
    // SAFETY: the caller's promise.
    unsafe { device.as_ref()?.context.cast::<CardState>().as_ref() }
}

unsafe extern "C" fn name(device: *mut Device) -> *const c_char {
    // SAFETY: the engine passes one of our devices.
    unsafe { card_of(device) }.map_or(c"CUDA".as_ptr(), |state| state.card.device.as_ptr())
}

unsafe extern "C" fn description(device: *mut Device) -> *const c_char {
    // SAFETY: as above.
    unsafe { card_of(device) }.map_or(c"CUDA".as_ptr(), |state| state.card.name.as_ptr())
}

/// Free memory: the configured amount less the buffers on the card. Other memory of the process is not
/// mirrored.
fn memory_of(state: &CardState) -> (usize, usize) {
    let free = state.card.free.saturating_sub(state.used.load(Relaxed));
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    (size(free), size(state.card.total))
}

unsafe extern "C" fn free_and_total(device: *mut Device, free: *mut usize, total: *mut usize) {
    // SAFETY: as above.
    let sizes = unsafe { card_of(device) }.map_or((0, 0), memory_of);
    // SAFETY: the engine passes two places of its own.
    unsafe { (*free, *total) = sizes };
}

/// True where ggml reports an integrated GPU, as it does since b10605.
fn is_integrated(state: &CardState) -> bool {
    state.card.integrated && !state.rules.engine.copies()
}

unsafe extern "C" fn kind(device: *mut Device) -> c_int {
    // SAFETY: as above.
    let integrated = unsafe { card_of(device) }.is_some_and(is_integrated);
    if integrated { INTEGRATED_GPU } else { GPU }
}

unsafe extern "C" fn properties(device: *mut Device, place: *mut Properties) {
    // SAFETY: as above.
    let Some(state) = (unsafe { card_of(device) }) else {
        return;
    };
    let (memory_free, memory_total) = memory_of(state);
    let integrated = is_integrated(state);
    let properties = Properties {
        name: state.card.device.as_ptr(),
        description: state.card.name.as_ptr(),
        memory_free,
        memory_total,
        kind: if integrated { INTEGRATED_GPU } else { GPU },
        device_id: state.id.as_ptr(),
        asynchronous: true,
        host_buffer: phantom::variable("GGML_CUDA_NO_PINNED").is_none(),
        buffer_from_host_ptr: false,
        events: true,
        mmap_support: !integrated,
    };
    // SAFETY: the engine's properties were measured to be as large as ours.
    unsafe { place.write(properties) };
}

unsafe extern "C" fn memory(device: *mut Device) -> Handle {
    // SAFETY: as above.
    let state = unsafe { card_of(device) };
    state.map_or(null_mut(), |state| (&raw const state.memory).cast_mut().cast())
}

extern "C" fn host_memory(_: *mut Device) -> Handle {
    phantom::get().map_or(null_mut(), |phantom| {
        (&raw const phantom.host_memory).cast_mut().cast()
    })
}

unsafe extern "C" fn supports_memory(device: *mut Device, memory: Handle) -> bool {
    // SAFETY: as above.
    let state = unsafe { card_of(device) };
    state.is_some_and(|state| core::ptr::eq((&raw const state.memory).cast(), memory))
}

unsafe extern "C" fn supports_op(device: *mut Device, op: *const Tensor) -> bool {
    // SAFETY: the engine passes one of our devices and a live tensor.
    let (state, op) = unsafe { (card_of(device), View::of(op)) };
    let (Some(state), Some(op), Some(phantom)) = (state, op, phantom::get()) else {
        return false;
    };
    on_this_card(op, state, phantom) && support::supports(op, state.rules)
}

/// True if no source of the operation lies on another card.
fn on_this_card(op: View<'_>, state: &CardState, phantom: &Phantom) -> bool {
    let sources = op.raw().src.iter().filter(|source| !source.is_null());
    // SAFETY: sources of a live tensor are live; a buffer they name is one of the engine's, made or kept by
    // it.
    let types =
        sources.filter_map(|source| unsafe { (**source).buffer.as_ref() }.map(|buffer| buffer.buffer_type));
    let elsewhere = |memory: Handle| {
        let others = phantom.cards.iter().filter(|other| other.index != state.index);
        others
            .map(|other| (&raw const other.memory).cast())
            .any(|other| core::ptr::eq(other, memory))
    };
    !types.into_iter().any(elsewhere)
}

unsafe extern "C" fn offload_op(device: *mut Device, op: *const Tensor) -> bool {
    // SAFETY: as above.
    let (state, op) = unsafe { (card_of(device), View::of(op)) };
    matches!((state, op), (Some(state), Some(op)) if support::batch(op) >= state.offload_from)
}

extern "C" fn event_new(device: *mut Device) -> *mut Event {
    Box::into_raw(Box::new(Event {
        device,
        context: null_mut(),
    }))
}

unsafe extern "C" fn event_free(_: *mut Device, event: *mut Event) {
    if !event.is_null() {
        // SAFETY: made by `event_new`, and freed once.
        drop(unsafe { Box::from_raw(event) });
    }
}

extern "C" fn event_synchronize(_: *mut Device, _: *mut Event) {}
