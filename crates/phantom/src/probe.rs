//! Which interface the engine speaks, measured in the engine itself.
//!
//! DECISION: no version number is taken on trust. The engine's own accessors (`ggml_backend_buft_get_alignment` and so on) are
//! called with objects whose tables hold, in each slot, a function that notes the slot's number: that is the slot that this engine
//! reads. Version 2 reads the alignment from slot 2, version 3 from slot 3; whatever does not fit one of the two
//! in every slot and offset that we rely on is declined, with the place named. Tensors and graphs are made by the engine and read
//! back through our declarations. A loader of another version ignores us by its own check (`api_version`).
//! Source of the versions: `ggml-backend-impl.h:GGML_BACKEND_API_VERSION`, 2 @ b8799 and b10605, 3 @ ggml 0.26.0.

use alloc::format;
use alloc::string::String;
use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use core::ptr::{null, null_mut};
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::Relaxed;

use crate::abi::{
    BACKEND_SLOTS, BUFFER_SLOTS, BUFFER_TYPE_SLOTS_2, BUFFER_TYPE_SLOTS_3, Backend, Buffer, BufferTable,
    BufferType, DEVICE_SLOTS, Device, Function, Handle, InitParams, REGISTRY_SLOTS, Registry, Tensor,
};
use crate::engine::Functions;

/// `GGML_BACKEND_API_VERSION`, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Two,
    Three,
}

impl Version {
    pub(crate) const fn number(self) -> c_int {
        match self {
            Self::Two => 2,
            Self::Three => 3,
        }
    }

    /// Slots of the table of a buffer type; the device and the context follow.
    pub(crate) const fn buffer_type_slots(self) -> usize {
        match self {
            Self::Two => BUFFER_TYPE_SLOTS_2,
            Self::Three => BUFFER_TYPE_SLOTS_3,
        }
    }
}

/// The slot whose function was called last.
static CALLED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Notes its slot's number, whatever it is called with. Not 0 is returned: ggml takes no object for none.
extern "C" fn slot<const N: usize>() -> usize {
    CALLED.store(N, Relaxed);
    1
}

/// The slot that the engine reads when it is asked something; none of the probes' if it asks nobody.
fn called<T>(ask: impl FnOnce() -> T) -> usize {
    CALLED.store(usize::MAX, Relaxed);
    ask();
    CALLED.load(Relaxed)
}

const PROBES: [extern "C" fn() -> usize; 16] = [
    slot::<0>, slot::<1>, slot::<2>, slot::<3>, slot::<4>, slot::<5>, slot::<6>, slot::<7>, slot::<8>,
    slot::<9>, slot::<10>, slot::<11>, slot::<12>, slot::<13>, slot::<14>, slot::<15>,
];

fn probes<const N: usize>() -> [Function; N] {
    let mut table = [null(); N];
    for (place, probe) in table.iter_mut().zip(PROBES) {
        *place = probe as Function;
    }
    table
}

/// What was measured against what was expected, in the order in which it is done.
struct Findings(Option<String>);

impl Findings {
    fn expect(&mut self, what: &str, measured: usize, expected: usize) {
        if self.0.is_none() && measured != expected {
            self.0 = Some(format!("{what} is {measured} and not {expected}"));
        }
    }

    fn done(self) -> Result<(), String> {
        self.0.map_or(Ok(()), Err)
    }
}

/// The version that the engine speaks, or what is not as in any that is known.
pub(crate) fn version(engine: &Functions) -> Result<Version, String> {
    let version = buffer_types(engine)?;
    devices(engine)?;
    buffers(engine)?;
    tensors(engine)?;
    Ok(version)
}

