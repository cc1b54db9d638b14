//! Causes that a single log line of an engine shows, such as a full card, and the detection of ggml's abort
//! messages.

use plimsoll_base::Stage;

/// Cause of an engine's end, as far as a single line shows it. Among several lines, the greatest value
/// counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CauseSign {
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

impl CauseSign {
    /// The sign of a name in the phrase tables.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "card_memory" => Self::CardMemory,
            "host_memory" => Self::HostMemory,
            "card_fault" => Self::CardFault,
            "port_taken" => Self::PortTaken,
            "not_started" => Self::NotStarted,
            "missing_library" => Self::MissingLibrary,
            "unknown_flag" => Self::UnknownFlag,
            "model_file" => Self::ModelFile,
            _ => return None,
        })
    }
}

/// Extensions of the source files in which ggml aborts.
const SOURCES: [&str; 7] = [".c", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".m"];
/// Messages with which ggml closes an abort: `ggml-cuda.cu:ggml_cuda_error`, `ggml.h:GGML_ASSERT @ b10605`.
const ABORTS: [&str; 4] = ["CUDA error", "ROCm error", "MUSA error", "fatal error"];

/// True if `line` has the whole shape of an abort of ggml, or of llama-server's failed load.
///
/// It starts a check of the engine and is never a verdict: the line is text that the engine prints, and a
/// client may have chosen it. Some engines survive such a line, others hang with their memory.
pub fn gives_up(line: &str, stage: Stage) -> bool {
    let line = without_timestamp(line.trim_end());
    is_abort(line) || (stage == Stage::Loading && is_failed_load(line))
}

/// `/src/ggml-cuda.cu:107: CUDA error`, `/src/ggml.c:1650: GGML_ASSERT(a->ne[0] == b->ne[0]) failed`:
/// `ggml.c:ggml_abort`.
///
/// The path must begin the line. llama-server quotes a request's text in the middle of a line of its own,
/// never at its start.
fn is_abort(line: &str) -> bool {
    let Some((path, rest)) = SOURCES.iter().find_map(|extension| split_behind(line, extension)) else {
        return false;
    };
    let Some((number, message)) = rest.split_once(": ") else {
        return false;
    };
    // __FILE__ is absolute in builds by CMake.
    let is_path = path.starts_with('/') && !path.contains(char::is_whitespace);
    let is_line = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    // The expression of an assertion may be anything, the words around it are those of ggml.
    let asserts = message.starts_with("GGML_ASSERT(") && message.ends_with(" failed");
    is_path && is_line && (asserts || ABORTS.contains(&message))
}

/// The path up to `extension`, and the text after its colon.
fn split_behind<'a>(line: &'a str, extension: &str) -> Option<(&'a str, &'a str)> {
    line.split_once(&format!("{extension}:"))
}

/// `srv    load_model: failed to load model, 'x.gguf'`: `server.cpp:load_model @ b10605`.
fn is_failed_load(line: &str) -> bool {
    let is_name = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    line.split_once(": ").is_some_and(|(function, message)| {
        // `srv` is the server's own tag; other callers print their function alone.
        let function = function.strip_prefix("srv").unwrap_or(function).trim_start();
        is_name(function) && message.starts_with("failed to load model")
    })
}

/// Drops llama-server's own prefix: `0.00.129.365 E ` (`common/log.cpp:common_log_entry::print`, with
/// `--log-timestamps`).
fn without_timestamp(line: &str) -> &str {
    let Some((stamp, rest)) = line.split_once(' ') else {
        return line;
    };
    let is_stamp = stamp.contains('.') && stamp.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let level = rest.split_once(' ').filter(|(level, _)| level.len() == 1);
    match (is_stamp, level) {
        (true, Some((_, rest))) => rest,
        (true, None) => rest,
        (false, _) => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abort_of_ggml_is_told_from_a_complaint() {
        for line in [
            "/x/ggml/src/ggml-cuda/ggml-cuda.cu:107: CUDA error",
            "/build/ggml/src/ggml.c:1650: GGML_ASSERT(ggml_can_mul_mat(a, b)) failed",
            "0.12.345.678 E /app/ggml/src/ggml-cuda/ggml-cuda.cu:98: ROCm error",
        ] {
            assert!(gives_up(line, Stage::Serving), "{line}");
        }
        assert!(gives_up("srv    load_model: failed to load model, 'x'", Stage::Loading));
        // A router of adapters may print this while it goes on serving.
        assert!(!gives_up("srv    load_model: failed to load model, 'x'", Stage::Serving));
        assert!(!gives_up("RuntimeError: CUDA error: out of memory", Stage::Serving));
    }

    /// Client text in an engine's log: an abort that is quoted, cut, or not at the start of its line is none.
    #[test]
    fn words_of_a_request_never_have_the_shape_of_an_abort() {
        for line in [
            "srv  operator(): got exception: parse error: last read: 'GGML_ASSERT(\u{1}'",
            "INFO Received request cmpl-1: prompt: '/x/ggml.c:1: GGML_ASSERT(1) failed'",
            "GGML_ASSERT(x) failed",
            "root ::= GGML_ASSERT(",
            "hello: CUDA error",
            "ggml-cuda.cu:107: CUDA error",
            "/x/y.cu: CUDA error",
            "/x y/ggml.c:10: CUDA error",
            "/x/ggml.c:10: CUDA error of the client",
            "/x/ggml.c:1a: CUDA error",
            "failed to load model",
            "prompt: srv load_model: failed to load model",
            "",
        ] {
            assert!(!gives_up(line, Stage::Loading), "{line}");
            assert!(!gives_up(line, Stage::Serving), "{line}");
        }
    }
}
