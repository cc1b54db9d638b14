//! Stream capture in the fake driver: work goes into a graph instead of a stream. Illegal calls return error
//! 900 and invalidate the capture.
//!
//! A call is unsafe during capture if it may wait or may change memory that the graph uses. The driver's
//! documentation says when it is forbidden. That depends on the mode in which the capture began, on the
//! calling thread, and on that thread's own mode (`cuThreadExchangeStreamCaptureMode`).

use std::cell::Cell;
use std::collections::BTreeMap;

use crate::abi::{Context, Graph, In, Out, Stream};
use crate::call::driver;
use crate::code::{
    Code, INVALID_VALUE, Outcome, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_UNMATCHED, STREAM_CAPTURE_UNSUPPORTED, STREAM_CAPTURE_WRONG_THREAD,
};
use crate::driver::{Driver, driver};
use crate::log;
use crate::operation::Operation;

/// `CUstreamCaptureMode`.
const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

/// `CUstreamCaptureStatus`.
const NONE: i32 = 0;
const ACTIVE: i32 = 1;
const INVALIDATED: i32 = 2;

/// Captures under way, by the graph they fill.
pub(crate) type Captures = BTreeMap<Graph, Capture>;

#[derive(Debug)]
pub(crate) struct Capture {
    origin: Stream,
    thread: u32,
    mode: i32,
    invalidated: bool,
}

thread_local!(static MODE: Cell<i32> = const { Cell::new(GLOBAL) });

/// Refuses an unsafe call where a capture forbids it, and spoils that capture.
pub(crate) fn forbid_in_capture() -> Outcome {
    driver()?.forbid_unsafe()
}

impl Driver {
    pub(crate) fn forbid_unsafe(&mut self) -> Outcome {
        let (thread, mode) = (log::thread(), MODE.get());
        let forbids = |capture: &Capture| match mode {
            RELAXED => false,
            THREAD_LOCAL => capture.thread == thread && capture.mode != RELAXED,
            _ => capture.mode == GLOBAL || capture.thread == thread && capture.mode != RELAXED,
        };
        self.spoil(|_, capture| forbids(capture))
    }

