//! Memory that an engine requested from each card, added up from the report of phantom (the stand-in for
//! CUDA).
//!
//! Phantom writes one line for each allocation and each free. The last line may be incomplete, because the
//! engine is killed while it runs.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;

/// Bounds what is read: a run that ends at the first context writes a few hundred lines.
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
    #[serde(other)]
    Other,
}

/// A line for each card: the bytes that were taken of it and not given back, but for the pool, which grows at
/// moments of its own.
pub(super) fn asked(report: &Path) -> Vec<String> {
    let Ok(file) = File::open(report) else {
        return Vec::new();
    };
    let mut held: HashMap<u64, (&str, usize, u64)> = HashMap::new();
    for line in BufReader::new(file.take(LONGEST)).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(ReportEvent::Take { id, kind, device, bytes }) => {
                if let Some(interface) = interface(&kind) {
                    held.insert(id, (interface, device, bytes));
                }
            }
            Ok(ReportEvent::Give { id }) => {
                held.remove(&id);
            }
            _ => {}
        }
    }
    let mut cards: BTreeMap<(&str, usize), u64> = BTreeMap::new();
    for (interface, device, bytes) in held.into_values() {
        let sum = cards.entry((interface, device)).or_default();
        *sum = sum.saturating_add(bytes);
    }
    let line =
        |((interface, card), bytes)| format!("plimsoll_phantom: {interface}{card} asked for {bytes} bytes");
    cards.into_iter().map(line).collect()
}

/// The engine's word for cards of the interface by which memory of this kind was asked for.
fn interface(kind: &str) -> Option<&'static str> {
    match kind {
        "device" | "managed" => Some("CUDA"),
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
    fn no_report_and_a_hostile_one_say_nothing_or_saturate() {
        assert!(asked(Path::new("/nowhere")).is_empty());
        assert!(of(b"\xff\xfe\n{}\n[1]\n{\"event\":\"take\",\"id\":-1}").is_empty());
        let most = u64::MAX;
        let take = |id: u8| {
            format!("{{\"event\":\"take\",\"id\":{id},\"kind\":\"device\",\"device\":0,\"bytes\":{most}}}\n")
        };
        let said = of(format!("{}{}", take(1), take(2)).as_bytes());
        assert_eq!(said, [format!("plimsoll_phantom: CUDA0 asked for {most} bytes")]);
    }
}
