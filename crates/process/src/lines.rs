//! Line reader for pipes that may carry arbitrary bytes.
//!
//! A line longer than [`LONGEST`] is cut into several. A read may be cancelled at any await without losing a
//! byte.

use std::collections::VecDeque;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The ready payload of llama-server is one line and holds the whole description of the model.
const LONGEST: usize = 1 << 20;
const CHUNK: usize = 16 << 10;

#[derive(Debug)]
pub struct Lines<R> {
    /// None after the end of file or an error, which mean the same to us.
    pipe: Option<R>,
    partial: Vec<u8>,
    whole: VecDeque<String>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(pipe: Option<R>) -> Self {
        Self { pipe, partial: Vec::new(), whole: VecDeque::new() }
    }

    pub fn is_open(&self) -> bool {
        self.pipe.is_some() || !self.whole.is_empty()
    }

    /// Returns the next line, `None` at the end.
    pub async fn next(&mut self) -> Option<String> {
        // A child that never stops talking must not keep everybody else from their turn.
        tokio::task::coop::consume_budget().await;
        loop {
            if let Some(line) = self.whole.pop_front() {
                return Some(line);
            }
            let pipe = self.pipe.as_mut()?;
            self.partial.reserve(CHUNK);
            let before = self.partial.len();
            match pipe.read_buf(&mut self.partial).await {
                Ok(1..) => self.split(before),
                Ok(0) | Err(_) => self.finish(),
            }
        }
    }

    /// Cuts the bytes after `before` into lines; an incomplete last line is kept.
    fn split(&mut self, before: usize) {
        let mut start = 0;
        // Only the new bytes are searched, so a long line costs its length once.
        for newline in memchr::memchr_iter(b'\n', &self.partial[before..]) {
            let end = before + newline;
            self.whole.push_back(text(&self.partial[start..end]));
            start = end + 1;
        }
        self.partial.drain(..start);
        if self.partial.len() >= LONGEST {
            self.whole.push_back(text(&self.partial));
            self.partial.clear();
        }
    }

    fn finish(&mut self) {
        self.pipe = None;
        if !self.partial.is_empty() {
            self.whole.push_back(text(&self.partial));
            self.partial = Vec::new();
        }
    }
}

fn text(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Vec<String> {
        let mut lines = Lines::new(Some(bytes));
        let mut found = Vec::new();
        while let Some(line) = lines.next().await {
            found.push(line);
        }
        assert!(!lines.is_open());
        found
    }

    #[tokio::test]
    async fn lines_end_with_either_ending_or_the_end_of_file() {
        assert_eq!(all(b"a\r\n\nb\nlast").await, ["a", "", "b", "last"]);
        assert!(all(b"").await.is_empty());
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_do_no_harm() {
        assert_eq!(all(b"\xff\x00\xfe\nok\n").await, ["\u{fffd}\0\u{fffd}", "ok"]);
    }

    #[tokio::test]
    async fn an_endless_line_is_cut_and_nothing_is_lost() {
        let bytes = vec![b'x'; 3 * LONGEST + 5];
        let lines = all(&bytes).await;
        assert!(lines.iter().all(|line| line.len() <= LONGEST + CHUNK));
        assert_eq!(lines.iter().map(String::len).sum::<usize>(), bytes.len());
    }

    #[tokio::test]
    async fn a_line_that_comes_in_pieces_is_one_line() {
        let (near, far) = tokio::io::duplex(4);
        let write = async move {
            use tokio::io::AsyncWriteExt;
            let mut far = far;
            far.write_all(b"one long line\nand another").await.unwrap();
        };
        let read = async move {
            let mut lines = Lines::new(Some(near));
            (lines.next().await, lines.next().await, lines.next().await)
        };
        let ((), found) = tokio::join!(write, read);
        assert_eq!(found, (Some("one long line".to_owned()), Some("and another".to_owned()), None));
    }
}
