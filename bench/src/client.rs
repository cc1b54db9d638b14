//! Blocking HTTP client for benchmarks, and the response reader that both clients use.
//!
//! It is written by hand because it shares two cores with the server that it measures. A request takes one
//! write. A response that the kernel has received completely takes one read.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// No reply of a benchmark takes longer than this.
const PATIENCE: Duration = Duration::from_secs(20);
const INBOX_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 32;

/// A keep-alive connection that carries one request at a time.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    inbox: Inbox,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket, inbox: Inbox::default() })
    }

    /// Sends and waits for the whole reply; the time is from the first byte out to the last byte in.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> io::Result<(Reply, Duration)> {
        let start = Instant::now();
        self.socket.write_all(request)?;
        loop {
            if let Some(reply) = self.inbox.read(&mut self.socket)? {
                return Ok((reply, start.elapsed()));
            }
        }
    }
}

/// What a reply was.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    line_feeds: u64,
}

impl Reply {
    /// Server-sent events in the body. Each is one line and an empty line.
    pub(crate) fn events(&self) -> u64 {
        self.line_feeds / 2
    }
}

/// Bytes that have come in, and how far they have been understood.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    filled: usize,
    reply: Reply,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Head,
    Length(u64),
    ChunkSize,
    /// Bytes left of the chunk, its line end not counted.
    Chunk(u64),
    ChunkEnd {
        last: bool,
    },
    Done,
}

impl Default for Inbox {
    fn default() -> Self {
        let bytes = vec![0; INBOX_BYTES].into_boxed_slice();
        Self { bytes, filled: 0, reply: Reply::default(), stage: Stage::Head }
    }
}

impl Inbox {
    /// Reads once; gives the reply when that completed it.
    pub(crate) fn read(&mut self, socket: &mut TcpStream) -> io::Result<Option<Reply>> {
        match socket.read(&mut self.bytes[self.filled..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.filled += count;
                self.digest()
            }
        }
    }

    fn digest(&mut self) -> io::Result<Option<Reply>> {
        let mut used = 0;
        while self.stage != Stage::Done {
            match self.step(used)? {
                0 => break,
                count => used += count,
            }
            self.finish_stage();
        }
        self.bytes.copy_within(used..self.filled, 0);
        self.filled -= used;
        if self.stage == Stage::Done {
            self.stage = Stage::Head;
            return Ok(Some(std::mem::take(&mut self.reply)));
        }
        if self.filled == self.bytes.len() {
            return Err(malformed("a head or chunk size without end"));
        }
        Ok(None)
    }

    /// Understands some of the bytes from `used` on and says how many; none when more must come first.
    fn step(&mut self, used: usize) -> io::Result<usize> {
        let rest = &self.bytes[used..self.filled];
        match self.stage {
            Stage::Head => {
                let Some((length, stage, status)) = read_head(rest)? else {
                    return Ok(0);
                };
                (self.stage, self.reply.status) = (stage, status);
                Ok(length)
            }
            Stage::Length(left) => Ok(self.take_body(used, left, Stage::Length)),
            Stage::Chunk(left) => Ok(self.take_body(used, left, Stage::Chunk)),
            Stage::ChunkSize => match httparse::parse_chunk_size(rest) {
                Ok(httparse::Status::Complete((length, size))) => {
                    self.stage = if size == 0 { Stage::ChunkEnd { last: true } } else { Stage::Chunk(size) };
                    Ok(length)
                }
                Ok(httparse::Status::Partial) => Ok(0),
                Err(_) => Err(malformed("an unreadable chunk size")),
            },
            Stage::ChunkEnd { last } if rest.len() >= 2 => {
                self.stage = if last { Stage::Done } else { Stage::ChunkSize };
                Ok(2)
            }
            Stage::ChunkEnd { .. } | Stage::Done => Ok(0),
        }
    }

    fn take_body(&mut self, used: usize, left: u64, stage: fn(u64) -> Stage) -> usize {
        let here = self.filled - used;
        let count = usize::try_from(left).map_or(here, |left| left.min(here));
        let taken = &self.bytes[used..used + count];
        let line_feeds = memchr::memchr_iter(b'\n', taken).count();
        // A usize fits a u64 on every target that Linux runs on.
        self.reply.line_feeds += u64::try_from(line_feeds).unwrap_or(u64::MAX);
        let count_wide = u64::try_from(count).unwrap_or(u64::MAX);
        self.reply.body_bytes += count_wide;
        self.stage = stage(left - count_wide);
        count
    }

    fn finish_stage(&mut self) {
        self.stage = match self.stage {
            Stage::Length(0) => Stage::Done,
            Stage::Chunk(0) => Stage::ChunkEnd { last: false },
            other => other,
        };
    }
}

fn read_head(bytes: &[u8]) -> io::Result<Option<(usize, Stage, u16)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let status = parsed.parse(bytes).map_err(|_| malformed("an unreadable head"))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let value = |name: &str| {
        let header = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(header.value).ok()
    };
    let stage = match value("content-length").map(str::parse) {
        Some(Ok(length)) => Stage::Length(length),
        None if value("transfer-encoding").is_some() => Stage::ChunkSize,
        _ => return Err(malformed("a reply without a length")),
    };
    Ok(Some((length, stage, parsed.code.unwrap_or_default())))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in_pieces(text: &str, piece: usize) -> Vec<Reply> {
        let mut inbox = Inbox::default();
        let mut replies = Vec::new();
        for piece in text.as_bytes().chunks(piece) {
            inbox.bytes[inbox.filled..inbox.filled + piece.len()].copy_from_slice(piece);
            inbox.filled += piece.len();
            replies.extend(inbox.digest().unwrap());
        }
        replies
    }

    #[test]
    fn a_reply_reads_the_same_however_it_is_cut() {
        let length = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab\n\nc";
        let chunked = "HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n6\r\ndata\n\n\r\n7\r\ndata2\n\n\r\n0\r\n\r\n";
        for piece in 1..length.len() {
            let reply = Reply { status: 200, body_bytes: 5, line_feeds: 2 };
            assert_eq!(read_in_pieces(length, piece), [reply], "pieces of {piece}");
            let reply = Reply { status: 201, body_bytes: 13, line_feeds: 4 };
            assert_eq!(read_in_pieces(chunked, piece), [reply], "pieces of {piece}");
        }
    }

    #[test]
    fn an_empty_body_ends_with_its_head() {
        let reply = Reply { status: 204, ..Reply::default() };
        assert_eq!(read_in_pieces("HTTP/1.1 204 X\r\nContent-Length: 0\r\n\r\n", 100), [reply]);
    }
}
