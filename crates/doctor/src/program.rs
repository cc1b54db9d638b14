//! Lists the programs whose logs the diagnosis reads, such as ollama or vLLM.
//!
//! A remedy uses the options of the program that failed, and some causes occur in certain programs only.

use super::cause::Cause;
use super::facts::{Facts, LineSource};
use super::pattern::Pattern;

/// A program, or a family of programs with the same options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LogProgram {
    Ollama,
    /// MLX on a Mac: mlx_lm, LM Studio's engine for it.
    Mlx,
    Vllm,
    Sglang,
    ComfyUi,
    Tgi,
    Jax,
    TensorFlow,
    /// whisper.cpp.
    Whisper,
    /// KoboldCpp.
    Kobold,
    /// stable-diffusion.cpp.
    Diffusion,
    /// llama.cpp and other programs of ggml.
    Llama,
    /// PyTorch.
    Torch,
}

/// A program before the library that it is made with: ollama prints ggml's lines too, and vLLM PyTorch's.
const PROGRAMS: [(LogProgram, &str, Pattern); 13] = [
    (LogProgram::Ollama, "ollama", Pattern::OfOllama),
    (LogProgram::Mlx, "mlx", Pattern::OfMlx),
    (LogProgram::Vllm, "vllm", Pattern::OfVllm),
    (LogProgram::Sglang, "sglang", Pattern::OfSglang),
    (LogProgram::ComfyUi, "comfyui", Pattern::OfComfyUi),
    (LogProgram::Tgi, "tgi", Pattern::OfTgi),
    (LogProgram::Jax, "jax", Pattern::OfJax),
    (LogProgram::TensorFlow, "tensorflow", Pattern::OfTensorFlow),
    (LogProgram::Whisper, "whisper", Pattern::OfWhisper),
    (LogProgram::Kobold, "kobold", Pattern::OfKobold),
    (LogProgram::Diffusion, "sdcpp", Pattern::OfDiffusion),
    (LogProgram::Llama, "llama", Pattern::OfLlama),
    (LogProgram::Torch, "torch", Pattern::OfTorch),
];

/// Makers of cards, and interfaces to them, by which hints differ. Builds for AMD print CUDA's words too, and
/// so does a machine with cards of several makers.
const CARDS: [(&str, Pattern); 7] = [
    ("amd", Pattern::OfAmd),
    ("intel", Pattern::OfIntel),
    ("apple", Pattern::OfApple),
    ("vulkan", Pattern::OnVulkan),
    ("sycl", Pattern::OnSycl),
    ("nvidia", Pattern::OfNvidia),
    // CUDA itself, and ROCm, which has its calls.
    ("cuda", Pattern::OfNvidia),
];

/// True for a name of the table of remedies that fits the cards of the log; `None` for any other name.
pub(super) fn is_of_cards(name: &str, facts: &Facts) -> Option<bool> {
    let (_, pattern) = CARDS.iter().find(|(other, _)| *other == name)?;
    let others: &[Pattern] = match name {
        "nvidia" => &[Pattern::OfAmd, Pattern::OfIntel, Pattern::OfApple],
        "cuda" => &[Pattern::OnVulkan, Pattern::OnSycl, Pattern::OfApple],
        _ => &[],
    };
    let is_rocm = name == "cuda" && facts.says(Pattern::OfAmd);
    Some((facts.says(*pattern) || is_rocm) && !facts.says_any(others))
}

impl LogProgram {
    /// The program whose lines are in the log, or that the user names.
    pub(super) fn of(facts: &Facts) -> Option<Self> {
        let reported = |pattern| facts.seen(pattern).map(|seen| seen.first.origin.source);
        let fits = |program: Self| match () {
            () if facts.torch.is_some() => program.uses_torch(),
            () if !facts.refusals.is_empty() || !facts.buffers.is_empty() => !program.uses_torch(),
            () => true,
        };
        let known = || PROGRAMS.iter().filter(|(program, ..)| fits(*program));
        let logged = known().find(|(.., pattern)| reported(*pattern) == Some(LineSource::Log));
        logged
            .or_else(|| known().find(|(.., pattern)| reported(*pattern).is_some()))
            .map(|(program, ..)| *program)
    }

    /// The name in the table of remedies.
    pub(super) fn named(name: &str) -> Option<Self> {
        PROGRAMS.iter().find(|(_, other, _)| *other == name).map(|(program, ..)| *program)
    }

    fn uses_torch(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang | Self::ComfyUi | Self::Tgi | Self::Torch)
    }

    fn uses_ggml(self) -> bool {
        matches!(self, Self::Ollama | Self::Whisper | Self::Kobold | Self::Diffusion | Self::Llama)
    }

    /// The table whose rows serve this program where it has none of its own.
    pub(super) fn family(self) -> Option<Self> {
        (self != Self::Torch && self.uses_torch()).then_some(Self::Torch)
    }

    /// False for a cause of an allocator that the program does not have: only ggml has a pool that grows, and
    /// only PyTorch a caching allocator and its query of NVML.
    pub(super) fn can_have(self, cause: Cause) -> bool {
        match cause {
            Cause::PoolGrowth => !self.uses_torch() && self != Self::Mlx,
            Cause::FragmentationCachingAllocator | Cause::NvmlAssertMasksOom => {
                !self.uses_ggml() && self != Self::Mlx
            }
            _ => true,
        }
    }
}
