//! Ports of children: free ones on the loopback.
//!
//! Asking the kernel for one and letting it go leaves a gap in which another program may take it; no engine
//! takes over a socket, so the gap cannot be closed. A child that lost the race says that it could not bind,
//! the post-mortem recognises it (`PortTaken`), and the start is tried again with another port.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Returns a port of 127.0.0.1 on which no process listens now.
pub fn free_port() -> io::Result<u16> {
    // With port 0 the kernel chooses a free one (ip(7)).
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_bound() {
        let port = free_port().unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
    }
}
