//! Writes cpio archives ("newc"), the format of a kernel's initial file system.

use std::fmt::Write;

const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;

#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    pub(super) fn folder(&mut self, name: &str) {
        self.add(name, FOLDER | 0o755, &[]);
    }

    pub(super) fn file(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.add(name, FILE | mode, content);
    }

    pub(super) fn bytes(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (inode, links) = (self.entries, 1);
        let (owner, group, time, device) = (0, 0, 0, 0);
        let (size, name_size, sum) = (content.len(), name.len() + 1, 0);
        let mut head =
            format!("070701{inode:08X}{mode:08X}{owner:08X}{group:08X}{links:08X}{time:08X}{size:08X}");
        // Major and minor number of the device it lies on, and of the one it would be.
        for _ in 0..4 {
            let _ = write!(head, "{device:08X}");
        }
        let _ = write!(head, "{name_size:08X}{sum:08X}{name}\0");
        self.bytes.extend_from_slice(head.as_bytes());
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_head_of_110_bytes_a_name_and_its_content_each_padded_to_four() {
        let mut archive = Archive::default();
        archive.file("init", 0o755, b"#!x");
        let bytes = archive.bytes();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[14..22], b"000081ED");
        assert_eq!(&bytes[54..62], b"00000003");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..120], b"#!x\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert!(bytes.len() % 4 == 0 && bytes.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
