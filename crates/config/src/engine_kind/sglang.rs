//! Estimates the memory that SGLang takes beyond `--mem-fraction-static`: activations and CUDA graphs.
//!
//! That flag covers weights and cache only.

use plimsoll_base::Bytes;

use super::value;

/// Bytes that it keeps for its own tables (`server_args.py: _handle_gpu_memory_settings` of SGLang, early
/// 2026, as all figures here).
const TABLES: Bytes = Bytes::mib(512);
/// The least tokens of a prefill that it keeps memory for.
const LEAST_CHUNK: u64 = 2048;
/// Cards of a tensor-parallel group from which on larger batches are captured.
const MANY_CARDS: u64 = 4;
/// Cards of more than 60 GiB keep at least 10 GiB.
const LARGE_CARD: Bytes = Bytes::gib(60);
const LEAST_OF_LARGE: Bytes = Bytes::gib(10);
/// The largest number of a flag that is believed: beyond, every card is full.
const MOST: u64 = 1 << 24;

/// Its defaults by the memory of a card: below this size, the tokens of a prefill and the largest captured
/// batch on few cards and on many.
const DEFAULTS: [(Bytes, u64, u64, u64); 4] = [
    (Bytes::gib(20), 2048, 8, 8),
    (Bytes::gib(35), 2048, 24, 80),
    (Bytes::gib(60), 4096, 32, 160),
    (Bytes::gib(160), 8192, 256, 512),
];
/// Those of larger cards.
const OF_LARGEST: (u64, u64, u64) = (16384, 512, 512);
/// Memory of a draft model, as a model of its own and as a head.
const OWN_DRAFT: Bytes = Bytes::gib(6);
const DRAFT_HEAD: Bytes = Bytes::gib(2);

// DECISION: where the flags give the part, SGLang does not look whether the rest suffices, and takes what it
// needs. Its own estimate of that need, for which it would have left room, is the best figure before the
// first load measures it.
/// The flags of a command that its estimate depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SglangReserve {
    chunk: Option<u64>,
    batch: Option<u64>,
    captures: bool,
    draft: Bytes,
    cards: u64,
}

impl SglangReserve {
    pub(super) fn of(argv: &[String], cards: usize) -> Self {
        let number = |flag| value(argv, &[flag]).and_then(|text| text.parse().ok());
        Self {
            // -1 is a prefill in one piece, whose length is not known here.
            chunk: number("--chunked-prefill-size"),
            batch: number("--cuda-graph-max-bs"),
            captures: argv.iter().all(|word| word != "--disable-cuda-graph"),
            draft: match value(argv, &["--speculative-algorithm"]) {
                None | Some("NGRAM") => Bytes::ZERO,
                Some("STANDALONE") => OWN_DRAFT,
                Some(_) => DRAFT_HEAD,
            },
            cards: u64::try_from(cards).unwrap_or(u64::MAX).min(MOST),
        }
    }

    /// Its estimate on a card of this size.
    pub fn on(&self, total: Bytes) -> Bytes {
        let row = DEFAULTS.iter().find(|row| total < row.0);
        let (chunk, few, many) = row.map_or(OF_LARGEST, |row| (row.1, row.2, row.3));
        let chunk = self.chunk.unwrap_or(chunk).clamp(LEAST_CHUNK, MOST);
        let usual = if self.cards < MANY_CARDS { few } else { many };
        let batch = if self.captures { self.batch.unwrap_or(usual).min(MOST) } else { 0 };
        // 1.5 MiB a token, 2 MiB a captured sequence, 128 MiB a card of the group.
        let estimate = TABLES + Bytes::mib(3 * chunk / 2 + 2 * batch + 128 * self.cards);
        self.draft + if total > LARGE_CARD { estimate.max(LEAST_OF_LARGE) } else { estimate }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CardPart, CommandKind};
    use super::*;

    fn part(line: &str) -> Option<CardPart> {
        CommandKind::Sglang.part(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn claim(line: &str, card: Bytes) -> u64 {
        part(line).unwrap().of(card).whole_mib()
    }

    #[test]
    fn the_claim_is_the_part_and_its_own_estimate_of_the_rest() {
        let half = "sglang serve --mem-fraction-static 0.5";
        for (flags, card, mib) in [
            ("", Bytes::gib(16), 8 * 1024 + 512 + 3072 + 16 + 128),
            ("", Bytes::gib(24), 12 * 1024 + 512 + 3072 + 48 + 128),
            ("--tp-size 4", Bytes::gib(24), 12 * 1024 + 512 + 3072 + 160 + 512),
            ("", Bytes::gib(48), 24 * 1024 + 512 + 6144 + 64 + 128),
            ("", Bytes::gib(80), 40 * 1024 + 512 + 12_288 + 512 + 128),
            ("--chunked-prefill-size 2048 --cuda-graph-max-bs 16", Bytes::gib(80), 40 * 1024 + 10 * 1024),
            ("--chunked-prefill-size=-1 --disable-cuda-graph", Bytes::gib(24), 12 * 1024 + 512 + 3072 + 128),
            ("", Bytes::gib(192), 96 * 1024 + 512 + 24_576 + 1024 + 128),
            ("--speculative-algorithm EAGLE", Bytes::gib(24), 12 * 1024 + 512 + 3072 + 48 + 128 + 2048),
            ("--speculative-algorithm NGRAM", Bytes::gib(24), 12 * 1024 + 512 + 3072 + 48 + 128),
        ] {
            assert_eq!(claim(&format!("{half} {flags}"), card), mib, "{flags} on {card}");
        }
        let two = part("sglang serve --mem-fraction-static 0.5 --tp 2").unwrap();
        assert_eq!(two.cards, 2);
        assert_eq!(part("sglang serve"), None, "it takes a whole card, whose size it reads itself");
    }

    #[test]
    fn no_flag_passes_the_card_or_overflows() {
        for flags in [
            "--mem-fraction-static 0.99",
            "--mem-fraction-static 1 --chunked-prefill-size 99999999999999999999",
            "--mem-fraction-static 0.5 --chunked-prefill-size 18446744073709551615",
            "--mem-fraction-static 0.5 --cuda-graph-max-bs 18446744073709551615 --tp 99999",
        ] {
            assert_eq!(claim(flags, Bytes::gib(80)), 80 * 1024, "{flags}");
        }
        assert_eq!(claim("--mem-fraction-static 0.5", Bytes::ZERO), 0);
    }
}
