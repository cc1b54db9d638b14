//! Holds the API key of a request: its rights, its limits, and its use so far.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;
use plimsoll_base::Priority;
use plimsoll_config::{ConfiguredKey, KeyRight, KeySecret, fits_pattern};
use plimsoll_scheduler::ClientId;
use ring::digest::{SHA256, digest};

use super::allowance::Allowance;
use super::client;
use super::problem::HttpProblem;

/// Bytes of text for a token, where an engine does not report its tokens.
const BYTES_PER_TOKEN: u64 = 4;
/// Time after which a client may try again that has too many requests in progress.
const BUSY: Duration = Duration::from_secs(1);

/// SHA-256 digest of a key.
///
/// DECISION: a plain digest and no slow one, because each connection pays for it. Keys are random texts,
/// unlike passwords.
pub(crate) type KeyDigest = [u8; 32];

pub fn digest_of(key: &[u8]) -> KeyDigest {
    let mut bytes = KeyDigest::default();
    bytes.copy_from_slice(digest(&SHA256, key).as_ref());
    bytes
}

/// A key of the configuration, without its text.
#[derive(Debug)]
pub(crate) struct AccessKey {
    pub(super) digest: KeyDigest,
    /// The client that shows it.
    pub(super) client: ClientId,
    /// The settings; its secret is empty.
    pub(super) settings: ConfiguredKey,
    /// A key of `[keys]`. The others have no name, all rights and no limits.
    pub(super) is_named: bool,
    pub(super) usage: Rc<KeyUsage>,
}

/// Use of a key's allowances by its requests. A reload keeps it.
#[derive(Debug, Default)]
pub(super) struct KeyUsage {
    requests_left: Cell<Option<Allowance>>,
    tokens_left: Cell<Option<Allowance>>,
    in_progress: Cell<u32>,
    pub(super) requests: Cell<u64>,
    pub(super) tokens: Cell<u64>,
    pub(super) refused: Cell<u64>,
}

impl AccessKey {
    /// `usage` is that of the key of this name before.
    pub(super) fn new(mut settings: ConfiguredKey, is_named: bool, usage: Option<Rc<KeyUsage>>) -> Self {
        let digest = match std::mem::replace(&mut settings.secret, KeySecret::Digest([0; 32])) {
            KeySecret::Text(text) => digest_of(text.as_bytes()),
            KeySecret::Digest(digest) => digest,
        };
        let usage = usage.unwrap_or_default();
        let now = Instant::now();
        for (left, limit) in [
            (&usage.requests_left, settings.requests_per_minute),
            (&usage.tokens_left, settings.tokens_per_minute),
        ] {
            left.set(limit.map(|limit| {
                left.get().map_or_else(|| Allowance::new(limit, now), |left| left.changed_to(limit))
            }));
        }
        let client = client::with_key(&settings.name, &digest);
        Self { digest, client, settings, is_named, usage }
    }

    pub(super) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(super) fn is_expired(&self) -> bool {
        let now = SystemTime::now();
        self.settings.expires.is_some_and(|time| SystemTime::from(time) <= now)
    }

    /// Checks that the key has one of these rights; an empty list asks for none.
    pub(super) fn may(&self, rights: &[KeyRight]) -> Result<(), HttpProblem> {
        if rights.is_empty() || rights.iter().any(|right| self.settings.rights.contains(right)) {
            return Ok(());
        }
        let words: Vec<String> = rights.iter().map(|right| format!("`{}`", right.word())).collect();
        let message = format!("the API key {} lacks the right {}", self.name(), words.join(" or "));
        Err(HttpProblem::new(StatusCode::FORBIDDEN, "missing_right", message))
    }

    /// True if the key may use a model that `answers_to` one of its patterns.
    pub(super) fn permits(&self, names: &[&str]) -> bool {
        let models = self.settings.models.as_ref();
        models.is_none_or(|patterns| {
            patterns.iter().any(|pattern| names.iter().any(|name| fits_pattern(name, pattern)))
        })
    }

