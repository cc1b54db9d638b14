//! Ends a long-lived connection (an event stream or a websocket) when its API key loses the right to it.

use std::future::pending;
use std::time::{Duration, SystemTime};

use plimsoll_config::KeyRight;

use super::access_key::AccessKey;
use super::auth::{ApiKeys, KeyNumber};

/// The longest sleep until a key expires; then it is looked at again.
const GLANCE: Duration = Duration::from_secs(3600);

/// Right with which a client was admitted.
#[derive(Clone, Debug)]
pub(crate) struct AccessTerms {
    /// `None` where no key was required.
    pub key: Option<KeyNumber>,
    /// Rights of which it needs one.
    pub rights: &'static [KeyRight],
    pub reach: Reach,
}

/// The models that it concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// None, or no one in particular.
    Any,
    /// The one of these names.
    One(Vec<String>),
    All,
}

/// Access on these terms, as long as the client stays.
#[derive(Debug)]
pub(crate) struct StandingAccess {
    pub keys: ApiKeys,
    pub terms: AccessTerms,
}

impl StandingAccess {
    fn stands(&self) -> bool {
        let AccessTerms { key, rights, reach } = &self.terms;
        let Some(key) = key else { return self.keys.is_empty() };
        let reaches = |key: &AccessKey| match reach {
            Reach::Any => true,
            Reach::One(names) => key.permits(&names.iter().map(String::as_str).collect::<Vec<_>>()),
            Reach::All => key.settings.models.is_none(),
        };
        self.keys.get(*key).is_some_and(|key| key.may(rights).is_ok() && reaches(&key))
    }

    /// Ends when the key is revoked, expires or loses the right.
    pub(crate) async fn ended(self) {
        let mut replaced = self.keys.replaced();
        while self.stands() {
            let expires = self.terms.key.and_then(|key| self.keys.get(key)?.settings.expires);
            let left = expires.map(|time| {
                SystemTime::from(time).duration_since(SystemTime::now()).unwrap_or_default().min(GLANCE)
            });
            tokio::select! {
                // An error means that the server is gone, which ends its connections by itself.
                changed = replaced.changed() => if changed.is_err() { pending::<()>().await },
                () = tokio::time::sleep(left.unwrap_or(GLANCE)) => {}
            }
        }
    }
}
