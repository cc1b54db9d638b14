//! Passes short queries to a loaded engine; they never wait, and do not count as use of the model.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{HeaderName, Method, Request, StatusCode};

use super::engine_body::EngineBody;
use super::headers;
use super::rope::Rope;
use super::stream_source::StreamSource;
use super::upstream::Upstream;

/// Engines answer such a question in milliseconds, also while they compute.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is taken. The metrics of vLLM take 100 KiB.
const LONGEST: usize = 1 << 20;

/// Moment at which the engine was started, which llama-server reports beside its metrics.
pub(crate) const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

pub(crate) struct EnginePage {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Returns what the engine answers with 200; `None` for any other answer, and where it takes too long.
pub(crate) async fn ask(
    upstream: &Upstream,
    method: Method,
    path: &'static str,
    body: impl Into<Bytes>,
) -> Option<EnginePage> {
    let body = Rope::from(body.into());
    let headers = headers::to_engine(&HeaderMap::new(), upstream, body.len());
    let mut request = Request::new(EngineBody::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().ok()?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let answer = async {
        let mut wire = upstream.connect(PATIENCE).await.ok()?;
        let (head, body) = wire.send(request).await.ok()?.into_parts();
        let body = StreamSource { wire, body }.rest(LONGEST).await.ok()??;
        (head.status == StatusCode::OK).then_some(EnginePage { headers: head.headers, body })
    };
    tokio::time::timeout(PATIENCE, answer).await.ok().flatten()
}
