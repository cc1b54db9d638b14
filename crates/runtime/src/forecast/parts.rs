//! Writes a planned memory need as text, part by part, for `serve --check`.

use plimsoll_base::{Bytes, Card, CardId, CardKind, MemoryModel, PromptCache};

/// One line for each card with a share.
///
/// DECISION: terms that do not add up to the share are left out: an engine's own report replaces some of
/// them.
pub(super) fn lines(shares: &[(CardId, Bytes)], cards: &[Card], demand: &dyn MemoryModel) -> Vec<String> {
    let terms = demand.terms(cards);
    let line = |(id, share): &(CardId, Bytes)| {
        let (_, terms) = terms.iter().find(|(card, _)| card == id)?;
        let sum: Bytes = terms.iter().map(|(_, bytes)| *bytes).sum();
        let named: Vec<String> = terms
            .iter()
            .filter(|(_, bytes)| !bytes.is_zero())
            .map(|(name, bytes)| format!("{} {bytes}", words(name)))
            .collect();
        let of = if shares.len() > 1 { format!("{}: ", name(id, cards)) } else { String::new() };
        (sum == *share).then(|| format!("{of}{}", named.join(", ")))
    };
    shares.iter().filter_map(line).collect()
}

/// Why the need has a prompt cache of this size.
pub(super) fn note(demand: &dyn MemoryModel) -> Option<String> {
    demand.prompt_cache().filter(|cache| !cache.bytes.is_zero()).map(explained)
}

/// Bytes of host memory that a model needs beside those of its cards.
pub(super) fn alongside(shares: &[(CardId, Bytes)], cards: &[Card]) -> Bytes {
    let is_alongside = |id: &CardId| !cards.iter().any(|card| card.id == *id);
    shares.iter().filter(|(id, _)| is_alongside(id)).map(|(_, bytes)| *bytes).sum()
}

fn name<'a>(id: &'a CardId, cards: &'a [Card]) -> &'a str {
    let card = cards.iter().find(|card| card.id == *id && card.kind != CardKind::Host);
    card.map_or("host memory", |card| card.name.as_str())
}

fn words(term: &str) -> &str {
    match term {
        "kv" => "KV cache",
        "context" => "driver",
        "prompts" => "prompt cache",
        other => other,
    }
}

fn explained(PromptCache { bytes, is_set }: PromptCache) -> String {
    let limit = if is_set {
        "as `-cram` says".to_owned()
    } else {
        "a sixteenth of that memory (8192 MiB at most), because no flag sets it; `-cram MIB` does, and `-cram 0` \
            turns it off"
            .to_owned()
    };
    format!("a prompt cache of up to {bytes} of host memory keeps prompts of idle slots: {limit}")
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Reason;

    use super::*;

    #[derive(Debug)]
    struct Need(Vec<(CardId, Vec<(&'static str, Bytes)>)>, Option<PromptCache>);

    impl MemoryModel for Need {
        fn on(&self, _: &[Card]) -> Result<Vec<(CardId, Bytes)>, Reason> {
            Ok(Vec::new())
        }

        fn terms(&self, _: &[Card]) -> Vec<(CardId, Vec<(&'static str, Bytes)>)> {
            self.0.clone()
        }

        fn prompt_cache(&self) -> Option<PromptCache> {
            self.1
        }
    }

    #[test]
    fn a_share_is_divided_where_its_terms_add_up_and_the_prompt_cache_says_where_its_limit_comes_from() {
        let card: Card = "name=A,total=8GiB,cc=8.6".parse().unwrap();
        let host = CardId::new("host");
        let on_card = vec![("weights", Bytes::mib(5)), ("pool", Bytes::ZERO), ("context", Bytes::mib(2))];
        let on_host = vec![("output", Bytes::mib(1)), ("prompts", Bytes::mib(64))];
        let cache = |is_set| Some(PromptCache { bytes: Bytes::mib(64), is_set });
        let need = Need(vec![(card.id.clone(), on_card), (host.clone(), on_host)], cache(false));
        let shares = [(card.id.clone(), Bytes::mib(7)), (host.clone(), Bytes::mib(65))];
        let cards = [card.clone()];
        let stated = lines(&shares, &cards, &need);
        assert_eq!(
            stated,
            ["A: weights 5 MiB, driver 2 MiB", "host memory: output 1 MiB, prompt cache 64 MiB"]
        );
        let reported = note(&need).unwrap();
        assert!(
            reported.contains("64 MiB") && reported.contains("a sixteenth") && reported.contains("`-cram 0`"),
            "{reported}"
        );
        assert_eq!(alongside(&shares, &cards), Bytes::mib(65));

        let reported = [(card.id, Bytes::mib(9))];
        let need = Need(need.0, cache(true));
        assert_eq!(
            lines(&reported, &cards, &need),
            [""; 0],
            "the engine's figure is not the sum of the terms"
        );
        assert!(note(&need).unwrap().ends_with("as `-cram` says"));
        let none = Some(PromptCache { bytes: Bytes::ZERO, is_set: true });
        assert_eq!(note(&Need(Vec::new(), none)), None);
    }
}
