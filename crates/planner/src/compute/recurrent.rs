//! Builds recurrent layers, with a state of fixed size instead of a KV cache: Mamba, Mamba 2, short
//! convolutions.
//!
//! The code mirrors `llama-graph.cpp: build_rs`, `models/mamba-base.cpp: build_mamba_layer,
//! build_mamba2_layer` and `models/lfm2.cpp: build_shortconv_block @ b10605`.

use crate::compute::{Decoder, Id};

// Each sequence has its own state, with one copy for each token that can be rolled back.
/// A layer's states, and the rows from which the batch continues.
pub(super) struct RecurrentState {
    pub(super) states: Id,
    pub(super) current: Id,
}

/// Sizes of a scan over states, taken from the layer's tensors.
#[derive(Clone, Copy)]
pub(super) struct ScanSizes {
    pub(super) inner: u64,
    /// Elements of a state for each inner element.
    state: u64,
    /// Groups of Mamba 2, or key heads of a delta net.
    pub(super) groups: u64,
    /// Channels that are convolved.
    pub(super) channels: u64,
    /// Tokens that the convolution looks back over.
    pub(super) taps: u64,
}

impl Decoder<'_> {
    pub(super) fn sequences(&self) -> u64 {
        self.reserve.sequences.max(1)
    }

    /// Tokens of each sequence of the batch.
    pub(super) fn each(&self) -> u64 {
        self.tokens / self.sequences()
    }

    /// States that are written back for a sequence: the last one, and those before tokens that can be rolled
    /// back.
    pub(super) fn snapshots(&self) -> u64 {
        self.cache.rollback.saturating_add(1)
    }

    /// `build_rs`: the states of `row` elements each, and the result of `read` over the batch's rows of them.
    fn carry(&mut self, row: u64, read: impl FnOnce(&mut Self, Id, Id) -> Id) -> RecurrentState {
        // -nkvo keeps states on the host like any cache.
        let place = self.cache.device(self.block().place);
        let rows = self.sequences().saturating_mul(self.snapshots());
        let cache = self.graph.states(place, row, rows);
        let states = self.graph.view(cache, [row, rows, 1, 1]);
        // A sequence that starts anew reads a state of zeros.
        let blank = self.graph.view(states, [row, 1, 1, 1]);
        let blank = self.graph.overwrite(&[blank], blank);
        self.graph.expand(blank);
        let current = read(self, states, self.inputs.states_of_batch);
        self.graph.expand(current);
        // States of other sequences move to their new rows; the reserved graph has none, but keeps the
        // operations.
        let alongside = self.graph.gather([row, 0, 1, 1], states, self.inputs.states_alongside);
        let target = self.graph.view(cache, [row, 0, 1, 1]);
        self.graph.write(&[alongside, target], target);
        RecurrentState { states: cache, current }
    }

    /// The states as they are.
    pub(super) fn carry_plain(&mut self, row: u64) -> RecurrentState {
        let sequences = self.sequences();
        self.carry(row, |decoder, states, which| decoder.graph.gather([row, sequences, 1, 1], states, which))
    }

    /// Puts the kept last tokens, `[taps, channels]` each, before those of the batch, and keeps the new last
    /// ones.
    pub(super) fn window(&mut self, kept: &RecurrentState, channels: u64, taps: u64, batch: Id) -> Id {
        let (each, sequences) = (self.each(), self.sequences());
        let before = self.graph.view(kept.current, [taps, channels, sequences, 1]);
        let turned = self.graph.view(batch, [each, channels, sequences, 1]);
        let shape = [taps.saturating_add(each), channels, sequences, 1];
        let window = self.graph.own(shape, &[before, turned]);
        // One window for each token that can be rolled back.
        for _ in 0..self.snapshots().min(each) {
            let last = self.graph.slice(window, [taps, channels, sequences, 1]);
            self.write_back(kept, last, [taps.saturating_mul(channels), sequences, 1, 1]);
        }
        window
    }

    /// Writes `last` back, as rows of `shape`.
    pub(super) fn write_back(&mut self, carried: &RecurrentState, last: Id, shape: [u64; 4]) {
        let target = self.graph.view(carried.states, shape);
        self.graph.write(&[last, target], target);
    }

    /// `ggml_ssm_conv`, its bias and SiLU.
    pub(super) fn convolve(&mut self, window: Id, channels: u64) -> Option<Id> {
        let kernel = self.weight("ssm_conv1d.weight")?;
        let shape = [channels, self.each(), self.sequences(), 1];
        let convolved = self.graph.own(shape, &[window, kernel]);
        let bias = self.weight("ssm_conv1d.bias");
        let convolved = self.biased(convolved, bias);
        Some(self.graph.in_place(&[convolved]))
    }

    /// The last product of a layer, with the sequences of the batch joined again.
    pub(super) fn project_out(&mut self, role: &str, of: Id) -> Option<Id> {
        let product = self.linear(role, of)?;
        let width = self.graph.shape(product)[0];
        Some(self.graph.view(product, [width, self.tokens, 1, 1]))
    }

    pub(super) fn scan_sizes(&self) -> Option<ScanSizes> {
        let recurrent = self.layers.model.hyper.recurrent.as_ref()?;
        let inner = self.block().get("ssm_out.weight")?.0.shape[0].max(1);
        let [kernel, channels, ..] = self.block().get("ssm_conv1d.weight")?.0.shape;
        // `recurrent.state` is the whole state of a layer, one of these for each inner element.
        let state = (recurrent.state / inner).max(1);
        Some(ScanSizes {
            inner,
            state,
            // Beside the inner elements, two states of each group are convolved.
            groups: (channels.saturating_sub(inner) / state / 2).max(1),
            channels,
            taps: kernel.saturating_sub(1),
        })
    }

    /// `build_mamba2_layer`.
    pub(super) fn mamba2(&mut self, input: Id) -> Option<Id> {
        let scan = self.scan_sizes()?;
        let (each, sequences) = (self.each(), self.sequences());
        let heads = self.block().get("ssm_a")?.0.shape[1].max(1);
        let by_head = [scan.inner / heads, heads, each, sequences];
        let recent = self.carry_plain(scan.taps.saturating_mul(scan.channels));
        let mut input = input;
        if self.quirks.projects_by_sequence {
            let width = self.graph.shape(input)[0];
            input = self.graph.view(input, [width, each, sequences, 1]);
        }
        let projected = self.linear("ssm_in", input)?;
        let width = self.graph.shape(projected)[0];
        let projected = self.graph.view(projected, [width, each, sequences, 1]);
        let gate = self.graph.slice(projected, by_head);
        let mixed = self.graph.slice(projected, [scan.channels, each, sequences, 1]);
        let step = self.graph.slice(projected, [heads, each, sequences, 1]);
        let window = self.window(&recent, scan.channels, scan.taps, mixed);
        let mixed = self.convolve(window, scan.channels)?;
        let x = self.graph.slice(mixed, by_head);
        let state = [scan.state, scan.groups, each, sequences];
        let [into, out] = [(); 2].map(|()| self.graph.slice(mixed, state));
        let step = self.graph.own([heads, each, sequences, 1], &[step]);
        let step_bias = self.weight("ssm_dt.bias")?;
        let step = self.graph.in_place(&[step, step_bias]);
        let scanned = self.scan(scan, [x, step, into, out], self.snapshots())?;
        let y = self.graph.view(scanned, by_head);
        let mut y = self.skip_and_gate(y, x, gate)?;
        if self.block().has("ssm_norm.weight") {
            let grouped = [scan.inner / scan.groups, scan.groups, each, sequences];
            y = self.graph.view(y, grouped);
            y = self.norm("ssm_norm", y);
        }
        let by_sequence = self.quirks.projects_by_sequence;
        let [tokens, apart] = if by_sequence { [each, sequences] } else { [self.tokens, 1] };
        let y = self.graph.view(y, [scan.inner, tokens, apart, 1]);
        if by_sequence { self.project_out("ssm_out", y) } else { self.linear("ssm_out", y) }
    }

    /// `ggml_ssm_scan`, which reads the states where they are kept, and the write-back of the states after
    /// it.
    fn scan(&mut self, scan: ScanSizes, [x, step, into, out]: [Id; 4], snapshots: u64) -> Option<Id> {
        let decay = self.weight("ssm_a")?;
        let (sequences, row) = (self.sequences(), scan.state.saturating_mul(scan.inner));
        // One result holds the outputs and, after them, all states.
        let results = scan.inner.saturating_mul(self.tokens);
        let all = snapshots.saturating_mul(row).saturating_mul(sequences);
        let head = self.graph.shape(x)[0];
        let carried = self.carry(row, |decoder, states, which| {
            let rows = decoder.graph.shape(states)[1];
            let shape = [scan.state, head, scan.inner / head.max(1), rows];
            let states = decoder.graph.view(states, shape);
            let sources = [states, x, step, decay, into, out, which];
            decoder.graph.own([results.saturating_add(all), 1, 1, 1], &sources)
        });
        let written = [row, sequences, snapshots.min(self.each()), 1];
        let last = self.graph.view(carried.current, written);
        self.write_back(&carried, last, written);
        Some(carried.current)
    }

    /// Adds the input of the scan to its output, and gates the sum.
    fn skip_and_gate(&mut self, y: Id, around: Id, gate: Id) -> Option<Id> {
        let skip = self.weight("ssm_d")?;
        let around = self.graph.in_place(&[around, skip]);
        let y = self.graph.in_place(&[y, around]);
        // The gate is a slice of a larger tensor, and the kernels read it only as one piece.
        let piece = self.graph.own_like(gate, &[gate]);
        Some(self.graph.own_like(gate, &[piece, y]))
    }

    /// `build_mamba_layer`: heads of one element, and steps from a matrix of their own.
    pub(super) fn mamba(&mut self, input: Id) -> Option<Id> {
        let scan = self.scan_sizes()?;
        let (each, sequences) = (self.each(), self.sequences());
        let rank = self.block().get("ssm_dt.weight")?.0.shape[0];
        let recent = self.carry_plain(scan.taps.saturating_mul(scan.inner));
        let embedding = self.graph.shape(input)[0];
        let input = self.graph.view(input, [embedding, each, sequences, 1]);
        let projected = self.linear("ssm_in", input)?;
        let wide = [scan.inner, each, sequences, 1];
        let [x, gate] = [(); 2].map(|()| self.graph.slice(projected, wide));
        let window = self.window(&recent, scan.inner, scan.taps, x);
        let convolved = self.convolve(window, scan.inner)?;
        let parts = self.linear("ssm_x", convolved)?;
        let mut step = self.graph.slice(parts, [rank, each, sequences, 1]);
        let [mut into, mut out] = [(); 2].map(|()| self.graph.slice(parts, [scan.state, 1, each, sequences]));
        let recurrent = self.layers.model.hyper.recurrent.as_ref();
        // Jamba norms the three with weights, FalconMamba without.
        if self.block().has("ssm_b_norm.weight") {
            step = self.norm("ssm_dt_norm", step);
            into = self.norm("ssm_b_norm", into);
            out = self.norm("ssm_c_norm", out);
        } else if recurrent.is_some_and(|recurrent| recurrent.bare_norms) {
            [step, into, out] = [step, into, out].map(|part| self.graph.in_place(&[part]));
        }
        let step = self.linear("ssm_dt", step)?;
        let x = self.graph.view(convolved, [1, scan.inner, each, sequences]);
        let scanned = self.scan(scan, [x, step, into, out], 1)?;
        let y = self.graph.view(scanned, wide);
        let y = self.skip_and_gate(y, convolved, gate)?;
        self.project_out("ssm_out", y)
    }

    /// `build_shortconv_block`.
    pub(super) fn short_convolution(&mut self, input: Id) -> Option<Id> {
        let [kernel, channels, ..] = self.block().get("shortconv.conv.weight")?.0.shape;
        let taps = kernel.saturating_sub(1);
        let shape = [channels, self.each(), self.sequences(), 1];
        let input = self.graph.view(input, shape);
        let parts = self.linear("shortconv.in_proj", input)?;
        let [before, after, x] = [(); 3].map(|()| self.graph.slice(parts, shape));
        let gated = self.graph.in_place(&[before, x]);
        let recent = self.carry_plain(taps.saturating_mul(channels));
        let window = self.window(&recent, channels, taps, gated);
        let kernel = self.weight("shortconv.conv.weight")?;
        let convolved = self.graph.own(shape, &[window, kernel]);
        let y = self.graph.in_place(&[after, convolved]);
        self.project_out("shortconv.out_proj", y)
    }
}
