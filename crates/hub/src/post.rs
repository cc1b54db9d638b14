//! Sends a JSON document to a server by POST, for webhooks and the export of traces.

use std::time::Duration;

use http::header::CONTENT_TYPE;

use crate::address::Address;
use crate::client::{Bounds, agent};

/// Reason why a document was not delivered. It names no address, whose path may be a secret.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    #[error("the server answers with status {0}")]
    Status(u16),
}

/// Sends `body`, and succeeds if the status of the answer is 2xx. No token goes with it, no redirect is
/// followed, and the body of the answer is not read.
pub fn post_json(address: &Address, body: &str, patience: Duration) -> Result<(), PostError> {
    // Made anew for each, which is rare: a connection that is kept would often be stale.
    let agent = agent(Bounds { patience, ..Bounds::default() }, !address.is_loopback());
    let sent = agent.post(address.full()).header(CONTENT_TYPE, "application/json").send(body);
    let status = sent.map_err(|error| PostError::Unreachable(error.to_string()))?.status();
    if status.is_success() { Ok(()) } else { Err(PostError::Status(status.as_u16())) }
}
