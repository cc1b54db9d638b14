//! Small HTTP/1.1 client, and the streams that it speaks over.
#![forbid(unsafe_code)]

mod client;
mod connector;

pub use client::{HttpClient, HttpClientError, collect_body};
pub use connector::{BoxTransport, Connector, Transport};
