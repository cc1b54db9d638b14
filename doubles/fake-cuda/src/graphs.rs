//! CUDA graphs in the fake driver: captured work that is made executable and launched.
//!
//! Each node records the memory blocks that its addresses referred to when it was captured. If a launch finds
//! other memory there, or none, this is logged as a violation; if there is none, the launch fails with
//! CUDA_ERROR_ILLEGAL_ADDRESS. Memory that was exchanged for other memory with the same bytes is not other
//! memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::abi::structs::InstantiateParams;
use crate::abi::{DevicePtr, Graph, GraphExec, Host, Out, Stream};
use crate::call::driver;
use crate::code::{
    Code, GRAPH_EXEC_UPDATE_FAILURE, ILLEGAL_ADDRESS, INVALID_VALUE, Outcome, STREAM_CAPTURE_UNSUPPORTED,
};
use crate::driver::{Driver, driver};
use crate::log::violation;
use crate::operation::Operation;
use crate::space::{Behind, Segment};

#[derive(Debug, Default)]
pub(crate) struct Graphs {
    pub(crate) graphs: BTreeMap<Graph, Vec<Node>>,
    execs: BTreeMap<GraphExec, Exec>,
    /// What allocation nodes made, and for which graph.
    memory: BTreeMap<u64, Graph>,
}

#[derive(Debug)]
struct Exec {
    graph: Graph,
    nodes: Vec<Node>,
}

impl Graphs {
    /// Ties memory to a graph: it goes with the last of the graph and its execs.
    pub(crate) fn own_memory(&mut self, graph: Graph, at: DevicePtr) {
        self.memory.insert(at.0, graph);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    id: u64,
    operation: Operation,
    pins: Vec<Pin>,
}

/// A range of addresses and the memory that was there.
#[derive(Debug, Clone)]
struct Pin {
    range: Range<u64>,
    region: u64,
    behind: Vec<Behind>,
}

impl Driver {
    pub(crate) fn new_graph(&mut self) -> Graph {
        let graph = Graph(self.new_handle());
        self.graphs.graphs.insert(graph, Vec::new());
        graph
    }

    pub(crate) fn add_node(&mut self, graph: Graph, operation: Operation) -> Outcome {
        let pins = operation.reach().into_iter().filter_map(|(range, _)| self.pin(range)).collect();
        let id = self.new_handle();
        let nodes = self.graphs.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        nodes.push(Node { id, operation, pins });
        Ok(())
    }

    pub(crate) fn drop_graph(&mut self, graph: Graph) -> Outcome {
        self.graphs.graphs.remove(&graph).ok_or(INVALID_VALUE)?;
        self.release_memory_of(graph);
        Ok(())
    }

    fn drop_exec(&mut self, exec: GraphExec) -> Outcome {
        let Exec { graph, .. } = self.graphs.execs.remove(&exec).ok_or(INVALID_VALUE)?;
        self.release_memory_of(graph);
        Ok(())
    }

    /// Frees the memory of a graph's allocation nodes when nothing can launch them any more.
    fn release_memory_of(&mut self, graph: Graph) {
        let graphs = &mut self.graphs;
        if graphs.graphs.contains_key(&graph) || graphs.execs.values().any(|exec| exec.graph == graph) {
            return;
        }
        let memory: Vec<u64> =
            graphs.memory.extract_if(.., |_, owner| *owner == graph).map(|(at, _)| at).collect();
        for at in memory {
            // The program may have freed it itself.
            let _ = self.end_region(at);
        }
    }

    fn pin(&self, range: Range<u64>) -> Option<Pin> {
        let at = DevicePtr(range.start);
        let (_, region) = self.space.region(at)?;
        let covering = self.space.cover(at, range.end - range.start)?;
        let first = |(at, Segment { behind, .. }): &(u64, Segment)| self.behind_at_first(*at, *behind);
        let behind = covering.iter().map(first).collect();
        Some(Pin { range, region: region.id, behind })
    }

