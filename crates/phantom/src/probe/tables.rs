//! The tables of registry, device and backend: which slot the engine calls for what.

use alloc::format;
use alloc::string::String;
use core::mem::size_of;
use core::ptr::{null, null_mut};

use crate::abi::{
    BACKEND_SLOTS, Backend, DEVICE_SLOTS, Device, Properties, REGISTRY_SLOTS, Registry, Tensor,
};
use crate::engine::Functions;

use super::{Findings, called, probes};

pub(super) fn devices(engine: &Functions) -> Result<(), String> {
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
        size_of::<Properties>(),
    );
    findings.done()
}

/// Number of bytes of the properties that the engine clears before it asks the device for them.
fn properties(engine: &Functions, device: *mut Device) -> usize {
    const MARK: u8 = 0xa5;
    let mut room = [u64::from_ne_bytes([MARK; 8]); 32];
    // SAFETY: the slot called is a function that looks at nothing; the room is larger than any known
    // properties.
    unsafe { (engine.ggml_backend_dev_get_props)(device, (&raw mut room).cast()) };
    let bytes = room.iter().flat_map(|word| word.to_ne_bytes());
    bytes.take_while(|byte| *byte != MARK).count()
}
