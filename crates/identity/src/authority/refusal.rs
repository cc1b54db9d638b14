//! Lists the reasons why a certificate request is refused, as a message for people and as a code for
//! programs.

use crate::IdentityError;

/// Why a host gets no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionRefusal {
    #[error("this fleet did not issue the invitation; make a new one with `plimsoll fleet invite`")]
    Unknown,
    #[error("the invitation was used before; each admits one host")]
    Used,
    #[error("the invitation has expired; make a new one with `plimsoll fleet invite`")]
    Expired,
    #[error("`{0}` is not a valid host name; it may contain a-z, 0-9, '-', '.' and '_'")]
    Name(String),
    #[error("a host `{0}` has a certificate; revoke it first, or choose another name")]
    Taken(String),
    #[error("the certificate of `{0}` is revoked, or was not issued by this authority")]
    Revoked(String),
    #[error(
        "`{0}` has renewed its certificate too often; the next renewal is possible once one of them expires"
    )]
    Often(String),
    #[error("the public key in the certificate request is invalid")]
    PublicKey,
    #[error(transparent)]
    Failed(#[from] IdentityError),
}

impl AdmissionRefusal {
    /// The word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown_invitation",
            Self::Used => "used_invitation",
            Self::Expired => "expired_invitation",
            Self::Name(_) => "bad_host_name",
            Self::Taken(_) => "host_name_taken",
            Self::Revoked(_) => "revoked_certificate",
            Self::Often(_) => "renewed_too_often",
            Self::PublicKey => "bad_public_key",
            Self::Failed(_) => "authority_failed",
        }
    }
}
