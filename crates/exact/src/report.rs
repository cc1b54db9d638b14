//! Memory that an engine requested from each card, added up from the report of phantom (CUDA without a card).
//!
//! Phantom writes one line for each allocation and each free; the last can be incomplete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use plimsoll_planner::exact::{BufferPlace, MARGIN, Transcript};
use plimsoll_pool::replay::driver_takes;
use serde::Deserialize;

/// Bounds what is read: a run with a prompt writes a few thousand lines.
const LONGEST: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum ReportEvent {
    Take {
        id: u64,
        kind: String,
        device: usize,
        bytes: u64,
    },
    Give {
        id: u64,
    },
    Blas {
        device: usize,
    },
    Guess {},
    #[serde(other)]
    Other,
}

/// Memory of the cards at the end of a report.
#[derive(Default)]
struct PhantomMemory {
    /// Blocks by number: the engine's word for cards of their interface, the card, the bytes; true for a pool's.
    blocks: BTreeMap<u64, (&'static str, usize, u64, bool)>,
    /// Cards on which cuBLAS is open.
    blas: BTreeSet<usize>,
    /// Kernels without code for their card.
    guessed: u32,
}

impl PhantomMemory {
    fn read(report: &Path) -> Self {
        let mut memory = Self::default();
        let Ok(file) = File::open(report) else { return memory };
        for line in BufReader::new(file.take(LONGEST)).lines().map_while(Result::ok) {
            match serde_json::from_str(&line) {
                Ok(ReportEvent::Take { id, kind, device, bytes }) => {
                    if let Some(interface) = interface(&kind) {
                        memory.blocks.insert(id, (interface, device, bytes, kind == POOL));
                    }
                }
                Ok(ReportEvent::Give { id }) => {
                    memory.blocks.remove(&id);
                }
                Ok(ReportEvent::Blas { device }) => {
                    memory.blas.insert(device);
                }
                Ok(ReportEvent::Guess {}) => memory.guessed = memory.guessed.saturating_add(1),
                _ => {}
            }
        }
        memory
    }

    /// The blocks of each card, with those of its pool or without.
    fn by_card(&self, pools: bool) -> BTreeMap<(&'static str, usize), Vec<u64>> {
        let mut cards: BTreeMap<_, Vec<u64>> = BTreeMap::new();
        for &(interface, device, bytes, _) in self.blocks.values().filter(|(.., pooled)| pools || !pooled) {
            cards.entry((interface, device)).or_default().push(bytes);
        }
        cards
    }
}

fn sum(blocks: &[u64]) -> u64 {
    blocks.iter().copied().fold(0, u64::saturating_add)
}

/// A line for each card: the bytes taken of it and not given back, but for the pool, which grows on its own.
pub(super) fn asked(report: &Path) -> Vec<String> {
    let cards = PhantomMemory::read(report).by_card(false).into_iter();
    let line = |((interface, card), blocks): ((&str, usize), Vec<u64>)| {
        format!("plimsoll_phantom: {interface}{card} asked for {} bytes", sum(&blocks))
    };
    cards.map(line).collect()
}

/// Lines for each card after a prompt: all bytes that are taken of it, and what a driver takes for them.
///
/// A driver rounds the blocks that the engine's log does not name, which are the pool's. The context term of a plan was
/// measured with buffers as the log names them.
pub(super) fn grown(report: &Path, transcript: &Transcript, tokens: u32) -> Vec<String> {
    let memory = PhantomMemory::read(report);
    let line = |((interface, card), blocks): ((&str, usize), Vec<u64>)| {
        let (held, unnamed) = (sum(&blocks), unnamed(blocks, transcript, card));
        let rounding = match interface {
            CUDA => driver_takes(unnamed.iter().copied()).saturating_sub(sum(&unnamed)),
            _ => 0,
        };
        let taken = held.saturating_add(rounding);
        format!(
            "plimsoll_phantom: {interface}{card} holds {held} bytes and takes {taken} after {tokens} tokens"
        )
    };
    let opened = memory.blas.iter().map(|card| format!("plimsoll_phantom: {CUDA}{card} opened cuBLAS"));
    let guessed = (memory.guessed > 0)
        .then(|| format!("plimsoll_phantom: {} kernels without code for the card", memory.guessed));
    memory.by_card(true).into_iter().map(line).chain(opened).chain(guessed).collect()
}

/// Blocks of a card that are none of the buffers in the engine's log.
fn unnamed(mut blocks: Vec<u64>, transcript: &Transcript, card: usize) -> Vec<u64> {
    let on_card = transcript.buffers.iter().filter(|buffer| buffer.place == BufferPlace::Card(card));
    for buffer in on_card {
        let is_it = |block: &u64| block.abs_diff(buffer.bytes.get()) <= MARGIN.get();
        if let Some(at) = blocks.iter().position(is_it) {
            blocks.swap_remove(at);
        }
    }
    blocks
}

const CUDA: &str = "CUDA";
const POOL: &str = "pool";

/// The engine's word for cards of the interface by which memory of this kind was asked for.
fn interface(kind: &str) -> Option<&'static str> {
    match kind {
        "device" | "managed" | POOL => Some(CUDA),
        "vulkan" => Some("Vulkan"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &[u8]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, text).unwrap();
        asked(&path)
    }

