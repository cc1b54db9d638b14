//! Checks whether a machine has the host memory that a plan needs.

use plimsoll_base::{Bytes, Reason};

/// Total and free memory of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRoom {
    pub total: Bytes,
    pub free: Bytes,
}

impl HostRoom {
    /// The same host with nothing in use.
    pub fn emptied(self) -> Self {
        Self { free: self.total, ..self }
    }

    /// Host memory that `need` lacks, and whether it would fit if other programs left. `mapped` tells that
    /// the weights are pages of the file, which the kernel may drop. `None` where nothing is lacking.
    pub fn doubt(self, need: Bytes, mapped: bool) -> Option<(Reason, bool)> {
        let Self { total, free } = self;
        if need <= free {
            return None;
        }
        let text = if need <= total {
            format!("{need} of host memory are needed, but only {free} of {total} are free now")
        } else if mapped {
            format!(
                "{need} of host memory are needed, but the machine has only {total}, so weights would be read \
                from disk again and again"
            )
        } else {
            format!("{need} of host memory are needed, but the machine has only {total}")
        };
        let reason =
            Reason::new("host_memory_short", text).fact("need", need).fact("free", free).fact("total", total);
        Some((reason, need <= total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_host_memory_is_distinguished_from_memory_in_use() {
        let room = HostRoom { total: Bytes::gib(8), free: Bytes::gib(4) };
        assert_eq!(room.doubt(Bytes::gib(4), true), None);
        let (busy, fits) = room.doubt(Bytes::gib(8), false).unwrap();
        assert!(fits && busy.text.contains("only 4096 MiB of 8192 MiB are free now"), "{}", busy.text);
        for (mapped, ending) in [(true, "read from disk again and again"), (false, "has only 8192 MiB")] {
            let (short, fits) = room.doubt(Bytes::gib(9), mapped).unwrap();
            assert!(!fits && short.text.ends_with(ending), "{}", short.text);
        }
    }
}
