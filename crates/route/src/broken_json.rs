//! Refuses malformed JSON in request bodies with status 400, before a load or in place of the engine's 500.
//!
//! DECISION: a body is parsed only if its model is not loaded, or if an engine has refused it. To parse each
//! prompt would slow down every request.

use http::StatusCode;
use memchr::memmem;
use serde::de::IgnoredAny;

use super::problem::HttpProblem;
use super::prompt::RequestPrompt;
use super::rope::Rope;

/// The longest body that is read again to find what is wrong with it; that takes a millisecond or two.
const LONGEST_EXPLAINED: usize = 1 << 20;
/// Values that Python's reader of JSON takes, and so some engines.
const LENIENT: [&[u8]; 2] = [b"NaN", b"Infinity"];

/// The fault of a body that should be JSON and is not.
pub(crate) fn broken_json(body: &Rope) -> Option<HttpProblem> {
    let text = (body.len() <= LONGEST_EXPLAINED).then(|| body.copy(0..body.len()))?;
    let error = serde_json::from_slice::<IgnoredAny>(&text).err()?;
    let message = format!("the request body is not JSON: {error}");
    Some(HttpProblem::new(StatusCode::BAD_REQUEST, "body_not_json", message))
}

impl RequestPrompt<'_> {
    /// The fault of a body that begins like an object of JSON, and that no engine can read.
    pub fn broken(&self) -> Option<HttpProblem> {
        let first = self.body.chunks().next()?;
        if first.trim_ascii_start().first() != Some(&b'{') {
            return None;
        }
        let problem = broken_json(self.body)?;
        let is_lenient =
            |chunk: &bytes::Bytes| LENIENT.iter().any(|word| memmem::find(chunk, word).is_some());
        (!self.body.chunks().any(is_lenient)).then_some(problem)
    }
}
