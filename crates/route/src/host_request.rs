//! Types of requests from another host of the fleet: a forwarded client request, store records, or model
//! files.

use std::pin::Pin;

use bytes::Bytes;
use http::HeaderValue;
use plimsoll_fleet::SeatToken;

use super::problem::HttpProblem;

/// Request of another host.
#[derive(Debug)]
pub enum HostRequest {
    /// The answer to a client's request, with the token of the model's seat.
    Passed(SeatToken),
    /// News of the fleet, for a host that does not watch the store.
    News,
    /// The files of a model, or bytes of one.
    Files,
    /// That this host copies the files of a model.
    Copy,
}

/// Answer to a host that asks about files.
#[derive(Debug)]
pub enum FileAnswer {
    List(serde_json::Value),
    /// Bytes, and what they are of the whole.
    Part {
        range: HeaderValue,
        bytes: Bytes,
    },
    /// The copy is under way.
    Begun,
}

pub type FileAnswered = Pin<Box<dyn Future<Output = Result<FileAnswer, HttpProblem>>>>;
