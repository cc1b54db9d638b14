//! Reads an engine's response body, and drives the connection that delivers it.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};

use super::upstream::Wire;

/// An engine's answer that is being read: its body, and the connection that delivers it.
#[derive(Debug)]
pub struct StreamSource {
    pub wire: Wire,
    pub body: Incoming,
}

impl StreamSource {
    /// Polls the body first, because that makes the connection read on.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame);
        }
        self.wire.drive(context);
        Pin::new(&mut self.body).poll_frame(context)
    }

    /// True if all of an answer of known length has come.
    pub fn is_whole(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Waits for the first piece of the body; an empty one means an empty body.
    pub async fn first(&mut self) -> hyper::Result<Bytes> {
        poll_fn(|context| {
            loop {
                match ready!(self.poll(context)) {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data()
                            && !data.is_empty()
                        {
                            return Poll::Ready(Ok(data));
                        }
                    }
                    Some(Err(error)) => return Poll::Ready(Err(error)),
                    None => return Poll::Ready(Ok(Bytes::new())),
                }
            }
        })
        .await
    }

    /// Collects the whole body; `None` if it is longer than `most` bytes.
    pub async fn rest(&mut self, most: usize) -> hyper::Result<Option<Vec<u8>>> {
        let mut whole = Vec::new();
        while let Some(frame) = poll_fn(|context| self.poll(context)).await {
            if let Ok(data) = frame?.into_data() {
                // An engine's answer to a question of ours is input as well.
                if whole.len() + data.len() > most {
                    return Ok(None);
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok(Some(whole))
    }
}