    /// Checks that the key is for all models.
    pub(super) fn may_reach_all(&self) -> Result<(), HttpProblem> {
        if self.settings.models.is_none() {
            return Ok(());
        }
        let message = format!(
            "the API key {} permits only some models, but this request concerns all; name one \
                model",
            self.name()
        );
        Err(HttpProblem::new(StatusCode::FORBIDDEN, "model_not_permitted", message))
    }

    /// Counts a request of `bytes` that begins now; an error if a limit of the key forbids it.
    pub(super) fn enter(self: &Rc<Self>, bytes: usize) -> Result<KeyUse, HttpProblem> {
        let (usage, now) = (&self.usage, Instant::now());
        let most = self.settings.concurrency.map_or(u32::MAX, Into::into);
        if usage.in_progress.get() >= most {
            let plural = if most == 1 { "" } else { "s" };
            return Err(self.refused(&format!("{most} request{plural} at a time"), BUSY));
        }
        for (left, limit, unit) in [
            (&usage.requests_left, self.settings.requests_per_minute, "requests"),
            (&usage.tokens_left, self.settings.tokens_per_minute, "tokens"),
        ] {
            let (Some(mut allowance), Some(limit)) = (left.get(), limit) else { continue };
            let wait = allowance.wait(now);
            left.set(Some(allowance));
            if !wait.is_zero() {
                return Err(self.refused(&format!("{limit} {unit} per minute"), wait));
            }
        }
        spend(&usage.requests_left, 1, now);
        usage.in_progress.set(usage.in_progress.get() + 1);
        usage.requests.set(usage.requests.get() + 1);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Ok(KeyUse { key: Rc::clone(self), bytes, tokens: None, settled: 0, is_sent: false })
    }

    fn refused(&self, limit: &str, wait: Duration) -> HttpProblem {
        self.usage.refused.set(self.usage.refused.get() + 1);
        let message = format!("the API key {} is limited to {limit}", self.name());
        HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message).retry_after(wait)
    }
}

impl KeyUsage {
    fn spend(&self, tokens: u64, now: Instant) {
        self.tokens.set(self.tokens.get().saturating_add(tokens));
        spend(&self.tokens_left, tokens, now);
    }
}

fn spend(allowance: &Cell<Option<Allowance>>, units: u64, now: Instant) {
    if let Some(mut left) = allowance.get() {
        left.spend(units, now);
        allowance.set(Some(left));
    }
}

/// A request of a key in progress; it ends when this is dropped.
///
/// DECISION: where the engine reports no tokens, or the client leaves before it could, a token is counted for
/// each four bytes of request and answer.
#[derive(Debug)]
pub(crate) struct KeyUse {
    key: Rc<AccessKey>,
    bytes: u64,
    tokens: Option<u64>,
    /// Tokens that are counted already, of a connection that has no end of its own.
    settled: u64,
    is_sent: bool,
}

impl KeyUse {
    pub(crate) fn priority(&self) -> Priority {
        self.key.settings.priority
    }

    /// An engine gets the request.
    pub(crate) fn sent(&mut self) {
        self.is_sent = true;
    }

    pub(crate) fn passed(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts bytes of a connection that goes on; true while the key has tokens left.
    pub(crate) fn flows(&mut self, bytes: usize) -> bool {
        self.passed(bytes);
        let now = Instant::now();
        let tokens = (self.bytes / BYTES_PER_TOKEN).saturating_sub(self.settled);
        self.settled += tokens;
        self.key.usage.spend(tokens, now);
        let mut left = self.key.usage.tokens_left.get();
        left.as_mut().is_none_or(|left| left.wait(now).is_zero())
    }

    /// The answer is complete, with the tokens that the engine reported.
    pub(crate) fn answered(mut self, tokens: Option<u64>) {
        self.tokens = tokens;
    }
}

impl Drop for KeyUse {
    fn drop(&mut self) {
        let usage = &self.key.usage;
        usage.in_progress.set(usage.in_progress.get().saturating_sub(1));
        // A request that was refused or has left its queue has cost no engine anything.
        if self.is_sent {
            let tokens = self.tokens.unwrap_or(self.bytes / BYTES_PER_TOKEN);
            usage.spend(tokens.saturating_sub(self.settled), Instant::now());
        }
    }
}
