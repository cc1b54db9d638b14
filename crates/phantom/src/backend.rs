//! CUDA stream of a phantom card, which the engine sees as a ggml backend.
//!
//! DECISION: to compute a node is to add up its requests to the run-time pool; every other call returns at
//! once, as if done. Source: `ggml-cuda.cu:ggml_backend_cuda_interface @ b10605`.

use alloc::boxed::Box;
use core::ffi::{c_char, c_int};
use core::ptr::null;

use crate::abi::{Backend, Device, Event, Function, Graph, Handle, SUCCESS, Tensor};
use crate::depth::Depth;
use crate::device::card_of;
use crate::memory;
use crate::phantom::{self, CardState};
use plimsoll_nostd::lock::Lock;

/// GUID of the backend; different from that of every other.
static GUID: [u8; 16] = *b"plimsoll phantom";

struct State {
    card: &'static CardState,
    depth: Lock<Depth>,
}

pub(crate) unsafe extern "C" fn init(device: *mut Device, _: *const c_char) -> *mut Backend {
    // SAFETY: the engine passes one of our devices, which live as long as the process.
    let (Some(card), Some(phantom)) = (unsafe { card_of(device) }, phantom::get()) else {
        return core::ptr::null_mut();
    };
    let state = Box::new(State {
        card,
        depth: Lock::new(Depth::new(phantom, card)),
    });
    Box::into_raw(Box::new(Backend {
        guid: &raw const GUID,
        table: table(),
        device,
        context: Box::into_raw(state).cast(),
    }))
}

fn table() -> [Function; crate::abi::BACKEND_SLOTS] {
    let none = null();
    [
        name as Function,
        free as Function,
        set_tensor as Function,
        memory::get_tensor as Function,
        set_tensor_2d as Function,
        memory::get_tensor_2d as Function,
        copy_tensor as Function,
        synchronize as Function,
        // graph plans
        none,
        none,
        none,
        none,
        compute as Function,
        event_record as Function,
        event_wait as Function,
        // graph_optimize reorders nothing unless GGML_CUDA_GRAPH_OPT is set
        none,
    ]
}

/// # Safety
/// A backend of ours.
unsafe fn state_of<'a>(backend: *mut Backend) -> Option<&'a State> {
    // SAFETY: the caller's promise; `free` is the last call for it.
    unsafe { backend.as_ref()?.context.cast::<State>().as_ref() }
}

unsafe extern "C" fn name(backend: *mut Backend) -> *const c_char {
    // SAFETY: the engine passes a backend of ours.
    unsafe { state_of(backend) }.map_or(c"CUDA".as_ptr(), |state| state.card.card.device.as_ptr())
}

unsafe extern "C" fn free(backend: *mut Backend) {
    if backend.is_null() {
        return;
    }
    // SAFETY: made by `init`, and freed once; so is its state.
    let backend = unsafe { Box::from_raw(backend) };
    if !backend.context.is_null() {
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(backend.context.cast::<State>()) });
    }
}

extern "C" fn set_tensor(_: *mut Backend, _: *mut Tensor, _: Handle, _: usize, _: usize) {}

extern "C" fn set_tensor_2d(
    _: *mut Backend,
    _: *mut Tensor,
    _: Handle,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
    _: usize,
) {
}

unsafe extern "C" fn copy_tensor(
    _: *mut Backend,
    _: *mut Backend,
    from: *const Tensor,
    to: *mut Tensor,
) -> bool {
    // SAFETY: the engine passes live tensors.
    unsafe { memory::is_on_card(from) && memory::is_on_card(to) }
}

extern "C" fn synchronize(_: *mut Backend) {}

extern "C" fn event_record(_: *mut Backend, _: *mut Event) {}

extern "C" fn event_wait(_: *mut Backend, _: *mut Event) {}

unsafe extern "C" fn compute(backend: *mut Backend, graph: *mut Graph) -> c_int {
    // SAFETY: the engine passes a backend of ours and a live graph, whose nodes are live tensors.
    let (state, graph) = unsafe { (state_of(backend), graph.as_ref()) };
    if let (Some(state), Some(graph)) = (state, graph) {
        state.depth.hold().compute(graph);
    }
    SUCCESS
}
