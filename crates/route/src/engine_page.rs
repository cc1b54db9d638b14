//! Passes requests that generate nothing, such as `/props`, to a loaded engine. They never wait, and do not
//! count as use of the model.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, Method, Response, StatusCode, Uri};

use super::ask::exchange;
use super::rope::Rope;
use super::upstream::Upstream;

/// Engines answer such a question in milliseconds, also while they compute.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer that is taken. The metrics of vLLM take 100 KiB.
const LONGEST: usize = 1 << 20;

/// Moment at which the engine was started, which llama-server reports beside its metrics.
pub(crate) const PROCESS_START: HeaderName = HeaderName::from_static("process-start-time-unix");

/// Returns what the engine answers with 200; `None` for any other answer, and where it takes too long.
pub(crate) async fn ask(
    upstream: &Upstream,
    method: Method,
    path: &'static str,
    body: impl Into<Bytes>,
) -> Option<Response<Vec<u8>>> {
    let answer = async {
        let wire = upstream.connect(PATIENCE).await.ok()?;
        let body = Rope::from(body.into());
        exchange(upstream, wire, (method, Uri::from_static(path)), body, LONGEST).await.flatten()
    };
    let answer = tokio::time::timeout(PATIENCE, answer).await.ok().flatten();
    answer.filter(|answer| answer.status() == StatusCode::OK)
}
