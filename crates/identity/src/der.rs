//! DER encoding (X.690) of nested values with definite length, limited to the needs of certificates.

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// A value: its tag, the length in the shortest form, and the content.
pub(crate) fn value(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = vec![tag];
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out.push(short),
        _ => {
            let bytes = length.to_be_bytes();
            let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(8));
            out.extend_from_slice(digits);
        }
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, parts)
}

/// A bit string of whole bytes.
pub(crate) fn bits(bytes: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], bytes])
}

/// A positive integer of these big-endian bytes, in the shortest form.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let digits = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
    match digits.first() {
        Some(first) if *first < 0x80 => value(INTEGER, &[digits]),
        // The first bit is the sign.
        _ => value(INTEGER, &[&[0], digits]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_and_integers_have_their_shortest_form() {
        assert_eq!(value(OCTET_STRING, &[b"ab", b"c"]), b"\x04\x03abc");
        assert_eq!(value(OCTET_STRING, &[&[7; 127]])[..2], [0x04, 0x7f]);
        assert_eq!(value(OCTET_STRING, &[&[7; 128]])[..3], [0x04, 0x81, 0x80]);
        assert_eq!(value(OCTET_STRING, &[&[7; 300]])[..4], [0x04, 0x82, 0x01, 0x2c]);
        assert_eq!(integer(&[0, 0, 5]), [0x02, 0x01, 0x05]);
        assert_eq!(integer(&[0x80]), [0x02, 0x02, 0x00, 0x80]);
        assert_eq!(integer(&[0]), [0x02, 0x01, 0x00]);
        assert_eq!(bits(&[9]), [0x03, 0x02, 0x00, 0x09]);
    }
}
