//! Reads a model's files into the page cache before an engine needs them.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use plimsoll_base::Bytes;

use super::cache::is_cached;

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;
const STEP: u64 = PIECE as u64;

/// Reads what is not cached of these files, as long as `goes_on` says so; returns the number of bytes that
/// were read.
///
/// Cached parts are not read again: copying them would take time that other programs need.
pub fn read_ahead(files: &[PathBuf], goes_on: impl Fn() -> bool) -> io::Result<Bytes> {
    let (mut piece, mut read) = (vec![0; PIECE], 0);
    for path in files.iter().filter(|path| path.is_file()) {
        let file = plimsoll_file::open(path)?;
        let length = file.metadata()?.len();
        let mut offset = 0;
        while offset < length {
            if !goes_on() {
                return Ok(Bytes::new(read));
            }
            // By both ends: the kernel reads beyond what is asked for, and that may end within the piece.
            let ends = [offset, (offset + STEP).min(length) - 1].map(|at| is_cached(&file, at));
            match ends {
                [Some(true), Some(true)] => {}
                [Some(_), Some(_)] => {
                    let bytes = file.read_at(&mut piece, offset)?;
                    read += u64::try_from(bytes).unwrap_or_default();
                }
                // Without this answer every load of a cached model would copy its files once more.
                _ => break,
            }
            offset += STEP;
        }
    }
    Ok(Bytes::new(read))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::path::Path;

    use std::fs::File;

    use super::*;
    use crate::{FileCache, advise};

    const LENGTH: usize = 24 << 20;

    /// A file of which nothing is cached; `None` where the file system cannot show that.
    fn cold(folder: &Path, name: &str) -> Option<PathBuf> {
        let path = folder.join(name);
        fs::write(&path, vec![1; LENGTH]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        advise(std::slice::from_ref(&path)).unwrap();
        (FileCache::look(&path).unwrap().cached == Some(Bytes::ZERO)).then(|| {
            // The look itself may have read pages.
            advise(std::slice::from_ref(&path)).unwrap();
            path
        })
    }

    #[test]
    fn a_cold_file_is_read_once_and_then_not_again() {
        let folder = tempfile::tempdir().unwrap();
        let Some(path) = cold(folder.path(), "m.gguf") else { return };
        let files = [path];
        let read = read_ahead(&files, || true).unwrap();
        // A kernel that reads far ahead by itself has read the rest after the first piece.
        assert!(read >= Bytes::mib(8) && read <= Bytes::mib(24), "{read}");
        // The kernel reads further by itself, and that may still be under way.
        while FileCache::look(&files[0]).unwrap().cached != Some(Bytes::mib(24)) {
            std::thread::yield_now();
        }
        assert_eq!(read_ahead(&files, || true).unwrap(), Bytes::ZERO);
    }

    #[test]
    fn it_ends_on_command() {
        let folder = tempfile::tempdir().unwrap();
        let Some(path) = cold(folder.path(), "m.gguf") else { return };
        let requested = Cell::new(0);
        let read = read_ahead(&[path], || requested.replace(requested.get() + 1) < 3).unwrap();
        assert!(read <= Bytes::mib(3) && requested.get() == 4, "{read}");
    }

    #[test]
    fn non_regular_files_are_not_read_ahead() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let files = [folder.path().join("none"), folder.path().to_owned(), pipe, "/dev/zero".into()];
        assert_eq!(read_ahead(&files, || true).unwrap(), Bytes::ZERO);
        let empty = folder.path().join("empty");
        fs::write(&empty, "").unwrap();
        assert_eq!(read_ahead(&[empty], || true).unwrap(), Bytes::ZERO);
    }
}
