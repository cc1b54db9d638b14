//! Gives other hosts the list and the bytes of a model's files, for offered models only.
//!
//! DECISION: a request names a file by its SHA-256, which is searched among the files of one model. So
//! nothing that another host sends becomes a path, and a changed file counts as a different one.

use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::RANGE;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use plimsoll_config::ConfiguredModel;
use plimsoll_fleet::FileDigest;
use serde_json::json;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::place::{self, FilePlace};
use super::stamp::{self, FileStamp};
use super::{FileList, FleetMember, ListedFile, MOST_PART, SharedFiles};
use plimsoll_route::{FileAnswer, FileAnswered, HttpProblem, MODEL, ModelService, no_files};
use plimsoll_task::{spawn_blocking, spawn_local};

/// Longest time that a part waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(1);

/// Questions of another host about the files of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FileQuestion {
    List(FileDigest),
    Part { sha256: String, start: u64, length: u64 },
}

impl FileQuestion {
    fn read(head: &Parts) -> Option<Self> {
        let requested = head.uri.path().strip_prefix('/').filter(|_| head.method == Method::GET)?;
        let is_hex = |text: &str, digits| {
            text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        };
        if let Some((header, size)) = requested.split_once('-') {
            let size = plimsoll_base::Bytes::new(size.parse().ok()?);
            return is_hex(header, 16).then(|| Self::List(FileDigest { header: header.to_owned(), size }));
        }
        let range = head.headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?;
        let (start, end) = range.split_once('-')?;
        let (start, end): (u64, u64) = (start.parse().ok()?, end.parse().ok()?);
        let length = end.checked_sub(start)?.checked_add(1)?;
        let is_read = is_hex(requested, 64) && length <= MOST_PART;
        is_read.then(|| Self::Part { sha256: requested.to_owned(), start, length })
    }
}

/// The name of the model in a request of another host.
pub(super) fn named(head: &Parts) -> Result<String, HttpProblem> {
    let name = head.headers.get(MODEL).and_then(|name| String::from_utf8(name.as_bytes().to_vec()).ok());
    name.ok_or_else(|| problem(StatusCode::BAD_REQUEST, "bad_request", "the request names no model"))
}

pub(super) fn problem(status: StatusCode, code: &'static str, text: &str) -> HttpProblem {
    HttpProblem::new(status, code, text)
}

impl FleetMember {
    /// Answers a host that asks about files.
    pub(crate) fn give_files(&self, head: &Parts) -> FileAnswered {
        let (me, name, question) = (self.me(), named(head), FileQuestion::read(head));
        Box::pin(async move {
            let unread = || {
                problem(
                    StatusCode::BAD_REQUEST,
                    "bad_request",
                    "the path of the request does not name a file",
                )
            };
            let me = me.ok_or_else(no_files)?;
            me.give(&name?, question.ok_or_else(unread)?).await
        })
    }

    async fn give(self: Rc<Self>, name: &str, question: FileQuestion) -> Result<FileAnswer, HttpProblem> {
        let files = self.files.as_ref().ok_or_else(no_files)?;
        let (entry, offered) = self.offered(name).ok_or_else(|| {
            problem(StatusCode::NOT_FOUND, "not_offered", "this host does not offer the model's file")
        })?;
        match question {
            FileQuestion::List(requested) if requested == offered => self.list(files, &entry).await,
            FileQuestion::List(_) => Err(problem(
                StatusCode::CONFLICT,
                "other_file",
                "this host has a different file for the model",
            )),
            FileQuestion::Part { sha256, start, length } => {
                self.part(files, &entry, &sha256, (start, length)).await
            }
        }
    }

    /// A model that this host has offered, with the digest of the offer.
    fn offered(&self, name: &str) -> Option<(Rc<ConfiguredModel>, FileDigest)> {
        let runtime = self.runtime()?;
        let entry = runtime.state.entry(runtime.resolve(name)?);
        let offers = self.offers.borrow();
        let digest = offers.models.get(&entry.name)?.file.clone()?;
        Some((entry, digest))
    }

