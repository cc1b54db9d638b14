//! Hooks of CUDA graphs, which track the graphs that contain captured work.
//!
//! Captured work uses memory of guard's pools, which must stay until the last handle to the work is
//! destroyed.

use core::ffi::{c_char, c_int, c_uint, c_void};

use super::capture::{CuGraph, notify};
use crate::driver::{CuResult, CuStream, SUCCESS};
use crate::graphs;
use crate::hooks::hooks;
use crate::spill::exchange;
use crate::state::captures;
use crate::trace::{self, TraceKind};

/// `CUgraphExec`.
type Exec = *mut c_void;
/// `CUgraphNode`.
type GraphNode = *mut c_void;

/// First fields of `CUgraphNodeParams`: the kind of node and, for a child graph, the graph.
#[repr(C)]
struct NodeParameters {
    kind: c_int,
    reserved: [c_int; 3],
    child: CuGraph,
}

// DECISION: only calls that put the work of one graph into another are tracked. A graph leaves the table
// before the driver destroys it, because the next graph may get the same address.
/// CU_GRAPH_NODE_TYPE_GRAPH.
const CHILD: c_int = 4;

hooks! {
    in CUDA;

    fn cuGraphInstantiate = "cuGraphInstantiate" since 10000 (
        exec: *mut Exec, graph: CuGraph, node: *mut GraphNode, text: *mut c_char, size: usize
    ) calls real {
        created(graph, exec, real(exec, graph, node, text, size))
    }

    fn cuGraphInstantiate_v2 | hipGraphInstantiate = "cuGraphInstantiate" since 11000 (
        exec: *mut Exec, graph: CuGraph, node: *mut GraphNode, text: *mut c_char, size: usize
    ) calls real {
        created(graph, exec, real(exec, graph, node, text, size))
    }

    fn cuGraphInstantiateWithFlags | hipGraphInstantiateWithFlags = "cuGraphInstantiate" since 12000 (
        exec: *mut Exec, graph: CuGraph, flags: u64
    ) calls real {
        created(graph, exec, real(exec, graph, flags))
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz | hipGraphInstantiateWithParams = "cuGraphInstantiateWithParams" since 12000 (
        exec: *mut Exec, graph: CuGraph, parameters: *mut c_void
    ) calls real {
        created(graph, exec, real(exec, graph, parameters))
    }

    fn cuGraphClone | hipGraphClone = "cuGraphClone" since 10000 (clone: *mut CuGraph, graph: CuGraph) calls real {
        created(graph, clone, real(clone, graph))
    }

    fn cuGraphAddChildGraphNode | hipGraphAddChildGraphNode = "cuGraphAddChildGraphNode" since 10000 (
        node: *mut GraphNode, graph: CuGraph, dependencies: *const GraphNode, count: usize, child: CuGraph
    ) calls real {
        joined(child, graph, real(node, graph, dependencies, count, child))
    }

    fn cuGraphAddNode | hipGraphAddNode = "cuGraphAddNode" since 12020 (
        node: *mut GraphNode, graph: CuGraph, dependencies: *const GraphNode, count: usize, parameters: *mut c_void
    ) calls real {
        joined(child(parameters), graph, real(node, graph, dependencies, count, parameters))
    }

    fn cuGraphAddNode_v2 = "cuGraphAddNode" since 12030 (
        node: *mut GraphNode, graph: CuGraph, dependencies: *const GraphNode, data: *const c_void, count: usize,
        parameters: *mut c_void
    ) calls real {
        joined(child(parameters), graph, real(node, graph, dependencies, data, count, parameters))
    }

    fn cuGraphExecChildGraphNodeSetParams | hipGraphExecChildGraphNodeSetParams = "cuGraphExecChildGraphNodeSetParams" since 11010 (
        exec: Exec, node: GraphNode, child: CuGraph
    ) calls real {
        joined(child, exec, real(exec, node, child))
    }

    fn cuGraphExecUpdate | hipGraphExecUpdate = "cuGraphExecUpdate" since 10020 (
        exec: Exec, graph: CuGraph, node: *mut GraphNode, outcome: *mut c_uint
    ) calls real {
        updated(exec, graph, real(exec, graph, node, outcome))
    }

    fn cuGraphExecUpdate_v2 = "cuGraphExecUpdate" since 12000 (
        exec: Exec, graph: CuGraph, outcome: *mut c_void
    ) calls real {
        updated(exec, graph, real(exec, graph, outcome))
    }

    fn cuGraphDestroy | hipGraphDestroy = "cuGraphDestroy" since 10000 (graph: CuGraph) calls real {
        destroyed(graph, || real(graph))
    }

    fn cuGraphExecDestroy | hipGraphExecDestroy = "cuGraphExecDestroy" since 10000 (exec: Exec) calls real {
        destroyed(exec, || real(exec))
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz | hipGraphLaunch | hipGraphLaunch_spt = "cuGraphLaunch" since 10000 (exec: Exec, stream: CuStream) calls real {
        exchange::note_thread();
        let result = real(exec, stream);
        if result == SUCCESS && trace::on() {
            notify(TraceKind::GraphLaunch, stream, captures::number(exec.addr()));
        }
        result
    }
}

/// # Safety
/// After success `to` can be read.
unsafe fn created(from: CuGraph, to: *mut *mut c_void, result: CuResult) -> CuResult {
    if result == SUCCESS && !to.is_null() {
        // SAFETY: the driver has written it.
        captures::spread(from.addr(), unsafe { *to }.addr());
    }
    result
}

fn joined(child: CuGraph, parent: *mut c_void, result: CuResult) -> CuResult {
    if result == SUCCESS && !child.is_null() {
        captures::spread(child.addr(), parent.addr());
    }
    result
}

fn updated(exec: Exec, graph: CuGraph, result: CuResult) -> CuResult {
    if result == SUCCESS {
        graphs::replace(graph.addr(), exec.addr());
    }
    result
}

fn destroyed(source: *mut c_void, real: impl FnOnce() -> CuResult) -> CuResult {
    graphs::destroyed(source.addr());
    real()
}

/// The graph that these parameters make a child of, if they do.
///
/// # Safety
/// Null, or parameters of a node.
unsafe fn child(parameters: *mut c_void) -> CuGraph {
    // SAFETY: parameters of every kind begin with the kind, and those of a child go on with the graph.
    match unsafe { parameters.cast::<NodeParameters>().as_ref() } {
        Some(parameters) if parameters.kind == CHILD => parameters.child,
        _ => core::ptr::null_mut(),
    }
}
