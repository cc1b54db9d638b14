//! Limits the cards that the daemon uses to those in its own `CUDA_VISIBLE_DEVICES`.

use plimsoll_base::Card;

/// Keeps the cards that `value` names, in its order.
///
/// As in CUDA: entries are indices or UUIDs (a unique beginning is enough), and the first that names no card
/// ends the list. Indices count in PCI order, which is CUDA's own only under `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
pub(super) fn keep_visible(cards: Vec<Card>, value: Option<&str>) -> Vec<Card> {
    let Some(value) = value else {
        return cards;
    };
    let mut kept: Vec<Card> = Vec::new();
    for entry in value.split(',').map(str::trim) {
        match named(&cards, entry) {
            Some(card) if !kept.contains(card) => kept.push(card.clone()),
            _ => break,
        }
    }
    kept
}

fn named<'a>(cards: &'a [Card], entry: &str) -> Option<&'a Card> {
    if let Ok(index) = entry.parse::<usize>() {
        return cards.get(index);
    }
    let mut matching =
        cards.iter().filter(|card| card.uuid.as_deref().is_some_and(|uuid| uuid.starts_with(entry)));
    // CUDA's UUIDs begin with `GPU-`, and those of MIG instances with `MIG-`, which name no whole card.
    let first = matching.next().filter(|_| entry.starts_with("GPU-"))?;
    matching.next().is_none().then_some(first)
}

#[cfg(test)]
mod tests {
    use plimsoll_base::{Bytes, CardId, CardKind, Counting};

    use super::*;

    fn kept(value: Option<&str>) -> Vec<String> {
        let cards = ["GPU-aa", "GPU-ab", "GPU-cd"].map(|uuid| Card {
            id: CardId::new(uuid),
            kind: CardKind::Cuda,
            name: "card".to_owned(),
            uuid: Some(uuid.to_owned()),
            total: Bytes::gib(1),
            free: Bytes::gib(1),
            compute_capability: None,
            legacy_pool: false,
            shares_host: false,
            counting: Counting::Driver,
            maker: plimsoll_base::CardMaker::Nvidia,
            address: None,
        });
        keep_visible(cards.to_vec(), value).iter().map(|card| card.id.to_string()).collect()
    }

    #[test]
    fn the_list_is_read_as_cuda_reads_it() {
        for (value, cards) in [
            (None, &["GPU-aa", "GPU-ab", "GPU-cd"][..]),
            (Some(""), &[]),
            (Some("2,0"), &["GPU-cd", "GPU-aa"]),
            (Some("GPU-c, 1"), &["GPU-cd", "GPU-ab"]),
            (Some("1,7,0"), &["GPU-ab"]),
            (Some("GPU-a"), &[]),
            (Some("-1"), &[]),
        ] {
            assert_eq!(kept(value), cards, "{value:?}");
        }
    }
}
