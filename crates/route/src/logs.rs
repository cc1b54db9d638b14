//! Sends log lines of models as plain text: the most recent ones and, for a stream, each new one.

use plimsoll_base::counted;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_log::{Log, LogLine};

use super::feed::FeedListener;

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

/// Endless stream of a log's lines.
pub(crate) type LogStream = FeedListener<Arc<LogLine>>;

pub(crate) fn stream(log: &Log, with_history: bool) -> LogStream {
    let history = with_history.then(|| tail(log)).filter(|history| !history.is_empty());
    // A slow reader gets a note of the gap and goes on: a log with a hole is better than none.
    let missed = |count| Some(Bytes::from(format!("[plimsoll] {} omitted\n", counted(count, "line"))));
    FeedListener::new(history, log.subscribe(), |line| text(&[line]), missed)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use plimsoll_base::Bytes as Size;
    use plimsoll_log::LogSource;

    use super::*;

    #[tokio::test]
    async fn a_stream_begins_with_what_was_and_goes_on_with_what_comes() {
        let log = Log::new("a", Size::kib(4));
        log.push(LogSource::Stdout, "one".to_owned());
        let mut all = stream(&log, true);
        let mut new = stream(&log, false);
        log.push(LogSource::Stderr, "two".to_owned());
        drop(log);
        for (stream, lines) in [(&mut all, vec!["[a] one\n", "[a] two\n"]), (&mut new, vec!["[a] two\n"])] {
            for line in lines {
                assert_eq!(poll_fn(|cx| stream.poll_next(cx)).await.unwrap(), line);
            }
            assert_eq!(poll_fn(|cx| stream.poll_next(cx)).await, None);
        }
    }
}
