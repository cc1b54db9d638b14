//! Hashes the beginnings of prompts, to recognise a later prompt that begins in the same way.

use std::hash::{DefaultHasher, Hasher};

use memchr::memmem;
use serde::{Deserialize, Serialize};

use super::{CacheUse, RequestPrompt, text, use_of};
use crate::Rope;

/// The shortest prefix; each next one is twice as long.
const SHORTEST: usize = 64;
/// Prefixes at most: the longest has 16 KiB.
const MOST: usize = 9;
/// The keys that hold a prompt. Fields before them (the model, the temperature) may differ.
const KEYS: [&[u8]; 3] = [b"\"messages\"", b"\"prompt\"", b"\"input\""];
/// Bytes of a body in which such a key is searched for.
const SEARCHED: usize = 64 * 1024;

/// Hashes of a prompt's first 64, 128, 256 … bytes.
///
/// The hash may change between Rust releases, and then no prompt is recognised once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromptPrefixes(Vec<u64>);

impl PromptPrefixes {
    fn of(body: &[u8]) -> Self {
        let searched = &body[..body.len().min(SEARCHED)];
        let start = KEYS.iter().filter_map(|key| memmem::find(searched, key)).min().unwrap_or(0);
        let prompt = &body[start..];
        let mut hasher = DefaultHasher::new();
        let (mut hashes, mut done) = (Vec::new(), 0);
        for power in 0..MOST {
            let length = SHORTEST << power;
            let Some(next) = prompt.get(done..length) else { break };
            hasher.write(next);
            hashes.push(hasher.finish());
            done = length;
        }
        Self(hashes)
    }

    /// True if this prompt shares at least a quarter of `earlier`, as far as it is hashed.
    ///
    /// The end of a body is no text of the conversation, so the last prefix of the earlier one may differ.
    pub fn continues(&self, earlier: &Self) -> bool {
        let shared = self.0.iter().zip(&earlier.0).take_while(|(one, other)| one == other).count();
        shared > 0 && shared + 2 >= earlier.0.len()
    }
}

impl RequestPrompt<'_> {
    /// The prefixes of the prompt; `None` for a request that completes nothing.
    pub fn prefixes(&self) -> Option<PromptPrefixes> {
        let completes = [CacheUse::Completes, CacheUse::Chats, CacheUse::Converses];
        completes.contains(&use_of(self.method, self.path)).then(|| prefixes_of(self.body))
    }
}

fn prefixes_of(body: &Rope) -> PromptPrefixes {
    let longest = SEARCHED + (SHORTEST << MOST);
    if body.len() > longest {
        PromptPrefixes::of(&body.copy(0..longest))
    } else {
        PromptPrefixes::of(&text(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(temperature: f32, turns: &[&str]) -> PromptPrefixes {
        let turns: Vec<_> =
            turns.iter().map(|text| serde_json::json!({ "content": text, "role": "user" })).collect();
        let messages = serde_json::json!(turns);
        PromptPrefixes::of(
            format!("{{\"temperature\":{temperature},\"messages\":{messages},\"stream\":true}}").as_bytes(),
        )
    }

    #[test]
    fn a_conversation_continues_and_another_one_does_not() {
        let long = "the ship sails ".repeat(300);
        let first = chat(0.1, &[&long]);
        assert!(chat(0.7, &[&long, "an answer", "and more"]).continues(&first));
        assert!(chat(0.7, &[&long]).continues(&first), "the same once more");
        assert!(!chat(0.7, &["another ship", &long]).continues(&first));
        let half = &long[..long.len() / 2];
        assert!(chat(0.7, &[half, "and another end that is as long as this"]).continues(&first));
        assert!(!chat(0.7, &[&long[..long.len() / 20], &"other words ".repeat(400)]).continues(&first));
    }

    #[test]
    fn prompts_too_short_to_identify_continue_nothing() {
        let (short, long) =
            (PromptPrefixes::of(b"{\"prompt\":\"a\"}"), chat(0.1, &["word ".repeat(100).as_str()]));
        assert!(!short.continues(&short) && !long.continues(&short) && !short.continues(&long));
    }

    #[test]
    fn any_body_has_few_prefixes() {
        for body in [Vec::new(), vec![0xff; 63], vec![b'"'; 1 << 20], b"\"messages\"".repeat(1 << 16)] {
            assert!(PromptPrefixes::of(&body).0.len() <= MOST);
        }
        assert_eq!(PromptPrefixes::of(&vec![b'a'; 1 << 20]).0.len(), MOST);
    }
}
