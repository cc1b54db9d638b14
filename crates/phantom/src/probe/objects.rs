//! Buffers, tensors and graphs: made by the engine and read back through our declarations.

use alloc::string::String;
use core::ffi::c_int;
use core::mem::{offset_of, size_of};
use core::ptr::{null, null_mut};

use crate::abi::{BUFFER_SLOTS, Buffer, BufferTable, BufferType, Handle, InitParams, Tensor};
use crate::engine::{self, Functions};

use super::{Findings, probes};

pub(super) fn buffers(engine: &Functions) -> Result<(), String> {
    let mut kind = BufferType(probes());
    let handle: Handle = (&raw mut kind).cast();
    let table = BufferTable(probes::<BUFFER_SLOTS>());
    let context: Handle = (&raw const table).cast_mut().cast();
    const SIZE: usize = 12_345;
    const USAGE: c_int = 2;
    let mut findings = Findings(None);
    // SAFETY: the engine makes the buffer and we read it through our declaration, within what the engine
    // allocated if its size is at least ours; which is what the accessors, called first, tell. `free` calls
    // slot 0, which looks at nothing, and deletes it.
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

pub(super) fn tensors(engine: &Functions) -> Result<(), String> {
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
    // SAFETY: tensors of one context, with shapes that fit each other; the name's place tells that the tensor
    // is as large as ours before anything behind it is read.
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
            usize::from(engine::text((engine.ggml_op_name)((*product).op)) == "MUL_MAT"),
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
    // SAFETY: the engine makes the graph and puts the one operation into it; the accessors are asked before
    // our declaration is.
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
