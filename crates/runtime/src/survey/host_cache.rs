//! Limits the host memory of llama-server's cache of idle prompts (`--cache-ram`).

use plimsoll_base::{Card, CardKind};
use plimsoll_cards::HOST_CARD;
use plimsoll_flags::Options;
use plimsoll_plan::usual_prompt_cache;
use plimsoll_process::Environment;

const FLAG: &str = "--cache-ram";
const VARIABLE: &str = "LLAMA_ARG_CACHE_RAM";
/// The host's memory among the cards, unless the user described a part of it.
///
/// DECISION: a described host is a budget for plans, as given. Engines' memory beyond their plans counts on
/// the real host, where the kernel would end a process for it.
pub(super) fn host(cards: &[Card]) -> Option<&Card> {
    cards.iter().find(|card| card.kind == CardKind::Host && card.id.as_str() == HOST_CARD)
}

/// Limits the cache by a variable, which flags and older engines are not disturbed by.
pub(crate) fn limit_prompt_cache(flags: &Options, cards: &[Card], environment: &mut Environment) {
    let host = host(cards).filter(|_| flags.get(FLAG).is_none() && environment.get(VARIABLE).is_none());
    if let Some(host) = host {
        environment.set(VARIABLE, usual_prompt_cache(host).whole_mib().to_string());
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;
    use plimsoll_plan::prompt_cache;

    use super::*;

    fn cache(flags: &str, total: &str) -> Bytes {
        let host = format!("name=host,kind=host,total={total}").parse().unwrap();
        let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        prompt_cache(&Options::from_argv(&words).unwrap(), &host).bytes
    }

    #[test]
    fn the_claim_is_what_flags_say_and_else_a_part_of_the_host() {
        for (flags, total, claim) in [
            ("", "512GiB", Bytes::gib(8)),
            ("", "16GiB", Bytes::gib(1)),
            ("", "100MiB", Bytes::mib(6)),
            ("-cram 300", "16GiB", Bytes::mib(300)),
            ("--cache-ram 0", "16GiB", Bytes::ZERO),
            ("-cram -1", "16GiB", Bytes::gib(8)),
            ("-cram -1", "4GiB", Bytes::gib(4)),
            ("--embeddings", "16GiB", Bytes::ZERO),
            ("-cram 9223372036854775807", "16GiB", Bytes::MAX),
        ] {
            assert_eq!(cache(flags, total), claim, "{flags} {total}");
        }
    }

    #[test]
    fn only_an_engine_that_says_nothing_is_limited_and_only_on_the_real_host() {
        let limited = |flags: &str, card: &str| {
            let words: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
            let mut environment = Environment::default();
            let cards = [card.parse().unwrap()];
            limit_prompt_cache(&Options::from_argv(&words).unwrap(), &cards, &mut environment);
            environment.get(VARIABLE).map(|value| value.to_string_lossy().into_owned())
        };
        assert_eq!(limited("", "name=host,kind=host,total=16GiB").as_deref(), Some("1024"));
        assert_eq!(limited("-cram 5", "name=host,kind=host,total=16GiB"), None);
        assert_eq!(limited("", "name=part,kind=host,total=16GiB"), None);
        assert_eq!(limited("", "name=card,total=16GiB,cc=8.6"), None);
    }
}