    /// Invalidates some captures; an error if there were any.
    fn spoil(&mut self, which: impl Fn(Graph, &Capture) -> bool) -> Outcome {
        let mut outcome = Ok(());
        for (graph, capture) in &mut self.captures {
            if which(*graph, capture) {
                capture.invalidated = true;
                outcome = Err(STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        outcome
    }

    /// Refuses to wait for, or to ask about, a stream that is being captured.
    pub(crate) fn forbid_wait(&mut self, stream: Stream) -> Outcome {
        let graph = self.work.streams[&stream].capture;
        self.spoil(|captured, _| Some(captured) == graph)?;
        self.forbid_unsafe()?;
        if self.is_legacy(stream) && self.invalidate_blocking_captures(stream) {
            Err(STREAM_CAPTURE_IMPLICIT)
        } else {
            Ok(())
        }
    }

    /// Refuses to wait for a context in which a stream is being captured.
    pub(crate) fn forbid_wait_for(&mut self, context: Context) -> Outcome {
        let streams = self.work.streams.values().filter(|state| state.context == context);
        let captured: Vec<Graph> = streams.filter_map(|state| state.capture).collect();
        self.spoil(|graph, _| captured.contains(&graph))?;
        self.forbid_unsafe()
    }

    /// Work in the legacy stream would wait for the blocking streams: spoils the captures of those.
    pub(crate) fn invalidate_blocking_captures(&mut self, legacy: Stream) -> bool {
        let context = self.work.streams[&legacy].context;
        let blocking = |state: &&crate::work::StreamState| state.blocking && state.context == context;
        let captured: Vec<Graph> =
            self.work.streams.values().filter(blocking).filter_map(|state| state.capture).collect();
        self.spoil(|graph, _| captured.contains(&graph)).is_err()
    }

    /// Adds a node to the graph of a capture.
    pub(crate) fn capture_operation(&mut self, graph: Graph, operation: Operation) -> Outcome {
        if self.captures.get(&graph).is_none_or(|capture| capture.invalidated) {
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        self.add_node(graph, operation)
    }

    /// Begins to capture into a graph, a new one if none is given.
    fn begin(&mut self, handle: Stream, mode: i32, into: Option<Graph>) -> Outcome {
        let stream = self.stream(handle)?;
        if self.is_legacy(stream) {
            return Err(STREAM_CAPTURE_UNSUPPORTED);
        }
        if !(GLOBAL..=RELAXED).contains(&mode) || self.work.streams[&stream].capture.is_some() {
            return Err(INVALID_VALUE);
        }
        let graph = into.unwrap_or_else(|| self.new_graph());
        if !self.graphs.graphs.contains_key(&graph) || self.captures.contains_key(&graph) {
            return Err(INVALID_VALUE);
        }
        let capture = Capture { origin: stream, thread: log::thread(), mode, invalidated: false };
        self.captures.insert(graph, capture);
        self.join_capture(stream, graph);
        Ok(())
    }

    pub(crate) fn join_capture(&mut self, stream: Stream, graph: Graph) {
        if let Some(state) = self.work.streams.get_mut(&stream) {
            state.capture = Some(graph);
        }
    }

    fn end(&mut self, handle: Stream) -> Result<Graph, Code> {
        let stream = self.stream(handle)?;
        let graph = self.work.streams[&stream].capture.ok_or(INVALID_VALUE)?;
        let capture = self.captures.get(&graph).ok_or(INVALID_VALUE)?;
        if capture.origin != stream {
            return Err(STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != log::thread() {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let invalidated = capture.invalidated;
        self.captures.remove(&graph);
        for state in self.work.streams.values_mut().filter(|state| state.capture == Some(graph)) {
            state.capture = None;
        }
        if invalidated {
            self.drop_graph(graph)?;
            return Err(STREAM_CAPTURE_INVALIDATED);
        }
        Ok(graph)
    }

    /// Status, and the graph as the number of the capture.
    fn capture_status(&mut self, handle: Stream) -> Result<(i32, Graph), Code> {
        let stream = self.stream(handle)?;
        if self.is_legacy(stream) && self.invalidate_blocking_captures(stream) {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        let graph = self.work.streams[&stream].capture;
        Ok(match graph.and_then(|graph| Some((graph, self.captures.get(&graph)?))) {
            None => (NONE, Graph(0)),
            Some((graph, capture)) if capture.invalidated => (INVALIDATED, graph),
            Some((graph, _)) => (ACTIVE, graph),
        })
    }
}

fn info(stream: Stream, status: Out<i32>, id: Out<u64>, graph: Out<Graph>) -> Outcome {
    let (found, capture) = driver()?.capture_status(stream)?;
    id.set_if_wanted(capture.0);
    graph.set_if_wanted(capture);
    status.set(found)
}

driver! {
    fn cuStreamBeginCapture / cuStreamBeginCapture_ptsz = "cuStreamBeginCapture" since 10000 (hStream: Stream) {
        driver()?.begin(hStream, GLOBAL, None)
    }

    fn cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz = "cuStreamBeginCapture" since 10010
        (hStream: Stream, mode: i32)
    {
        driver()?.begin(hStream, mode, None)
    }

    fn cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz = "cuStreamBeginCaptureToGraph" since 12030
        (hStream: Stream, hGraph: Graph, dependencies: In<u64>, dependencyData: In<u64>, numDependencies: usize,
         mode: i32)
    {
        let _ = (dependencies, dependencyData, numDependencies);
        driver()?.begin(hStream, mode, Some(hGraph))
    }

    fn cuStreamEndCapture / cuStreamEndCapture_ptsz = "cuStreamEndCapture" since 10000
        (hStream: Stream, phGraph: Out<Graph>)
    {
        match driver()?.end(hStream) {
            Ok(graph) => phGraph.set(graph),
            Err(code) => {
                phGraph.set_if_wanted(Graph(0));
                Err(code)
            }
        }
    }

    fn cuStreamIsCapturing / cuStreamIsCapturing_ptsz = "cuStreamIsCapturing" since 10000
        (hStream: Stream, captureStatus: Out<i32>)
    {
        captureStatus.set(driver()?.capture_status(hStream)?.0)
    }

    fn cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz = "cuStreamGetCaptureInfo" since 10010
        (hStream: Stream, captureStatus: Out<i32>, id: Out<u64>)
    {
        info(hStream, captureStatus, id, Out::nowhere())
    }

    fn cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz = "cuStreamGetCaptureInfo" since 11030
        (hStream: Stream, captureStatus: Out<i32>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<u64>,
         numDependencies: Out<usize>)
    {
        dependencies.set_if_wanted(0);
        numDependencies.set_if_wanted(0);
        info(hStream, captureStatus, id, graph)
    }

    fn cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz = "cuStreamGetCaptureInfo" since 12030
        (hStream: Stream, captureStatus: Out<i32>, id: Out<u64>, graph: Out<Graph>, dependencies: Out<u64>,
         edgeData: Out<u64>, numDependencies: Out<usize>)
    {
        dependencies.set_if_wanted(0);
        edgeData.set_if_wanted(0);
        numDependencies.set_if_wanted(0);
        info(hStream, captureStatus, id, graph)
    }

    fn cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode" since 10010 (mode: Out<i32>) {
        let wanted = mode.get()?;
        if !(GLOBAL..=RELAXED).contains(&wanted) {
            return Err(INVALID_VALUE);
        }
        mode.set(MODE.replace(wanted))
    }
}

#[cfg(test)]
mod tests;
