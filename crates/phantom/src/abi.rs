//! ggml's C structures, as far as a backend and its loader share them.
//!
//! DECISION: own declarations, field by field in ggml's order. A table of functions that only the engine
//! calls is a list of addresses in the order of its slots. `probe.rs` measures the meaning of each slot in
//! the running engine, and every offset below. The two interface versions differ in the table of buffer
//! types, which has two more slots in version 3. Source: `ggml-backend-impl.h, ggml-backend.h, ggml.h,
//! ggml-impl.h @ b8799, b10605` (version 2), `@ ggml 0.26.0` (version 3).

use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};

/// Address of a function; null for a slot that is left out.
pub(crate) type Function = *const c_void;
/// Address of a structure that the other side only stores and passes back.
pub(crate) type Handle = *mut c_void;

pub(crate) const DIMENSIONS: usize = 4;
pub(crate) const SOURCES: usize = 10;
/// `GGML_STATUS_SUCCESS`.
pub(crate) const SUCCESS: c_int = 0;
/// `GGML_BACKEND_DEVICE_TYPE_GPU`.
pub(crate) const GPU: c_int = 1;
/// `GGML_BACKEND_DEVICE_TYPE_IGPU`.
pub(crate) const INTEGRATED_GPU: c_int = 2;

/// `struct ggml_tensor`.
#[repr(C)]
pub(crate) struct Tensor {
    pub(crate) kind: c_int,
    pub(crate) buffer: *mut Buffer,
    pub(crate) ne: [i64; DIMENSIONS],
    pub(crate) nb: [usize; DIMENSIONS],
    pub(crate) op: c_int,
    pub(crate) op_params: [i32; 16],
    pub(crate) flags: i32,
    pub(crate) src: [*mut Self; SOURCES],
    pub(crate) view_src: *mut Self,
    pub(crate) view_offs: usize,
    pub(crate) data: Handle,
    pub(crate) name: [c_char; 64],
    pub(crate) extra: Handle,
    pub(crate) padding: [u8; 8],
}

impl Tensor {
    pub(crate) const EMPTY: Self = Self {
        kind: 0,
        buffer: null_mut(),
        ne: [0; DIMENSIONS],
        nb: [0; DIMENSIONS],
        op: 0,
        op_params: [0; 16],
        flags: 0,
        src: [null_mut(); SOURCES],
        view_src: null_mut(),
        view_offs: 0,
        data: null_mut(),
        name: [0; 64],
        extra: null_mut(),
        padding: [0; 8],
    };
}

/// The first fields of `struct ggml_cgraph`.
#[repr(C)]
pub(crate) struct Graph {
    pub(crate) size: c_int,
    pub(crate) nodes_used: c_int,
    pub(crate) leafs_used: c_int,
    pub(crate) nodes: *mut *mut Tensor,
}

/// `struct ggml_backend_buffer_i`, all of whose slots are addresses.
pub(crate) const BUFFER_SLOTS: usize = 11;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BufferTable(pub(crate) [Function; BUFFER_SLOTS]);

/// `struct ggml_backend_buffer`; made and deleted by the engine.
#[repr(C)]
pub(crate) struct Buffer {
    pub(crate) table: BufferTable,
    pub(crate) buffer_type: Handle,
    pub(crate) context: Handle,
    pub(crate) size: usize,
    pub(crate) usage: c_int,
}

/// `struct ggml_backend_buffer_type`: the table, then the device and a context. Sized for the longer version.
pub(crate) const BUFFER_TYPE_SLOTS_2: usize = 6;
pub(crate) const BUFFER_TYPE_SLOTS_3: usize = 8;
#[repr(C)]
pub(crate) struct BufferType(pub(crate) [Function; BUFFER_TYPE_SLOTS_3 + 2]);

impl BufferType {
    pub(crate) const EMPTY: Self = Self([null(); BUFFER_TYPE_SLOTS_3 + 2]);
}

/// `struct ggml_backend`.
pub(crate) const BACKEND_SLOTS: usize = 16;
#[repr(C)]
pub(crate) struct Backend {
    pub(crate) guid: *const [u8; 16],
    pub(crate) table: [Function; BACKEND_SLOTS],
    pub(crate) device: *mut Device,
    pub(crate) context: Handle,
}

/// `struct ggml_backend_event`.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) device: *mut Device,
    pub(crate) context: Handle,
}

/// `struct ggml_backend_device`.
pub(crate) const DEVICE_SLOTS: usize = 15;
#[repr(C)]
pub(crate) struct Device {
    pub(crate) table: [Function; DEVICE_SLOTS],
    pub(crate) registry: *mut Registry,
    pub(crate) context: Handle,
}

/// `struct ggml_backend_dev_props`. Older builds lack the last capability; it lies in their padding.
#[repr(C)]
pub(crate) struct Properties {
    pub(crate) name: *const c_char,
    pub(crate) description: *const c_char,
    pub(crate) memory_free: usize,
    pub(crate) memory_total: usize,
    pub(crate) kind: c_int,
    pub(crate) device_id: *const c_char,
    pub(crate) asynchronous: bool,
    pub(crate) host_buffer: bool,
    pub(crate) buffer_from_host_ptr: bool,
    pub(crate) events: bool,
    pub(crate) mmap_support: bool,
}

/// `struct ggml_backend_reg`.
pub(crate) const REGISTRY_SLOTS: usize = 4;
#[repr(C)]
pub(crate) struct Registry {
    pub(crate) version: c_int,
    pub(crate) table: [Function; REGISTRY_SLOTS],
    pub(crate) context: Handle,
}

/// `struct ggml_init_params`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct InitParams {
    pub(crate) size: usize,
    pub(crate) memory: Handle,
    pub(crate) no_alloc: bool,
}
