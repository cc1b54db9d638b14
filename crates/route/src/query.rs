//! Decodes query parameters and percent-encoded paths, such as `?model=…&autoload=…`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Returns the decoded value of the first parameter called `name`. Invalid UTF-8 becomes U+FFFD.
pub(crate) fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let mut pairs = form_urlencoded::parse(query?.as_bytes());
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

/// Decodes `%XX` only, as in a path; any other `%` stays. `None` if the result is not UTF-8.
pub(crate) fn decode_path(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_the_first_wins() {
        let query = Some("a=1&model=user%2Fm%3AQ4+K&model=b&%6Do=x");
        assert_eq!(parameter(query, "model").as_deref(), Some("user/m:Q4 K"));
        assert_eq!(parameter(query, "mo").as_deref(), Some("x"));
        assert_eq!(parameter(query, "none"), None);
        assert_eq!(parameter(Some("reload"), "reload").as_deref(), Some(""));
        assert_eq!(parameter(None, "model"), None);
    }

    #[test]
    fn broken_escapes_stay_and_broken_text_is_none() {
        assert_eq!(parameter(Some("a=100%"), "a").as_deref(), Some("100%"));
        assert_eq!(decode_path("%zz%4").as_deref(), Some("%zz%4"));
        assert_eq!(decode_path("%ff"), None);
        assert_eq!(decode_path("a+b%20c").as_deref(), Some("a+b c"));
    }
}
