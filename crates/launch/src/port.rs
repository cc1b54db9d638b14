//! Free loopback ports for engines.
//!
//! The kernel assigns a port, which is then released for the engine, so another program may take it in
//! between. Engines cannot inherit an open socket, so this gap cannot be closed. A child that lost its port
//! logs that it could not bind; the post-mortem recognises this (`PortTaken`), and the start is repeated with
//! another port.

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
