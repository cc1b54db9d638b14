//! Creates the X.509 certificates of a fleet: the authority's own, and those of hosts. Keys and signatures
//! are Ed25519 (RFC 8410).

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyIdMethod, KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
    SigningKey,
};
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair};
use time::OffsetDateTime;

/// 9999-12-31T23:59:59Z, the last time that a certificate can have (RFC 5280, section 4.1.2.5).
const LAST: i64 = 253_402_300_799;

/// Owner of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Holder<'a> {
    Authority,
    /// A host with its name as a URI.
    Host {
        uri: &'a str,
    },
}

/// Content of a certificate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CertificateText<'a> {
    pub(crate) serial: &'a [u8],
    pub(crate) issuer: &'a str,
    pub(crate) subject: &'a str,
    pub(crate) holder: Holder<'a>,
    /// The subject's Ed25519 key.
    pub(crate) public_key: &'a [u8],
    /// Seconds since 1970.
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
}

/// Writes a certificate, signed with the authority's key.
pub(crate) fn sign(text: &CertificateText<'_>, key: &Ed25519KeyPair) -> Result<Vec<u8>, rcgen::Error> {
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = common_name(text.issuer);
    issuer.key_identifier_method = identifier(key.public_key().as_ref());
    let issuer = Issuer::new(issuer, AuthorityKey(key));
    Ok(parameters(text)?.signed_by(&HostKey(text.public_key), &issuer)?.der().to_vec())
}

fn parameters(text: &CertificateText<'_>) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    parameters.serial_number = Some(SerialNumber::from_slice(text.serial));
    parameters.distinguished_name = common_name(text.subject);
    parameters.not_before = time(text.not_before);
    parameters.not_after = time(text.not_after);
    parameters.key_identifier_method = identifier(text.public_key);
    parameters.use_authority_key_identifier_extension = true;
    match text.holder {
        Holder::Authority => {
            // It signs hosts only, and no further authority.
            parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        }
        Holder::Host { uri } => {
            parameters.is_ca = IsCa::NoCa;
            parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            parameters.extended_key_usages =
                vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
            parameters.subject_alt_names = vec![SanType::URI(Ia5String::try_from(uri)?)];
        }
    }
    Ok(parameters)
}

/// Identifier of a key: the beginning of its digest (RFC 7093, section 2).
fn identifier(public_key: &[u8]) -> KeyIdMethod {
    KeyIdMethod::PreSpecified(digest(&SHA256, public_key).as_ref().iter().take(20).copied().collect())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

fn time(seconds: u64) -> OffsetDateTime {
    let seconds = i64::try_from(seconds).unwrap_or(LAST).min(LAST);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

struct AuthorityKey<'a>(&'a Ed25519KeyPair);

impl PublicKeyData for AuthorityKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

impl SigningKey for AuthorityKey<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.0.sign(message).as_ref().to_vec())
    }
}

struct HostKey<'a>(&'a [u8]);

impl PublicKeyData for HostKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_end_with_the_last_year_of_four_digits() {
        assert_eq!(time(1_700_000_000).unix_timestamp(), 1_700_000_000);
        assert_eq!(time(u64::MAX).year(), 9999);
    }
}