    #[test]
    fn each_card_has_what_was_taken_and_not_given_back() {
        let report = br#"{"event":"load","runtime":13,"cards":[]}
{"event":"take","id":0,"kind":"device","device":0,"bytes":100}
{"event":"take","id":1,"kind":"host","device":0,"bytes":7}
{"event":"take","id":2,"kind":"pool","device":1,"bytes":20}
{"event":"take","id":5,"kind":"managed","device":1,"bytes":8}
{"event":"take","id":3,"kind":"device","device":0,"bytes":3}
{"event":"take","id":6,"kind":"vulkan","device":0,"bytes":9}
{"event":"give","id":0}
{"event":"take","id":4,"kind":"dev"#;
        assert_eq!(
            of(report),
            [
                "plimsoll_phantom: CUDA0 asked for 3 bytes",
                "plimsoll_phantom: CUDA1 asked for 8 bytes",
                "plimsoll_phantom: Vulkan0 asked for 9 bytes"
            ]
        );
    }

    #[test]
    fn after_a_prompt_the_pool_is_counted_and_rounded_as_a_driver_does() {
        let log = "load_tensors: CUDA0 model buffer size = 3.00 MiB";
        let report = br#"{"event":"take","id":0,"kind":"device","device":0,"bytes":3145729}
{"event":"take","id":1,"kind":"device","device":0,"bytes":3145728}
{"event":"take","id":2,"kind":"device","device":0,"bytes":512}
{"event":"take","id":3,"kind":"pool","device":0,"bytes":2097152}
{"event":"take","id":4,"kind":"host","device":0,"bytes":9}
{"event":"take","id":5,"kind":"vulkan","device":1,"bytes":9}
{"event":"blas","device":0}
{"event":"guess","kernel":"k","blocks":5}
{"event":"bla"#;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, report).unwrap();
        assert_eq!(
            grown(&path, &Transcript::read(log), 7),
            [
                "plimsoll_phantom: CUDA0 holds 8389121 bytes and takes 11534337 after 7 tokens",
                "plimsoll_phantom: Vulkan1 holds 9 bytes and takes 9 after 7 tokens",
                "plimsoll_phantom: CUDA0 opened cuBLAS",
                "plimsoll_phantom: 1 kernels without code for the card",
            ]
        );
    }

    #[test]
    fn no_report_and_a_hostile_one_say_nothing_or_saturate() {
        assert!(asked(Path::new("/nowhere")).is_empty());
        assert!(of(b"\xff\xfe\n{}\n[1]\n{\"event\":\"take\",\"id\":-1}").is_empty());
        let most = u64::MAX;
        let take = |id: u8| {
            format!("{{\"event\":\"take\",\"id\":{id},\"kind\":\"device\",\"device\":0,\"bytes\":{most}}}\n")
        };
        let said = of(format!("{}{}", take(1), take(2)).as_bytes());
        assert_eq!(said, [format!("plimsoll_phantom: CUDA0 asked for {most} bytes")]);
        assert!(grown(Path::new("/nowhere"), &Transcript::default(), 1).is_empty());
    }
}