    fn instantiate(&mut self, graph: Graph) -> Result<GraphExec, Code> {
        if self.captures.contains_key(&graph) {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        let nodes = self.graphs.graphs.get(&graph).ok_or(INVALID_VALUE)?.clone();
        let exec = GraphExec(self.new_handle());
        self.graphs.execs.insert(exec, Exec { graph, nodes });
        Ok(exec)
    }

    /// Whether the memory of a node is still that of its capture; an error where there is none.
    fn inspect(&self, exec: GraphExec, node: &Node) -> Outcome {
        for pin in &node.pins {
            let Range { start, end } = pin.range;
            match self.pin(pin.range.clone()) {
                Some(now) if now.region == pin.region && now.behind == pin.behind => {}
                Some(_) => violation(
                    "graph-stale",
                    format_args!("graph {:#x} uses {start:#x}..{end:#x}, where other memory is now", exec.0),
                ),
                None => {
                    violation(
                        "graph-freed",
                        format_args!("graph {:#x} uses {start:#x}..{end:#x}, which is gone", exec.0),
                    );
                    return Err(ILLEGAL_ADDRESS);
                }
            }
        }
        Ok(())
    }

    fn launch(&mut self, exec: GraphExec, handle: Stream) -> Outcome {
        let nodes = self.graphs.execs.get(&exec).ok_or(INVALID_VALUE)?.nodes.clone();
        let stream = self.stream(handle)?;
        if let Some(graph) = self.work.streams[&stream].capture {
            return nodes.into_iter().try_for_each(|node| self.capture_operation(graph, node.operation));
        }
        let card = self.contexts.open[&self.current()?].card;
        for node in &nodes {
            self.inspect(exec, node)?;
            self.check(&node.operation, card).inspect_err(|_| {
                violation(
                    "no-access",
                    format_args!("graph {:#x} uses memory that the card may not use", exec.0),
                );
            })?;
            self.execute(&node.operation)?;
        }
        let touches = nodes.iter().flat_map(|node| node.operation.reach()).collect();
        let delay = nodes.iter().map(|node| node.operation.delay()).sum();
        self.enqueue(stream, touches, delay);
        Ok(())
    }

    /// Gives an exec the operations of a graph of the same shape.
    fn update(&mut self, exec: GraphExec, graph: Graph) -> Outcome {
        let nodes = self.graphs.graphs.get(&graph).ok_or(INVALID_VALUE)?.clone();
        let old = self.graphs.execs.get_mut(&exec).ok_or(INVALID_VALUE)?;
        let kinds = |nodes: &[Node]| nodes.iter().map(|node| node.operation.kind()).collect::<Vec<_>>();
        if kinds(&old.nodes) != kinds(&nodes) {
            return Err(GRAPH_EXEC_UPDATE_FAILURE);
        }
        old.nodes = nodes;
        Ok(())
    }
}

fn instantiate(exec: Out<GraphExec>, graph: Graph) -> Outcome {
    let created = driver()?.instantiate(graph)?;
    exec.set(created)
}

driver! {
    fn cuGraphCreate = "cuGraphCreate" since 10000 (phGraph: Out<Graph>, flags: u32) {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let graph = driver()?.new_graph();
        phGraph.set(graph)
    }

    fn cuGraphDestroy = "cuGraphDestroy" since 10000 (hGraph: Graph) {
        driver()?.drop_graph(hGraph)
    }

    fn cuGraphInstantiate = "cuGraphInstantiate" since 10000
        (phGraphExec: Out<GraphExec>, hGraph: Graph, phErrorNode: Out<u64>, logBuffer: Host, bufferSize: usize)
    {
        let _ = (phErrorNode, logBuffer, bufferSize);
        instantiate(phGraphExec, hGraph)
    }

    fn cuGraphInstantiate_v2 = "cuGraphInstantiate" since 11000
        (phGraphExec: Out<GraphExec>, hGraph: Graph, phErrorNode: Out<u64>, logBuffer: Host, bufferSize: usize)
    {
        let _ = (phErrorNode, logBuffer, bufferSize);
        instantiate(phGraphExec, hGraph)
    }

    fn cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags" since 11040
        (phGraphExec: Out<GraphExec>, hGraph: Graph, flags: u64)
    {
        let _ = flags;
        instantiate(phGraphExec, hGraph)
    }

    fn cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz = "cuGraphInstantiateWithParams" since 12000
        (phGraphExec: Out<GraphExec>, hGraph: Graph, instantiateParams: Out<InstantiateParams>)
    {
        let params = instantiateParams.get()?;
        instantiate(phGraphExec, hGraph)?;
        instantiateParams.set(InstantiateParams { failed_node: 0, result: 0, ..params })
    }

    fn cuGraphExecUpdate = "cuGraphExecUpdate" since 10020
        (hGraphExec: GraphExec, hGraph: Graph, hErrorNode_out: Out<u64>, updateResult_out: Out<i32>)
    {
        hErrorNode_out.set_if_wanted(0);
        let outcome = driver()?.update(hGraphExec, hGraph);
        updateResult_out.set_if_wanted(i32::from(outcome.is_err()));
        outcome
    }

    fn cuGraphExecUpdate_v2 = "cuGraphExecUpdate" since 12000
        (hGraphExec: GraphExec, hGraph: Graph, resultInfo: Out<[u64; 3]>)
    {
        let outcome = driver()?.update(hGraphExec, hGraph);
        resultInfo.set_if_wanted([u64::from(outcome.is_err()), 0, 0]);
        outcome
    }

    fn cuGraphUpload / cuGraphUpload_ptsz = "cuGraphUpload" since 11010 (hGraphExec: GraphExec, hStream: Stream) {
        let driver = driver()?;
        driver.stream(hStream)?;
        driver.graphs.execs.get(&hGraphExec).map(drop).ok_or(INVALID_VALUE)
    }

    fn cuGraphLaunch / cuGraphLaunch_ptsz = "cuGraphLaunch" since 10000 (hGraphExec: GraphExec, hStream: Stream) {
        driver()?.launch(hGraphExec, hStream)
    }

    fn cuGraphExecDestroy = "cuGraphExecDestroy" since 10000 (hGraphExec: GraphExec) {
        driver()?.drop_exec(hGraphExec)
    }

    fn cuGraphGetNodes = "cuGraphGetNodes" since 10000 (hGraph: Graph, nodes: Out<u64>, numNodes: Out<usize>) {
        let driver = driver()?;
        let found = driver.graphs.graphs.get(&hGraph).ok_or(INVALID_VALUE)?;
        if nodes.is_null() {
            return numNodes.set(found.len());
        }
        let room = numNodes.get()?.min(found.len());
        for (index, node) in found.iter().take(room).enumerate() {
            nodes.at(index).set(node.id)?;
        }
        numNodes.set(room)
    }

    fn cuGraphNodeGetType = "cuGraphNodeGetType" since 10000 (hNode: u64, kind: Out<i32>) {
        let driver = driver()?;
        let mut nodes = driver.graphs.graphs.values().flatten();
        let node = nodes.find(|node| node.id == hNode).ok_or(INVALID_VALUE)?;
        kind.set(node.operation.kind())
    }
}
