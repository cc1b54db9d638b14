//! Reader of kernel log messages since the start of a recording, if this user may read them.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

/// Maximum number of lines per sample.
const MOST_LINES: usize = 64;
/// Maximum record length: a kernel record is never longer (`CONSOLE_EXT_LOG_MAX`).
const RECORD: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct KernelLog {
    file: File,
}

impl KernelLog {
    pub(super) fn open() -> io::Result<Self> {
        // Each read of /dev/kmsg returns one record, and blocks at the end unless O_NONBLOCK is set.
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let mut file = File::options().read(true).custom_flags(flags).open("/dev/kmsg")?;
        // SEEK_END skips old messages (Documentation/ABI/testing/dev-kmsg).
        file.seek(SeekFrom::End(0))?;
        Ok(Self { file })
    }

    /// Lines logged since the last call.
    pub(super) fn lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut record = [0; RECORD];
        while lines.len() < MOST_LINES {
            match self.file.read(&mut record) {
                Ok(0) => break,
                Ok(length) => lines.extend(text(&record[..length])),
                // EPIPE: records were overwritten before they were read; the next read continues with the
                // oldest one left.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        lines
    }
}

/// The text of a record such as `6,1234,56789,-;text`, without its key lines. Facility 0 is the kernel.
fn text(record: &[u8]) -> Option<String> {
    let record = String::from_utf8_lossy(record);
    let (head, rest) = record.split_once(';')?;
    let priority: u64 = head.split(',').next()?.parse().ok()?;
    let line = rest.lines().next().unwrap_or_default();
    // The upper bits of the priority are the facility; services write to /dev/kmsg with others.
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
