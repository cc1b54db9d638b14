//! Defines the type `Bytes` for memory sizes, with its parser and its output format.
//!
//! Arithmetic that could overflow is checked or saturating, and the function's name says which.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Mul};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of memory in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn kib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 10))
    }

    pub const fn mib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 20))
    }

    pub const fn gib(n: u64) -> Self {
        Self(n.saturating_mul(1 << 30))
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whole mebibytes, rounded to nearest: for tables, never for arithmetic.
    pub const fn whole_mib(self) -> u64 {
        // The bit below the cut rounds to nearest without an addition that could overflow.
        (self.0 >> 20) + ((self.0 >> 19) & 1)
    }

    /// This and `by` bytes more, or less; at the ends of the range rather than beyond them.
    #[must_use]
    pub const fn shifted(self, by: i64) -> Self {
        Self(self.0.saturating_add_signed(by))
    }

    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    pub const fn checked_mul(self, n: u64) -> Option<Self> {
        match self.0.checked_mul(n) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }

    /// The next multiple of `to`; saturates at the end of the range, and `to == 0` changes nothing.
    pub const fn padded(self, to: u64) -> Self {
        // An alignment of 0 comes from damaged headers; checked_next_multiple_of would panic on it.
        if to == 0 {
            return self;
        }
        match self.0.checked_next_multiple_of(to) {
            Some(n) => Self(n),
            None => Self::MAX,
        }
    }

    /// `self * numerator / denominator`, rounded down, without overflow on the way.
    pub fn scaled(self, numerator: u64, denominator: u64) -> Self {
        // 64 x 64 bits fit 128, so only the conversion back can leave the range.
        let wide = u128::from(self.0) * u128::from(numerator) / u128::from(denominator.max(1));
        Self(u64::try_from(wide).unwrap_or(u64::MAX))
    }
}

/// Adds, saturating: a plan that overflows `u64` is already beyond every card.
impl Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// Multiplies, saturating.
impl Mul<u64> for Bytes {
    type Output = Self;
    fn mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Prints whole MiB from one MiB up, as the field's logs do (`7151 MiB`); smaller sizes in KiB or B.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 {
            // MiB even for large sizes: nvidia-smi and llama.cpp's log use them, and users compare the
            // numbers.
            n if n >= 1 << 20 => format!("{} MiB", self.whole_mib()),
            // Half a KiB is added first, so that KiB round like MiB.
            n if n >= 1 << 10 => format!("{} KiB", (n + (1 << 9)) >> 10),
            n => format!("{n} B"),
        };
        f.pad(&text)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B ({self})", self.0)
    }
}

/// Error: a text is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a size; write a number with B, KiB, MiB, GiB or TiB, e.g. 24GiB or 24576MiB")]
pub struct ParseBytesError {
    text: String,
}

/// Reads `24GiB`, `24 GiB`, `24G`, `1.5GiB`, `24576MiB`, `123` (bytes). K, M, G and T are binary, as in
/// `nvidia-smi` and llama.cpp; KB, MB, GB and TB are decimal.
impl FromStr for Bytes {
    type Err = ParseBytesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseBytesError { text: text.to_owned() };
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(end);
        let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            // Only the SI spellings are decimal; `K` and `KiB` follow the tools that users copy sizes from.
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(fail()),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // Nine digits of fraction are a byte of a GiB; more would overflow the power of ten below.
        if whole.is_empty() || fraction.contains('.') || fraction.len() > 9 {
            return Err(fail());
        }
        let whole: u64 = whole.parse().map_err(|_| fail())?;
        let part = if fraction.is_empty() {
            0
        } else {
            let digits: u64 = fraction.parse().map_err(|_| fail())?;
            let over = 10_u64.pow(u32::try_from(fraction.len()).map_err(|_| fail())?);
            Self(scale).scaled(digits, over).0
        };
        whole.checked_mul(scale).and_then(|n| n.checked_add(part)).map(Self).ok_or_else(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_type() {
        for (text, bytes) in [
            ("24GiB", 24 << 30),
            ("24 G", 24 << 30),
            ("1.5GiB", 3 << 29),
            ("143771MiB", 143_771 << 20),
            ("512", 512),
            ("2GB", 2_000_000_000),
            (" 0 ", 0),
        ] {
            assert_eq!(text.parse(), Ok(Bytes::new(bytes)), "{text}");
        }
        for text in ["", "GiB", "1.2.3G", "-1G", "12 parsecs", "99999999999999T", "1.0000000001G", "."] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn prints_one_way() {
        assert_eq!(Bytes::mib(7151).to_string(), "7151 MiB");
        assert_eq!(Bytes::new((3 << 19) - 1).to_string(), "1 MiB");
        assert_eq!(Bytes::new(3 << 19).to_string(), "2 MiB");
        assert_eq!(Bytes::new(2047).to_string(), "2 KiB");
        assert_eq!(Bytes::new(17).to_string(), "17 B");
    }

    #[test]
    fn saturates_rather_than_wraps() {
        assert_eq!(Bytes::MAX + Bytes::new(1), Bytes::MAX);
        assert_eq!(Bytes::MAX.padded(128), Bytes::MAX);
        assert_eq!(Bytes::new(1).padded(0), Bytes::new(1));
        assert_eq!(Bytes::MAX.scaled(1, 2), Bytes::new(u64::MAX / 2));
    }
}
