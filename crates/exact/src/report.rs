//! Adds up the memory that an engine requested from each card, as reported by phantom (the stand-in for
//! CUDA).
//!
//! Phantom writes one line for each allocation and each free; the last can be incomplete.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use plimsoll_base::Bytes;
use plimsoll_planner::exact::{BufferPlace, GrownMemory, MARGIN, SeenMemory, Transcript};
use plimsoll_pool::replay::driver_takes;
use serde::Deserialize;

/// Bounds what is read: a run with a prompt writes a few thousand lines.
const LONGEST: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum ReportEvent {
    Take(OccupiedBlock),
    Give { id: u64 },
    Blas { device: usize },
    Guess {},
}

#[derive(Clone, Copy, Deserialize)]
struct OccupiedBlock {
    id: u64,
    kind: OccupiedKind,
    device: usize,
    bytes: u64,
}

/// The interface by which memory was asked for.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OccupiedKind {
    Device,
    Managed,
    /// Of ggml's virtual pool.
    Pool,
    Vulkan,
    /// The host's, or one that is not known.
    #[serde(other)]
    Host,
}

/// The memory of the cards at the end of a report: all that was taken and not given back, but for the pool,
/// which grows on its own. After a prompt (its tokens, and the engine's log) it is all that is held, and what
/// a driver takes for it.
///
/// A driver rounds the blocks that the engine's log does not name, which are the pool's. The context term of
/// a plan was measured with buffers as the log names them.
pub(super) fn memory(report: &Path, prompt: Option<(u32, &Transcript)>) -> SeenMemory {
    let (mut blocks, mut seen) = (BTreeMap::new(), SeenMemory::default());
    let Ok(file) = plimsoll_file::open_nofollow(report) else { return seen };
    for line in BufReader::new(file.take(LONGEST)).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(ReportEvent::Take(block)) if block.kind != OccupiedKind::Host => {
                blocks.insert(block.id, block);
            }
            Ok(ReportEvent::Give { id }) => {
                blocks.remove(&id);
            }
            Ok(ReportEvent::Blas { device }) if prompt.is_some() => {
                seen.cards.entry(device).or_default().cublas = true;
            }
            // The engine computes by now, because it was not stopped in time: its buffers are all above.
            Ok(ReportEvent::Blas { .. }) => break,
            Ok(ReportEvent::Guess {}) if prompt.is_some() => {
                seen.without_code = seen.without_code.saturating_add(1)
            }
            _ => {}
        }
    }
    let mut cards: BTreeMap<usize, Vec<OccupiedBlock>> = BTreeMap::new();
    for block in blocks.into_values().filter(|block| prompt.is_some() || block.kind != OccupiedKind::Pool) {
        cards.entry(block.device).or_default().push(block);
    }
    for (device, blocks) in cards {
        let occupied = sum(&blocks);
        let card = seen.cards.entry(device).or_default();
        match prompt {
            None => card.requested = Some(occupied),
            Some((tokens, transcript)) => {
                let taken = occupied + rounding(blocks, transcript, device);
                card.grown = Some(GrownMemory { occupied, taken, tokens: tokens.into() });
            }
        }
    }
    seen
}

fn sum(blocks: &[OccupiedBlock]) -> Bytes {
    blocks.iter().map(|block| Bytes::new(block.bytes)).sum()
}

/// Bytes of a card that a driver takes beyond CUDA's blocks, and that are in no buffer of the engine's log.
fn rounding(mut blocks: Vec<OccupiedBlock>, transcript: &Transcript, card: usize) -> Bytes {
    blocks.retain(|block| block.kind != OccupiedKind::Vulkan);
    for buffer in transcript.buffers.iter().filter(|buffer| buffer.place == BufferPlace::Card(card)) {
        let is_it = |block: &OccupiedBlock| block.bytes.abs_diff(buffer.bytes.get()) <= MARGIN.get();
        if let Some(at) = blocks.iter().position(is_it) {
            blocks.swap_remove(at);
        }
    }
    Bytes::new(driver_takes(blocks.iter().map(|block| block.bytes))).saturating_sub(sum(&blocks))
}

