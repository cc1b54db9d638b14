//! Encodes the invitation of a host to a fleet: the authority's address, the digest of its certificate, and a
//! single-use secret.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// First letters of an invitation, with the number of its format.
const FORMAT: &str = "plimsoll-join-1.";
const LONGEST: usize = 1024;

/// Text that `fleet invite` prints and `fleet join` accepts.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    pub fleet: String,
    /// Peer port of the host that has the authority.
    pub address: String,
    /// SHA-256 of the authority's certificate.
    pub digest: String,
    pub secret: String,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "this is not an invitation to a fleet; hint: give the whole line that `plimsoll fleet invite` prints"
)]
pub struct InvitationError;

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Plain texts: nothing in it can fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        write!(f, "{FORMAT}{}", BASE64_URL_SAFE_NO_PAD.encode(json))
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Invitation");
        text.field("fleet", &self.fleet).field("address", &self.address).finish_non_exhaustive()
    }
}

impl FromStr for Invitation {
    type Err = InvitationError;

    fn from_str(text: &str) -> Result<Self, InvitationError> {
        let text = text.trim();
        let encoded = text.strip_prefix(FORMAT).filter(|rest| rest.len() <= LONGEST);
        let json = encoded.and_then(|encoded| BASE64_URL_SAFE_NO_PAD.decode(encoded).ok());
        json.and_then(|json| serde_json::from_slice(&json).ok()).ok_or(InvitationError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        let [fleet, address, digest, secret] = ["lab", "10.0.0.1:7079", "ab", "cd"].map(str::to_owned);
        Invitation { fleet, address, digest, secret }
    }

    #[test]
    fn an_invitation_reads_back_and_shows_no_secret() {
        let text = invitation().to_string();
        assert_eq!(format!("  {text}\n").parse::<Invitation>().unwrap(), invitation());
        assert!(!format!("{:?}", invitation()).contains("cd"));
    }

    #[test]
    fn malformed_invitations_are_errors() {
        let whole = invitation().to_string();
        plimsoll_fuzz::mutants(&[whole.as_bytes()], &[FORMAT.as_bytes()], |mutant| {
            let _ = String::from_utf8_lossy(mutant).parse::<Invitation>();
        });
        for text in ["", "plimsoll-join-1.", "plimsoll-join-2.e30", "plimsoll-join-1.e30", &whole[1..]] {
            assert!(text.parse::<Invitation>().is_err(), "{text}");
        }
        assert!(format!("{FORMAT}{}", "A".repeat(5000)).parse::<Invitation>().is_err());
    }
}
