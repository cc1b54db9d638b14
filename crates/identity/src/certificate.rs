//! X.509 certificates of a fleet: the authority's own, and those of hosts.
//!
//! DECISION: this file writes the two kinds of certificate itself, in a hundred lines. `rustls-webpki`, which TLS needs
//! anyway, reads them. A crate for arbitrary certificates (rcgen 0.14) would add two crates, and thirteen more to the
//! lock file.
//!
//! Format: RFC 5280, section 4.1; keys and signatures: Ed25519, RFC 8410.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use ring::digest::{SHA256, digest};
use ring::signature::{Ed25519KeyPair, KeyPair};

use super::der::{
    BOOLEAN, INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SET, UTF8_STRING, bits, integer, sequence, value,
};

const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const SUBJECT_KEY: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Key usages as bit strings: signatures of certificates; signatures of handshakes.
const SIGNS_CERTIFICATES: &[u8] = &[0x03, 0x02, 0x02, 0x04];
const SIGNS_HANDSHAKES: &[u8] = &[0x03, 0x02, 0x07, 0x80];

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
pub(crate) fn sign(text: &CertificateText<'_>, key: &Ed25519KeyPair) -> Vec<u8> {
    let algorithm = sequence(&[&value(OBJECT_IDENTIFIER, &[ED25519])]);
    let extensions = sequence(&[&extensions(text, key.public_key().as_ref())]);
    let body = sequence(&[
        // Version 3.
        &value(0xa0, &[&value(INTEGER, &[&[2]])]),
        &integer(text.serial),
        &algorithm,
        &name(text.issuer),
        &sequence(&[&time(text.not_before), &time(text.not_after)]),
        &name(text.subject),
        &sequence(&[&algorithm, &bits(text.public_key)]),
        &value(0xa3, &[&extensions]),
    ]);
    let signature = key.sign(&body);
    sequence(&[&body, &algorithm, &bits(signature.as_ref())])
}

fn name(common: &str) -> Vec<u8> {
    let text = value(UTF8_STRING, &[common.as_bytes()]);
    sequence(&[&value(SET, &[&sequence(&[&value(OBJECT_IDENTIFIER, &[COMMON_NAME]), &text])])])
}

fn extensions(text: &CertificateText<'_>, authority_key: &[u8]) -> Vec<u8> {
    let subject_key = value(OCTET_STRING, &[&identifier(text.public_key)]);
    let mut out = extension(SUBJECT_KEY, false, &subject_key);
    out.extend(extension(AUTHORITY_KEY, false, &sequence(&[&value(0x80, &[&identifier(authority_key)])])));
    match text.holder {
        Holder::Authority => {
            // It signs hosts only, and no further authority.
            let is_authority = sequence(&[&value(BOOLEAN, &[&[0xff]]), &integer(&[0])]);
            out.extend(extension(BASIC_CONSTRAINTS, true, &is_authority));
            out.extend(extension(KEY_USAGE, true, SIGNS_CERTIFICATES));
        }
        Holder::Host { uri } => {
            let usages = [SERVER, CLIENT].map(|usage| value(OBJECT_IDENTIFIER, &[usage]));
            out.extend(extension(KEY_USAGE, true, SIGNS_HANDSHAKES));
            out.extend(extension(EXTENDED_USAGE, false, &sequence(&[&usages[0], &usages[1]])));
            out.extend(extension(ALTERNATIVE_NAME, false, &sequence(&[&value(0x86, &[uri.as_bytes()])])));
        }
    }
    out
}

fn extension(kind: &[u8], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let kind = value(OBJECT_IDENTIFIER, &[kind]);
    let critical = if is_critical { value(BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    sequence(&[&kind, &critical, &value(OCTET_STRING, &[content])])
}

/// Identifier of a key: the beginning of its digest (RFC 7093, section 2).
fn identifier(public_key: &[u8]) -> Vec<u8> {
    digest(&SHA256, public_key).as_ref()[..20].to_vec()
}

/// UTC time: with two digits of the year before 2050 (RFC 5280, section 4.1.2.5).
fn time(seconds: u64) -> Vec<u8> {
    let at = i64::try_from(seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    let at = TimeZone::UTC.to_datetime(at.unwrap_or(Timestamp::MAX));
    let rest =
        format!("{:02}{:02}{:02}{:02}{:02}Z", at.month(), at.day(), at.hour(), at.minute(), at.second());
    match at.year() {
        year @ 1950..2050 => value(0x17, &[format!("{:02}{rest}", year % 100).as_bytes()]),
        year => value(0x18, &[format!("{year:04}{rest}").as_bytes()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_two_digits_of_the_year_before_2050() {
        assert_eq!(time(1_700_000_000), b"\x17\x0d231114221320Z");
        assert_eq!(time(2_600_000_000), b"\x18\x0f20520522141320Z");
        assert_eq!(time(u64::MAX)[..2], [0x18, 0x0f], "the last time that has four digits");
    }
}
