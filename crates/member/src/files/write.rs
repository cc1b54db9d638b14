//! Writes model files that are copied from another host, on a separate thread. The thread requests a part
//! from the download when it has written the one before.

use std::path::{Path, PathBuf};

use plimsoll_fleet::FileDigest;
use plimsoll_hub::{CopyCalls, FileCopy, HostFault, HubError, HubFailure};
use tokio::sync::{mpsc, oneshot};

use super::FileList;
use super::ask::WantedPart;
use super::place::{self, FilePlace};
use crate::offers;

/// Reports of the writing thread.
pub(super) enum CopyNews {
    Part(WantedPart, oneshot::Sender<Result<Vec<u8>, HostFault>>),
    /// A file of this size is there.
    Whole(u64),
}

/// The files of this host with the other host's description of each. It has to have as many of each kind.
pub(super) fn matched(
    own: Vec<(FilePlace, PathBuf)>,
    list: &FileList,
    digest: &FileDigest,
) -> Result<Vec<(FilePlace, FileCopy)>, HostFault> {
    let lies = |text: String| Err(HostFault::Lies(text));
    let own_places: Vec<FilePlace> = own.iter().map(|(place, _)| *place).collect();
    let of_role =
        |places: &mut dyn Iterator<Item = FilePlace>, role| places.filter(|it| it.role == role).count();
    let mut copies = Vec::new();
    for (place, path) in own {
        let (mut here, mut there) = (own_places.iter().copied(), list.files.iter().map(|file| file.place));
        if of_role(&mut here, place.role) != of_role(&mut there, place.role) {
            let text = format!("the host has a different number of files for the model ({:?})", place.role);
            return Err(HostFault::Refused(text));
        }
        let mut found = list.files.iter().filter(|file| file.place == place);
        let (Some(file), None) = (found.next(), found.next()) else {
            return lies(format!("its list of files does not name {place:?} exactly once"));
        };
        if file.size == 0 || (place == FilePlace::FIRST && file.size != digest.size.get()) {
            return lies(format!("its list of files states an impossible size of {} bytes", file.size));
        }
        match FileCopy::new(path, file.size, &file.sha256) {
            Some(copy) => copies.push((place, copy)),
            None => return lies("its list of files contains an invalid digest".to_owned()),
        }
    }
    if copies.is_empty() { Err(HostFault::Refused("the model names no file".to_owned())) } else { Ok(copies) }
}

/// Writes the files that are missing. Runs on a thread of its own, and ends when the task does that it asks.
pub(super) fn write(
    copies: &[(FilePlace, FileCopy)],
    ask: &mpsc::Sender<CopyNews>,
    host: &str,
    digest: &FileDigest,
    part: u64,
) -> Result<(), HubError> {
    let (missing, there): (Vec<_>, Vec<_>) =
        copies.iter().cloned().partition(|(_, copy)| place::is_missing(copy.path()));
    for (place, copy) in &there {
        if *place == FilePlace::FIRST {
            let other = |why| HubFailure::WrongFile(why).of(copy.path().display());
            is_offered(copy.path(), digest).map_err(other)?;
        }
        notify_whole(ask, copy);
    }
    let copies: Vec<FileCopy> = missing.iter().map(|(_, copy)| copy.clone()).collect();
    FileCopy::check(&copies)?;
    for (place, copy) in &missing {
        let accept = |path: &Path| if *place == FilePlace::FIRST { is_offered(path, digest) } else { Ok(()) };
        let had_begun = copy.has_begun();
        let run = || {
            let mut fetch = |start, length| fetched(ask, copy, host, (start, length));
            copy.run(part, CopyCalls { fetch: &mut fetch, accept: &accept, goes_on: &|_| !ask.is_closed() })
        };
        let mut copied = run();
        // Earlier bytes may have come from another host, whose fault is not this one's.
        if had_begun && matches!(&copied, Err(error) if matches!(error.failure, HubFailure::WrongFile(_))) {
            copied = run();
        }
        if let Err(HubError { failure: HubFailure::Host(HostFault::Lies(_)), .. }) = &copied {
            copy.discard();
        }
        copied?;
        notify_whole(ask, copy);
    }
    Ok(())
}

