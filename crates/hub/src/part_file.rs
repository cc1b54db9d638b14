//! Continues the partial download of a file: keeps the bytes so far with their digest, and fetches the rest.

use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use plimsoll_base::Bytes;
use ring::digest::{Context, SHA256};

use crate::error::{HubError, HubFailure};
use crate::system;

/// Failures in a row after which a fetch ends; the pause doubles each time.
const FAILURES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// Disk space that a fetch leaves.
const MARGIN: Bytes = Bytes::mib(512);
const BUFFER: usize = 1 << 20;

/// Fetches bytes of a file: from an offset, and how many at most.
pub(crate) type FetchPart<'a> = &'a mut dyn FnMut(u64, u64) -> Result<Vec<u8>, HubError>;

/// Checks that so much more fits on the disk of a folder.
pub(crate) fn fits(needed: Bytes, folder: &Path) -> Result<(), HubFailure> {
    match system::free(folder).map_err(|error| HubFailure::Disk(error.to_string()))? {
        Some(free) if !needed.is_zero() && needed + MARGIN > free => {
            Err(HubFailure::NoSpace { needed, margin: MARGIN, free })
        }
        _ => Ok(()),
    }
}

/// Progress of a file. It is locked, so that no other process writes it too.
pub(crate) struct PartFile {
    file: File,
    have: u64,
    digest: Context,
}

impl PartFile {
    /// Opens what has come, and reads it; what does not resume begins anew. Links are not followed: their
    /// files belong to others.
    pub(crate) fn open(path: &Path, size: u64, resumes: bool) -> Result<Self, HubFailure> {
        let of_disk = |error: io::Error| HubFailure::Disk(error.to_string());
        let open = system::itself(File::options().create(true).read(true).append(true)).open(path);
        let mut file = open.map_err(of_disk)?;
        if !file.metadata().map_err(of_disk)?.is_file() {
            return Err(HubFailure::InTheWay);
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(HubFailure::Busy),
            Err(fs::TryLockError::Error(error)) => return Err(of_disk(error)),
        }
        if !resumes || file.metadata().map_err(of_disk)?.len() > size {
            file.set_len(0).map_err(of_disk)?;
        }
        let (mut digest, mut have, mut buffer) = (Context::new(&SHA256), 0, vec![0; BUFFER]);
        loop {
            let count = file.read(&mut buffer).map_err(of_disk)?;
            if count == 0 {
                return Ok(Self { file, have, digest });
            }
            digest.update(&buffer[..count]);
            have += u64::try_from(count).unwrap_or(u64::MAX);
        }
    }

    /// Fetches what is missing of `size` bytes, `length` at a time. `tell` gets what has come, and its error
    /// ends it.
    pub(crate) fn fill(
        &mut self,
        (of, size): (&dyn Display, u64),
        length: u64,
        fetch: FetchPart<'_>,
        notify: &dyn Fn(u64) -> Result<(), HubError>,
    ) -> Result<(), HubError> {
        let mut failures = 0;
        while self.have < size {
            notify(self.have)?;
            let most = length.min(size - self.have);
            match fetch(self.have, most) {
                Ok(bytes) if bytes.is_empty() || u64::try_from(bytes.len()).is_ok_and(|got| got > most) => {
                    let text = format!("{} bytes arrived for a request of {most}", bytes.len());
                    return Err(HubFailure::WrongRange(text).of(of));
                }
                Ok(bytes) => {
                    self.append(&bytes).map_err(|error| HubFailure::Disk(error.to_string()).of(of))?;
                    failures = 0;
                }
                Err(error) if error.failure.is_passing() && failures < FAILURES => {
                    thread::sleep(PAUSE * 2_u32.pow(failures));
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.digest.update(bytes);
        self.have += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        Ok(())
    }

    /// The digest of the whole, which is on the disk.
    pub(crate) fn finish(self) -> io::Result<String> {
        self.file.sync_all()?;
        Ok(self.digest.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}
