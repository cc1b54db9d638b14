//! Fetches and renews the access token of an etcd user, for stores that require one.

use std::sync::{Mutex, PoisonError};

use http::HeaderValue;
use serde_json::{Value, json};

use super::access::{AccessError, StoreAccess};

/// etcd's words for a token that it does not know, such as after a restart of a member, or none where one is
/// required. Source: ErrGRPCInvalidAuthToken, ErrGRPCAuthOldRevision and ErrGRPCUserEmpty in etcd's
/// `api/v3rpc/rpctypes/error.go`.
const STALE: [&str; 3] = ["invalid auth token", "revision of auth store is old", "user name is empty"];
/// Its gateway ignores the common name of a client, and refuses a certificate that has one where users are
/// required. Source: `accessController.ServeHTTP` in etcd's `embed/serve.go`.
const GATEWAY_NAME: &str = "CommonName of client sending a request against gateway will be ignored";
/// Source: ErrGRPCPermissionDenied there.
const DENIED: &str = "permission denied";
/// Source: ErrGRPCAuthNotEnabled there.
pub(crate) const NOT_ENABLED: &str = "authentication is not enabled";

#[derive(Clone, Debug)]
pub(crate) enum Token {
    /// The store takes requests without one.
    NotRequired,
    Header(HeaderValue),
}

/// A user and its last token.
#[derive(Debug)]
pub(crate) struct StoreUser {
    access: StoreAccess,
    token: Mutex<Option<Token>>,
}

impl StoreUser {
    /// `None` for access without a user.
    pub(crate) fn of(access: &StoreAccess) -> Option<Self> {
        access.user.as_ref()?;
        Some(Self { access: access.clone(), token: Mutex::default() })
    }

    /// Body of the request for a token. The password is read each time, so that it can be changed in its
    /// file.
    pub(crate) fn request(&self) -> Result<Value, AccessError> {
        Ok(json!({ "name": self.access.user, "password": self.access.password()? }))
    }

    pub(crate) fn token(&self) -> Option<Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, token: Option<Token>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

/// Whether a refusal of a request with this token may be none for one with a new token.
pub(crate) fn is_stale(token: &Token, message: &str) -> bool {
    let was_free = matches!(token, Token::NotRequired) && message.contains(DENIED);
    was_free || STALE.iter().any(|stale| message.contains(stale))
}

const NO_USER: &str = "the store requires a user: set `store-user` and `store-password-file`";

/// What an operator can do about a refusal.
pub(crate) fn remedy(message: &str, has_user: bool) -> Option<&'static str> {
    // With TLS the user is then one without a name.
    if message.contains(DENIED) && !has_user {
        return Some(NO_USER);
    }
    let remedies = [
        ("user name is empty", NO_USER),
        (
            GATEWAY_NAME,
            "issue the certificate of `store-certificate` without a common name (CN): etcd does not \
                accept one beside `store-user`",
        ),
        (
            "invalid user ID or password",
            "check that `store-user` and the password in `store-password-file` are those of a user of the \
                store",
        ),
        (
            DENIED,
            "grant the user's role the fleet's keys: etcdctl role grant-permission ROLE --prefix=true \
            readwrite /plimsoll/",
        ),
        ("HTTP request to an HTTPS server", "the store speaks TLS: write etcds:// in its address"),
    ];
    remedies.into_iter().find(|(words, _)| message.contains(words)).map(|(_, remedy)| remedy)
}
