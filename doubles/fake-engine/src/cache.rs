//! Simulates the prompt cache of the fake engine's one slot: the last prompt, its computing time, and the
//! actions save and restore.
//!
//! It exists only if the script sets the time for each token (`prompt_us`). Otherwise a prompt takes no time.

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::serve::depth_tokens;

const MAGIC: &[u8] = b"FAKESLOT";

#[derive(Debug, Default)]
pub(crate) struct PromptCache {
    prompt: RefCell<Bytes>,
    computed: Cell<u64>,
    spent: Cell<Duration>,
}

impl PromptCache {
    /// The time for a prompt; what it shares with the last one is there already.
    pub(crate) fn compute(&self, prompt: &Bytes, each: Duration) -> Duration {
        let last = self.prompt.replace(prompt.clone());
        let shared = last.iter().zip(prompt).take_while(|(one, other)| one == other).count();
        let tokens = depth_tokens(prompt) - depth_tokens(&prompt[..shared]);
        let time = each * u32::try_from(tokens).unwrap_or(u32::MAX);
        self.computed.set(self.computed.get() + tokens);
        self.spent.set(self.spent.get() + time);
        time
    }

    pub(crate) fn tokens(&self) -> u64 {
        depth_tokens(&self.prompt.borrow())
    }

    pub(crate) fn metrics(&self) -> String {
        format!(
            "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.\n\
             # TYPE llamacpp:prompt_tokens_total counter\n\
             llamacpp:prompt_tokens_total {}\n\
             # HELP llamacpp:prompt_seconds_total Prompt process time\n\
             # TYPE llamacpp:prompt_seconds_total counter\n\
             llamacpp:prompt_seconds_total {}\n",
            self.computed.get(),
            self.spent.get().as_secs_f64()
        )
    }

    /// Writes the prompt, and so many bytes more for each of its tokens.
    pub(crate) fn save(&self, path: &Path, padding: u64) -> io::Result<Value> {
        let (prompt, tokens) = (self.prompt.borrow(), self.tokens());
        let length = u64::try_from(prompt.len()).map_err(io::Error::other)?;
        let padding = usize::try_from(padding * tokens).map_err(io::Error::other)?;
        let content = [MAGIC, &length.to_le_bytes(), &prompt, &vec![0x5a; padding]].concat();
        fs::write(path, &content)?;
        Ok(json!({ "id_slot": 0, "n_saved": tokens, "n_written": content.len() }))
    }

    pub(crate) fn restore(&self, path: &Path) -> io::Result<Value> {
        let content = fs::read(path)?;
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let rest = content.strip_prefix(MAGIC).ok_or_else(bad)?;
        let (length, rest) = rest.split_first_chunk().ok_or_else(bad)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(io::Error::other)?;
        self.prompt.replace(Bytes::copy_from_slice(rest.get(..length).ok_or_else(bad)?));
        Ok(json!({ "id_slot": 0, "n_restored": self.tokens(), "n_read": content.len() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_prompt_prefix_costs_nothing_also_after_a_restore() {
        let folder = tempfile::tempdir().unwrap();
        let (path, each) = (folder.path().join("a"), Duration::from_millis(1));
        let (first, second) = (Bytes::from(vec![b'a'; 400]), Bytes::from(vec![b'a'; 440]));
        let cache = PromptCache::default();
        assert_eq!(cache.compute(&first, each), each * 100);
        assert_eq!(cache.compute(&second, each), each * 10);
        assert_eq!(cache.save(&path, 8).unwrap()["n_saved"], 110);
        let other = PromptCache::default();
        assert_eq!(other.restore(&path).unwrap()["n_restored"], 110);
        assert_eq!(other.compute(&second, each), Duration::ZERO);
        assert!(other.metrics().contains("\nllamacpp:prompt_tokens_total 0\n"));
        for damaged in [&b""[..], b"FAKESLOT", b"FAKESLOT\xff\xff\xff\xff\xff\xff\xff\xff", b"else"] {
            fs::write(&path, damaged).unwrap();
            assert!(other.restore(&path).is_err());
        }
    }
}
