//! Log lines as plain text: the last ones, and then, for a stream, each new one.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use plimsoll_launch::{Log, LogLine};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Lines shown before the new ones.
const HISTORY: usize = 1000;

/// Returns the last lines.
pub(crate) fn tail(log: &Log) -> Bytes {
    text(&log.tail(HISTORY))
}

fn text(lines: &[Arc<LogLine>]) -> Bytes {
    let mut text = String::new();
    for line in lines {
        text.push_str(&format!("[{}] {}\n", line.model, line.text));
    }
    Bytes::from(text)
}

type Next = Pin<Box<dyn Future<Output = (Receiver<Arc<LogLine>>, Option<Bytes>)>>>;

/// The lines of a log, without an end.
pub(crate) struct LogStream {
    history: Option<Bytes>,
    next: Next,
}

impl LogStream {
    pub(crate) fn new(log: &Log, with_history: bool) -> Self {
        let history = with_history
            .then(|| tail(log))
            .filter(|history| !history.is_empty());
        Self {
            history,
            next: Box::pin(next(log.subscribe())),
        }
    }

    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(history) = self.history.take() {
            return Poll::Ready(Some(history));
        }
        let (receiver, piece) = ready!(self.next.as_mut().poll(context));
        self.next = Box::pin(next(receiver));
        Poll::Ready(piece)
    }
}

async fn next(mut lines: Receiver<Arc<LogLine>>) -> (Receiver<Arc<LogLine>>, Option<Bytes>) {
    let piece = match lines.recv().await {
        Ok(line) => Some(text(&[line])),
        Err(RecvError::Lagged(missed)) => Some(Bytes::from(format!("[plimsoll] {missed} lines left out\n"))),
        Err(RecvError::Closed) => None,
    };
    (lines, piece)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use plimsoll_base::Bytes as Size;
    use plimsoll_launch::LogSource;

    use super::*;

    #[tokio::test]
    async fn a_stream_begins_with_what_was_and_goes_on_with_what_comes() {
        let log = Log::new("a", Size::kib(4));
        log.push(LogSource::Stdout, "one".to_owned());
        let mut all = LogStream::new(&log, true);
        let mut new = LogStream::new(&log, false);
        log.push(LogSource::Stderr, "two".to_owned());
        drop(log);
        for (stream, lines) in [
            (&mut all, vec!["[a] one\n", "[a] two\n"]),
            (&mut new, vec!["[a] two\n"]),
        ] {
            for line in lines {
                assert_eq!(poll_fn(|cx| stream.poll_next(cx)).await.unwrap(), line);
            }
            assert_eq!(poll_fn(|cx| stream.poll_next(cx)).await, None);
        }
    }
}
