//! Reads the trace context of a request (W3C header `traceparent`), so that its spans join the client's
//! trace.

/// The client's span, as its header states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    pub trace: u128,
    pub span: u64,
    /// The client records its trace.
    pub is_sampled: bool,
}

impl TraceParent {
    /// Reads `VERSION-TRACE-SPAN-FLAGS`; `None` for anything else.
    pub fn read(header: &[u8]) -> Option<Self> {
        let mut parts = header.split(|byte| *byte == b'-');
        let mut next = |digits| hexadecimal(parts.next()?, digits);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        // Only a later version may have further parts, and zero is no number.
        let is_valid = version < 255 && trace > 0 && span > 0 && (version > 0 || parts.next().is_none());
        let parent = Self { trace, span: u64::try_from(span).ok()?, is_sampled: flags & 1 == 1 };
        is_valid.then_some(parent)
    }
}

fn hexadecimal(part: &[u8], digits: usize) -> Option<u128> {
    let is_lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let text =
        std::str::from_utf8(part).ok().filter(|_| part.len() == digits && part.iter().all(is_lower))?;
    u128::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    #[test]
    fn the_headers_of_the_recommendation_are_read() {
        let parent = TraceParent::read(format!("00-{TRACE}-00f067aa0ba902b7-01").as_bytes()).unwrap();
        assert_eq!(
            format!("{:032x} {:016x}", parent.trace, parent.span),
            format!("{TRACE} 00f067aa0ba902b7")
        );
        assert!(parent.is_sampled);
        let later = TraceParent::read(format!("01-{TRACE}-00f067aa0ba902b7-02-more").as_bytes()).unwrap();
        assert!(!later.is_sampled);
    }

    #[test]
    fn anything_else_is_no_parent() {
        let span = "00f067aa0ba902b7";
        for text in [
            String::new(),
            "-".repeat(100_000),
            format!("00-{TRACE}-{span}"),
            format!("00-{TRACE}-{span}-1"),
            format!("00-{TRACE}-{span}-01-more"),
            format!("ff-{TRACE}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", TRACE.to_uppercase()),
            format!("00-+{}-{span}-01", &TRACE[1..]),
            format!("00-{TRACE}-{span}-0\u{661}"),
        ] {
            assert_eq!(
                TraceParent::read(text.as_bytes()),
                None,
                "{}",
                text.chars().take(80).collect::<String>()
            );
        }
        assert_eq!(TraceParent::read(&[0xff; 55]), None);
    }
}
