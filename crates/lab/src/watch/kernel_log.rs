//! The kernel's log, from now on, where this user may read it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// Lines of one look.
const MOST_LINES: usize = 64;
/// The kernel gives out no longer record.
const RECORD: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct KernelLog {
    file: File,
}

impl KernelLog {
    pub(super) fn open() -> io::Result<Self> {
        // `/dev/kmsg` blocks at its end otherwise, and the sample would wait for the kernel's next line.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open("/dev/kmsg")?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// Returns the lines since the last sample.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut record = [0; RECORD];
        while lines.len() < MOST_LINES {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => lines.extend(text(&record[..length])),
                // Records were overwritten before they were read; those that are left follow.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        lines
    }
}

/// Parses `6,1234,56789,-;text`; later lines hold keys and are skipped. Facility 0 alone is the kernel.
fn text(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, rest) = record.split_once(';')?;
    let priority: u64 = head.split(',').next()?.parse().ok()?;
    let line = rest.lines().next().unwrap_or_default();
    // Bits 3 and up of the priority are the syslog facility (kernel/printk/printk.c).
    (priority >> 3 == 0).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_first_line_and_user_space_is_not_the_kernel() {
        let record = b"3,1234,56789,-;NVRM: Xid (PCI:0000:01:00): 31\n SUBSYSTEM=pci\n";
        assert_eq!(text(record).as_deref(), Some("NVRM: Xid (PCI:0000:01:00): 31"));
        assert_eq!(text(b"30,1,2,-;systemd[1]: Started"), None);
        assert_eq!(text(b"rubbish"), None);
    }
}
