//! Frames of a memory recording and the encoding of numbers in them.
//!
//! A file is [`MAGIC`] followed by frames. A frame is the length of kind and payload as a varint, the kind,
//! the payload, and the CRC-32 of both, little-endian. A varint has seven bits a byte, the lowest first.

use crc32fast::hash as crc32;

/// The name of the format and its version.
pub(super) const MAGIC: &[u8; 8] = b"plimrec\x01";
/// Figures of one record. Beyond, new ones are left out.
pub(super) const MOST_FIGURES: usize = 8192;
/// Maximum length of a frame; longer text is cut.
pub(super) const MOST_FRAME: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    About,
    Figure,
    Sample,
    Event,
    Shot,
    End,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::About,
        Self::Figure,
        Self::Sample,
        Self::Event,
        Self::Shot,
        Self::End,
    ];

    fn code(self) -> u8 {
        match self {
            Self::About => 1,
            Self::Figure => 2,
            Self::Sample => 3,
            Self::Event => 4,
            Self::Shot => 5,
            Self::End => 6,
        }
    }
}

/// Adds a frame to `out`.
pub(super) fn write(kind: Kind, payload: &[u8], out: &mut Vec<u8>) {
    // Cut rather than refused: a truncated text is better than none, and readers reject longer frames.
    let payload = &payload[..payload.len().min(MOST_FRAME - 1)];
    put(wide(payload.len() + 1), out);
    let start = out.len();
    out.push(kind.code());
    out.extend_from_slice(payload);
    // Over kind and payload: a damaged length shows in the sum of the wrong bytes.
    let sum = crc32(&out[start..]);
    out.extend_from_slice(&sum.to_le_bytes());
}

/// The frame at the beginning of `bytes`, and how long it is with all that belongs to it. A kind that is not
/// known is a later version's.
pub(super) fn read(bytes: &[u8]) -> Option<(Option<Kind>, &[u8], usize)> {
    let mut rest = Input(bytes);
    let length = usize::try_from(rest.number()?).ok()?;
    // Checked before the sum: a damaged length must not make the reader hash megabytes.
    if length == 0 || length > MOST_FRAME {
        return None;
    }
    let body = rest.take(length)?;
    let sum = rest.take(4)?;
    if crc32(body).to_le_bytes() != *sum {
        return None;
    }
    let (code, payload) = body.split_first()?;
    // None for kinds of later versions, which are skipped by their length.
    let kind = Kind::ALL.into_iter().find(|kind| kind.code() == *code);
    Some((kind, payload, bytes.len() - rest.0.len()))
}

/// Adds a varint.
pub(super) fn put(mut number: u64, out: &mut Vec<u8>) {
    loop {
        let [lowest, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            return out.push(lowest & 0x7f);
        }
        out.push(lowest | 0x80);
    }
}

/// Adds a text with its length.
pub(super) fn put_text(text: &str, out: &mut Vec<u8>) {
    put(wide(text.len()), out);
    out.extend_from_slice(text.as_bytes());
}

/// Small differences of either sign become small numbers.
pub(super) fn zigzag(difference: i64) -> u64 {
    (difference.cast_unsigned() << 1) ^ (difference >> 63).cast_unsigned()
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(super) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Remaining bytes of the input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input<'a>(pub(super) &'a [u8]);

impl<'a> Input<'a> {
    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            let bits = u64::from(byte & 0x7f);
            // Overlong encodings are refused: bits beyond the 64th would be lost silently.
            number |= bits.checked_shl(shift).filter(|moved| moved >> shift == bits)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn text(&mut self) -> Option<String> {
        // The length is checked by take(): nothing is allocated for a claim.
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length).map(lossy)
    }

    /// All that is left, as text.
    pub(super) fn rest(self) -> String {
        lossy(self.0)
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_overlong_ones_are_refused() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put(number, &mut bytes);
            assert_eq!(Input(&bytes).number(), Some(number));
            assert_eq!(Input(&bytes[..bytes.len() - 1]).number(), None);
        }
        assert_eq!(Input(&[0xff; 10]).number(), None);
        assert_eq!(Input(&[0xff; 11]).number(), None);
    }

    #[test]
    fn small_differences_take_one_byte() {
        for difference in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(difference)), difference);
        }
        assert!(zigzag(-64) < 128 && zigzag(63) < 128);
    }

    #[test]
    fn a_frame_is_whole_or_nothing() {
        let mut bytes = Vec::new();
        write(Kind::Event, b"hello", &mut bytes);
        assert_eq!(
            read(&bytes),
            Some((Some(Kind::Event), &b"hello"[..], bytes.len()))
        );
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "cut at {end}");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(read(&damaged), None, "damaged at {at}");
        }
    }
}
