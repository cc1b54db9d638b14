//! Server-sent events of the fake llama-server: one chunk and one write for each event, as in the real one.

use std::io;

use memchr::memmem;
use tokio::time::sleep;

use super::answers::Generation;
use super::faults::{Fault, Script};
use super::http::Connection;
use super::serve::unless_gone;

pub(crate) async fn stream(
    script: &Script,
    connection: &mut Connection,
    generation: &Generation<'_>,
    keep_alive: bool,
) -> io::Result<()> {
    connection.begin_events(keep_alive).await?;
    if let Some(opening) = generation.opening() {
        connection.chunk(&opening).await?;
    }
    for number in 0..script.events {
        if !script.event_gap.is_zero() {
            unless_gone(connection, sleep(script.event_gap)).await?;
        }
        let event = generation.event(&content(number, script.event_bytes));
        die_if_scripted(script, connection, number, &event).await?;
        connection.chunk(&event).await?;
    }
    connection.chunk(&generation.closing()).await?;
    connection.chunk("").await
}

async fn die_if_scripted(
    script: &Script,
    connection: &mut Connection,
    number: u64,
    event: &str,
) -> io::Result<()> {
    match script.fail {
        Some(Fault::CrashMidStream { events, torn }) if events == number && script.strikes() => {
            if torn {
                connection.torn_chunk(event).await?;
            }
            std::process::abort()
        }
        _ => Ok(()),
    }
}

/// Starts with the number of the event, so that a reader sees loss and disorder; then letters up to the
/// length.
pub(crate) fn content(number: u64, bytes: usize) -> String {
    let mut text = format!("{number} ");
    let fill = bytes.saturating_sub(text.len());
    text.extend(std::iter::repeat_n('x', fill));
    text
}

/// True when the body asks for a stream. The pattern cannot occur inside a JSON string, whose quotes are
/// escaped.
pub(crate) fn is_wanted(body: &[u8]) -> bool {
    memmem::find_iter(body, b"\"stream\"").any(|at| {
        let rest = &body[at + b"\"stream\"".len()..];
        let rest = rest.trim_ascii_start();
        rest.strip_prefix(b":").is_some_and(|value| value.trim_ascii_start().starts_with(b"true"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_asked_for_by_the_key_and_not_by_the_prompt() {
        assert!(is_wanted(br#"{"stream" : true}"#));
        assert!(!is_wanted(br#"{"stream":false,"prompt":"\"stream\":true"}"#));
        assert!(!is_wanted(br#"{"prompt":"stream"}"#));
    }

    #[test]
    fn content_has_its_number_and_its_length() {
        assert_eq!(content(12, 6), "12 xxx");
        assert_eq!(content(12, 0), "12 ");
    }
}
