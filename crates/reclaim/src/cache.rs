//! Measures and drops the page cache of a model's files.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;
use plimsoll_model::split::siblings;
use rustix::fs::{Advice, SeekFrom, fadvise, seek};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Number of pages sampled per file.
const SAMPLES: u64 = 1024;
/// Sampling step: the smallest page size.
const PAGE: u64 = 4096;

#[derive(Debug, thiserror::Error)]
#[error("cannot open the model file {}: {error}", path.display())]
pub struct OpenModelError {
    path: PathBuf,
    error: io::Error,
}

// DECISION: the cached part is sampled with `RWF_NOWAIT` reads, because `mincore` would need unsafe code. A
// sample may load its page, so each measurement samples different pages. A hole in a file needs no disk read,
// and is no cached page either.
/// A file, and the part of it that is in the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileCache {
    pub path: PathBuf,
    pub length: Bytes,
    /// Estimated from the share of samples that were cached; `None` if the file system does not support
    /// the query.
    pub cached: Option<Bytes>,
}

/// The existing files of the split model that `path` belongs to.
pub fn files_of(path: &Path) -> Vec<PathBuf> {
    // The names of a set are derived from text; a path that is not UTF-8 stands alone.
    let Some(name) = path.to_str() else {
        return vec![path.to_owned()];
    };
    let set = siblings(name).into_iter().map(PathBuf::from);
    set.filter(|file| file == path || file.exists()).collect()
}

impl FileCache {
    pub fn look(path: &Path) -> Result<Self, OpenModelError> {
        let fail = |error| OpenModelError { path: path.to_owned(), error };
        // A device or a pipe has no page cache to give back.
        let file = plimsoll_file::open(path).map_err(fail)?;
        let about = file.metadata().map_err(fail)?;
        Ok(Self {
            path: path.to_owned(),
            length: Bytes::new(about.len()),
            cached: cached(&file, about.len()),
        })
    }

    /// Upper bound on the memory that releasing the file frees; the whole file where its residency is
    /// unknown.
    pub fn at_most(&self) -> Bytes {
        self.cached.unwrap_or(self.length)
    }
}

fn cached(file: &File, length: u64) -> Option<Bytes> {
    let pages = length.div_ceil(PAGE);
    let samples = pages.min(SAMPLES);
    // Best effort: POSIX_FADV_RANDOM turns off read-ahead, which pulls in 128 KiB by default at each miss.
    let _ = fadvise(file, 0, None, Advice::Random);
    let mut there = 0;
    // A fresh random seed for each look, so that it does not ask for the pages that the last look read in.
    let chance = RandomState::new();
    for sample in 0..samples {
        // One page of each equal part: a prefix that is cached is then counted in proportion.
        let part = sample * pages / samples..(sample + 1) * pages / samples;
        let page = part.start + chance.hash_one(sample) % (part.end - part.start);
        there += u64::from(has_data(file, page * PAGE) && is_cached(file, page * PAGE)?);
    }
    let _ = fadvise(file, 0, None, Advice::Normal);
    Some(Bytes::new(length).scaled(there, samples.max(1)))
}

/// False for a page that lies in a hole of a sparse file.
fn has_data(file: &File, offset: u64) -> bool {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(next) => next < offset + PAGE,
        Err(error) => error != Errno::NXIO,
    }
}

/// True if the page is cached; `None` if the file system does not support the query.
pub(super) fn is_cached(file: &File, offset: u64) -> Option<bool> {
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    match preadv2(file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(_) => Some(true),
        // EAGAIN means that the read would have to wait for the disk (preadv2(2)).
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Releases the page cache of these files. The kernel keeps pages that a process has mapped.
pub fn advise(files: &[PathBuf]) -> io::Result<()> {
    for path in files {
        // POSIX_FADV_DONTNEED with length 0 covers the file to its end, and drops clean pages only.
        fadvise(plimsoll_file::open(path)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_set_of_files_goes_together_as_far_as_it_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = |number: u32| folder.path().join(format!("m-{number:05}-of-00003.gguf"));
        fs::write(file(1), "").unwrap();
        fs::write(file(3), "").unwrap();
        assert_eq!(files_of(&file(1)), [file(1), file(3)]);
        let alone = folder.path().join("m.gguf");
        assert_eq!(files_of(&alone), std::slice::from_ref(&alone));
    }

    #[test]
    fn looking_does_not_change_what_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::write(&path, vec![1; 64 << 20]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        advise(std::slice::from_ref(&path)).unwrap();
        let look = || FileCache::look(&path).unwrap().cached;
        // A file system that does not answer, or lies in memory, has nothing to show here.
        if look() == Some(Bytes::ZERO) {
            let again = look();
            assert!(again < Some(Bytes::mib(32)), "{again:?}");
        }
    }

    #[test]
    fn the_holes_of_a_sparse_file_are_not_cached() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::write(&path, vec![1; 8 << 20]).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(8 << 30).unwrap();
        let file = File::open(&path).unwrap();
        if has_data(&file, 4 << 30) {
            // The file system has no holes, or does not show them.
            return;
        }
        assert!(has_data(&file, 0) && !has_data(&file, (8 << 30) - PAGE));
        let seen = FileCache::look(&path).unwrap();
        // One sample stands for 8 MiB.
        assert!(seen.cached.is_none_or(|cached| cached <= Bytes::mib(16)), "{seen:?}");
    }

    #[test]
    fn written_files_are_cached_and_unopenable_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        fs::write(&path, vec![1; 3 << 20]).unwrap();
        let seen = FileCache::look(&path).unwrap();
        assert_eq!(seen.length, Bytes::mib(3));
        assert!(seen.at_most() <= seen.length);
        // A file system that does not answer, as some of containers', is no failure.
        assert!(seen.cached.is_none_or(|cached| cached > Bytes::ZERO), "{seen:?}");
        advise(std::slice::from_ref(&path)).unwrap();

        let empty = folder.path().join("empty.gguf");
        fs::write(&empty, "").unwrap();
        assert_eq!(FileCache::look(&empty).unwrap().at_most(), Bytes::ZERO);
        for path in [folder.path().join("none.gguf"), folder.path().to_owned()] {
            let error = FileCache::look(&path).unwrap_err().to_string();
            assert!(error.contains(&*path.to_string_lossy()), "{error}");
        }
    }
}
