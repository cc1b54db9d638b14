//! Runs a random program against an allocator policy on a simulated card, and checks the policy's laws
//! (invariants) after every step.

use plimsoll_pool::{Address, Block, CapturedGraph, PoolDevice, ServedPolicy, Stream, Trim};

use crate::runner::simulated::{Faults, Simulated};

use super::program::Act;

pub(crate) const GRANULE: u64 = 2 << 20;

pub(crate) fn card(mib: u64) -> Simulated {
    Simulated::new(mib << 20, GRANULE)
}

pub(crate) struct Machine<P> {
    policy: P,
    device: Simulated,
    blocks: Vec<(Block, Stream)>,
    /// Captures in progress and graphs that exist, each on its stream.
    captures: Vec<(CapturedGraph, Stream)>,
    graphs: Vec<(CapturedGraph, Stream)>,
    next_graph: u64,
    /// Whether the driver may be refusing for no reason.
    faulty: bool,
    /// Whether the policy may wait at any time, as a naive one does.
    waits: bool,
    peak: u64,
}

/// What the driver was told that a capture forbids, or that waits.
struct Before {
    returns: u64,
    waits: u64,
}

fn choose<T>(from: &[T], which: usize) -> Option<usize> {
    match from.len() {
        0 => None,
        length if which == usize::MAX => Some(length - 1),
        length => Some(which % length),
    }
}

fn law(holds: bool, broken: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(broken()) }
}

impl<P: ServedPolicy> Machine<P> {
    pub(crate) fn new(policy: P, device: Simulated) -> Self {
        Self {
            policy,
            device,
            blocks: Vec::new(),
            captures: Vec::new(),
            graphs: Vec::new(),
            next_graph: 1,
            faulty: false,
            waits: false,
            peak: 0,
        }
    }

    /// The same for a policy that waits whenever it likes.
    pub(crate) fn of_naive(policy: P, device: Simulated) -> Self {
        let waits = true;
        Self { waits, ..Self::new(policy, device) }
    }

    pub(crate) fn device(&self) -> &Simulated {
        &self.device
    }

    pub(crate) fn live(&self) -> u64 {
        self.policy.live()
    }

    /// Does an act and checks the laws. Returns where a block was put.
    pub(crate) fn act(&mut self, act: &Act) -> Result<Option<Address>, String> {
        let capturing = !self.captures.is_empty();
        let before = self.before();
        let put = self.run(act)?;
        self.check(act)?;
        let after = self.before();
        law(!capturing || after.returns == before.returns, || {
            format!("P11: memory went back to the driver during a capture, at {act:?}")
        })?;
        let may_wait = matches!(act, Act::Allocate { .. } | Act::TrimAll);
        law(self.waits || may_wait || after.waits == before.waits, || {
            format!("P12: {act:?} waited for the card")
        })?;
        Ok(put)
    }

    fn before(&self) -> Before {
        let calls = self.device.calls();
        Before { returns: calls.free + calls.unmap, waits: calls.wait }
    }

    fn run(&mut self, act: &Act) -> Result<Option<Address>, String> {
        match *act {
            Act::Allocate { size, stream } => return self.allocate(size, Stream(stream)),
            Act::Free { which } => self.free(which),
            Act::FreeAcross { which, stream } => self.free_across(which, Stream(stream)),
            Act::Launch { which, microseconds } => self.launch(which, microseconds),
            Act::Advance { microseconds } => self.device.advance(microseconds),
            Act::Synchronize if self.captures.is_empty() => self.device.synchronize(),
            Act::Synchronize => {}
            Act::BeginCapture { stream } => self.begin_capture(Stream(stream)),
            Act::EndCapture { which } => self.end_capture(which),
            Act::LaunchGraph { which } => self.launch_graph(which),
            Act::DestroyGraph { which } => self.destroy_graph(which),
            Act::TrimIdle => drop(self.policy.trim(&mut self.device, Trim::Idle)),
            Act::TrimAll => drop(self.policy.trim(&mut self.device, Trim::All)),
            Act::Resize { mib } => self.device.resize(mib << 20),
            Act::Refuse { requests } => {
                self.device.inject(Faults::next(requests));
                self.faulty = true;
            }
        }
        Ok(None)
    }

    fn allocate(&mut self, size: u64, stream: Stream) -> Result<Option<Address>, String> {
        match self.policy.allocate(&mut self.device, size, stream) {
            Ok(block) => {
                self.device.launch(stream, 50, &[block]);
                self.blocks.push((block, stream));
                law(block.address.0.is_multiple_of(256) && block.size == size, || {
                    format!("P2: {block:?} for {size} bytes")
                })?;
                Ok(Some(block.address))
            }
            Err(refused) => {
                self.judge_refusal(size)?;
                law(refused.requested == size, || format!("P7: {refused} for {size} bytes"))?;
                self.faulty = false;
                self.device.inject(Faults::default());
                Ok(None)
            }
        }
    }

