//! `/sys/kernel/debug/nvmap/iovmm`, which only root may read: who holds GPU memory of a Jetson, and what NvMap would still give.

use plimsoll_base::Bytes;

use super::fields::{self, leading_number, leading_size};

/// Clients that are kept.
const MOST: usize = 4096;

/// `iovmm/clients`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NvmapClients {
    pub clients: Vec<NvmapClient>,
    pub total: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvmapClient {
    /// May contain spaces.
    pub process: String,
    pub pid: u32,
    pub size: Bytes,
}

impl NvmapClients {
    /// Rows are `user  <process>  <pid>  <n>K`, read from the right because a process's name may have spaces.
    pub fn read(text: &str) -> Self {
        let mut found = Self::default();
        for line in fields::lines(text) {
            match client(line) {
                Some(client) if found.clients.len() < MOST => found.clients.push(client),
                Some(_) => {}
                None => found.total = found.total.or_else(|| total(line)),
            }
        }
        found
    }
}

fn client(line: &str) -> Option<NvmapClient> {
    let (rest, size) = line.trim().rsplit_once(char::is_whitespace)?;
    let (rest, pid) = rest.trim_end().rsplit_once(char::is_whitespace)?;
    let (_, process) = rest.trim().split_once(char::is_whitespace)?;
    Some(NvmapClient {
        process: process.trim().to_owned(),
        pid: pid.parse().ok()?,
        size: whole_size(size)?,
    })
}

fn total(line: &str) -> Option<Bytes> {
    whole_size(
        line.trim()
            .strip_prefix("total")?
            .split_ascii_whitespace()
            .next_back()?,
    )
}

fn whole_size(text: &str) -> Option<Bytes> {
    leading_size(text)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(size, _)| size)
}

/// `iovmm/free_size`: `Max allocatable IOVMM memory: N bytes`, which is the kernel's own answer to how much may be asked for.
pub fn most_allocatable(text: &str) -> Option<Bytes> {
    let (_, value) = text
        .lines()
        .take(16)
        .find_map(|line| line.split_once("memory:"))?;
    let (bytes, rest) = leading_number(value.trim_start())?;
    (rest.trim() == "bytes").then(|| Bytes::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_from_the_right() {
        let clients = NvmapClients::read(
            "CLIENT                        PROCESS      PID        SIZE\n\
             user                     llama-server     4711    2097152K\n\
             user                     Isolated Web Co  815        4096K\n\
             total                                            2101248K\n",
        );
        assert_eq!(clients.clients.len(), 2);
        assert_eq!(clients.clients[1].process, "Isolated Web Co");
        assert_eq!(
            (clients.clients[0].pid, clients.clients[0].size),
            (4711, Bytes::gib(2))
        );
        assert_eq!(clients.total, Some(Bytes::kib(2_101_248)));
    }

    #[test]
    fn the_kernels_own_answer_is_read() {
        assert_eq!(
            most_allocatable("Max allocatable IOVMM memory: 5493489664 bytes\n"),
            Some(Bytes::new(5_493_489_664))
        );
        for text in [
            "",
            "Max allocatable IOVMM memory:",
            "memory: 12 pages",
            "memory: -1 bytes",
        ] {
            assert_eq!(most_allocatable(text), None, "{text}");
        }
    }

    #[test]
    fn nonsense_is_nobody() {
        for text in ["", "total", "user a b c", "user x 1 1K1", "user p -1 5K"] {
            assert_eq!(NvmapClients::read(text).clients, [], "{text}");
        }
    }
}
