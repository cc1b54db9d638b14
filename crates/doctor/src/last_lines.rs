//! Finds out why an engine ended, from the last lines of its log.
//!
//! A client may have chosen part of the text. So sizes in these lines are only shown to the user.

use plimsoll_base::Bytes;

use super::formats::{LineSign, captured, rows_in};
use super::line::shortened;
use super::pattern::Pattern;
use super::sign::CauseSign;
use super::sizes::after;

const MOST_EVIDENCE: usize = 6;
/// Last lines of llama-server after each failed load, whatever its cause.
const CONSEQUENCE: &str = "failed to load model";

/// Cause read from some lines, with the lines that show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastLinesFinding {
    pub sign: CauseSign,
    /// The lines as the engine wrote them.
    pub evidence: Vec<String>,
    /// Size of the first refused request.
    pub requested: Option<Bytes>,
    /// Free memory at that moment; only PyTorch prints it.
    pub free: Option<Bytes>,
    /// Name of the device in the engine's form: `device 0`, `CUDA1`, `GPU 0`.
    pub device: Option<String>,
}

impl LastLinesFinding {
    /// True if a line names the fault, and not only its consequence.
    pub(crate) fn names_fault(&self) -> bool {
        let names =
            |line: &String| rows_in(line).iter().any(|row| row.sign.is_some() && row.phrase != CONSEQUENCE);
        self.evidence.iter().any(names)
    }
}

/// Returns the weightiest sign in `lines`, the oldest line first; `None` if no line is known.
pub fn read_last_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Option<LastLinesFinding> {
    let mut stated: Vec<(CauseSign, &str)> = Vec::new();
    for line in lines {
        // The same tables as those of `plimsoll doctor`, so that both read a line in one way.
        let rows = rows_in(line);
        if rows.iter().any(|row| row.pattern == Pattern::Recovered) {
            // After this line every refusal before it is history: the engine tries again with less.
            stated.clear();
        } else if let Some(sign) = sign_of(rows.iter().filter_map(|row| row.sign)) {
            stated.push((sign, line));
        }
    }
    // A consequence of a refusal (`failed to load model`) weighs less than the refusal.
    let sign = stated.iter().map(|(sign, _)| *sign).min()?;
    let lines: Vec<&str> = stated.iter().filter(|(other, _)| *other == sign).map(|(_, line)| *line).collect();
    Some(LastLinesFinding {
        sign,
        requested: lines.iter().find_map(|line| requested(line)),
        free: lines.iter().find_map(|line| after(line.split_once(" is free")?.0, "of which ")),
        device: lines.iter().find_map(|line| device(line)),
        // A dying engine repeats itself; its first lines are the closest to the cause.
        evidence: lines.into_iter().take(MOST_EVIDENCE).map(|line| shortened(line).to_owned()).collect(),
    })
}

/// The sign of one line. The name of a host buffer outweighs words that host and card share.
fn sign_of(signs: impl Iterator<Item = LineSign>) -> Option<CauseSign> {
    let mut fatal = Vec::new();
    for sign in signs {
        match sign {
            LineSign::Harmless => return None,
            LineSign::Fatal(sign) => fatal.push(sign),
        }
    }
    fatal.into_iter().min_by_key(|sign| (*sign != CauseSign::HostMemory, *sign))
}

fn requested(line: &str) -> Option<Bytes> {
    const BEFORE: [&str; 3] = ["allocating ", "tried to allocate ", " of size "];
    BEFORE.iter().find_map(|phrase| after(line, phrase))
}

/// Finds `device 0`, `GPU 0` or a buffer's name such as `CUDA0`.
fn device(line: &str) -> Option<String> {
    captured("device", line).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<LastLinesFinding> {
        read_last_lines(text.lines())
    }

    #[test]
    fn a_refused_cuda_allocation_is_read_with_its_size_and_device() {
        let finding = read(
            "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 7151.25 MiB on device 1: cudaMalloc failed: out of memory\n\
             alloc_tensor_range: failed to allocate CUDA1 buffer of size 7498629120\n\
             llama_model_load: error loading model: unable to allocate CUDA1 buffer\n\
             srv    load_model: failed to load model, 'a.gguf'",
        )
        .unwrap();
        assert_eq!(finding.sign, CauseSign::CardMemory);
        assert_eq!(finding.requested, "7151.25MiB".parse().ok());
        assert_eq!(finding.device.as_deref(), Some("device 1"));
        assert_eq!(finding.evidence.len(), 3);
    }

    #[test]
    fn pytorch_reports_what_was_free() {
        let finding = read(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 512.50 MiB is free. Of the allocated memory",
        )
        .unwrap();
        assert_eq!(finding.requested, Some(Bytes::gib(2)));
        assert_eq!(finding.free, "512.5MiB".parse().ok());
        assert_eq!(finding.device.as_deref(), Some("GPU 0"));
    }

    #[test]
    fn recovered_and_optional_allocation_failures_are_no_cause() {
        for text in [
            "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 123\n\
             graph_reserve: failed to allocate compute buffers\n\
             compute buffer allocation failed, retrying without pipeline parallelism",
            "ggml_cuda_host_malloc: failed to allocate 120,00 MiB of pinned memory: out of memory",
            "all is well",
            "",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn other_causes_are_reported_apart() {
        for (line, sign) in [
            (
                "srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 1",
                CauseSign::PortTaken,
            ),
            ("OSError: [Errno 98] Address already in use", CauseSign::PortTaken),
            ("error: invalid argument: --frobnicate", CauseSign::UnknownFlag),
            (
                "gguf_init_from_file: failed to open GGUF file 'x' (No such file or directory)",
                CauseSign::ModelFile,
            ),
            ("plimsoll exec-child: cannot start /x: Exec format error", CauseSign::NotStarted),
            (
                "a.out: error while loading shared libraries: libcudart.so.12: cannot open",
                CauseSign::MissingLibrary,
            ),
            ("CUDA error: an illegal memory access was encountered", CauseSign::CardFault),
            (
                "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate CPU buffer of size 9",
                CauseSign::HostMemory,
            ),
        ] {
            assert_eq!(read(line).map(|finding| finding.sign), Some(sign), "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_can_hurt(parts in proptest::collection::vec(".{0,12}", 0..6), picks in proptest::collection::vec(0_usize..64, 6)) {
            const WORDS: &[&str] = &[
                "allocating ", "cudaMalloc failed", "device ", "GPU ", "buffer of size ", " MiB", "of which ",
                " is free", "Tried to allocate ", "CUDA out of memory", "9", "\u{fffd}", "CUDA0", "retrying without pipeline parallelism",
            ];
            let line: String = parts
                .iter()
                .zip(&picks)
                .flat_map(|(part, pick)| [WORDS[pick % WORDS.len()], part.as_str()])
                .collect();
            if let Some(finding) = read(&line) {
                proptest::prop_assert!(finding.evidence.len() <= MOST_EVIDENCE);
            }
        }
    }

    #[test]
    fn hostile_lines_are_bounded() {
        let long = format!("cudaMalloc failed {}", "é".repeat(100_000));
        let finding =
            read(&format!("{long}\nallocating 99999999999999999999 MiB cudaMalloc failed\n")).unwrap();
        assert_eq!(finding.requested, None);
        assert!(finding.evidence.iter().all(|line| line.chars().count() <= crate::line::LONGEST_QUOTE));
    }
}
