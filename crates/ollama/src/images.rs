//! Translates images in Ollama's requests into `image_url` parts of OpenAI's API.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::{InvalidRequest, refused};

/// Image formats by the first characters of their base64.
const FORMATS: [(&str, &str); 5] = [
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("UklGR", "image/webp"),
    ("Qk", "image/bmp"),
];
/// Shortest base64 of an image: no image is smaller, and a part in OpenAI's form has some dozens of bytes
/// more.
const SHORTEST: usize = 12;

/// A part of a message's content.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ContentPart<'a> {
    Text { text: &'a RawValue },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Debug, Serialize)]
pub(crate) struct ImageUrl<'a> {
    url: DataUrl<'a>,
}

/// Base64 of an image, which is written as a `data:` address.
#[derive(Debug)]
struct DataUrl<'a> {
    format: &'static str,
    base64: Cow<'a, str>,
}

impl Serialize for DataUrl<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("data:{};base64,{}", self.format, self.base64))
    }
}

/// The part for an image, which is base64 in a JSON string.
pub(crate) fn part(image: &RawValue) -> Result<ContentPart<'_>, InvalidRequest> {
    let wrong = || refused("an image is not base64 of a PNG, JPEG, GIF, WebP or BMP file".to_owned());
    let quoted = image.get();
    let inner = quoted.strip_prefix('"').and_then(|text| text.strip_suffix('"')).ok_or_else(wrong)?;
    // Some writers of JSON escape the slash.
    let base64: Cow<'_, str> = if inner.contains('\\') {
        serde_json::from_str::<String>(quoted).map_err(|_| wrong())?.into()
    } else {
        inner.into()
    };
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let found = FORMATS.iter().find(|(start, _)| base64.starts_with(start));
    match found.filter(|_| base64.len() >= SHORTEST && base64.as_bytes().iter().all(is_base64)) {
        Some((_, format)) => {
            Ok(ContentPart::ImageUrl { image_url: ImageUrl { url: DataUrl { format, base64 } } })
        }
        None => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(image: &str) -> Option<serde_json::Value> {
        let raw = RawValue::from_string(image.to_owned()).unwrap();
        part(&raw).ok().map(|part| json!(part))
    }

    #[test]
    fn the_format_is_read_from_the_first_bytes() {
        let url = |url: &str| Some(json!({"type": "image_url", "image_url": {"url": url}}));
        assert_eq!(written("\"iVBORw0KGgoAAA==\""), url("data:image/png;base64,iVBORw0KGgoAAA=="));
        assert_eq!(written(r#""\/9j\/4AAAAAAA""#), url("data:image/jpeg;base64,/9j/4AAAAAAA"));
    }

    #[test]
    fn malformed_images_are_rejected() {
        for text in [
            "\"\"",
            "7",
            "\"hello\"",
            "\"iVBORw0KGgo\"",
            r#""iVBORw0KGgo\n""#,
            r#""iVBORw0KGgo\"}""#,
            "\"/etc/passwd\"",
        ] {
            assert_eq!(written(text), None, "{text}");
        }
    }
}
