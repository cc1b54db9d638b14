//! Small HTTP/1.1 client, over TCP or any other byte stream.
#![forbid(unsafe_code)]

mod client;
mod connector;

pub use client::{HttpClient, HttpClientError, collect_body};
pub use connector::{BoxTransport, Connector, Transport};