#[cfg(test)]
mod tests {
    use plimsoll_planner::exact::CardMemory;

    use super::*;

    fn of(text: &[u8], prompt: Option<(u32, &Transcript)>) -> SeenMemory {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report");
        std::fs::write(&path, text).unwrap();
        memory(&path, prompt)
    }

    fn requested(text: &[u8]) -> Vec<(usize, u64)> {
        let cards = of(text, None).cards.into_iter();
        cards.map(|(card, memory)| (card, memory.requested.unwrap().get())).collect()
    }

    #[test]
    fn each_card_has_what_was_taken_and_not_given_back_before_the_engine_computes() {
        let report = br#"{"event":"load","runtime":13,"cards":[]}
{"event":"take","id":0,"kind":"device","device":0,"bytes":100}
{"event":"take","id":1,"kind":"host","device":0,"bytes":7}
{"event":"take","id":2,"kind":"pool","device":1,"bytes":20}
{"event":"take","id":5,"kind":"managed","device":1,"bytes":8}
{"event":"take","id":3,"kind":"device","device":0,"bytes":3}
{"event":"take","id":6,"kind":"vulkan","device":2,"bytes":9}
{"event":"take","id":7,"kind":"unheard of","device":3,"bytes":9}
{"event":"give","id":0}
{"event":"blas","device":0}
{"event":"take","id":8,"kind":"device","device":0,"bytes":4194304}
{"event":"take","id":4,"kind":"dev"#;
        assert_eq!(requested(report), [(0, 3), (1, 8), (2, 9)]);
    }

    #[test]
    fn after_a_prompt_the_pool_is_counted_and_rounded_as_a_driver_does() {
        let log = Transcript::read("load_tensors: CUDA0 model buffer size = 3.00 MiB");
        let report = br#"{"event":"take","id":0,"kind":"device","device":0,"bytes":3145729}
{"event":"take","id":1,"kind":"device","device":0,"bytes":3145728}
{"event":"take","id":2,"kind":"device","device":0,"bytes":512}
{"event":"take","id":3,"kind":"pool","device":0,"bytes":2097152}
{"event":"take","id":4,"kind":"host","device":0,"bytes":9}
{"event":"take","id":5,"kind":"vulkan","device":1,"bytes":9}
{"event":"blas","device":0}
{"event":"guess","kernel":"k","blocks":5}
{"event":"bla"#;
        let seen = of(report, Some((7, &log)));
        let grown = |occupied, taken| {
            Some(GrownMemory { occupied: Bytes::new(occupied), taken: Bytes::new(taken), tokens: 7 })
        };
        assert_eq!((seen.cards.len(), seen.without_code), (2, 1));
        assert_eq!(
            seen.cards[&0],
            CardMemory { requested: None, grown: grown(8_389_121, 11_534_337), cublas: true }
        );
        assert_eq!(seen.cards[&1], CardMemory { requested: None, grown: grown(9, 9), cublas: false });
    }

    #[test]
    fn no_report_and_a_hostile_one_say_nothing_or_saturate() {
        assert_eq!(memory(Path::new("/nowhere"), None), SeenMemory::default());
        assert!(requested(b"\xff\xfe\n{}\n[1]\n{\"event\":\"take\",\"id\":-1}").is_empty());
        let take = |id: u8| {
            format!(
                "{{\"event\":\"take\",\"id\":{id},\"kind\":\"device\",\"device\":0,\"bytes\":{}}}\n",
                u64::MAX
            )
        };
        let twice = format!("{}{}", take(1), take(2));
        assert_eq!(requested(twice.as_bytes()), [(0, u64::MAX)]);
        let log = Transcript::default();
        assert_eq!(memory(Path::new("/nowhere"), Some((1, &log))), SeenMemory::default());
        let grown = of(twice.as_bytes(), Some((1, &log))).cards[&0].grown.unwrap();
        assert_eq!((grown.occupied, grown.taken), (Bytes::new(u64::MAX), Bytes::new(u64::MAX)));
    }
}
