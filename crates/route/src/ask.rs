//! Sends the daemon's own requests to an engine (health, slots, freeing of memory), over a pooled or a new
//! connection.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use serde_json::Value;

use super::headers;
use super::rope::Rope;
use super::stream_source::StreamSource;
use super::upstream::{Upstream, Wire};

/// Time to connect to an engine that was reached a moment ago.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);

/// One question on one connection, and its answer. The outer `None` is a connection that broke
/// before an answer came; the inner, an answer that is longer than `most` or was cut off.
pub(crate) async fn exchange(
    upstream: &Upstream,
    mut wire: Wire,
    (method, path): (Method, Uri),
    body: Rope,
    most: usize,
) -> Option<Option<Response<Vec<u8>>>> {
    let length = body.len();
    let mut request = Request::new(body.into());
    *request.method_mut() = method;
    *request.uri_mut() = path;
    let mut head = HeaderMap::new();
    head.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *request.headers_mut() = headers::to_engine(&head, upstream, length);
    let (head, body) = wire.send(request).await.ok()?.into_parts();
    let mut source = StreamSource { wire, body };
    let Ok(Some(answer)) = source.rest(most).await else {
        return Some(None);
    };
    // Read to its end, so the connection can carry the next request.
    upstream.give_back(source.wire);
    Some(Some(Response::from_parts(head, answer)))
}

impl Upstream {
    /// The engine's answer to a question with a JSON body, on a new connection.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        most: usize,
    ) -> Option<(StatusCode, Vec<u8>)> {
        let wire = self.connect(CONNECT_WITHIN).await.ok()?;
        let body = body.map_or_else(Rope::default, |body| Rope::from(Bytes::from(body.to_string())));
        let answer = exchange(self, wire, (method, Uri::try_from(path).ok()?), body, most).await.flatten()?;
        Some((answer.status(), answer.into_body()))
    }
}
