//! Tunnel for upgraded connections (websockets), which passes bytes unchanged between client and engine.

use std::cell::Cell;
use std::fmt;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};

use super::wire_state::LimitedStream;

/// Upgraded connection to an engine. The model is busy until the tunnel is dropped.
pub(crate) struct Tunnel {
    engine: LimitedStream,
    /// What the engine sent behind its answer.
    early: Bytes,
    finish: Cell<Option<Box<dyn FnOnce()>>>,
}

impl Tunnel {
    /// `finish` ends the request when the tunnel is dropped.
    pub(super) fn new(engine: LimitedStream, early: Bytes, finish: impl FnOnce() + 'static) -> Self {
        Self { engine, early, finish: Cell::new(Some(Box::new(finish))) }
    }

    /// Passes bytes on until one side has closed; `early` is what the client sent behind its request.
    pub(crate) async fn join(
        mut self,
        mut client: impl AsyncRead + AsyncWrite + Unpin,
        early: Bytes,
    ) -> std::io::Result<()> {
        self.engine.write_all(&early).await?;
        client.write_all(&self.early).await?;
        let (mut from_client, mut to_client) = split(client);
        let (mut from_engine, mut to_engine) = split(&mut self.engine);
        // A side that has closed takes no answer: websockets say goodbye in a frame.
        tokio::select! {
            copied = copy(&mut from_client, &mut to_engine) => copied,
            copied = copy(&mut from_engine, &mut to_client) => copied,
        }?;
        to_client.shutdown().await
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        if let Some(finish) = self.finish.take() {
            finish();
        }
    }
}

impl fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tunnel").finish_non_exhaustive()
    }
}
