//! Reads a GGUF header over HTTP range requests, without the weights.
//!
//! The first request takes 64 KiB, the whole header of most files.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use plimsoll_base::Bytes;
use plimsoll_model::Dialect;
use plimsoll_model::gguf::{GgufError, HeadReader, Header, PassedArray};
use serde::Serialize;

use crate::address::Address;
use crate::client::{Client, Part};
use crate::error::{HubError, HubFailure};

/// Headers of the longest that the files of one model may take together: only the first has a vocabulary.
const SET: u64 = 2;

/// Bytes that may still be fetched for the headers of one model.
#[derive(Debug)]
pub(crate) struct Allowance {
    left: AtomicU64,
    limit: Bytes,
}

impl Allowance {
    /// Where one header may take `each` bytes.
    pub(crate) fn of(each: Bytes) -> Self {
        let limit = Bytes::new(each.get().saturating_mul(SET));
        Self { left: AtomicU64::new(limit.get()), limit }
    }

    fn take(&self, length: u64) -> Result<(), HubFailure> {
        let taken = self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(length));
        taken.map(drop).map_err(|_| HubFailure::SetTooLong(self.limit))
    }
}

/// Origin of a header: the file on the server, and what it cost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Address without its query.
    pub address: String,
    /// Length of the whole file.
    pub size: u64,
    pub etag: Option<String>,
    /// SHA-256 of the whole file, as the hub states it.
    pub sha256: Option<String>,
    /// Bytes and requests of its header.
    pub fetched: u64,
    pub requests: u32,
}

/// Header of a file on a server.
#[derive(Debug)]
pub struct RemoteHead {
    reader: HeadReader,
    pub origin: Origin,
}

/// File of which a header is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) address: Address,
    /// Length and digest as the hub lists them.
    pub(crate) size: Option<u64>,
    pub(crate) digest: Option<String>,
    /// Bytes of the first request.
    pub(crate) first: u64,
    pub(crate) dialect: Dialect,
    pub(crate) vocabulary: &'a [PassedArray],
}

impl RemoteHead {
    pub(crate) fn fetch(
        client: &Client,
        wanted: &Wanted<'_>,
        allowance: &Allowance,
    ) -> Result<Self, HubError> {
        match Self::fetch_once(client, wanted, allowance) {
            // The vocabulary was another one after all: every byte is read then.
            fetched if !wanted.vocabulary.is_empty() && !is_sure(&fetched) => {
                Self::fetch_once(client, &Wanted { vocabulary: &[], ..wanted.clone() }, allowance)
            }
            fetched => fetched,
        }
    }

    fn fetch_once(client: &Client, wanted: &Wanted<'_>, allowance: &Allowance) -> Result<Self, HubError> {
        let of = &wanted.address;
        let part_of = |at: &Address, range: Range<u64>| {
            let length = range.end - range.start;
            allowance.take(length)?;
            client.part(at, range.start, length).map_err(|error| error.failure)
        };
        let first = wanted.first.clamp(1, client.bounds.header.get().max(1));
        let first = wanted.size.map_or(first, |size| first.min(size.max(1)));
        let part = part_of(of, 0..first).map_err(|failure| failure.of(of))?;
        if let Some(listed) = wanted.size.filter(|listed| *listed != part.total) {
            return Err(HubFailure::Length { stated: part.total, listed }.of(of));
        }
        let mut origin = Origin {
            address: of.to_string(),
            size: part.total,
            etag: part.etag.clone(),
            sha256: part.digest.clone().or(wanted.digest.clone()),
            fetched: 0,
            requests: 0,
        };
        let at = part.at.clone();
        let (origin_size, is_distinguished) = (part.total, part.etag.is_some());
        let new = || HeadReader::new(origin_size, wanted.dialect, client.bounds.header, wanted.vocabulary);
        let mut reader = new();
        let mut take = |reader: &mut HeadReader, start: u64, part: Part| {
            origin.fetched += widened(part.bytes.len());
            origin.requests += 1;
            let same = part.total == origin.size && part.etag == origin.etag;
            reader.take(start, part.bytes);
            if same { Ok(()) } else { Err(HubFailure::Changed.of(of)) }
        };
        take(&mut reader, 0, part)?;
        while let Some(mut range) = reader.wants().map_err(|error| HubFailure::from(error).of(of))? {
            // Without an ETag the next bytes may be those of another file, so all are asked for again.
            if !is_distinguished {
                let twice = reader.occupied().end.saturating_mul(2).min(client.bounds.header.get());
                range = 0..range.end.max(twice.min(origin_size));
                reader = new();
            }
            // Straight to where the redirects led, which saves a round trip.
            let part = part_of(&at, range.clone()).map_err(|failure| failure.of(of))?;
            take(&mut reader, range.start, part)?;
        }
        reader.header().map_err(|error| HubFailure::from(error).of(of))?;
        Ok(Self { reader, origin })
    }

    pub fn header(&self) -> Result<Header<'_>, GgufError> {
        self.reader.header()
    }

    /// The arrays of its vocabulary, for files that probably have the same.
    pub(crate) fn vocabulary(&self) -> &[PassedArray] {
        self.reader.vocabulary()
    }

    /// Writes a file of the same length that has the header, and a hole instead of the weights.
    pub fn write_hollow(&self, path: &Path) -> io::Result<()> {
        let mut file = File::create_new(path)?;
        file.set_len(self.origin.size)?;
        self.reader.pieces().try_for_each(|(start, bytes)| {
            file.seek(SeekFrom::Start(start))?;
            file.write_all(bytes)
        })
    }
}

/// False where an assumed vocabulary may explain the result.
fn is_sure(fetched: &Result<RemoteHead, HubError>) -> bool {
    match fetched {
        Ok(head) => head.reader.fills_its_file(),
        Err(error) => error.failure.is_passing(),
    }
}

fn widened(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}
