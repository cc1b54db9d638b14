//! Counts weights that ggml's CPU backend copies into another memory layout at load (`CPU_REPACK`).
//!
//! The engine computes with the repacked copy only. The file's original pages are page cache, which the
//! kernel drops when memory is short. Nothing reads them again. So each weight counts once, unless the file
//! is locked in memory.

use plimsoll_base::Bytes;
use plimsoll_model::{Model, Tensor};

use crate::layout::is_input;
use crate::{DeviceLayout, EngineKind, PlanRequest, TensorDevice, weights};

/// Instructions of a processor that decide which weights are copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    pub avx2: bool,
    pub avx512: bool,
    /// With VNNI, for which ggml has a buffer of its own.
    pub amx: bool,
    pub neon: bool,
    pub dotprod: bool,
    /// Products of matrices of 8-bit integers.
    pub i8mm: bool,
}

impl Processor {
    /// Instructions of nearly every x86-64 machine since 2015.
    pub const ASSUMED: Self =
        Self { avx2: true, avx512: false, amx: false, neon: false, dotprod: false, i8mm: false };

    /// Reads `/proc/cpuinfo`: `flags` of x86, `Features` of Arm. `None` without such a line.
    pub fn of_cpuinfo(text: &str) -> Option<Self> {
        let is_list = |line: &&str| line.starts_with("flags") || line.starts_with("Features");
        // All processors of a machine have the same.
        let (_, list) = text.lines().find(is_list)?.split_once(':')?;
        let has = |name: &str| list.split_ascii_whitespace().any(|word| word == name);
        Some(Self {
            avx2: has("avx2"),
            avx512: ["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"].into_iter().all(has),
            amx: has("amx_int8") && has("avx512_vnni"),
            neon: has("asimd"),
            dotprod: has("asimddp"),
            i8mm: has("i8mm"),
        })
    }

    /// Instructions used by builds for less than this processor: AVX2 alone on x86, NEON alone on Arm.
    fn least(self) -> Self {
        Self { avx512: false, amx: false, dotprod: false, i8mm: false, ..self }
    }

    /// The instructions in words, the strongest of each kind.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self { amx: true, .. } => "AMX",
            Self { avx512: true, .. } => "AVX-512",
            Self { avx2: true, .. } => "AVX2",
            Self { i8mm: true, .. } => "NEON with i8mm",
            Self { dotprod: true, .. } => "NEON with dotprod",
            Self { neon: true, .. } => "NEON",
            _ => "neither AVX2 nor NEON",
        }
    }

    /// True if the backend has another layout for such a matrix
    /// (`repack.cpp:ggml_repack_get_optimal_repack_type`, `amx.cpp:supports_op @ b10605`).
    fn copies(self, tensor: &Tensor) -> bool {
        let [columns, rows, ..] = tensor.shape;
        let arm = self.neon && (self.dotprod || self.i8mm);
        let repacked = match tensor.kind.name {
            "q4_0" => (self.avx2 && rows % 8 == 0) || (arm && rows % 4 == 0),
            "q4_K" => (self.avx2 || arm) && rows % 8 == 0,
            "q2_K" => self.avx512 && rows % 8 == 0,
            "q5_K" | "q6_K" => arm && rows % 8 == 0,
            "iq4_nl" => (self.avx2 && rows % 8 == 0) || (self.neon && rows % 4 == 0),
            "mxfp4" => (self.avx2 && rows % 8 == 0) || (arm && rows % 4 == 0),
            "q8_0" => arm && rows % 4 == 0,
            _ => false,
        };
        let tiles = match tensor.kind.name {
            "q4_0" | "q4_1" | "q8_0" => 32,
            "q4_K" | "q5_K" | "q6_K" | "iq4_xs" => 256,
            _ => return repacked,
        };
        repacked || (self.amx && !tensor.is_expert() && rows % 32 == 0 && columns % tiles == 0)
    }
}

/// Copies that the engine makes of a model's weights in host memory.
pub(crate) struct Repacking {
    processor: Option<Processor>,
}

impl Repacking {
    /// None where the engine makes no copies: `--no-repack`, another engine, or a card, before whose own
    /// buffers of host memory the copies would have no turn (`llama-model.cpp:make_cpu_buft_list @ b10605`).
    pub(crate) fn of(request: &PlanRequest<'_>, layout: &DeviceLayout) -> Self {
        let params = request.params;
        let is_requested = params.cpu_repack && request.engine.kind == EngineKind::LlamaCpp;
        let has_turn = layout.devices.is_empty() || params.no_host;
        let processor = request.processor.unwrap_or(Processor::ASSUMED);
        Self { processor: (is_requested && has_turn).then_some(processor) }
    }

    /// True for a matrix that is copied where it is multiplied with (`repack.cpp:supports_op @ b10605`).
    pub(crate) fn copies(&self, tensor: &Tensor) -> bool {
        // The matrices of experts have three dimensions; others that do are multiplied with in another way.
        let is_matrix =
            tensor.shape[1] > 1 && tensor.shape[3] == 1 && (tensor.shape[2] == 1 || tensor.is_expert());
        is_matrix && self.processor.is_some_and(|processor| processor.copies(tensor))
    }
}

/// Bytes of the copies, and of mapped pages that stay beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RepackedBytes {
    pub(crate) copies: Bytes,
    /// Of them, what a build for less than the processor copies too.
    pub(crate) sure: Bytes,
    /// Pages of copied weights that a lock keeps in memory.
    pub(crate) locked: Bytes,
}

/// Sums the copies of one model; `all` is true where its prediction layers are loaded too, and `tied` is the
/// matrix that is loaded a second time as the output.
pub(crate) fn repacked(
    request: &PlanRequest<'_>,
    model: &Model,
    layout: &DeviceLayout,
    all: bool,
    tied: Option<&Tensor>,
) -> RepackedBytes {
    let repacking = Repacking::of(request, layout);
    let is_copied = |tensor: &Tensor| {
        !is_input(&tensor.name) && layout.tensor(tensor) == TensorDevice::Host && repacking.copies(tensor)
    };
    let second = tied.filter(|tied| layout.output == TensorDevice::Host && repacking.copies(tied));
    let in_any_build = |tensor: &Tensor| {
        let sure = repacking.processor.is_some_and(|processor| processor.least().copies(tensor));
        if sure { tensor.bytes } else { Bytes::ZERO }
    };
    let mut sum = RepackedBytes {
        copies: second.map_or(Bytes::ZERO, |tied| tied.bytes),
        sure: second.map_or(Bytes::ZERO, in_any_build),
        locked: Bytes::ZERO,
    };
    // A lock reaches from the first to the last weight of a file that is not copied (`llama-mmap.cpp:grow_to
    // @ b10605`).
    let (mut file, mut between, mut begun) = (None, Bytes::ZERO, false);
    for tensor in model.tensors.iter().filter(|tensor| weights::is_loaded(model, tensor, all)) {
        if file != Some(tensor.file) {
            (file, between, begun) = (Some(tensor.file), Bytes::ZERO, false);
        }
        if is_copied(tensor) {
            sum.copies += tensor.bytes;
            sum.sure += in_any_build(tensor);
            between += if begun { tensor.bytes } else { Bytes::ZERO };
        } else if layout.tensor(tensor) == TensorDevice::Host {
            sum.locked += std::mem::take(&mut between);
            begun = true;
        }
    }
    if !(request.params.mmap && request.params.mlock) {
        sum.locked = Bytes::ZERO;
    }
    sum
}