    /// P7: refused only if it does not fit, with nothing idle left that could have made room.
    fn judge_refusal(&mut self, size: u64) -> Result<(), String> {
        if self.faulty || !self.captures.is_empty() {
            return Ok(());
        }
        let need = size.max(1).next_multiple_of(GRANULE) + GRANULE;
        let free = self.device.available();
        law(free < need, || format!("P7: refused {size} bytes with {free} free"))?;
        let idle = self.policy.trim(&mut self.device, Trim::All);
        law(idle == 0, || format!("P7: refused {size} bytes with {idle} idle"))
    }

    fn free(&mut self, which: usize) {
        if let Some(index) = choose(&self.blocks, which) {
            let (block, stream) = self.blocks.remove(index);
            self.policy.deallocate(&mut self.device, block, stream);
        }
    }

    /// Not where a graph may be launched: it uses the memory of what was freed on its stream, which may be
    /// that of the block, and the program would have to order the two.
    fn free_across(&mut self, which: usize, stream: Stream) {
        let Some(index) = choose(&self.blocks, which) else {
            return;
        };
        let (block, own) = self.blocks[index];
        let graphs = self.graphs.iter().chain(&self.captures);
        if graphs.into_iter().any(|&(_, of)| of == own || of == stream) {
            return;
        }
        self.blocks.remove(index);
        let event = self.device.record(own);
        self.device.order(stream, event);
        self.device.forget(event);
        self.device.launch(stream, 200, &[block]);
        self.policy.deallocate(&mut self.device, block, stream);
    }

    fn launch(&mut self, which: usize, microseconds: u64) {
        if let Some(index) = choose(&self.blocks, which) {
            let (block, stream) = self.blocks[index];
            self.device.launch(stream, microseconds, &[block]);
        }
    }

    fn begin_capture(&mut self, stream: Stream) {
        if self.device.capturing(stream) || self.graphs.len() + self.captures.len() >= 4 {
            return;
        }
        let graph = CapturedGraph(self.next_graph);
        self.next_graph += 1;
        self.policy.capture_begin(graph);
        self.device.begin_capture(stream, graph);
        self.captures.push((graph, stream));
    }

    fn end_capture(&mut self, which: usize) {
        if let Some(index) = choose(&self.captures, which) {
            let (graph, stream) = self.captures.remove(index);
            self.device.end_capture(stream);
            self.policy.capture_end(graph);
            self.graphs.push((graph, stream));
        }
    }

    fn launch_graph(&mut self, which: usize) {
        if let Some(index) = choose(&self.graphs, which) {
            let (graph, stream) = self.graphs[index];
            if !self.device.capturing(stream) {
                self.device.launch_graph(graph, stream, 100);
            }
        }
    }

    fn destroy_graph(&mut self, which: usize) {
        if let Some(index) = choose(&self.graphs, which)
            && self.captures.is_empty()
        {
            let (graph, _) = self.graphs.remove(index);
            self.device.synchronize();
            self.device.destroy_graph(graph);
            self.policy.graph_destroyed(graph);
        }
    }

    /// The laws of every moment. P1 and P6 are the card's own judgement, and the first also ours.
    fn check(&mut self, act: &Act) -> Result<(), String> {
        let violations = self.device.violations();
        law(violations.is_empty(), || format!("P1, P6: {violations:?} at {act:?}"))?;
        let mut ends: Vec<(u64, u64)> =
            self.blocks.iter().map(|(block, _)| (block.address.0, block.end().0)).collect();
        ends.sort_unstable();
        law(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), || {
            format!("P1: live blocks overlap after {act:?}")
        })?;
        let (reserved, occupied) = (self.policy.reserved(), self.device.reserved());
        law(reserved == occupied, || format!("P3: {reserved} reserved, {occupied} held, after {act:?}"))?;
        let live: u64 = self.blocks.iter().map(|(block, _)| block.size).sum();
        let reported = self.policy.live();
        law(reported == live && live <= reserved, || {
            format!("P8: {reported} live by the policy, {live} by the program, {reserved} reserved")
        })?;
        let peak = self.device.peak_reserved();
        law(peak >= self.peak && peak >= occupied, || format!("P8: the peak fell to {peak}"))?;
        self.peak = peak;
        Ok(())
    }

    /// P5: with everything freed and every graph gone, a full trim leaves nothing; P12: and no event.
    pub(crate) fn end(mut self) -> Result<(), String> {
        while !self.captures.is_empty() {
            self.end_capture(0);
        }
        while !self.graphs.is_empty() {
            self.launch_graph(0);
            self.destroy_graph(0);
        }
        while !self.blocks.is_empty() {
            self.free(usize::MAX);
        }
        self.check(&Act::TrimAll)?;
        self.policy.trim(&mut self.device, Trim::All);
        self.check(&Act::TrimAll)?;
        law(self.policy.reserved() == 0, || format!("P5: {} bytes are left", self.policy.reserved()))?;
        self.policy.close(&mut self.device);
        let events = self.device.events();
        law(events == 0, || format!("P12: {events} events are left"))
    }
}
