//! Detects changes of a file (device, inode, size, time of change), and computes the SHA-256 of one that
//! stays unchanged.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_file::open;
use ring::digest::{Context, SHA256};

const BUFFER: usize = 1 << 20;

/// Device, inode, size, and the time of the last change of content or name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStamp {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// The stamp of a regular file.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        Self::of(&open(path)?)
    }

    fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        let changed = (about.ctime(), about.ctime_nsec());
        Ok(Self { device: about.dev(), inode: about.ino(), size: about.len(), changed })
    }

    /// Bytes of the file that has this stamp.
    pub(super) fn read(&self, path: &Path, start: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = open(path)?;
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start)?;
        // Afterwards: what was read may be of a file that changed meanwhile.
        if Self::of(&file)? == *self {
            Ok(bytes)
        } else {
            Err(io::Error::other("the file changed while it was read"))
        }
    }
}

/// The SHA-256 of a file, in hexadecimal digits, and its stamp.
pub(super) fn digest(path: &Path, ends: &AtomicBool) -> io::Result<(FileStamp, String)> {
    let mut file = open(path)?;
    let stamp = FileStamp::of(&file)?;
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; BUFFER]);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        if ends.load(Ordering::Relaxed) {
            return Err(io::Error::other("the server is shutting down"));
        }
        context.update(buffer.get(..count).unwrap_or_default());
    }
    if FileStamp::of(&file)? != stamp {
        return Err(io::Error::other("the file changed while it was read"));
    }
    Ok((stamp, context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_written_to_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m");
        std::fs::write(&path, "abc").unwrap();
        let (stamp, text) = digest(&path, &AtomicBool::new(false)).unwrap();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(stamp.read(&path, 1, 2).unwrap(), b"bc");
        assert!(stamp.read(&path, 2, 2).is_err(), "beyond the end");
        std::fs::write(&path, "abcd").unwrap();
        assert!(stamp.read(&path, 0, 1).is_err());
        assert_ne!(FileStamp::at(&path).unwrap(), stamp);
    }

    #[test]
    fn non_regular_files_have_no_stamp_and_block_no_thread() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        for path in [folder.path(), &fifo, Path::new("/dev/zero"), Path::new("/nowhere")] {
            assert!(FileStamp::at(path).is_err() && digest(path, &AtomicBool::new(false)).is_err());
        }
        std::fs::write(folder.path().join("m"), "abc").unwrap();
        assert!(digest(&folder.path().join("m"), &AtomicBool::new(true)).is_err(), "the server ends");
    }
}