fn notify_whole(ask: &mpsc::Sender<CopyNews>, copy: &FileCopy) {
    // An error means that the task has ended, and the next question shows it.
    let _ = ask.blocking_send(CopyNews::Whole(copy.size()));
}

fn fetched(
    ask: &mpsc::Sender<CopyNews>,
    copy: &FileCopy,
    host: &str,
    (start, length): (u64, u64),
) -> Result<Vec<u8>, HubError> {
    let ended = || HubFailure::Cancelled.of(host);
    let (answer, answered) = oneshot::channel();
    let (sha256, size) = (copy.digest().to_owned(), copy.size());
    let wanted = WantedPart { sha256, start, length, size };
    ask.blocking_send(CopyNews::Part(wanted, answer)).map_err(|_| ended())?;
    answered.blocking_recv().map_err(|_| ended())?.map_err(|fault| HubFailure::Host(fault).of(host))
}

/// Checks that a file is the one of the offer.
fn is_offered(path: &Path, digest: &FileDigest) -> Result<(), String> {
    let found = offers::file_digest(path).map_err(|error| error.to_string())?;
    if found == *digest {
        Ok(())
    } else {
        Err(format!("the digest of its header is {}, but {} was offered", found.header, digest.header))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::super::ListedFile;
    use super::super::place::FileRole;
    use super::*;

    fn place(role: FileRole, part: usize) -> FilePlace {
        FilePlace { role, part }
    }

    fn own() -> Vec<(FilePlace, PathBuf)> {
        [place(FileRole::Model, 0), place(FileRole::Model, 1), place(FileRole::Projector, 0)]
            .map(|place| (place, PathBuf::from(format!("/m/{place:?}"))))
            .into()
    }

    fn listed() -> Vec<ListedFile> {
        let sha256 = "a".repeat(64);
        let file =
            |(number, (place, _)): (u64, _)| ListedFile { place, size: 10 + number, sha256: sha256.clone() };
        (0..).zip(own()).map(file).collect()
    }

    fn of(files: Vec<ListedFile>) -> Result<Vec<(FilePlace, FileCopy)>, HostFault> {
        let digest = FileDigest { header: String::new(), size: Bytes::new(10) };
        matched(own(), &FileList { schema: 1, files }, &digest)
    }

    #[test]
    fn each_file_of_this_host_has_its_own_of_the_other() {
        let mut more = listed();
        more.reverse();
        more.push(ListedFile { place: place(FileRole::Draft, 0), ..listed()[0].clone() });
        let copies = of(more).unwrap();
        let paths: Vec<_> = copies.iter().map(|(_, copy)| (copy.path().to_owned(), copy.size())).collect();
        let expected: Vec<_> = own().into_iter().zip(10..).map(|((_, path), size)| (path, size)).collect();
        assert_eq!(paths, expected, "and a draft that this host does not want is left out");
    }

    #[test]
    fn a_list_that_lies_or_is_of_another_model_gives_nothing() {
        let lies: [fn(&mut Vec<ListedFile>); 7] = [
            |files| files[1] = files[0].clone(),
            |files| drop(files.remove(1)),
            |files| files.clear(),
            |files| files[0].size = 11,
            |files| files[2].size = 0,
            |files| files[2].sha256 = "../../../etc/passwd".to_owned(),
            |files| files[1].place.part = usize::MAX,
        ];
        for (number, lie) in lies.iter().enumerate() {
            let mut files = listed();
            lie(&mut files);
            let ended = of(files);
            assert!(matches!(ended, Err(HostFault::Lies(_) | HostFault::Refused(_))), "{number}: {ended:?}");
        }
        let digest = FileDigest { header: String::new(), size: Bytes::new(10) };
        assert!(matched(Vec::new(), &FileList { schema: 1, files: listed() }, &digest).is_err());
    }

    #[test]
    fn a_file_with_another_header_is_not_the_one_that_was_offered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        std::fs::write(&path, "abc").unwrap();
        let digest = offers::file_digest(&path).unwrap();
        assert_eq!(is_offered(&path, &digest), Ok(()));
        let other = FileDigest { size: Bytes::new(4), ..digest };
        assert!(is_offered(&path, &other).is_err() && is_offered(folder.path(), &other).is_err());
    }
}