fn buffer_types(engine: &Functions) -> Result<Version, String> {
    let mut table = BufferType(probes());
    let handle: Handle = (&raw mut table).cast();
    let tensor = Tensor::EMPTY;
    // SAFETY: each calls one slot of the table with the handle and at most a tensor; all slots are functions that look at nothing.
    let (alignment, size, most, host, name) = unsafe {
        (
            called(|| (engine.ggml_backend_buft_get_alignment)(handle)),
            called(|| (engine.ggml_backend_buft_get_alloc_size)(handle, &raw const tensor)),
            called(|| (engine.ggml_backend_buft_get_max_size)(handle)),
            called(|| (engine.ggml_backend_buft_is_host)(handle)),
            called(|| (engine.ggml_backend_buft_name)(handle)),
        )
    };
    let (version, expected) = match alignment {
        2 => (Version::Two, [4, 3, 5]),
        3 => (Version::Three, [5, 4, 7]),
        other => return Err(format!("the slot of get_alignment is {other} and not 2 or 3")),
    };
    let mut findings = Findings(None);
    findings.expect("the slot of buffer_type.get_name", name, 0);
    findings.expect("the slot of buffer_type.get_alloc_size", size, expected[0]);
    findings.expect("the slot of buffer_type.get_max_size", most, expected[1]);
    findings.expect("the slot of buffer_type.is_host", host, expected[2]);
    // SAFETY: it returns the field behind the table.
    let device = unsafe { (engine.ggml_backend_buft_get_device)(handle) };
    let slots = version.buffer_type_slots();
    let behind = table.0.get(slots).copied().unwrap_or(null());
    findings.expect("buffer_type.device", device.addr(), behind.addr());
    findings.done().map(|()| version)
}

fn devices(engine: &Functions) -> Result<(), String> {
    let mut registry = Registry {
        version: 0,
        table: probes::<REGISTRY_SLOTS>(),
        context: null_mut(),
    };
    let mut device = Device {
        table: probes::<DEVICE_SLOTS>(),
        registry: &raw mut registry,
        context: null_mut(),
    };
    let mut backend = Backend {
        guid: null(),
        table: probes::<BACKEND_SLOTS>(),
        device: &raw mut device,
        context: null_mut(),
    };
    let tensor = Tensor::EMPTY;
    let (registry, device, backend) = (&raw mut registry, &raw mut device, &raw mut backend);
    let mut findings = Findings(None);
    let mut slot = |what: &str, measured: usize, expected: usize| {
        findings.expect(&format!("the slot of {what}"), measured, expected);
    };
    let op = &raw const tensor;
    // SAFETY: as above: each calls one slot of one of the three tables.
    unsafe {
        slot(
            "reg.get_name",
            called(|| (engine.ggml_backend_reg_name)(registry)),
            0,
        );
        slot(
            "reg.get_device_count",
            called(|| (engine.ggml_backend_reg_dev_count)(registry)),
            1,
        );
        let procedure = || (engine.ggml_backend_reg_get_proc_address)(registry, c"".as_ptr());
        slot("reg.get_proc_address", called(procedure), 3);
        slot(
            "device.get_name",
            called(|| (engine.ggml_backend_dev_name)(device)),
            0,
        );
        slot(
            "device.get_description",
            called(|| (engine.ggml_backend_dev_description)(device)),
            1,
        );
        slot(
            "device.get_type",
            called(|| (engine.ggml_backend_dev_type)(device)),
            3,
        );
        slot(
            "device.init_backend",
            called(|| (engine.ggml_backend_dev_init)(device, null())),
            5,
        );
        slot(
            "device.get_buffer_type",
            called(|| (engine.ggml_backend_dev_buffer_type)(device)),
            6,
        );
        let host = || (engine.ggml_backend_dev_host_buffer_type)(device);
        slot("device.get_host_buffer_type", called(host), 7);
        slot(
            "device.supports_op",
            called(|| (engine.ggml_backend_dev_supports_op)(device, op)),
            9,
        );
        let memory = || (engine.ggml_backend_dev_supports_buft)(device, null_mut());
        slot("device.supports_buft", called(memory), 10);
        slot(
            "device.offload_op",
            called(|| (engine.ggml_backend_dev_offload_op)(device, op)),
            11,
        );
        slot(
            "device.event_new",
            called(|| (engine.ggml_backend_event_new)(device)),
            12,
        );
        slot(
            "backend.get_name",
            called(|| (engine.ggml_backend_name)(backend)),
            0,
        );
        let compute = || (engine.ggml_backend_graph_compute_async)(backend, null_mut());
        slot("backend.graph_compute", called(compute), 12);
    }
    // SAFETY: each returns one field.
    let (back, of) = unsafe {
        (
            (engine.ggml_backend_dev_backend_reg)(device),
            (engine.ggml_backend_get_device)(backend),
        )
    };
    findings.expect("device.reg", back.addr(), registry.addr());
    findings.expect("backend.device", of.addr(), device.addr());
    findings.expect(
        "the size of ggml_backend_dev_props",
        properties(engine, device),
        size_of::<crate::abi::Properties>(),
    );
    findings.done()
}

