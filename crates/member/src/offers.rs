//! Computes which models this host can serve, with the memory that each takes.

use std::io::Read;
use std::path::Path;

use plimsoll_base::{Bytes, Card, MemoryModel};
use plimsoll_config::ConfiguredModel;
use plimsoll_flags::FlagValue;
use plimsoll_fleet::{FileDigest, ModelOffer, OfferList};

/// Bytes of a file that distinguish one model from another: the header's beginning, with names and sizes.
const HEADER: u64 = 64 * 1024;

/// The offer of a model; `None` if this host cannot serve it.
pub(super) fn offer(entry: &ConfiguredModel, demand: &dyn MemoryModel, cards: &[Card]) -> Option<ModelOffer> {
    let options = entry.launch.options();
    let setting = options.and_then(|options| options.get("--model"));
    let file = match setting.map(|setting| &setting.value) {
        Some(FlagValue::Text(path)) => Some(file_digest(Path::new(path)).ok()?),
        // A command of the user's own, or a model on a server: its files are not known.
        _ => None,
    };
    Some(ModelOffer { file, need: need(demand, cards)? })
}

/// Memory on the card that takes least, else on all cards together.
fn need(demand: &dyn MemoryModel, cards: &[Card]) -> Option<Bytes> {
    let on = |set: &[Card]| {
        let shares = demand.on(set).ok()?;
        let is_of_set = |card: &plimsoll_base::CardId| set.iter().any(|other| other.id == *card);
        Some(shares.iter().filter(|(card, _)| is_of_set(card)).map(|(_, bytes)| *bytes).sum::<Bytes>())
    };
    // A model of unknown size gets a card of its own.
    let on_card = |card: &Card| {
        if demand.alone() {
            Some(card.free)
        } else {
            on(std::slice::from_ref(card)).filter(|need| *need <= card.free)
        }
    };
    cards.iter().filter_map(on_card).min().or_else(|| on(cards))
}

pub(super) fn file_digest(path: &Path) -> std::io::Result<FileDigest> {
    let file = plimsoll_file::open(path)?;
    let size = Bytes::new(file.metadata()?.len());
    let mut header = Vec::new();
    file.take(HEADER).read_to_end(&mut header)?;
    Ok(FileDigest { header: hex(&header), size })
}

/// A digest of all offers, under which equal hosts share one record.
pub(super) fn digest(offers: &OfferList) -> String {
    hex(&serde_json::to_vec(offers).unwrap_or_default())
}

/// FNV-1a with 64 bits: the same in all versions of the program, which the standard library's hash is not.
pub(super) fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn hex(bytes: &[u8]) -> String {
    format!("{:016x}", fnv(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_every_other_version() {
        assert_eq!((hex(b"").as_str(), hex(b"a").as_str()), ("cbf29ce484222325", "af63dc4c8601ec8c"));
    }

    #[test]
    fn a_file_that_is_not_there_is_no_digest() {
        assert!(file_digest(Path::new("/nowhere/model.gguf")).is_err());
        assert!(file_digest(Path::new("/proc/self/mem")).is_err());
    }
}
