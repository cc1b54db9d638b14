//! Finds the model's name in a request body, which is JSON or a form.

use std::mem;

use http::header::CONTENT_TYPE;
use http::request::Parts;

use crate::body::Received;
use crate::model_key::ModelKey;
use crate::proxy::WrittenBytes;
use crate::{headers, multipart};

pub(crate) fn named_in_body(head: &Parts, received: &mut Received) -> Option<(ModelKey, WrittenBytes)> {
    let kind = headers::text(&head.headers, &CONTENT_TYPE);
    if let Some(boundary) = kind.and_then(multipart::boundary) {
        return multipart::model(&received.rope, boundary).map(|named| (named, WrittenBytes::Plain));
    }
    // `finish` consumes the walk, while the body goes on to the engine.
    mem::take(&mut received.search).finish(&received.rope).map(|named| (named, WrittenBytes::Json))
}