/// How many bytes of the properties the engine clears before it asks for them.
fn properties(engine: &Functions, device: *mut Device) -> usize {
    const MARK: u8 = 0xa5;
    let mut room = [u64::from_ne_bytes([MARK; 8]); 32];
    // SAFETY: the slot called is a function that looks at nothing; the room is larger than any known properties.
    unsafe { (engine.ggml_backend_dev_get_props)(device, (&raw mut room).cast()) };
    let bytes = room.iter().flat_map(|word| word.to_ne_bytes());
    bytes.take_while(|byte| *byte != MARK).count()
}

fn buffers(engine: &Functions) -> Result<(), String> {
    let mut kind = BufferType(probes());
    let handle: Handle = (&raw mut kind).cast();
    let table = BufferTable(probes::<BUFFER_SLOTS>());
    let context: Handle = (&raw const table).cast_mut().cast();
    const SIZE: usize = 12_345;
    const USAGE: c_int = 2;
    let mut findings = Findings(None);
    // SAFETY: the engine makes the buffer and we read it through our declaration, within what the engine allocated if its size is
    // at least ours; which is what the accessors, called first, tell. `free` calls slot 0, which looks at nothing, and deletes it.
    unsafe {
        let buffer = (engine.ggml_backend_buffer_init)(handle, table, context, SIZE);
        if buffer.is_null() {
            return Err("ggml_backend_buffer_init returns nothing".into());
        }
        findings.expect(
            "the buffer's size",
            (engine.ggml_backend_buffer_get_size)(buffer),
            SIZE,
        );
        findings.expect(
            "the buffer's type",
            (engine.ggml_backend_buffer_get_type)(buffer).addr(),
            handle.addr(),
        );
        let Buffer {
            buffer_type,
            context: kept,
            size,
            ..
        } = &*buffer;
        findings.expect("buffer.buft", buffer_type.addr(), handle.addr());
        findings.expect("buffer.context", kept.addr(), context.addr());
        findings.expect("buffer.size", *size, SIZE);
        let first = |buffer: *mut Buffer| (*buffer).table.0.first().copied().unwrap_or(null());
        findings.expect(
            "buffer.iface",
            first(buffer).addr(),
            table.0.first().map_or(0, |slot| slot.addr()),
        );
        (engine.ggml_backend_buffer_set_usage)(buffer, USAGE);
        findings.expect(
            "buffer.usage",
            usize::try_from((*buffer).usage).unwrap_or(usize::MAX),
            2,
        );
        (engine.ggml_backend_buffer_free)(buffer);
    }
    findings.done()
}

