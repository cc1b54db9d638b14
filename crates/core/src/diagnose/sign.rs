//! The phrases by which engines say what went wrong, as a table.
//!
//! Matched without regard to case, anywhere in a line, so that log prefixes (journald, docker, llama-swap) need no
//! stripping. Sources: `ggml-cuda.cu`, `ggml-alloc.c`, `ggml-vulkan.cpp`, `llama-model.cpp`, `server.cpp`,
//! `common/arg.cpp @ b10605`; PyTorch's `CUDACachingAllocator.cpp`; glibc's loader; Python's argparse.

use crate::admit::Stage;

/// What a line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// The card's memory ran out.
    CardMemory,
    /// Host memory ran out.
    HostMemory,
    /// The card or its driver reported another error.
    CardFault,
    PortTaken,
    NotStarted,
    MissingLibrary,
    UnknownFlag,
    ModelFile,
}

/// A phrase; earlier rows win within a line.
pub(super) const PHRASES: &[(&str, Option<Sign>)] = &[
    // A pinned host buffer is optional: ggml goes on with pageable memory.
    ("of pinned memory", None),
    ("failed to allocate cpu buffer", Some(Sign::HostMemory)),
    ("unable to allocate cpu buffer", Some(Sign::HostMemory)),
    ("std::bad_alloc", Some(Sign::HostMemory)),
    (
        "defaultcpuallocator: can't allocate memory",
        Some(Sign::HostMemory),
    ),
    ("cannot allocate memory", Some(Sign::HostMemory)),
    ("cudamalloc failed", Some(Sign::CardMemory)),
    ("hipmalloc failed", Some(Sign::CardMemory)),
    ("cuda error: out of memory", Some(Sign::CardMemory)),
    ("rocm error: out of memory", Some(Sign::CardMemory)),
    ("cuda out of memory", Some(Sign::CardMemory)),
    ("hip out of memory", Some(Sign::CardMemory)),
    ("erroroutofdevicememory", Some(Sign::CardMemory)),
    ("vk_error_out_of_device_memory", Some(Sign::CardMemory)),
    ("device memory allocation of size", Some(Sign::CardMemory)),
    ("alloc_tensor_range: failed to allocate", Some(Sign::CardMemory)),
    ("failed to allocate buffer for", Some(Sign::CardMemory)),
    ("failed to allocate compute", Some(Sign::CardMemory)),
    ("failed to allocate output buffer", Some(Sign::CardMemory)),
    ("gallocr_reserve_n: failed to allocate", Some(Sign::CardMemory)),
    (
        "gallocr_reserve_n_impl: failed to allocate",
        Some(Sign::CardMemory),
    ),
    ("error loading model: unable to allocate", Some(Sign::CardMemory)),
    ("no available memory for the cache blocks", Some(Sign::CardMemory)),
    ("cuda error", Some(Sign::CardFault)),
    ("rocm error", Some(Sign::CardFault)),
    ("couldn't bind", Some(Sign::PortTaken)),
    ("address already in use", Some(Sign::PortTaken)),
    ("eaddrinuse", Some(Sign::PortTaken)),
    (plimsoll_wire::control::EXEC_FAILED, Some(Sign::NotStarted)),
    ("error while loading shared libraries", Some(Sign::MissingLibrary)),
    ("error: invalid argument", Some(Sign::UnknownFlag)),
    ("error while handling argument", Some(Sign::UnknownFlag)),
    ("error: unrecognized arguments", Some(Sign::UnknownFlag)),
    ("error loading model", Some(Sign::ModelFile)),
    ("failed to open gguf file", Some(Sign::ModelFile)),
    ("failed to load model", Some(Sign::ModelFile)),
];

/// After this line every refusal before it is history: the engine tries again with less.
pub(super) const RECOVERED: &str = "retrying without pipeline parallelism";

pub(super) fn of(lower_case_line: &str) -> Option<Sign> {
    PHRASES
        .iter()
        .find(|(phrase, _)| lower_case_line.contains(phrase))
        .and_then(|(_, sign)| *sign)
}

/// True if the engine says with `line` that it cannot go on. Some stay all the same, with their memory.
pub fn gives_up(line: &str, stage: Stage) -> bool {
    // `ggml.c: ggml_abort` closes with `FILE:LINE: MESSAGE`; these are the messages of a lost device.
    let aborts =
        line.ends_with(": CUDA error") || line.ends_with(": ROCm error") || line.contains("GGML_ASSERT(");
    aborts || (stage == Stage::Loading && line.contains("failed to load model"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_up_is_told_from_complaining() {
        let abort = "/x/ggml/src/ggml-cuda/ggml-cuda.cu:107: CUDA error";
        assert!(gives_up(abort, Stage::Serving));
        assert!(gives_up(
            "srv load_model: failed to load model, 'x'",
            Stage::Loading
        ));
        // A router of adapters may say this while it serves on.
        assert!(!gives_up("failed to load model", Stage::Serving));
        assert!(!gives_up(
            "RuntimeError: CUDA error: out of memory",
            Stage::Serving
        ));
    }
}
