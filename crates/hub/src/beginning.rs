//! Reads files of a repository that are no GGUF: a whole text, or the beginnings of large files.

use std::thread;

use crate::client::Client;
use crate::error::{HubError, HubFailure};
use crate::listing::Listing;
use crate::source::Hub;

/// Beginnings that are fetched at once.
const AT_ONCE: usize = 8;

/// The beginning of a file, and the length of the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    pub bytes: Vec<u8>,
    pub total: u64,
}

impl Hub {
    /// A text of a repository, such as `config.json`; at most 16 MiB.
    pub fn text(&self, listing: &Listing, path: &str) -> Result<String, HubError> {
        let address = listing.address(&self.client, path);
        let (bytes, _) = self.client.answer(&address)?;
        String::from_utf8(bytes).map_err(|error| HubFailure::Answer(error.to_string()).of(&address))
    }

    /// The first bytes of files, or all of a shorter one, each by one request and in the order of the files.
    /// A length beyond the bound of a header is refused.
    pub fn beginnings(&self, listing: &Listing, wanted: &[(&str, u64)]) -> Result<Vec<Beginning>, HubError> {
        let mut found = Vec::with_capacity(wanted.len());
        for some in wanted.chunks(AT_ONCE) {
            let answers: Vec<Result<Beginning, HubError>> = thread::scope(|scope| {
                let fetch =
                    |&(path, length)| scope.spawn(move || fetched(&self.client, listing, path, length));
                let threads: Vec<_> = some.iter().map(fetch).collect();
                let broken = |_| {
                    Err(HubFailure::Broken("the thread that read it has ended".to_owned()).of(&listing.repo))
                };
                threads.into_iter().map(|thread| thread.join().unwrap_or_else(broken)).collect()
            });
            found.extend(answers.into_iter().collect::<Result<Vec<_>, _>>()?);
        }
        Ok(found)
    }
}

fn fetched(client: &Client, listing: &Listing, path: &str, length: u64) -> Result<Beginning, HubError> {
    let address = listing.address(client, path);
    let bound = client.bounds.header;
    if length > bound.get() {
        return Err(HubFailure::SetTooLong(bound).of(&address));
    }
    let size = listing.file(path).and_then(|file| file.size);
    let part = client.part(&address, 0, size.map_or(length, |size| length.min(size)))?;
    Ok(Beginning { bytes: part.bytes, total: part.total })
}