    async fn list(
        self: &Rc<Self>,
        files: &SharedFiles,
        entry: &ConfiguredModel,
    ) -> Result<FileAnswer, HttpProblem> {
        let places = place::places(entry);
        // The files may lie on a disk that hangs.
        let stamped = spawn_blocking(move || {
            let stamp = |(place, path): (FilePlace, PathBuf)| Ok((place, FileStamp::at(&path)?, path));
            places.into_iter().map(stamp).collect::<io::Result<Vec<_>>>()
        });
        let gone = || problem(StatusCode::NOT_FOUND, "file_gone", "a file of the model cannot be read");
        let stamped = stamped.await.ok().and_then(Result::ok).ok_or_else(gone)?;
        let (mut list, mut unread) = (Vec::new(), Vec::new());
        let digests = files.digests.borrow();
        for (place, stamp, path) in stamped {
            match digests.get(&path).filter(|(read, _)| *read == stamp) {
                Some((_, sha256)) => {
                    list.push(ListedFile { place, size: stamp.size, sha256: sha256.clone() })
                }
                None => unread.push(path),
            }
        }
        drop(digests);
        if unread.is_empty() {
            return Ok(FileAnswer::List(json!(FileList { schema: 1, files: list })));
        }
        self.read_digests(files, unread);
        let text = "the digests of the files are still being computed";
        Err(problem(StatusCode::SERVICE_UNAVAILABLE, "digest_pending", text).retry_after(AGAIN))
    }

    /// Reads files for their digests, one after the other and once.
    fn read_digests(self: &Rc<Self>, files: &SharedFiles, paths: Vec<PathBuf>) {
        if files.is_reading.replace(true) {
            return;
        }
        let me = Rc::clone(self);
        spawn_local(async move {
            let Some(files) = &me.files else { return };
            let reading = ReadingEnd::default();
            for path in paths {
                let (own, ends) = (path.clone(), Arc::clone(&reading.0));
                match spawn_blocking(move || stamp::digest(&own, &ends)).await {
                    Ok(Ok(read)) => drop(files.digests.borrow_mut().insert(path, read)),
                    Ok(Err(error)) => {
                        tracing::warn!("fleet: {} is not offered to other hosts: {error}", path.display());
                        break;
                    }
                    Err(_) => break,
                }
            }
            files.is_reading.set(false);
        });
    }

    async fn part(
        &self,
        files: &SharedFiles,
        entry: &ConfiguredModel,
        sha256: &str,
        (start, length): (u64, u64),
    ) -> Result<FileAnswer, HttpProblem> {
        let found = place::places(entry).into_iter().find_map(|(_, path)| {
            let digests = files.digests.borrow();
            let (stamp, _) = digests.get(&path).filter(|(_, read)| read == sha256)?;
            Some((*stamp, path))
        });
        let unknown =
            || problem(StatusCode::NOT_FOUND, "no_such_file", "the model has no file with this digest");
        let (stamp, path) = found.ok_or_else(unknown)?;
        let beyond = || {
            problem(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "bad_range",
                "the file is shorter than the requested part",
            )
        };
        start.checked_add(length).filter(|end| *end <= stamp.size).ok_or_else(beyond)?;
        let busy = || {
            let text = "this host already sends as many files as it may";
            problem(StatusCode::SERVICE_UNAVAILABLE, "busy", text).retry_after(AGAIN)
        };
        let place = timeout(PATIENCE, Arc::clone(&files.parts).acquire_owned()).await;
        let place = place.ok().and_then(Result::ok).ok_or_else(busy)?;
        if !files.giving.turn(length, PATIENCE).await {
            return Err(busy());
        }
        let (own, count) = (path.clone(), usize::try_from(length).map_err(|_| beyond())?);
        let read = spawn_blocking(move || stamp.read(&own, start, count)).await;
        let bytes = read.ok().and_then(Result::ok).ok_or_else(|| {
            files.forget_digest(&path);
            problem(StatusCode::CONFLICT, "file_changed", "the file changed while it was read")
        })?;
        files.given.set(files.given.get().saturating_add(length));
        let range = format!("bytes {start}-{}/{}", start + length - 1, stamp.size);
        let range = HeaderValue::try_from(range).map_err(|_| beyond())?;
        Ok(FileAnswer::Part { range, bytes: Bytes::from_owner(GivenPart { bytes, _place: place }) })
    }
}

