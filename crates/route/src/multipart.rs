//! Finds the field `model` of a multipart form, which audio transcription requests use.
//!
//! The result is the model's name and its position in the body.

use super::model_key::ModelKey;
use super::rope::Rope;

const FORM: &str = "multipart/form-data";
/// Headers of one part beyond this are not a form's.
const LONGEST_HEAD: usize = 8 * 1024;
const LONGEST_MODEL: usize = 4096;
/// More parts than this are not looked at; the engine's own server takes no more files either.
const MOST_PARTS: usize = 1024;

/// Returns the boundary that a `multipart/form-data` content type names.
pub(crate) fn boundary(content_type: &str) -> Option<&str> {
    let (kind, rest) = content_type.trim_start().split_at_checked(FORM.len())?;
    if !kind.eq_ignore_ascii_case(FORM) {
        return None;
    }
    let parameters = rest.trim_start().strip_prefix(';')?;
    // A boundary has at most 70 characters (RFC 2046, section 5.1.1).
    parameter(parameters, "boundary").filter(|boundary| !boundary.is_empty() && boundary.len() <= 70)
}

/// Returns the last `model` field of the form.
pub(crate) fn model(body: &Rope, boundary: &str) -> Option<ModelKey> {
    let delimiter = format!("--{boundary}");
    let closing = format!("\r\n{delimiter}");
    let mut found = None;
    // Without CR LF, because the first delimiter may be the very beginning of the body.
    let mut at = body.find(delimiter.as_bytes(), 0)?;
    for _ in 0..MOST_PARTS {
        let head = at + delimiter.len();
        let Some(value) = body.find(b"\r\n\r\n", head).map(|end| end + 4) else {
            return found;
        };
        // An empty value shares its CR LF with the end of the headers, so the search begins two bytes
        // earlier.
        let Some(end) = body.find(closing.as_bytes(), value.saturating_sub(2)) else {
            return found;
        };
        if value - head <= LONGEST_HEAD && names_model(&body.copy(head..value)) {
            found = (end >= value && end - value <= LONGEST_MODEL)
                .then(|| String::from_utf8(body.copy(value..end)).ok())
                .flatten()
                .map(|name| ModelKey { name, place: value..end });
        }
        // Past CR LF: the delimiter that was found opens the next part.
        at = end + 2;
    }
    found
}

fn names_model(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head);
    head.lines().any(|line| {
        line.split_once(':').is_some_and(|(field, value)| {
            field.trim().eq_ignore_ascii_case("content-disposition")
                && parameter(value, "name") == Some("model")
        })
    })
}

/// Returns the value of `name=value` or `name="value"` among parameters parted by `;`.
fn parameter<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    parameters.split(';').find_map(|parameter| {
        let (key, value) = parameter.trim().split_once('=')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::rope::tests::rope_of;
    use super::*;

    const FORM: &[u8] = b"--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\
        Content-Type: audio/wav\r\n\r\nRIFF\r\n--not\0the\r\n\r\nend\r\n--x\r\n\
        content-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--x\r\n\
        Content-Disposition: form-data; name=\"language\"\r\n\r\nen\r\n--x--\r\n";

    #[test]
    fn finds_the_field_behind_a_recording_for_every_chunk_size() {
        for size in 1..FORM.len() {
            let body = rope_of(FORM, &[size]);
            let named = model(&body, "x").unwrap();
            assert_eq!(named.name, "whisper", "chunks of {size}");
            assert_eq!(&FORM[named.place], b"whisper");
        }
    }

    #[test]
    fn a_form_without_the_field_or_cut_short_has_none() {
        let body = rope_of(b"--x\r\nContent-Disposition: form-data; name=\"m\"\r\n\r\nv\r\n--x--", &[9]);
        assert_eq!(model(&body, "x"), None);
        for end in 0..FORM.len() {
            let cut = rope_of(&FORM[..end], &[7]);
            assert!(model(&cut, "x").is_none_or(|named| named.name == "whisper"));
        }
    }

    #[test]
    fn the_boundary_is_read_quoted_or_not() {
        assert_eq!(boundary("multipart/form-data; boundary=abc"), Some("abc"));
        assert_eq!(boundary("Multipart/Form-Data; charset=utf-8; Boundary=\"a b\""), Some("a b"));
        assert_eq!(boundary("application/json"), None);
        assert_eq!(boundary("multipart/mixed; boundary=abc"), None);
        assert_eq!(boundary("multipart/form-data; boundary="), None);
    }
}