fn tensors(engine: &Functions) -> Result<(), String> {
    const ROOM: usize = 1 << 20;
    let parameters = InitParams {
        size: ROOM,
        memory: null_mut(),
        no_alloc: true,
    };
    // SAFETY: a context of its own, with no data; freed below, and what is in it is not used afterwards.
    let context = unsafe { (engine.ggml_init)(parameters) };
    if context.is_null() {
        return Err("ggml_init returns nothing".into());
    }
    let findings = tensors_in(engine, context);
    // SAFETY: made above.
    unsafe { (engine.ggml_free)(context) };
    findings.done()
}

fn tensors_in(engine: &Functions, context: Handle) -> Findings {
    const F32: c_int = 0;
    const SCALE: f32 = 2.5;
    let mut findings = Findings(None);
    // SAFETY: tensors of one context, with shapes that fit each other; the name's place tells that the tensor is as large as ours
    // before anything behind it is read.
    unsafe {
        // GGML_OBJECT_SIZE is 32
        let size = (engine.ggml_tensor_overhead)().wrapping_sub(32);
        findings.expect("the size of ggml_tensor", size, size_of::<Tensor>());
        let a = (engine.ggml_new_tensor_4d)(context, F32, 7, 5, 3, 2);
        let b = (engine.ggml_new_tensor_4d)(context, F32, 7, 4, 3, 2);
        if findings.0.is_some() || a.is_null() || b.is_null() {
            return findings;
        }
        let name = (engine.ggml_get_name)(a).addr().wrapping_sub(a.addr());
        findings.expect("the place of tensor.name", name, offset_of!(Tensor, name));
        for (dimension, expected) in [7, 5, 3, 2].into_iter().enumerate() {
            let ne = (*a).ne.get(dimension).copied().unwrap_or(-1);
            findings.expect("tensor.ne", usize::try_from(ne).unwrap_or(usize::MAX), expected);
        }
        findings.expect("tensor.nb", (*a).nb[3], 4 * 7 * 5 * 3);
        let product = (engine.ggml_mul_mat)(context, a, b);
        findings.expect("tensor.src[0]", (*product).src[0].addr(), a.addr());
        findings.expect("tensor.src[1]", (*product).src[1].addr(), b.addr());
        findings.expect(
            "tensor.op",
            usize::from(crate::engine::text((engine.ggml_op_name)((*product).op)) == "MUL_MAT"),
            1,
        );
        let scaled = (engine.ggml_scale)(context, b, SCALE);
        findings.expect(
            "tensor.op_params",
            usize::from((*scaled).op_params[0].cast_unsigned() == SCALE.to_bits()),
            1,
        );
        let view = (engine.ggml_view_1d)(context, a, 3, 16);
        findings.expect("tensor.view_src", (*view).view_src.addr(), a.addr());
        findings.expect("tensor.view_offs", (*view).view_offs, 16);
        graph(engine, context, product, &mut findings);
    }
    findings
}

/// # Safety
/// `product` is a tensor of the context.
unsafe fn graph(engine: &Functions, context: Handle, product: *mut Tensor, findings: &mut Findings) {
    // SAFETY: the engine makes the graph and puts the one operation into it; the accessors are asked before our declaration is.
    unsafe {
        let graph = (engine.ggml_new_graph)(context);
        (engine.ggml_build_forward_expand)(graph, product);
        findings.expect(
            "the nodes of the graph",
            usize::try_from((engine.ggml_graph_n_nodes)(graph)).unwrap_or(0),
            1,
        );
        let node = (engine.ggml_graph_node)(graph, 0);
        findings.expect("the graph's node", node.addr(), product.addr());
        findings.expect(
            "graph.n_nodes",
            usize::try_from((*graph).nodes_used).unwrap_or(0),
            1,
        );
        let nodes = (*graph).nodes;
        let inside = !nodes.is_null() && nodes.addr().wrapping_sub(graph.addr()) < (1 << 20);
        findings.expect("graph.nodes", usize::from(inside), 1);
        if findings.0.is_none() {
            findings.expect("graph.nodes[0]", (*nodes).addr(), product.addr());
        }
    }
}