/// Ends the thread that reads files when the task ends that waits for it.
#[derive(Default)]
struct ReadingEnd(Arc<AtomicBool>);

impl Drop for ReadingEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes that are being sent, with their place among those in memory.
struct GivenPart {
    bytes: Vec<u8>,
    _place: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for GivenPart {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(method: &str, path: &str, range: &str) -> Option<FileQuestion> {
        let request = Request::builder().method(method).uri(path).header(RANGE, range).body(()).unwrap();
        FileQuestion::read(&request.into_parts().0)
    }

    #[test]
    fn a_file_is_named_by_its_digest_and_by_nothing_else() {
        let sha256 = "0123456789abcdef".repeat(4);
        let path = format!("/{sha256}");
        let part = FileQuestion::Part { sha256: sha256.clone(), start: 5, length: 6 };
        assert_eq!(read("GET", &path, "bytes=5-10"), Some(part));
        let digest =
            FileDigest { header: "00ff00ff00ff00ff".to_owned(), size: plimsoll_base::Bytes::new(12) };
        assert_eq!(read("GET", "/00ff00ff00ff00ff-12", ""), Some(FileQuestion::List(digest)));
        for wrong in [
            "/",
            "/../../etc/passwd",
            "//etc/passwd",
            "/%2e%2e%2fetc%2fpasswd",
            "/models/one.gguf",
            "/00ff00ff00ff00ff--12",
            "/00ff00ff00ff00ff-99999999999999999999999",
            "/00ff00ff00ff00f-12",
            "/../00ff00ff00ff00ff-12",
            &path.to_uppercase(),
            &path[..64],
            &format!("{path}0"),
            &format!("/..{path}"),
        ] {
            assert_eq!(read("GET", wrong, "bytes=0-1"), None, "{wrong}");
        }
        let (last, next) = (u64::MAX, u64::MAX - 1);
        for wrong in [
            "",
            "bytes=",
            "bytes=5-",
            "bytes=-5",
            "bytes=6-5",
            "bytes=0-1048576",
            "bytes=0-1,5-6",
            "items=0-1",
            &format!("bytes=0-{last}"),
            "bytes=1-18446744073709551616",
        ] {
            assert_eq!(read("GET", &path, wrong), None, "{wrong}");
        }
        assert!(read("GET", &path, &format!("bytes={next}-{last}")).is_some(), "the file is shorter");
        assert_eq!(read("POST", &path, "bytes=0-1"), None);
        assert_eq!(read("DELETE", "/00ff00ff00ff00ff-12", ""), None);
    }

    #[test]
    fn million_questions_about_files_are_refused_or_name_a_digest() {
        let sha256 = "0123456789abcdef".repeat(4);
        let part = format!("/{sha256} bytes=0-1023");
        let seeds: [&[u8]; 2] = [part.as_bytes(), b"/00ff00ff00ff00ff-12 bytes=5-10"];
        let tokens: [&[u8]; 8] = [b"/", b"..", b"%2e", b"%2f", b"bytes=", b"-", b"//", b"?"];
        plimsoll_fuzz::mutants(&seeds, &tokens, |mutant| {
            let text = String::from_utf8_lossy(mutant);
            let (path, range) = text.split_once(' ').unwrap_or((&text, ""));
            let request = Request::builder().uri(path).header(RANGE, range).body(());
            let Ok(request) = request else { return };
            match FileQuestion::read(&request.into_parts().0) {
                Some(FileQuestion::Part { sha256, start, length }) => {
                    assert!(sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit()));
                    assert!((1..=MOST_PART).contains(&length) && start.checked_add(length - 1).is_some());
                }
                Some(FileQuestion::List(digest)) => {
                    assert!(
                        digest.header.len() == 16
                            && digest.header.bytes().all(|byte| byte.is_ascii_hexdigit())
                    );
                }
                None => {}
            }
        });
    }
}
