//! Decodes a prompt with llama.cpp b8390 over the stand-ins, and reads what was asked of the card.

use std::fs;
use std::io;
use std::process::Command;

use super::Trial;

/// Flags of a llama.cpp program, as the plan reads them; the program itself has no others.
const FLAGS: &str = "-c 32768 -b 2048 -ub 512 -fa on -ngl 99 -ctk q8_0 -ctv q8_0 -m";
/// The name of a program of llama.cpp that decodes one sequence.
pub(super) const PROGRAM: &str = "llama-completion.exe";
const MIB: f64 = 1_048_576.0;

/// A decoded prompt, or one that failed.
pub(super) struct Decoded {
    pub(super) code: Option<i32>,
    /// What the program and plimsoll wrote on stderr.
    pub(super) stated: String,
    /// Bytes of the card in use before the prompt, and the most during it.
    before: f64,
    peak: f64,
    /// Allocations and frees during the prompt.
    pub(super) allocations: usize,
    pub(super) frees: usize,
}

impl Decoded {
    /// Under `plimsoll run` with these options, as a program whose memory can be planned, on a card without
    /// virtual memory management.
    pub(super) fn of(trial: &Trial<'_>, options: &[&str], tokens: u32) -> io::Result<Self> {
        let command = trial.run(options, PROGRAM, &[]);
        Self::read(trial, command, tokens)
    }

    /// Without `plimsoll run`: ggml loads guard as one of its backends, after that for CUDA.
    pub(super) fn as_backend(trial: &Trial<'_>, options: &str, guard: &str, tokens: u32) -> io::Result<Self> {
        let mut command = trial.toolchain.wine();
        command.arg(trial.drive(PROGRAM)).current_dir(&trial.folder);
        command.env("PLIMSOLL_GUARD", options).env("GGML_BACKEND_PATH", guard);
        Self::read(trial, command, tokens)
    }

    fn read(trial: &Trial<'_>, mut command: Command, tokens: u32) -> io::Result<Self> {
        let log = trial.folder.join("allocations.log");
        if log.exists() {
            fs::remove_file(&log)?;
        }
        command.args(FLAGS.split(' ')).arg(trial.drive("model.gguf")).env("TOKENS", tokens.to_string());
        command.env("FAKE_CUDA_LOG", trial.drive("allocations.log")).env("FAKE_CUDA_NO_VMM", "1");
        let output = command.output()?;
        let text = fs::read_to_string(&log)?;
        let (before, during) = text.split_once("prompt").unwrap_or((&text, ""));
        let used = |line: &str| line.rsplit_once(" used ")?.1.parse::<f64>().ok();
        let before = before.lines().filter_map(used).next_back().unwrap_or_default();
        Ok(Self {
            code: output.status.code(),
            stated: String::from_utf8_lossy(&output.stderr).replace('\r', ""),
            before,
            peak: during.lines().filter_map(used).fold(before, f64::max),
            allocations: during.lines().filter(|line| line.starts_with("alloc ")).count(),
            frees: during.lines().filter(|line| line.starts_with("free ")).count(),
        })
    }

    pub(super) fn growth_mib(&self) -> f64 {
        (self.peak - self.before) / MIB
    }

    pub(super) fn peak_mib(&self) -> f64 {
        self.peak / MIB
    }
}
