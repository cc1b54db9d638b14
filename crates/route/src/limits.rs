//! Limits clients' connections, and the size and time of their request heads and bodies.
//!
//! The sizes follow cpp-httplib in llama-server b10605, which accepts bodies up to 100 MiB and 100 header
//! lines.

use std::time::Duration;

use plimsoll_base::Bytes;

#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once; the longest idle one makes room for the next.
    pub connections: usize,
    /// Size of a request's head.
    pub head: Bytes,
    /// Header lines of a request.
    pub headers: usize,
    /// Time until a request head is complete; also the time for which a connection may stay idle between two
    /// requests.
    pub head_time: Duration,
    /// The same for a client that has sent no API key, if one is required.
    pub keyless_time: Duration,
    /// Size of one body.
    pub body: Bytes,
    /// All bodies held at once; a quarter more for clients that hold little.
    pub bodies: Bytes,
    /// Time for a body to start; its credit of time is never more than twice this.
    pub body_time: Duration,
    /// Bytes per second that keep a body's credit of time.
    pub body_rate: Bytes,
    /// Time for an engine to take a connection.
    pub connect_time: Duration,
    /// Time that requests in flight have after a shutdown began.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            head: Bytes::kib(64),
            headers: 100,
            head_time: Duration::from_secs(30),
            // A client sends its first request at once; browsers that open spare connections open them again.
            keyless_time: Duration::from_secs(10),
            body: Bytes::mib(100),
            bodies: Bytes::gib(1),
            body_time: Duration::from_secs(10),
            body_rate: Bytes::kib(16),
            connect_time: Duration::from_secs(5),
            drain_time: Duration::from_secs(30),
        }
    }
}
