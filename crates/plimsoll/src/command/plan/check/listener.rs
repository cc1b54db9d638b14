//! Process that listens on a TCP port: the socket's inode from `/proc/net/tcp`, then the process that has it
//! open.
//!
//! Only processes of the same user are found, because the kernel hides the descriptors of others.

use std::fs;

/// `TCP_LISTEN`, as `/proc/net/tcp` writes it.
const LISTENING: &str = "0A";

/// Tables to search. A dual-stack listener on every address is in the IPv6 table only.
const TABLES: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];

pub(super) fn listener(port: u16) -> Option<u32> {
    let tables = TABLES.iter().filter_map(|table| fs::read_to_string(table).ok());
    let mut sockets = tables.filter_map(|table| Some(format!("socket:[{}]", inode(&table, port)?)));
    sockets.find_map(|socket| owner(&socket))
}

/// The inode of the socket that listens on a port.
fn inode(table: &str, port: u16) -> Option<&str> {
    // The kernel writes ports as four upper-case hexadecimal digits (`tcp4_seq_show`).
    let port = format!("{port:04X}");
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // The last colon: an IPv6 address is written without colons of its own, as 32 digits.
        let local = fields.get(1)?.rsplit(':').next()?;
        let listens = local == port && fields.get(3) == Some(&LISTENING);
        listens.then(|| fields.get(9).copied()).flatten()
    })
}

fn owner(socket: &str) -> Option<u32> {
    let numbers = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| {
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let mut links = descriptors.filter_map(|entry| fs::read_link(entry.path()).ok());
        links.any(|link| link.as_os_str() == socket)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn whoever_listens_is_found() {
        let here = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(
            listener(here.local_addr().unwrap().port()),
            Some(std::process::id())
        );
    }

    #[test]
    fn a_connection_on_the_port_is_no_listener() {
        let table = "  sl  local_address rem_address   st tx_queue\n   \
                     0: 0100007F:1F90 0100007F:AAAA 01 00000000:00000000 00:00000000 00000000     0        0 111 1\n   \
                     1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1\n";
        assert_eq!(inode(table, 8080), Some("222"));
        assert_eq!(inode(table, 8081), None);
    }
}
