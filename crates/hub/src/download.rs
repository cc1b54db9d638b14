//! Downloads a model from Hugging Face or a URL, into the folder layout of Hugging Face's cache.
//!
//! A file is fetched in parts, each by its own request, into `blobs/KEY.part`. After a failure, the next
//! download resumes there. A file of which the server states neither a digest nor a strong ETag comes as one
//! answer, and begins anew after a failure. A file gets its final name once its digest matches the digest in
//! the hub's list.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use plimsoll_base::Bytes;

use crate::download_plan::{DownloadPlan, PlannedFile};
use crate::downloaded::DownloadedModel;
use crate::error::{HubError, HubFailure};
use crate::part_file::{PartFile, fits};
use crate::source::Hub;
use crate::system;

/// Bytes of one request: a server that stalls costs no more, and a slow line has the whole patience for them.
const PART: u64 = 8 << 20;

/// Bytes of one file that have come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DownloadProgress {
    pub address: String,
    pub done: u64,
    pub total: u64,
}

impl Hub {
    /// Downloads the files into `folder`, and notes the model there. `goes_on` gets the progress; false ends
    /// it.
    pub fn download(
        &self,
        plan: &DownloadPlan,
        folder: &Path,
        goes_on: &dyn Fn(DownloadProgress) -> bool,
    ) -> Result<(), HubError> {
        let of_disk = |error: io::Error| HubFailure::Disk(error.to_string()).of(folder.display());
        let blobs = folder.join(&plan.root).join("blobs");
        fs::create_dir_all(&blobs).map_err(of_disk)?;
        room(plan, &blobs).map_err(|failure| failure.of(folder.display()))?;
        let mut paths = Vec::new();
        for file in &plan.files {
            self.file(file, &blobs, goes_on)?;
            let path = plan.root.join("snapshots").join(&plan.commit).join(&file.path);
            link(&folder.join(&path), &file.key, file.path.matches('/').count()).map_err(of_disk)?;
            paths.push(path);
        }
        let projector = if plan.has_projector { paths.pop() } else { None };
        DownloadedModel { name: plan.name.clone(), files: paths, projector }.note(folder).map_err(of_disk)
    }

    fn file(
        &self,
        file: &PlannedFile,
        blobs: &Path,
        goes_on: &dyn Fn(DownloadProgress) -> bool,
    ) -> Result<(), HubError> {
        let of = |failure: HubFailure| failure.of(&file.address);
        let of_disk = |error: io::Error| of(HubFailure::Disk(error.to_string()));
        let notify = |done| {
            let progress = DownloadProgress { address: file.address.to_string(), done, total: file.size };
            if goes_on(progress) { Ok(()) } else { Err(of(HubFailure::Cancelled)) }
        };
        let whole = blobs.join(&file.key);
        let resumes = file.is_distinguished();
        if resumes && fs::metadata(&whole).is_ok_and(|found| found.len() == file.size) {
            return notify(file.size);
        }
        let path = blobs.join(format!("{}.part", file.key));
        let mut part = PartFile::open(&path, file.size, resumes).map_err(of)?;
        let mut at = file.address.clone();
        let mut answer = None;
        let mut fetch = |start, length| {
            if !resumes {
                return self.next_of(&mut answer, file, (start, length));
            }
            let got = match self.client.part(&at, start, length) {
                // The address behind the redirect holds for a while only.
                Err(_) if at != file.address => self.client.part(&file.address, start, length)?,
                got => got?,
            };
            if got.total != file.size {
                return Err(of(HubFailure::Length { stated: got.total, listed: file.size }));
            }
            // Parts of two files make no file.
            if file.digest.is_none() && got.etag != file.etag {
                return Err(of(HubFailure::Changed));
            }
            at = got.at;
            Ok(got.bytes)
        };
        part.fill((&file.address, file.size), PART, &mut fetch, &notify)?;
        let digest = part.finish().map_err(of_disk)?;
        if let Some(listed) = file.digest.clone().filter(|listed| *listed != digest) {
            // Nothing of it can be used, and continuing would end here again.
            fs::remove_file(&path).map_err(of_disk)?;
            return Err(of(HubFailure::Digest { listed, got: digest }));
        }
        fs::rename(&path, &whole).map_err(of_disk)?;
        notify(file.size)
    }
}

impl Hub {
    /// The next bytes of a file that comes as one answer.
    fn next_of(
        &self,
        answer: &mut Option<Box<dyn Read>>,
        file: &PlannedFile,
        (start, length): (u64, u64),
    ) -> Result<Vec<u8>, HubError> {
        let open = match answer.take() {
            Some(open) => open,
            None if start == 0 => Box::new(self.client.whole(&file.address, file.size, PART)?),
            None => return Err(HubFailure::NoValidator.of(&file.address)),
        };
        let (bytes, rest) = self.client.read(open, length, &file.address)?;
        if u64::try_from(bytes.len()) != Ok(length) {
            return Err(HubFailure::Broken(format!("only {} of {length} bytes arrived", bytes.len()))
                .of(&file.address));
        }
        *answer = Some(rest);
        Ok(bytes)
    }
}

/// Checks that the rest of the files fits on the disk.
fn room(plan: &DownloadPlan, blobs: &Path) -> Result<(), HubFailure> {
    let have = |file: &PlannedFile| {
        let of = |name: &str| fs::metadata(blobs.join(name)).map_or(0, |found| found.len());
        if file.is_distinguished() {
            of(&file.key).max(of(&format!("{}.part", file.key))).min(file.size)
        } else {
            0
        }
    };
    let needed: Bytes = plan.files.iter().map(|file| Bytes::new(file.size - have(file))).sum();
    fits(needed, blobs)
}

/// Links a path of a snapshot to its blob, `depth` folders below the snapshot.
fn link(path: &Path, digest: &str, depth: usize) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let up: PathBuf = std::iter::repeat_n("..", depth + 2).collect();
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => system::link(up.join("blobs").join(digest), path),
    }
}
